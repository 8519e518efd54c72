# SPDX-License-Identifier: MIT OR Apache-2.0
"""Hosts on which suites run commands: the same few calls for a virtual host and for this machine."""
import collections
import os
import pathlib
import shlex
import signal
import struct
import subprocess
import threading
import time

HEAD = struct.Struct("<IIc")
PIECE = 512 * 1024
APPEND = 1
ANSWER_S = 10  # how long a host that lives may take to answer
BETWEEN_TRIES_S = 0.02
SHOWN = 2000  # characters of an output in a message


class Failed(AssertionError):
    """What a suite found wrong."""


class HostDied(Failed):
    """A host has stopped, or does not answer any more."""


class Result(collections.namedtuple("Result", "status stdout stderr")):
    """How a command ended: its exit code, or a signal's number below zero; both outputs as bytes."""

    @property
    def text(self):
        return self.stdout.decode(errors="replace")


def outputs(out, err):
    shown = [(name, text.decode(errors="replace")[-SHOWN:].strip("\n")) for name, text in (("stdout", out),
                                                                                           ("stderr", err))]
    return "".join(f"\n--- {name}\n{text}" for name, text in shown if text)


def words_of(command):
    """A string goes to the shell; a list is a program and its arguments, and takes the shell's place."""
    return command if isinstance(command, str) else "exec " + shlex.join(map(str, command))


class Process:
    """A command on a host. Its output so far is in `out` and `err`; `pid` is what the host calls it."""

    def __init__(self, host, command):
        self.host, self.command, self.pid = host, words_of(command).removeprefix("exec "), None
        self.out, self.err, self.status = b"", b"", None

    def __str__(self):
        return f"{self.host}: {self.command}"

    def failed(self, what):
        return Failed(f"{self} {what}{outputs(self.out, self.err)}")

    def wait(self, timeout=60):
        """How it ended."""
        if not self.host.wait_until(lambda: self.status is not None, timeout):
            self.host.must_answer()
            raise self.failed(f"ran for more than {timeout} s")
        return Result(self.status, self.out, self.err)

    def wait_for(self, text, timeout=30):
        """Wait until it has written this, on either output; all of that output up to now, as text."""
        wanted = text.encode()

        def written():
            return wanted in self.out or wanted in self.err

        self.host.wait_until(lambda: written() or self.status is not None, timeout)
        if not written():
            self.host.must_answer()
            how = f"wrote no {text!r} in {timeout} s" if self.status is None else \
                f"ended with {self.status} and wrote no {text!r}"
            raise self.failed(how)
        return (self.out if wanted in self.out else self.err).decode(errors="replace")

    def send_signal(self, number):
        """Send a signal to it and to what it has started."""
        self.host.deliver(self, number)

    def stop(self, number=signal.SIGTERM, timeout=30):
        """Ask it to end; how it ended."""
        if self.status is None:
            self.send_signal(number)
        return self.wait(timeout)

    def kill(self):
        return self.stop(signal.SIGKILL)


