#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""pull and ls against a server that means harm: written here, speaking gpusys/1 (docs/protocol.md) just well enough."""
import os
import socket
import struct
import threading

from gpusys_cli import DONE, FAILED, main
from serving import ServeTest

HELLO, WELCOME, READY, GO, LIST, REGIONS, SUM, SUMS = 1, 2, 4, 5, 6, 7, 8, 9
PING, PONG, ATTACH, ATTACHED = 18, 19, 21, 22
FILE, DIRECTORY = 1, 2
MAGIC = b"GPUSYS/1"
CONTENT = b"what the server says is in it"


def text(value):
    return struct.pack("<H", len(value)) + value


def entry(number, name, kind=FILE, length=len(CONTENT), mode=0o644):
    return struct.pack("<IBBBxQqI", number, kind, 1, 1, length, 1_700_000_000_000_000_000, mode) + text(name)


class HostileServer:
    """Serves the given entries, whatever they are; every file's content is CONTENT."""

    def __init__(self, cookie, entries, total=None):
        self.cookie, self.entries = cookie, entries
        self.total = len(entries) if total is None else total
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        with conn, conn.makefile("rb") as stream:
            try:
                if stream.read(8) == MAGIC:
                    self.answer_all(conn, stream)
            except (OSError, struct.error):
                pass

    def answer_all(self, conn, stream):
        while head := stream.read(16):
            size, kind, _, serial = struct.unpack("<IHHQ", head)
            body = stream.read(size)
            kind, body = self.answer(kind, body)
            conn.sendall(struct.pack("<IHHQ", len(body), kind, 0, serial) + body)
            if kind == ATTACHED:
                self.answer_reads(conn, stream)

    def answer(self, kind, body):
        if kind == HELLO:
            welcome = struct.pack("<IIQ", 1, 0, 0) + self.cookie[16:] + bytes(16) + b"p" * 16
            return WELCOME, welcome + struct.pack("<QQIIB", self.total, 0, 1 << 20, 64, 0) + text(b"")
        if kind == LIST:
            first, _ = struct.unpack("<QI", body)
            page = self.entries[first:first + 100]
            return REGIONS, struct.pack("<QQI", self.total, first, len(page)) + b"".join(page)
        if kind == SUM:
            region, first, count = struct.unpack("<IQI", body)
            return SUMS, struct.pack("<IQI", region, first, count) + bytes(16 * count)
        if kind == ATTACH:
            return ATTACHED, b"p" * 16
        return {READY: GO, PING: PONG}[kind], b""

    def answer_reads(self, conn, stream):
        while request := stream.read(24):
            _, _, offset, length, tag = struct.unpack("<IIQII", request)
            bytes_read = (CONTENT[offset:] + bytes(length))[:length]
            conn.sendall(struct.pack("<BBHII", 0, 0, 0, length, tag) + bytes_read)


class Hostile(ServeTest):
    def setUp(self):
        super().setUp()
        self.out = self.work / "deep" / "out"
        self.out.parent.mkdir()
        self.secret = os.urandom(32)
        self.cookie_file = self.work / "cookie"
        self.cookie_file.write_bytes(self.secret)
        self.cookie_file.chmod(0o600)

    def against(self, entries, *words, code=FAILED, command="pull", **more):
        server = HostileServer(self.secret, entries, **more)
        self.addCleanup(server.listener.close)
        output = ("-o", str(self.out)) if command == "pull" else ()
        before = {str(path) for path in self.work.rglob("*")}
        out, err = self.expect(code, command, server.address, *output, "--require", "tcp", "--cookie",
                               str(self.cookie_file), "--timeout", "20s", *words,
                               env={"XDG_RUNTIME_DIR": str(self.runtime)})
        for byte in map(chr, [*range(10), *range(11, 32), 127]):
            self.assertNotIn(byte, out + err)
        return {str(path) for path in self.work.rglob("*")} - before, err

    def assert_refused(self, *entries, code=FAILED, **more):
        written, err = self.against(list(entries), code=code, **more)
        self.assertEqual(written, set())
        self.assertRegex(err, r"(?m)^gpusys: ")
        return err

    def test_the_server_works_with_decent_names(self):
        written, _ = self.against([entry(0, b"d", DIRECTORY, 0, 0o755), entry(1, b"d/x")], "--no-verify", code=DONE)
        self.assertEqual({os.path.relpath(name, self.out) for name in written}, {".", "d", "d/x"})
        self.assertEqual((self.out / "d/x").read_bytes(), CONTENT)

    def test_names_that_lead_elsewhere(self):
        for name in (b"../x", b"a/../../x", b"/etc/x", b"..", b".", b"a/./b", b"a//b", b"a/", b"", b"/", b"a/.."):
            self.assert_refused(entry(0, b"decent"), entry(1, name))
            self.assert_refused(entry(0, b"decent"), entry(1, name, DIRECTORY, 0))

    def test_tables_and_lengths_beyond_reason(self):
        self.assertIn("malformed", self.assert_refused(entry(0, b"x"), total=1 << 30))
        self.assertIn("bytes", self.assert_refused(entry(0, b"x", FILE, 1 << 58)))

    def test_names_that_steer_a_terminal(self):
        for name in (b"a\x1b[2Jb", b"a\nb", b"a\rb", b"\x07", b"a\x7fb", b"a\x00b", b"\xff\xfe", b"\xc0\xae\xc0\xae/x",
                     "\u009b2J".encode()):
            self.assert_refused(entry(0, b"decent"), entry(1, name))
            self.against([entry(0, name)], command="ls")

    def test_names_that_are_too_long(self):
        for name in (b"n" * 256, b"a/" * 2047 + b"aa" * 3):
            self.assert_refused(entry(0, b"decent"), entry(1, name))

    def test_names_that_collide(self):
        for one, other in ((b"a", b"a"), (b"a", b"a/b"), (b"a", b"a.part"), (b"a", b"a.part.journal"),
                           (b"a", b"a.part/b"), (b"d/a", b"d/a.part")):
            self.assert_refused(entry(0, one), entry(1, other))
            self.assert_refused(entry(0, other), entry(1, one))
        self.assert_refused(entry(0, b"a", DIRECTORY, 0), entry(1, b"a"))

    def test_lengths_that_cannot_be(self):
        for length in (1 << 63, (1 << 64) - 1):
            self.assert_refused(entry(0, b"a", length=length))

    def test_numbers_of_regions_that_cannot_be(self):
        for total in (1 << 32, 1 << 62):
            self.assert_refused(entry(0, b"a"), total=total)

    def test_checksums_that_do_not_match(self):
        _, err = self.against([entry(0, b"a")])
        self.assertIn("a: chunk 0 differs from the peer's checksum", err)
        self.assertEqual(os.listdir(self.out), [])

    def test_a_server_without_the_cookie(self):
        server = HostileServer(os.urandom(32), [entry(0, b"a")])
        self.addCleanup(server.listener.close)
        _, err = self.expect(FAILED, "pull", server.address, "-o", str(self.out), "--cookie", str(self.cookie_file),
                             env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.assertIn("cookie", err)
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    main()
