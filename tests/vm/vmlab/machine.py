# SPDX-License-Identifier: MIT OR Apache-2.0
"""A virtual machine: QEMU as a child process, its cables, its console."""
import collections
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

from .debian import Unavailable, architecture, cache, locked

# How much longer everything may take than with KVM, and the kernel's own patience with a processor, in seconds.
Speed = collections.namedtuple("Speed", "accelerator processor slowness watchdog")
SPEEDS = {"kvm": Speed("kvm", "host", 1, 10), "tcg": Speed("tcg", "max", 5, 30)}
# Quick to boot, and an oops ends the machine at once rather than leaving it lame.
KERNEL_WORDS = ("loglevel=4 panic=-1 oops=panic net.ifnames=0 mitigations=off nokaslr cryptomgr.notests apparmor=0 "
                "audit=0 no_timer_check tsc=reliable rcupdate.rcu_expedited=1 random.trust_cpu=1")
PROBE_S = 10
MONITOR_S = 10
RAIL_MBPS = 25000  # what a rail says of itself
CONSOLE_LINES = 60


def qemu():
    path = shutil.which(architecture().qemu)
    if not path:
        raise Unavailable(f"{architecture().qemu} is not installed (Debian: {architecture().package})")
    return path


def command(kernel, speed, words, memory_mib=256, initrd=None):
    """What all machines have in common."""
    words = f"console={architecture().console} {KERNEL_WORDS} {words}"
    return [qemu(), "-machine", architecture().machine, "-accel", speed.accelerator, "-cpu", speed.processor,
            "-smp", "1", "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-kernel", str(kernel.image), "-append", words, *(["-initrd", str(initrd)] if initrd else [])]


def boots_with_kvm(kernel):
    """Whether a kernel gets as far as missing its root with KVM: some machines have the device and it does not work."""
    with tempfile.TemporaryDirectory(prefix="gpusys-vm-") as folder:
        console = pathlib.Path(folder) / "console"
        try:
            done = subprocess.run([*command(kernel, SPEEDS["kvm"], "quiet"), "-serial", f"file:{console}"], cwd=folder,
                                  timeout=PROBE_S, stdin=subprocess.DEVNULL, capture_output=True)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0 and b"VFS: Unable to mount root" in console.read_bytes()


def speed_here(kernel, wanted=None):
    """The speed of machines here: KVM where it works, which is found out once in the life of this machine's kernel."""
    if wanted:
        return SPEEDS[wanted]
    if not os.access("/dev/kvm", os.W_OK):
        return SPEEDS["tcg"]
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = cache() / "accelerator"
    with locked(cache()):
        known = verdict.read_text().split() if verdict.exists() else []
        if known[:2] != [boot, kernel.version]:
            known = [boot, kernel.version, "kvm" if boots_with_kvm(kernel) else "tcg"]
            verdict.write_text(" ".join(known))
    return SPEEDS[known[2]]


class Monitor:
    """QEMU's own control channel."""

    def __init__(self, end):
        self.end, self.unread = end, b""
        self.end.settimeout(MONITOR_S)
        self.next()  # the greeting
        self.ask("qmp_capabilities")

    def next(self):
        while b"\n" not in self.unread:
            piece = self.end.recv(65536)
            if not piece:
                raise ConnectionError("QEMU has ended")
            self.unread += piece
        line, self.unread = self.unread.split(b"\n", 1)
        return json.loads(line)

    def ask(self, what, **arguments):
        self.end.sendall(json.dumps({"execute": what, "arguments": arguments}).encode())
        while True:
            said = self.next()
            if "error" in said:
                raise RuntimeError(f"QEMU refuses {what} {arguments}: {said['error']['desc']}")
            if "return" in said:
                return said["return"]


class Machine:
    """One QEMU. `cables` are the sockets of its rails; `agent` is our end of its agent's port."""

    def __init__(self, number, kernel, image, speed, cables, folder, memory_mib):
        self.number, self.console = number, folder / f"host{number}.console"
        self.console.write_bytes(b"")
        self.agent, agent_end = socket.socketpair()
        self.control, control_end = socket.socketpair()
        words = [*command(kernel, speed, f"vm.host={number} vm.watchdog={speed.watchdog}", memory_mib, image),
                 "-serial", f"file:{self.console}", "-device", "virtio-serial-pci",
                 "-chardev", f"socket,id=agent,fd={agent_end.fileno()}", "-device", "virtserialport,chardev=agent",
                 "-chardev", f"socket,id=control,fd={control_end.fileno()}", "-mon", "chardev=control,mode=control"]
        for rail, cable in enumerate(cables):
            words += ["-netdev", f"stream,id=rail{rail},server=off,addr.type=fd,addr.str={cable.fileno()}",
                      "-device", f"virtio-net-pci,netdev=rail{rail},romfile=,speed={RAIL_MBPS},duplex=full,"
                                 f"mac=52:54:00:00:0{rail}:0{number}"]
        ends = [agent_end, control_end, *cables]
        with open(folder / f"host{number}.qemu", "wb") as said:
            self.process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                            pass_fds=[end.fileno() for end in ends])
        self.said = folder / f"host{number}.qemu"
        for end in ends:
            end.close()
        self.monitor = None

    def ask(self, what, **arguments):
        self.monitor = self.monitor or Monitor(self.control)
        return self.monitor.ask(what, **arguments)

    def refused(self):
        """What QEMU said when it could not run at all, or None."""
        if self.process.poll() in (None, 0):
            return None
        return self.said.read_text(errors="replace").strip() or f"QEMU ended with {self.process.returncode}"

    def console_end(self):
        lines = self.console.read_text(errors="replace").replace("\r", "").splitlines()[-CONSOLE_LINES:]
        return "\n".join(f"    {line}" for line in lines)

    def wait_ended(self, timeout):
        """Whether QEMU ended within this time."""
        try:
            self.process.wait(timeout)
            return True
        except subprocess.TimeoutExpired:
            return False

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.agent.close()
        self.control.close()