class Host:
    """What virtual hosts and this machine have in common."""

    def __init__(self, number, slowness=1):
        self.number, self.slowness, self.processes = number, slowness, []
        self.changed = threading.Condition()

    def __str__(self):
        return f"host {self.number}"

    def start(self, command, user=0):
        """Begin a command as this user: a string for the shell, or a list of words for one program."""
        process = Process(self, command)
        self.processes.append(process)
        self.launch(process, words_of(command), user)
        return process

    def run(self, command, timeout=60, user=0):
        """Run a command to its end: (exit status, stdout, stderr)."""
        process = self.start(command, user)
        try:
            return process.wait(timeout)
        except Failed:
            if process.status is None and self.lives():
                process.kill()
            raise

    def ok(self, command, timeout=60, user=0):
        """Run a command that must succeed; what it wrote on stdout, as text."""
        result = self.run(command, timeout, user)
        if result.status != 0:
            shown = words_of(command).removeprefix("exec ")
            raise Failed(f"{self}: {shown} ended with {result.status}{outputs(result.stdout, result.stderr)}")
        return result.text

    def until(self, command, timeout=30):
        """Run a command again and again until it succeeds; what it wrote then."""
        end = time.monotonic() + timeout * self.slowness
        while True:
            result = self.run(command, timeout)
            if result.status == 0:
                return result.text
            if time.monotonic() > end:
                raise Failed(f"{self}: in {timeout} s there was no success of: {words_of(command)}"
                             f"{outputs(result.stdout, result.stderr)}")
            time.sleep(BETWEEN_TRIES_S)

    def get(self, path):
        """The content of a file."""
        result = self.run(["cat", path])
        if result.status != 0:
            raise Failed(f"{self}: {path} cannot be read{outputs(b'', result.stderr)}")
        return result.stdout

    def wait_until(self, condition, timeout):
        """Wait for what a host's messages bring about; false when the time is over, HostDied when the host is gone."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or not self.lives(), timeout * self.slowness)
            came_true = bool(condition())
        if not came_true:
            self.must_live()
        return came_true

    def end_processes(self):
        """Kill what is left of a suite."""
        for process in self.processes:
            if process.status is None:
                process.kill()
        self.processes = []


class VirtualHost(Host):
    """A virtual machine, seen through its agent."""

    def __init__(self, number, machine, slowness):
        super().__init__(number, slowness)
        self.machine, self.connection = machine, machine.agent
        self.ready, self.ended, self.next_id = False, False, 1
        self.kernel_log, self.by_id, self.answers = [], {}, {}
        threading.Thread(target=self.listen, daemon=True).start()

    def address(self, rail=0):
        return f"10.{77 + rail}.0.{self.number}"

    def device(self, rail=0):
        return f"rxe{rail}"

    def netdev(self, rail=0):
        return f"eth{rail}"

    def plug(self, rail, plugged=True):
        """Put this end of a rail's cable in; plug(rail, False) pulls it, and the host sees no carrier."""
        self.machine.ask("set_link", name=f"rail{rail}", up=plugged)

    def freeze(self, frozen=True):
        """The host stands still, its cables in place; freeze(False): it goes on."""
        self.machine.ask("stop" if frozen else "cont")

    def lives(self):
        return not self.ended

    def death(self, what):
        return HostDied(f"{self} {what}; the end of its console:\n{self.machine.console_end()}")

    def must_live(self):
        if self.ended:
            self.machine.wait_ended(ANSWER_S)
            raise self.death("has stopped")

    def must_answer(self):
        """The host lives and has told all that it had to tell, its kernel's log included."""
        self.ask(b"P")

    # --- frames; agent.c says what they mean ---

    def listen(self):
        """Take frames until the host is gone."""
        try:
            with self.connection.makefile("rb") as stream:
                while len(head := stream.read(HEAD.size)) == HEAD.size:
                    length, number, kind = HEAD.unpack(head)
                    payload = stream.read(length)
                    with self.changed:
                        self.take(kind, number, payload)
                        self.changed.notify_all()
        except OSError:
            pass
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def take(self, kind, number, payload):
        process = self.by_id.get(number)
        if kind == b"H":
            self.ready = True
        elif kind == b"K":
            self.kernel_log.append(payload.split(b"\n")[0].decode(errors="replace"))
        elif kind == b"A":
            self.answers[number] = int.from_bytes(payload, "little", signed=True)
        elif kind == b"O":
            process.out += payload
        elif kind == b"E":
            process.err += payload
        elif kind == b"X":
            process.status = os.waitstatus_to_exitcode(int.from_bytes(payload, "little"))

    def send(self, kind, number, payload):
        self.must_live()
        try:
            self.connection.sendall(HEAD.pack(len(payload), number, kind) + payload)
        except OSError:
            self.wait_until(lambda: False, ANSWER_S)
            raise self.death("takes no more commands") from None

    def ask(self, kind, payload=b"", number=None, process=None):
        """Send a frame and wait for its answer; OSError where the host refuses."""
        if number is None:
            number, self.next_id = self.next_id, self.next_id + 1
        if process:
            self.by_id[number] = process
        self.answers.pop(number, None)
        self.send(kind, number, payload)
        if not self.wait_until(lambda: number in self.answers, ANSWER_S):
            raise self.death("does not answer")
        answer = self.answers.pop(number)
        if answer < 0:
            raise OSError(-answer, os.strerror(-answer))
        return answer

    def launch(self, process, words, user):
        process.number = self.next_id
        process.pid = self.ask(b"R", struct.pack("<I", user) + words.encode(), process=process)

    def deliver(self, process, number):
        try:
            self.ask(b"S", struct.pack("<I", number), number=process.number)
        except ProcessLookupError:
            pass

    def put(self, path, content, mode=0o644):
        """Write a file."""
        for start in range(0, max(len(content), 1), PIECE):
            head = struct.pack("<II", mode, APPEND if start else 0) + str(path).encode() + b"\0"
            self.ask(b"W", head + content[start:start + PIECE])


class NativeHost(Host):
    """This machine, with its real RDMA devices."""

    def __init__(self, devices, programs):
        super().__init__(1)
        self.devices = devices
        folders = dict.fromkeys(str(pathlib.Path(path).resolve().parent) for path in programs.values())
        self.environment = {**os.environ, "PATH": ":".join([*folders, os.environ.get("PATH", os.defpath)])}
        self.children = {}

    def device(self, rail=0):
        return self.devices[rail]

    def lives(self):
        return True

    def must_live(self):
        return None

    def must_answer(self):
        return None

    def launch(self, process, words, user):
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        child = subprocess.Popen(["sh", "-c", words], env=self.environment, stdin=subprocess.DEVNULL, cwd="/",
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **who)
        process.pid, self.children[process] = child.pid, child
        readers = [threading.Thread(target=self.read, args=(process, name, stream), daemon=True)
                   for name, stream in (("out", child.stdout), ("err", child.stderr))]
        for reader in readers:
            reader.start()
        threading.Thread(target=self.reap, args=(process, child, readers), daemon=True).start()

    def read(self, process, name, stream):
        with stream:
            while piece := stream.read1(65536):
                with self.changed:
                    setattr(process, name, getattr(process, name) + piece)
                    self.changed.notify_all()

    def reap(self, process, child, readers):
        status = child.wait()
        for reader in readers:
            reader.join(1)  # a child of its own may hold the pipe for longer
        with self.changed:
            process.status = status
            self.changed.notify_all()

    def deliver(self, process, number):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass

    def put(self, path, content, mode=0o644):
        pathlib.Path(path).write_bytes(content)
        pathlib.Path(path).chmod(mode)
