#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Odd requests and odd surroundings: nothing is lost, and the terminal is not steered."""
import os
import unittest

from gpusys_cli import FAILED, USAGE
from serving import ServeTest


class Odd(ServeTest):
    def test_words_of_the_user_do_not_steer_the_terminal(self):
        for words in (["\x1b[31mx"], ["ls", "a", "--\x1b[31m"], ["bench", "--sizes", "\x1b[31m", "--local"]):
            _, err = self.expect(USAGE, *words)
            self.assertNotIn("\x1b", err)
            self.assertIn("\\x1B[31m".lower(), err.lower())

    def test_a_timeout_of_nothing_is_refused(self):
        for command in ("ls", "pull", "bench"):
            _, err = self.expect(USAGE, command, "127.0.0.1:1", "--timeout", "0")
            self.assertIn("--timeout wants more than 0", err)

    def test_a_long_path_leaves_room_for_the_reason(self):
        server = self.serve(self.served)
        _, err = self.expect(FAILED, "pull", server.address, "-o", "x" * 5000, env=self.environment)
        self.assertIn("File name too long", err)

    def test_nothing_to_measure_is_a_failure(self):
        server = self.serve("--arena", "1M")
        _, err = self.expect(FAILED, "bench", server.address, "--sizes", "1G", env=self.environment)
        self.assertIn("nothing was measured", err)

    def test_a_cookie_replaces_no_other_file(self):
        precious = self.work / "note.txt"
        precious.write_text("precious")
        _, err = self.expect(FAILED, "serve", str(self.served), "--listen", "127.0.0.1:0", "--cookie", str(precious),
                             env=self.environment)
        self.assertIn("something else lies there", err)
        beside = self.work / "s.cookie"
        beside.write_text("precious")
        self.expect(FAILED, "serve", str(self.served), "--listen", f"unix:{self.work}/s", env=self.environment)
        self.assertEqual([precious.read_text(), beside.read_text()], ["precious", "precious"])

    def test_a_cookie_of_another_server_is_not_removed(self):
        path = self.work / "cookie"
        server = self.serve(self.served, "--cookie", path)
        self.assertEqual(path.stat().st_size, 32)
        path.write_bytes(bytes(32))
        server.end()
        self.assertEqual(path.read_bytes(), bytes(32))

    def test_names_of_this_host_find_its_server(self):
        server = self.serve(self.served)
        for host in ("localhost", "[::ffff:127.0.0.1]"):
            out, _ = self.expect(0, "ls", f"{host}:{server.port}", "-v", env=self.environment)
            self.assertIn("served", out)

    def test_a_relative_runtime_directory_is_refused(self):
        _, err = self.expect(FAILED, "serve", str(self.served), "--listen", "127.0.0.1:0",
                             env={"GPUSYS_RUNTIME_DIR": "rt"})
        self.assertIn("no absolute path", err)

    def test_times_out_of_range(self):
        late = self.served / "late"
        late.write_text("x")
        os.utime(late, ns=(0, 2**63 - 1))
        kept = late.stat().st_mtime_ns
        server = self.serve(self.served)
        self.expect(0, "pull", server.address, "-o", str(self.out), env=self.environment)
        self.assertEqual((self.out / "served" / "late").stat().st_mtime_ns, kept)


if __name__ == "__main__":
    unittest.main()
