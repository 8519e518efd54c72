#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""serve, ls and pull when all goes well: what arrives is what was served, over both built-in transports."""
import fcntl
import os
import pty
import re
import signal
import stat
import struct
import subprocess
import termios

from gpusys_cli import DONE, FAILED, USAGE, GPUSYS, main
from serving import CHUNK, MIB, ServeTest, write_marked

TRANSPORTS = ("shm", "tcp")


class Trees(ServeTest):
    def make_tree(self):
        names = ["plain", "with blanks in it", "-leading-dash", "ünïcödé – 名前", "a/b/c/deep", "a.b", "a!",
                 "n" * 255,
                 "m" * 255, "d" * 255 + "/" + "e" * 255]
        for number, name in enumerate(names):
            path = self.served / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(1000 * number + 1))
            path.chmod((0o644, 0o600, 0o755, 0o444)[number % 4])
            os.utime(path, ns=(1, 1_000_000_000_000_000_000 + number * 1_234_567_891))
        (self.served / "empty file").touch()
        (self.served / "old").write_bytes(b"x")
        os.utime(self.served / "old", ns=(0, -1_500_000_000))
        (self.served / "empty folder" / "inner").mkdir(parents=True)
        (self.served / "big").write_bytes(os.urandom(MIB) * 3 + b"end")
        write_marked(self.served / "several chunks", 2 * CHUNK + 12345)
        (self.served / "exactly a chunk").write_bytes(os.urandom(CHUNK))
        (self.served / "read only folder").mkdir()
        (self.served / "read only folder" / "x").write_bytes(b"1")
        (self.served / "read only folder").chmod(0o555)
        os.utime(self.served / "a", ns=(7, 7_000_000_007))

    def test_round_trip(self):
        self.make_tree()
        server = self.serve(self.served)
        for transport in TRANSPORTS:
            for flags in ((), ("--no-verify",)):
                self.out = self.work / (transport + "".join(flags))
                out, err = self.pull(server.address, "--require", transport, *flags)
                self.assertIn(f"over {transport}, {'not verified' if flags else 'verified'}\n", out)
                self.assertIn(f"over {transport}: ", err)
                self.assertEqual(len(out.splitlines()), 1)
                self.assertEqual(len(err.splitlines()), 1)
                self.assert_same_tree()
        (self.served / "read only folder").chmod(0o755)

    def test_many_small_files(self):
        for number in range(3000):
            folder = self.served / str(number % 7)
            folder.mkdir(exist_ok=True)
            (folder / str(number)).write_bytes(b"%d" % number * (number % 50))
        server = self.serve(self.served)
        for transport in TRANSPORTS:
            self.out = self.work / transport
            self.pull(server.address, "--require", transport)
            self.assert_same_tree()

    def test_special_mode_bits_do_not_travel(self):
        (self.served / "x").write_bytes(b"x")
        (self.served / "x").chmod(0o6755)
        self.pull(self.serve(self.served).address)
        self.assertEqual(stat.S_IMODE((self.out / "served/x").stat().st_mode), 0o755)

    def test_a_single_file_is_served_under_its_name(self):
        (self.served / "one").write_bytes(b"content")
        self.pull(self.serve(self.served / "one").address)
        self.assertEqual((self.out / "one").read_bytes(), b"content")

    def test_names_choose(self):
        self.make_tree()
        server = self.serve(self.served)
        self.pull(server.address, "served/a", "served/plain")
        self.assertEqual(sorted(os.listdir(self.out / "served")), ["a", "plain"])
        self.assertTrue((self.out / "served/a/b/c/deep").is_file())
        _, err = self.pull(server.address, "served/nothing", code=FAILED)
        self.assertIn('nothing named "served/nothing"', err)
        (self.served / "read only folder").chmod(0o755)

    def test_quiet(self):
        (self.served / "x").write_bytes(b"x")
        self.assertEqual(self.pull(self.serve(self.served).address, "-q"), ("", ""))

    def test_what_is_here_already_stays(self):
        (self.served / "same").write_bytes(os.urandom(5000))
        (self.served / "other").write_bytes(os.urandom(5000))
        server = self.serve(self.served)
        self.pull(server.address)
        same, other = self.out / "served/same", self.out / "served/other"
        before, times = same.stat(), other.stat()
        with open(other, "r+b") as file:
            file.write(b"tampered")
        os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
        out, _ = self.pull(server.address)
        self.assertIn("1 file already here", out)
        self.assertEqual(same.stat().st_ino, before.st_ino)
        self.assert_same_tree()
        for flags, how in (((), "verified"), (("--no-verify",), "by length and time alone")):
            out, _ = self.pull(server.address, *flags)
            self.assertEqual(out, f"nothing to pull: 2 files already here, {how}\n")

    def test_a_newer_file_replaces_an_older_one(self):
        (self.served / "x").write_bytes(b"new content")
        (self.out / "served").mkdir(parents=True)
        (self.out / "served/x").write_bytes(b"old")
        self.pull(self.serve(self.served).address)
        self.assert_same_tree()

    def test_over_a_unix_socket(self):
        (self.served / "x").write_bytes(os.urandom(100000))
        server = self.serve(self.served, f"--listen=unix:{self.work}/socket")
        self.pull(server.address)
        self.assert_same_tree()


