#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""serve and pull when something breaks: death on either side, spoilt bytes, full disks, files that change, doors."""
import os
import shutil
import signal
import subprocess
import time
import unittest

from gpusys_cli import DONE, FAILED, GPUSYS, NOT_HERE, main
from serving import CHUNK, MIB, PATIENCE_S, ServeTest, stall_after, wait_until, write_marked

NOBODY = "65534"


class Deaths(ServeTest):
    def setUp(self):
        super().setUp()
        self.chunks = 12
        write_marked(self.served / "x", self.chunks * CHUNK)
        (self.served / "a").write_bytes(b"small")

    def stalled_pull(self, server, limit):
        proxy = self.proxy(server, stall_after(limit))
        process = self.start_pull(proxy.address, "--require", "tcp", "--cookie", self.cookie(server))
        self.assertTrue(proxy.stalled.wait(PATIENCE_S))
        journal = self.out / "served/x.part.journal"
        wait_until(lambda: journal.exists() and journal.stat().st_size >= 48 + 2 * 16, "two chunks on record")
        return proxy, process

    def assert_resumes(self):
        out, _ = self.pull(self.serve(self.served).address)
        self.assertIn("here from before", out)
        self.assert_same_tree()
        self.assertEqual(self.parts(), [])

    def test_server_killed(self):
        server = self.serve(self.served)
        proxy, process = self.stalled_pull(server, 4 * CHUNK)
        server.end(signal.SIGKILL)
        proxy.close()
        start = time.monotonic()
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(process.returncode, FAILED)
        self.assertIn("the peer is gone", err)
        self.assertIn("arrived", err)
        self.assertIn("run the same command again", err)
        self.assertFalse((self.out / "served/x").exists())
        self.assert_resumes()

    def test_a_journal_that_promises_too_much(self):
        """After a loss of power the part file may be shorter than what is on record."""
        server = self.serve(self.served)
        proxy, process = self.stalled_pull(server, 4 * CHUNK)
        process.kill()
        process.wait()
        proxy.close()
        os.truncate(self.out / "served/x.part", 100)
        self.pull(server.address, "--no-verify")
        self.assert_same_tree()

    def test_server_killed_over_shm(self):
        write_marked(self.served / "x", 64 * CHUNK)
        server = self.serve(self.served)
        process = self.start_pull(server.address, "--require", "shm")
        wait_until(lambda: (self.out / "served/x.part.journal").exists(), "the journal")
        process.send_signal(signal.SIGSTOP)
        server.end(signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, FAILED, err)
        self.assertIn("run the same command again", err)
        self.assertFalse((self.out / "served/x").exists())
        self.pull(self.serve(self.served).address)
        self.assert_same_tree()

    def test_client_killed(self):
        server = self.serve(self.served)
        _, process = self.stalled_pull(server, 4 * CHUNK)
        process.kill()
        process.wait(timeout=PATIENCE_S)
        self.assertFalse((self.out / "served/x").exists())
        out, _ = self.pull(server.address)
        self.assertIn("here from before", out)
        self.assert_same_tree()

    def test_client_interrupted(self):
        server = self.serve(self.served)
        _, process = self.stalled_pull(server, 4 * CHUNK)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, FAILED)
        self.assertIn("stopped by a signal", err)
        self.assertIn("run the same command again", err)
        self.assertEqual(self.parts(), ["x.part", "x.part.journal"])
        self.assert_resumes()

    def test_peer_that_stops_answering(self):
        server = self.serve(self.served)
        proxy = self.proxy(server, stall_after(2 * CHUNK))
        process = self.start_pull(proxy.address, "--require", "tcp", "--cookie", self.cookie(server),
                                  "--timeout", "1s")
        self.assertTrue(proxy.stalled.wait(PATIENCE_S))
        server.process.send_signal(signal.SIGSTOP)
        _, err = process.communicate(timeout=PATIENCE_S)
        server.process.send_signal(signal.SIGCONT)
        self.assertEqual(process.returncode, FAILED)
        self.assertIn("stopped answering", err)

    def interrupt_at(self, chunks):
        server = self.serve(self.served)
        _, process = self.stalled_pull(server, chunks * CHUNK)
        process.kill()
        process.wait(timeout=PATIENCE_S)
        return server

    def test_a_spoilt_part_is_found_and_mended(self):
        server = self.interrupt_at(5)
        with open(self.out / "served/x.part", "r+b") as part:
            part.seek(5 * MIB)
            part.write(b"spoilt")
        out, _ = self.pull(server.address)
        self.assertIn("here from before", out)
        self.assert_same_tree()

    def test_a_shortened_part_is_found_and_mended(self):
        server = self.interrupt_at(5)
        os.truncate(self.out / "served/x.part", CHUNK + 5)
        self.pull(server.address)
        self.assert_same_tree()

    def test_a_journal_of_an_older_file_is_not_believed(self):
        server = self.interrupt_at(5)
        server.end()
        write_marked(self.served / "x", self.chunks * CHUNK - 1)
        out, _ = self.pull(self.serve(self.served).address, "--no-verify")
        self.assertNotIn("here from before", out)
        self.assert_same_tree()

    def test_a_missing_part_with_a_journal(self):
        server = self.interrupt_at(5)
        (self.out / "served/x.part").unlink()
        out, _ = self.pull(server.address, "--no-verify")
        self.assertNotIn("here from before", out)
        self.assert_same_tree()

    def test_unverified_resumes_too(self):
        server = self.interrupt_at(5)
        out, _ = self.pull(server.address, "--no-verify")
        self.assertIn("here from before", out)
        self.assert_same_tree()


