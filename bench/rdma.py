# SPDX-License-Identifier: MIT OR Apache-2.0
"""RDMA between two virtual hosts with Soft-RoCE rails (tests/vm), beside Debian's perftest on the same two."""
import os
import re
import sys

from processes import Failed

TESTS_VM = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests", "vm")
DEVICE, GID_INDEX, PORT = "rxe0", 1, 7471
ARENA_BYTES = 64 << 20  # of one client; there is one at a time


class Hosts:
    """The two hosts, and a gpusys server with an arena on the first."""

    def __init__(self, build):
        sys.path.insert(0, TESTS_VM)
        import vmlab
        self.vmlab = vmlab
        try:
            programs = vmlab.find_programs(["vm-agent", "gpusys", "bench_verbs"], build=build)
            self.lab = vmlab.Lab("two-hosts", programs)
            self.lab.__enter__()
        except (vmlab.Unavailable, vmlab.Failed) as error:
            raise Failed(f"no virtual hosts: {error}") from error
        self.one, self.two = self.lab.hosts
        self.patience = 60 * self.lab.slowness
        server = self.one.start(["gpusys", "serve", "--insecure", "--listen", f"0.0.0.0:{PORT}", "--arena",
                                 str(ARENA_BYTES)])
        server.wait_for("ready at")

    def stop(self):
        self.lab.__exit__(None, None, None)

    @property
    def address(self):
        return self.one.address(0)

    def ours(self, op, size, depth, count):
        """MB/s."""
        words = ["bench_verbs", f"{self.address}:{PORT}", DEVICE, op, str(size), str(depth), str(count)]
        done = self.two.run(words, timeout=self.patience)
        if done.status:
            raise Failed(done.stderr.decode().strip())
        return float(done.stdout)

    def perftest(self, op, size, depth, count):
        """MB/s, of 10^6 bytes: the average that it prints."""
        words = [f"ib_{op}_bw", "-d", DEVICE, "-x", str(GID_INDEX), "-s", str(size), "-t", str(depth), "-n", str(count),
                 "-F", "--report_gbits"]
        server = self.one.start(words)
        self.one.until("netstat -ltn | grep -q :18515")  # what it prints is buffered
        done = self.two.run([*words, self.address], timeout=self.patience)
        server.wait(self.patience)
        found = re.search(rf"^ *{size} +{count} +[\d.]+ +([\d.]+)", done.stdout.decode(), re.MULTILINE)
        if not found:
            raise Failed(f"{words[0]}: {done.stdout.decode()}{done.stderr.decode()}")
        return float(found[1]) * 1000 / 8