class Links(ServeTest):
    def make_snapshot(self):
        """As hubs lay their caches out: contents in blobs, a folder of links to them for every revision."""
        (self.served / "blobs").mkdir()
        snapshot = self.served / "snapshots" / "abc123"
        (snapshot / "sub").mkdir(parents=True)
        for number, name in enumerate(("config.json", "model.safetensors", "sub/tokenizer.json")):
            (self.served / "blobs" / str(number)).write_bytes(os.urandom(1000 + number))
            depth = "../" * (2 + name.count("/"))
            (snapshot / name).symlink_to(f"{depth}blobs/{number}")
        return snapshot

    def test_a_link_is_refused_by_name(self):
        snapshot = self.make_snapshot()
        _, err = self.expect(FAILED, "serve", str(snapshot), "--listen", "127.0.0.1:0",
                             env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.assertRegex(err, r"^gpusys: .*(config\.json|model\.safetensors|tokenizer\.json)")
        self.assertIn("--follow", err)

    def test_a_snapshot_is_followed(self):
        snapshot = self.make_snapshot()
        server = self.serve(snapshot, "--follow")
        for transport in TRANSPORTS:
            self.out = self.work / transport
            self.pull(server.address, "--require", transport)
            for number, name in enumerate(("config.json", "model.safetensors", "sub/tokenizer.json")):
                arrived = self.out / "abc123" / name
                self.assertFalse(arrived.is_symlink())
                self.assertEqual(arrived.read_bytes(), (self.served / "blobs" / str(number)).read_bytes())

    def test_links_in_the_output_directory_are_not_followed(self):
        (self.served / "sub").mkdir()
        (self.served / "sub/x").write_bytes(b"secret")
        (self.served / "y").write_bytes(b"secret too")
        outside = self.work / "outside"
        outside.mkdir()
        (outside / "target").write_bytes(b"untouched")
        server = self.serve(self.served)
        (self.out / "served").mkdir(parents=True)
        (self.out / "served/sub").symlink_to(outside)
        _, err = self.pull(server.address, code=FAILED)
        self.assertIn("served/sub", err)
        self.assertEqual(os.listdir(outside), ["target"])
        (self.out / "served/sub").unlink()
        (self.out / "served/y").symlink_to(outside / "target")
        (self.out / "served/y.part").symlink_to(outside / "target")
        _, err = self.pull(server.address, code=FAILED)
        self.assertIn("served/y", err)
        (self.out / "served/y.part").unlink()
        os.link(outside / "target", self.out / "served/y.part")
        self.pull(server.address)
        self.assertEqual((outside / "target").read_bytes(), b"untouched")
        self.assert_same_tree()


class Listing(ServeTest):
    def ls(self, server, *words, **more):
        return self.expect(DONE, "ls", server.address, *words, env={"XDG_RUNTIME_DIR": str(self.runtime)}, **more)[0]

    def test_table_and_json(self):
        (self.served / "x").write_bytes(b"12345")
        (self.served / "x").chmod(0o640)
        os.utime(self.served / "x", ns=(0, 1_700_000_000_000_000_001))
        (self.served / "sub").mkdir()
        server = self.serve(self.served)
        lines = self.ls(server).splitlines()
        self.assertEqual(lines[0].split(), ["NAME", "SIZE", "KIND", "MODIFIED", "ACCESS"])
        self.assertEqual(len(lines), 4)
        self.assertRegex("\n".join(lines), r"served/x +5 B +file +2023-11-1\d \d\d:\d\d:\d\d +r")
        document = self.json("ls", server.address, env={"XDG_RUNTIME_DIR": str(self.runtime)})
        regions = {region["name"]: region for region in document["regions"]}
        self.assertEqual(sorted(regions), ["served", "served/sub", "served/x"])
        self.assertEqual(regions["served/x"], {
            "name": "served/x", "bytes": 5, "kind": "file", "place": "file", "access": "r", "mode": 0o640,
            "mtime_ns": 1_700_000_000_000_000_001})
        self.assertEqual(regions["served/sub"]["kind"], "directory")

    def test_patterns(self):
        for name in ("a.bin", "b.bin", "b.txt"):
            (self.served / name).touch()
        server = self.serve(self.served)
        self.assertEqual(len(self.ls(server, "*.bin").splitlines()), 3)
        self.assertEqual(len(self.ls(server, "served/b").splitlines()), 3)
        self.expect(FAILED, "ls", server.address, "zzz", env={"XDG_RUNTIME_DIR": str(self.runtime)})

    def test_nothing_but_an_arena(self):
        server = self.serve("--arena", "1M")
        self.assertIn("arenas up to 1.00 MiB", server.ready)
        document = self.json("ls", server.address, env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.assertEqual((document["regions"], document["arena_bytes"]), ([], MIB))
        _, err = self.pull(server.address, code=FAILED)
        self.assertIn("no files", err)


class Ending(ServeTest):
    def test_serve_stops_cleanly_on_both_signals(self):
        (self.served / "x").write_bytes(b"x")
        for number in (signal.SIGINT, signal.SIGTERM):
            server = self.serve(self.served)
            self.pull(server.address)
            code, out, err = server.end(number)
            self.assertEqual((code, err), (DONE, ""))
            self.assertRegex(out, r"^stopped after .*: 1 clients, 0 refused, ")
            self.assertEqual([path for path in self.runtime.rglob("*") if not path.is_dir()], [])

    def test_a_taken_port(self):
        server = self.serve("--arena", "1M")
        _, err = self.expect(FAILED, "serve", "--arena", "1M", "--listen", server.address,
                             env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.assertIn(server.address, err)
        self.assertIn("in use", err)

    def test_usage(self):
        for words in (("serve",), ("pull",), ("pull", "x"), ("ls",), ("ls", "a", "--require", "x"),
                      ("pull", "x", "-o", "y", "--require", "any thing"), ("serve", "--arena", "much")):
            _, err = self.expect(USAGE, *words)
            self.assertRegex(err, "^gpusys: ")

    def test_nobody_listens(self):
        server = self.serve("--arena", "1M")
        server.end()
        for words in (("ls", server.address), ("pull", server.address, "-o", str(self.out))):
            _, err = self.expect(FAILED, *words, env={"XDG_RUNTIME_DIR": str(self.runtime)})
            self.assertIn(server.address, err)
        self.assertFalse(self.out.exists())

    def test_what_is_not_there_cannot_be_served(self):
        _, err = self.expect(FAILED, "serve", str(self.work / "missing"), "--listen", "127.0.0.1:0",
                             env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.assertIn("missing", err)

    def test_a_hundred_clients_at_once(self):
        (self.served / "x").write_bytes(os.urandom(MIB))
        server = self.serve(self.served)
        children = [subprocess.Popen([GPUSYS, "pull", server.address, "-q", "-o", str(self.work / f"out{n}")],
                                     env=self.environment, stderr=subprocess.PIPE) for n in range(100)]
        for number, child in enumerate(children):
            err = child.communicate(timeout=120)[1]
            self.assertEqual(child.returncode, DONE, err)
            self.assertEqual((self.work / f"out{number}/served/x").read_bytes(), (self.served / "x").read_bytes())
        self.assertRegex(server.end()[1], ": 100 clients, 0 refused")


class Terminal(ServeTest):
    def run_on_terminal(self, columns, *words):
        """What the command writes on a terminal that is so wide."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        child = subprocess.Popen([GPUSYS, *words], env={**self.environment, "TERM": "xterm"}, stdin=subprocess.DEVNULL,
                                 stdout=theirs, stderr=theirs)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:  # EIO: the other end is closed
            pass
        os.close(ours)
        self.assertEqual(child.wait(timeout=60), DONE, text)
        return text.decode()

    def test_a_line_that_is_redrawn_and_taken_away(self):
        write_marked(self.served / "x", 24 * CHUNK)
        server = self.serve(self.served)
        for columns in (50, 120):
            text = self.run_on_terminal(columns, "pull", server.address, "-o", str(self.work / str(columns)),
                                        "--require", "tcp")
            self.assertIn("\r\033[Kpulled 384 MiB in 1 file", text)
            self.assertRegex(text, r"% .* of 384 MiB +[0-9.]+ [GMk]?B/s ")
            for drawn in re.findall(r"\r([^\r\n]+)\033\[K", text):
                self.assertLess(len(drawn), columns)
        self.assertEqual(self.run_on_terminal(80, "pull", server.address, "-o", str(self.work / "q"), "-q"), "")


if __name__ == "__main__":
    main()
