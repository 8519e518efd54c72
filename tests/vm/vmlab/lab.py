# SPDX-License-Identifier: MIT OR Apache-2.0
"""A lab: the hosts of one topology, booted, with their cables."""
import pathlib
import re
import socket
import tempfile
import time

from . import debian, image, machine
from .hosts import Failed, HostDied, NativeHost, VirtualHost

RAILS = 2
TOPOLOGIES = {"two-hosts": 2, "one-host": 1}
MEMORY_MIB = 2048
BOOT_S = 40  # with KVM
RAILS_UP_S = 10
# What no kernel should say while a suite runs.
FAULT = re.compile(r"\bBUG:|\bWARNING:|\bOops:|general protection|Call Trace:|soft lockup|hard LOCKUP|refcount_t|"
                   r"blocked for more than|detected stall|self-detected stall|Kernel panic|Out of memory|[UK].?SAN:")


class Lab:
    """The hosts of a topology. `hosts` are Host objects; use it with `with`, or call boot() and close().

    programs: {name: path} of what is put on the hosts beside the usual; "vm-agent" must be among them.
    modules: kernel modules beside the usual.   accelerator: "kvm" or "tcg"; by default what works here.
    folder: where consoles are logged; by default a folder that close() removes.
    """

    def __init__(self, topology, programs, modules=(), accelerator=None, folder=None):
        self.topology, self.programs, self.modules = topology, programs, tuple(modules)
        self.own = None if folder else tempfile.TemporaryDirectory(prefix="gpusys-vm-")
        self.folder = pathlib.Path(folder or self.own.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kernel = debian.kernel()
        self.speed = machine.speed_here(self.kernel, accelerator)
        self.slowness = self.speed.slowness
        self.hosts, self.machines, self.read_up_to, self.forgiven = [], [], {}, []
        self.image = self.folder / "image"
        image.write(self.image, self.kernel, programs, modules)

    def __enter__(self):
        self.boot()
        return self

    def __exit__(self, *_):
        self.close()

    def cables(self):
        """For each host its ends of the rails' cables. A host that is alone has one cable between its two rails."""
        if TOPOLOGIES[self.topology] == 1:
            return [socket.socketpair()]
        return list(zip(*(socket.socketpair() for _ in range(RAILS))))

    def boot(self):
        """Start the hosts, and wait until both rails of each are up."""
        self.halt()
        self.machines = [machine.Machine(number, self.kernel, self.image, self.speed, ends, self.folder, MEMORY_MIB)
                         for number, ends in enumerate(self.cables(), 1)]
        self.hosts = [VirtualHost(one.number, one, self.slowness) for one in self.machines]
        self.read_up_to = {host: 0 for host in self.hosts}
        end = time.monotonic() + BOOT_S * self.slowness
        for host in self.hosts:
            self.wait_booted(host, max(end - time.monotonic(), 0))
        self.wait_rails()

    def wait_booted(self, host, seconds):
        try:
            if not host.wait_until(lambda: host.ready, seconds / host.slowness):
                raise host.death(f"was not up in {seconds:.0f} s")
        except HostDied:
            if refused := host.machine.refused():
                raise debian.Unavailable(f"QEMU cannot run here: {refused}") from None
            raise

    def wait_rails(self):
        for host in self.hosts:
            for rail in range(RAILS):
                self.wait_rail(host, rail)

    @staticmethod
    def wait_rail(host, rail):
        """Until the rail's port is active and the RoCE v2 GID of its IPv4 address is at index 1."""
        port = f"/sys/class/infiniband/{host.device(rail)}/ports/1"
        host.until(f"grep -q ACTIVE {port}/state && grep -q ffff:0a {port}/gids/1", RAILS_UP_S)

    def reset(self):
        """End what a suite left running, and put rails and cables right; boot again where that does not work."""
        try:
            for host in self.hosts:
                host.freeze(False)
                host.end_processes()
                for rail in range(RAILS):
                    host.plug(rail)
            for host in self.hosts:
                host.ok("rails")
            self.wait_rails()
        except (Failed, OSError):
            self.boot()

    def cut(self, rail):
        """Cut a rail's cable: neither end has a carrier."""
        for host in self.hosts:
            host.plug(rail, False)

    def mend(self, rail):
        """Mend a cut cable, and wait until the rail is up."""
        for host in self.hosts:
            host.plug(rail)
        for host in self.hosts:
            self.wait_rail(host, rail)

    def expect_in_kernel_log(self, pattern):
        """For suites that provoke a kernel's complaint: lines that match are no fault until the suite ends."""
        self.forgiven.append(re.compile(pattern))

    def kernel_faults(self):
        """What the hosts' kernels have complained of since the last call: ["host 1: ...", ...]."""
        faults = []
        for host in self.hosts:
            host.must_answer()
            lines = host.kernel_log[self.read_up_to[host]:]
            self.read_up_to[host] += len(lines)
            faults += [f"{host}: {line.partition(';')[2]}" for line in lines if FAULT.search(line)]
        faults = [line for line in faults if not any(pattern.search(line) for pattern in self.forgiven)]
        self.forgiven = []
        return faults

    def halt(self):
        for one in self.machines:
            one.end()
        self.machines, self.hosts = [], []

    def close(self):
        self.halt()
        if self.own:
            self.own.cleanup()


class NativeLab:
    """This machine in the place of one virtual host, for suites that are marked as fit for it."""

    slowness, topology = 1, "one-host"

    def __init__(self, devices, programs):
        self.hosts = [NativeHost(devices, programs)]

    def boot(self):
        known = pathlib.Path("/sys/class/infiniband")
        for device in self.hosts[0].devices:
            if not (known / device).exists():
                there = ", ".join(sorted(path.name for path in known.glob("*"))) or "none"
                raise Failed(f"this machine has no RDMA device {device} (there: {there})")

    def reset(self):
        self.hosts[0].end_processes()

    def kernel_faults(self):
        return []  # others use this machine's kernel too

    def close(self):
        self.reset()