class Spoilt(ServeTest):
    def setUp(self):
        super().setUp()
        self.times = 0
        (self.served / "x").write_bytes(b"A" * (2 * MIB))

    def spoiler(self, times):
        def spoil(piece, _offset):
            if b"A" * 1000 in piece and self.times < times:
                self.times += 1
                return piece.replace(b"A" * 1000, b"A" * 999 + b"B", 1)
            return piece
        return spoil

    def pull_through(self, times, *words, code):
        server = self.serve(self.served)
        proxy = self.proxy(server, self.spoiler(times))
        return self.pull(proxy.address, "--require", "tcp", "--cookie", self.cookie(server), *words, code=code)

    def test_once_is_mended(self):
        self.pull_through(1, code=DONE)
        self.assertEqual(self.times, 1)
        self.assert_same_tree()

    def test_always_is_an_error_and_leaves_no_file(self):
        _, err = self.pull_through(1000000, code=FAILED)
        self.assertIn("served/x: chunk 0 differs from the peer's checksum", err)
        self.assertEqual(os.listdir(self.out / "served"), [])

    def test_unverified_does_not_see_it(self):
        self.pull_through(1, "--no-verify", code=DONE)
        self.assertEqual((self.out / "served/x").read_bytes().count(b"B"), 1)


class Full(ServeTest):
    def setUp(self):
        super().setUp()
        self.out.mkdir()
        mount = shutil.which("mount") or "/bin/mount"
        if subprocess.run([mount, "-t", "tmpfs", "-o", "size=40m", "none", self.out],
                          stderr=subprocess.DEVNULL).returncode:
            self.skipTest("cannot mount a small file system")
        self.addCleanup(subprocess.run, ["umount", self.out], check=True)

    def test_full_disk(self):
        write_marked(self.served / "x", 4 * CHUNK)
        server = self.serve(self.served)
        for transport in ("shm", "tcp"):
            for flags in ((), ("--no-verify",)):
                _, err = self.pull(server.address, "--require", transport, *flags, code=FAILED)
                self.assertIn("the disk is full", err)
                self.assertRegex(err, r"\n  needed  \d.* more\n  free    ")
                self.assertEqual(self.parts(), ["x.part", "x.part.journal"])
                self.assertFalse((self.out / "served/x").exists())
        subprocess.run(["mount", "-o", "remount,size=80m", self.out], check=True)
        out, _ = self.pull(server.address)
        self.assertIn("32.0 MiB here from before", out)
        self.assert_same_tree()


