# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests of the command share: run it, look at its exit code and what it said."""
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import unittest

GPUSYS = os.environ.get("GPUSYS", "gpusys")
# The last one leads to the stand-ins of vendor libraries, for which tests ask by name.
CLEARED = ("NO_COLOR", "TERM", "XDG_RUNTIME_DIR", "GPUSYS_RUNTIME_DIR", "LD_LIBRARY_PATH")
DONE, FAILED, USAGE, NOT_HERE = 0, 1, 2, 77


class CommandTest(unittest.TestCase):
    """A test case whose run() gives (exit code, stdout, stderr)."""

    def run_gpusys(self, *words, env=None, timeout=60, **more):
        environment = {k: v for k, v in os.environ.items() if k not in CLEARED}
        environment.update(env or {})
        done = subprocess.run([GPUSYS, *words], env=environment, timeout=timeout, text=True,
                              stdin=subprocess.DEVNULL, stdout=more.pop("stdout", subprocess.PIPE),
                              stderr=subprocess.PIPE, **more)
        return done.returncode, done.stdout, done.stderr

    def expect(self, code, *words, **more):
        """Run, check the exit code, and give (stdout, stderr)."""
        got, out, err = self.run_gpusys(*words, **more)
        self.assertEqual(got, code, f"gpusys {' '.join(words)}\n--- stdout\n{out}\n--- stderr\n{err}")
        return out, err

    def json(self, *words, code=DONE, schema=1, **more):
        out, _ = self.expect(code, *words, "--json", **more)
        document = json.loads(out)
        self.assertEqual(document["schema"], schema)
        return document

    def on_terminal(self, *words, env=None, columns=0):
        """What the command writes on stdout and stderr when both are a terminal (of no known width)."""
        environment = {k: v for k, v in os.environ.items() if k not in CLEARED}
        environment.update({"TERM": "xterm", **(env or {})})
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 0, columns, 0, 0))
        child = subprocess.Popen([GPUSYS, *words], env=environment, stdin=subprocess.DEVNULL, stdout=theirs,
                                 stderr=theirs)
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not piece:
                break
            text += piece
        os.close(ours)
        child.wait(timeout=60)
        return text.decode()


def main():
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
