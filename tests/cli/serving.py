# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests of serve, ls and pull share: a server, a proxy that spoils its answers, trees of files."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from gpusys_cli import CLEARED, DONE, GPUSYS, CommandTest

MIB = 1 << 20
CHUNK = 16 * MIB
PATIENCE_S = 30  # how long to wait for what should happen at once


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.002)


def write_marked(path, size):
    """A file that is mostly a hole, and yet different in every chunk and at its end."""
    with open(path, "wb") as file:
        file.truncate(size)
        for offset in range(0, size - 16, MIB):
            file.seek(offset)
            file.write(b"%016d" % (offset + size))
        file.seek(size - 1)
        file.write(b"$")


def tree_of(folder):
    """Everything below a folder: {name: (mode, mtime or None for a folder's child count, content)}."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(folder))] = (info.st_mode, info.st_mtime_ns, content)
    return found


class Server:
    """gpusys serve as a child process."""

    def __init__(self, environment, *words):
        self.process = subprocess.Popen([GPUSYS, "serve", *map(str, words)], env=environment, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.ready = self.process.stdout.readline()
        found = re.match(r"ready at (\S+): ", self.ready)
        if not found:
            raise AssertionError(f"no ready line: {self.ready!r}, stderr {self.process.communicate()[1]!r}")
        self.address = found.group(1)

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def end(self, number=signal.SIGTERM):
        """Send a signal; (exit code, stdout, stderr) of the rest."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


class Proxy:
    """A TCP proxy in front of a server. `spoil(piece, offset)` gives what to pass on of the server's bytes on one
    connection, or None to pass on nothing more."""

    def __init__(self, port, spoil):
        self.port, self.spoil, self.stalled = port, spoil, threading.Event()
        self.sockets = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            self.sockets += [client, server]
            threading.Thread(target=self.forward, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, self.spoil), daemon=True).start()

    def forward(self, source, sink, spoil):
        offset = 0
        try:
            while piece := source.recv(256 * 1024):
                passed = spoil(piece, offset) if spoil else piece
                if passed is None:
                    self.stalled.set()
                    return
                offset += len(piece)
                sink.sendall(passed)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        for end in [self.listener, *self.sockets]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


def stall_after(limit):
    """Pass on `limit` bytes of every connection, then nothing."""
    return lambda piece, offset: piece if offset + len(piece) <= limit else None


class ServeTest(CommandTest):
    """A test with a folder to serve from, one to pull into, and a runtime directory of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpusys-test-")
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.served, self.out, self.runtime = self.work / "served", self.work / "out", self.work / "runtime"
        self.served.mkdir()
        self.runtime.mkdir(mode=0o700)
        self.environment = {k: v for k, v in os.environ.items() if k not in CLEARED}
        self.environment["XDG_RUNTIME_DIR"] = str(self.runtime)

    def serve(self, *words):
        if not any(str(word).startswith("--listen") for word in words):
            words = (*words, "--listen", "127.0.0.1:0")
        server = Server(self.environment, *words)
        self.addCleanup(server.end, signal.SIGKILL)
        return server

    def proxy(self, server, spoil):
        proxy = Proxy(server.port, spoil)
        self.addCleanup(proxy.close)
        return proxy

    def cookie(self, server):
        return str(next(self.runtime.rglob(f"*{server.port}*cookie*")))

    def pull(self, address, *words, code=DONE, env=None, **more):
        return self.expect(code, "pull", address, "-o", str(self.out), *map(str, words),
                           env={"XDG_RUNTIME_DIR": str(self.runtime), **(env or {})}, **more)

    def start_pull(self, address, *words):
        process = subprocess.Popen([GPUSYS, "pull", address, "-o", str(self.out), *map(str, words)],
                                   env=self.environment, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def assert_same_tree(self, served=None, out=None):
        self.assertEqual(tree_of(served or self.served), tree_of(out or self.out / "served"))

    def parts(self):
        return sorted(path.name for path in self.out.rglob("*") if ".part" in path.name)