class Changes(ServeTest):
    def setUp(self):
        super().setUp()
        self.file = self.served / "x"
        write_marked(self.file, 2 * CHUNK)

    def assert_refused(self, change):
        server = self.serve(self.served)
        change()
        for transport in ("shm", "tcp"):
            for flags in ((), ("--no-verify",)):
                _, err = self.pull(server.address, "--require", transport, *flags, code=FAILED)
                self.assertIn("changed while", err)
                self.assertIn("served/x", err)
                self.assertFalse((self.out / "served/x").exists())
        self.assertEqual(server.end()[0], DONE)

    def test_truncated(self):
        self.assert_refused(lambda: os.truncate(self.file, CHUNK))

    def test_truncated_to_nothing(self):
        self.assert_refused(lambda: os.truncate(self.file, 0))

    def test_rewritten(self):
        self.assert_refused(lambda: self.file.write_bytes(b"x" * 2 * CHUNK))

    def test_replaced_is_still_the_old_file_or_refused(self):
        before = self.file.read_bytes()
        server = self.serve(self.served)
        other = self.work / "other"
        other.write_bytes(b"y" * 2 * CHUNK)
        os.replace(other, self.file)
        code, _, err = self.run_gpusys("pull", server.address, "-o", str(self.out),
                                       env={"XDG_RUNTIME_DIR": str(self.runtime)})
        if code == DONE:
            self.assertEqual((self.out / "served/x").read_bytes(), before)
        else:
            self.assertIn("changed while", err)
            self.assertFalse((self.out / "served/x").exists())

    def test_the_others_are_served_still(self):
        (self.served / "y").write_bytes(b"unchanged")
        server = self.serve(self.served)
        os.truncate(self.file, 5)
        self.pull(server.address, "served/y")
        self.assertEqual((self.out / "served/y").read_bytes(), b"unchanged")


class Doors(ServeTest):
    def setUp(self):
        super().setUp()
        (self.served / "x").write_bytes(b"x")

    def test_verbs_is_refused(self):
        code, _, err = self.run_gpusys("pull", self.serve(self.served).address, "-o", str(self.out), "--require",
                                       "verbs", env={"XDG_RUNTIME_DIR": str(self.runtime),
                                                     "GPUSYS_LIBIBVERBS": "/nonexistent"})
        self.assertEqual(code, NOT_HERE)
        self.assertIn("verbs", err)
        self.assertFalse((self.out / "served").exists())

    def test_no_cookie(self):
        server = self.serve(self.served)
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        _, err = self.pull(server.address, code=FAILED, env={"XDG_RUNTIME_DIR": str(elsewhere)})
        self.assertIn("cookie", err)
        self.pull(server.address, "--cookie", self.cookie(server), env={"XDG_RUNTIME_DIR": str(elsewhere)})

    def test_a_wrong_cookie(self):
        server = self.serve(self.served)
        wrong = self.work / "wrong"
        wrong.write_bytes(bytes(os.path.getsize(self.cookie(server))))
        wrong.chmod(0o600)
        _, err = self.pull(server.address, "--cookie", wrong, code=FAILED)
        self.assertIn("cookie", err)
        self.assertRegex(server.end()[1], "0 clients, [1-9][0-9]* refused")

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root to become another user")
    def test_another_user(self):
        self.work.chmod(0o755)
        command = shutil.copy(GPUSYS, self.work / "gpusys")
        server = self.serve(self.served)
        other = self.work / "other"
        other.mkdir()
        os.chown(other, int(NOBODY), int(NOBODY))
        other.chmod(0o700)
        self.runtime.chmod(0o711)
        for more in ((), ("--cookie", self.cookie(server))):
            done = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", command, "ls",
                                   server.address, *more], env={**self.environment, "XDG_RUNTIME_DIR": str(other)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stdout), (FAILED, ""), done.stderr)
            self.assertIn("cookie", done.stderr)

    def test_beyond_loopback_wants_insecure(self):
        _, err = self.expect(FAILED, "serve", str(self.served), "--listen", "0.0.0.0:0",
                             env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.assertIn("--insecure", err)
        server = self.serve(self.served, "--listen", "0.0.0.0:0", "--insecure")
        self.assertIn("for anybody who reaches the port", server.ready)
        self.pull(f"127.0.0.1:{server.port}", env={"XDG_RUNTIME_DIR": str(self.work)})

    def test_two_pulls_of_one_file(self):
        write_marked(self.served / "x", 4 * CHUNK)
        server = self.serve(self.served)
        proxy = self.proxy(server, stall_after(CHUNK + MIB))
        first = self.start_pull(proxy.address, "--require", "tcp", "--cookie", self.cookie(server))
        wait_until(lambda: (self.out / "served/x.part.journal").exists(), "the first pull's journal")
        _, err = self.pull(server.address, code=FAILED)
        self.assertIn("another pull is writing the same file", err)
        first.kill()
        first.wait(timeout=PATIENCE_S)


if __name__ == "__main__":
    main()
