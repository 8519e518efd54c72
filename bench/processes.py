# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes that a benchmark starts: each one is ended with it."""
import os
import signal
import socket
import subprocess
import time

LOOPBACK = "127.0.0.1"


class Failed(Exception):
    """A measurement cannot be made; the text says why."""


def free_port():
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def run(words, timeout=120, **more):
    """The standard output of a command that must succeed."""
    done = subprocess.run(words, timeout=timeout, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **more)
    if done.returncode:
        raise Failed(f"{os.path.basename(words[0])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def seconds_of(words, **more):
    """How long a command takes from start to end."""
    start = time.perf_counter()
    run(words, **more)
    return time.perf_counter() - start


def on_one_core(words):
    """The command, kept on the first core that we may use. A process started so, and its server likewise, wake each
    other without waking a core that sleeps; which placement is the faster depends on the machine and its load."""
    return ["taskset", "-c", str(min(os.sched_getaffinity(0))), *words]


class Server:
    """A child that listens on loopback until it is stopped."""

    def __init__(self, words, port, log, env=None):
        self.port = port
        self.log = log
        with open(log, "wb") as out:
            self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          env={**os.environ, **(env or {})})
        self._wait_until_it_listens()

    def _listens(self):
        """Without connecting: some servers take one connection and no more."""
        wanted = f":{self.port:04X} 00000000:0000 0A "
        with open("/proc/net/tcp", encoding="ascii") as table:
            return wanted in table.read()

    def _wait_until_it_listens(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.child.poll() is None:
            if self._listens():
                return
            time.sleep(0.01)
        said = open(self.log, encoding="utf-8", errors="replace").read().strip()[-500:]
        self.stop()
        raise Failed(f"{self.child.args[0]} does not listen: {said}")

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Worker:
    """A child that answers lines with lines."""

    def __init__(self, words):
        self.name = os.path.basename(words[0])
        self.child = subprocess.Popen(words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.greeting = self._answer()

    def _answer(self):
        answer = self.child.stdout.readline()
        if not answer:
            raise Failed(f"{self.name} ended with {self.child.wait()}")
        return answer.split()

    def ask(self, *words):
        """The numbers of the answer."""
        self.child.stdin.write(" ".join(map(str, words)) + "\n")
        self.child.stdin.flush()
        return [float(word) for word in self._answer()]

    def stop(self):
        if self.child.poll() is None:
            self.child.stdin.close()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
