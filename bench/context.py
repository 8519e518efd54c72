# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the rows work with: data, our own server, the programs that measure us, the peers. Each is made when it is
first asked for, and undone at the end."""
import os
import shutil
import tempfile

import peers
import rdma
from processes import LOOPBACK, Failed, Server, Worker, free_port, run

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
BIG_BYTES = 2 * GIB      # for what goes to memory
FILE_BYTES = 1 * GIB     # for what goes to a file
COLD_BYTES = 512 * MIB


class Context:
    def __init__(self, build, netperf_folder, n_pairs):
        self.build = build
        self.n_pairs = n_pairs
        self.netperf_folder = netperf_folder
        self._made = {}
        self._folders = []
        self.memory_folder = self._folder("/dev/shm")  # tmpfs
        self.disk_folder = self._folder(build)
        self.served = os.path.join(self.memory_folder, "served")
        os.mkdir(self.served)

    def _folder(self, parent):
        folder = tempfile.mkdtemp(prefix="gpusys-bench-", dir=parent)
        self._folders.append(folder)
        return folder

    def close(self):
        for thing in reversed(self._made.values()):
            thing.stop()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def made(self, key, make):
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    # ---- data ----

    def file(self, name, size):
        """A file of tmpfs, no two chunks of it alike."""
        path = os.path.join(self.served, name)
        if not os.path.exists(path):
            block = bytearray(os.urandom(MIB))
            with open(path, "wb") as out:
                for at in range(0, size, MIB):
                    block[:8] = at.to_bytes(8, "little")
                    out.write(block)
        return name

    def many_files(self, count):
        folder = os.path.join(self.memory_folder, "many")
        if not os.path.isdir(folder):
            os.mkdir(folder)
            for i in range(count):
                with open(f"{folder}/shard-{i:05d}-of-{count:05d}.safetensors", "wb") as out:
                    out.write(b"x" * (i % 97))
        return folder

    # ---- ours ----

    @property
    def gpusys(self):
        return os.path.join(self.build, "gpusys")

    def program(self, name):
        return os.path.join(self.build, "bench", "bench_" + name)

    def serve(self, folder):
        """The address of a server of that folder; what it serves is what is there when it starts."""
        def start():
            port = free_port()
            words = [self.gpusys, "serve", folder, "--listen", f"{LOOPBACK}:{port}", "--arena", "2G"]
            return Server(words, port, f"{self.memory_folder}/serve-{port}.log")
        return f"{LOOPBACK}:{self.made(('serve', folder), start).port}"

    def address(self):
        for name, size in (("big.bin", BIG_BYTES), ("file.bin", FILE_BYTES), ("cold.bin", COLD_BYTES)):
            self.file(name, size)
        return self.serve(self.served)

    def transfer(self, transport):
        """The program that measures reads into memory."""
        return self.made(("transfer", transport),
                         lambda: Worker([self.program("transfer"), self.address(), transport]))

    def pull_words(self, transport, name, folder, *options):
        return [self.gpusys, "pull", self.address(), os.path.basename(self.served) + "/" + name, "-o", folder,
                "--require", transport, "-q", *options]

    # ---- peers ----

    def iperf3(self):
        return self.made("iperf3", lambda: peers.Iperf3(self.memory_folder))

    def nginx(self):
        self.address()
        return self.made("nginx", lambda: peers.Nginx(self.memory_folder, self.served))

    def redis(self):
        return self.made("redis", lambda: peers.Redis(self.memory_folder))

    def ucx(self):
        return self.made("ucx", lambda: peers.Ucx(self.memory_folder))

    def netperf(self):
        if self.netperf_folder is None:
            raise Failed("netperf is not installed and could not be fetched from Debian's non-free section")
        return self.made("netperf", lambda: peers.Netperf(self.memory_folder, self.netperf_folder))

    def rdma_hosts(self):
        return self.made("rdma", lambda: rdma.Hosts(self.build))

    # ---- measuring ----

    def pairs(self, ours, theirs, n=None, warm=True):
        """Two measurements in turn, n times. The first of each is thrown away."""
        first, second = [], []
        if warm:
            ours()
            theirs()
        for _ in range(n or self.n_pairs):
            first.append(ours())
            second.append(theirs())
        return first, second

    def singles(self, ours, n=None):
        ours()
        return [ours() for _ in range(n or self.n_pairs)]


__all__ = ["BIG_BYTES", "COLD_BYTES", "Context", "FILE_BYTES", "GIB", "KIB", "MIB", "run"]
