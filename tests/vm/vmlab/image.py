# SPDX-License-Identifier: MIT OR Apache-2.0
"""The file system of a virtual host: a cpio archive with busybox, kernel modules and programs with their libraries."""
import glob
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess

from .debian import Unavailable

SOURCE = pathlib.Path(__file__).resolve().parent.parent
MODULES = ("crc32_generic", "virtio_pci", "virtio_console", "virtio_net", "rdma_rxe", "ib_uverbs", "rdma_ucm")
OPTIONAL_MODULES = ("crc32_pclmul", "crc32_ce", "sch_tbf", "sch_netem", "dummy")
PROGRAMS = ("ip", "rdma", "tc", "ibv_devinfo", "ibv_rc_pingpong", "ib_read_bw", "ib_write_bw", "ib_read_lat",
            "ib_write_lat")
LEFT_OUT_APPLETS = {"busybox", "init"}
SEARCHED = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
ACCOUNTS = ("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
            "root:x:0:\nuser:x:1000:\n")
ELF = b"\x7fELF"


class Archive:
    """A cpio archive, of the kind "newc", as the kernel unpacks it."""

    def __init__(self):
        self.entries = {}
        self.folder("", 0o755)

    def add(self, path, mode, content=b"", device=(0, 0)):
        self.folder(os.path.dirname(path))
        self.entries[path] = (mode, content, device)

    def folder(self, path, mode=0o755):
        if path not in self.entries:
            if path:
                self.folder(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | mode, b"", (0, 0))

    def file(self, path, content, mode=0o644):
        self.add(path, stat.S_IFREG | mode, content)

    def link(self, path, target):
        self.add(path, stat.S_IFLNK | 0o777, target.encode())

    def has(self, path):
        return path in self.entries

    def written(self):
        """The archive's pieces, folders before what is in them."""
        for number, path in enumerate(sorted(self.entries), 1):
            if path:
                mode, content, device = self.entries[path]
                yield from entry(number, path, mode, content, device)
        yield from entry(0, "TRAILER!!!", 0, b"", (0, 0))


def entry(number, path, mode, content, device):
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name), 0)
    yield b"070701" + b"".join(b"%08X" % field for field in fields) + name
    yield b"\0" * (-(110 + len(name)) % 4)
    yield content
    yield b"\0" * (-len(content) % 4)


def found(name):
    path = shutil.which(name, path=SEARCHED)
    if not path:
        raise Unavailable(f"{name} is not installed; deps/debian.txt lists what the virtual hosts need")
    return path


class Libraries:
    """Puts programs into an archive, with the shared libraries that they need."""

    def __init__(self, archive):
        self.archive = archive
        self.home = None  # where the system's libraries lie

    def needed_by(self, paths):
        """The libraries that ldd names, one call for all."""
        ran = subprocess.run(["ldd", *map(str, paths)], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        missing = re.search(r"(\S+) => not found", ran.stdout)
        if missing:
            raise Unavailable(f"one of {', '.join(map(str, paths))} needs {missing.group(1)}, which is not installed")
        return set(re.findall(r"(/\S+) \(0x", ran.stdout))

    def place(self, library):
        """Where a library goes: where it is, or, if that is no system folder, beside libc."""
        if re.match(r"(/usr)?/lib", library):
            return re.sub(r"^(/usr)?/", "usr/", library)
        return f"{self.home}/{os.path.basename(library)}"

    def add_for(self, paths):
        needed = self.needed_by(paths)
        self.home = self.home or next((os.path.dirname(self.place(path)) for path in needed if "libc.so" in path), None)
        for library in needed:
            place = self.place(library)
            if not self.archive.has(place):
                self.archive.file(place, pathlib.Path(library).read_bytes(), 0o755)

    def add(self, programs):
        """`programs` are {name: path}."""
        for name, path in programs.items():
            self.archive.file(f"usr/bin/{name}", pathlib.Path(path).read_bytes(), 0o755)
        self.add_for([path for path in programs.values() if pathlib.Path(path).read_bytes()[:4] == ELF])

    def add_verbs(self):
        """What programs load by themselves: libibverbs and the provider of Soft-RoCE."""
        providers = glob.glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
        loaded = [path for name in ("libibverbs.so.1", "libgcc_s.so.1") for path in glob.glob(f"/usr/lib/*/{name}")]
        if not providers or not loaded:
            raise Unavailable("no libibverbs or no provider of Soft-RoCE; deps/debian.txt lists what is needed")
        for path in [*providers, *loaded]:
            self.archive.file(self.place(path), pathlib.Path(path).read_bytes(), 0o755)
        self.add_for([*providers, *loaded])
        self.archive.file("etc/libibverbs.d/rxe.driver", b"driver rxe\n")


class Modules:
    """Puts kernel modules into an archive, with those that they need and a list for modprobe."""

    def __init__(self, archive, kernel):
        self.archive, self.kernel = archive, kernel
        self.paths = {self.name_of(path): path for path in kernel.modules.rglob("*.ko*")}
        self.built_in = {self.name_of(line) for line in (kernel.modules / "modules.builtin").read_text().split()}
        self.needs, self.aliases = {}, []

    @staticmethod
    def name_of(path):
        return pathlib.Path(path).name.split(".")[0].replace("-", "_")

    def place(self, name):
        """The module's path below the kernel's folder of modules, where it lies uncompressed."""
        path = str(self.paths[name].relative_to(self.kernel.modules))
        return path[:path.index(".ko") + 3]

    def add(self, name, optional=False):
        if name in self.needs or name in self.built_in:
            return
        if name not in self.paths:
            if optional:
                return
            raise Unavailable(f"Linux {self.kernel.version} has no module {name}")
        content = self.paths[name].read_bytes()
        if self.paths[name].suffix == ".xz":
            content = lzma.decompress(content)
        words = [word.split(b"=", 1)[1].decode() for word in re.findall(rb"\0depends=[^\0]*", b"\0" + content)]
        self.needs[name] = [need.replace("-", "_") for word in words for need in word.split(",") if need]
        self.aliases += [(alias.decode(), name) for alias in re.findall(rb"\0alias=([^\0]*)", content)]
        self.archive.file(f"usr/lib/modules/{self.kernel.version}/{self.place(name)}", content)
        for need in self.needs[name]:
            self.add(need)

    def closure(self, name):
        """All that a module needs, what is to be loaded first at the end."""
        for need in self.needs[name]:
            if need in self.needs:
                yield self.place(need)
                yield from self.closure(need)

    def line(self, name):
        needed = list(dict.fromkeys(reversed(list(self.closure(name)))))
        return f"{self.place(name)}: {' '.join(reversed(needed))}\n"

    def finish(self):
        folder = f"usr/lib/modules/{self.kernel.version}"
        lines = [self.line(name) for name in self.needs]
        self.archive.file(f"{folder}/modules.dep", "".join(lines).encode())
        aliases = [f"alias {alias} {name}\n" for alias, name in self.aliases]
        self.archive.file(f"{folder}/modules.alias", "".join(aliases).encode())


def add_applets(archive):
    """Links to busybox, which programs of their own may replace."""
    applets = subprocess.run([found("busybox"), "--list"], text=True, stdout=subprocess.PIPE, check=True).stdout.split()
    for applet in applets:
        if applet not in LEFT_OUT_APPLETS:
            archive.link(f"usr/bin/{applet}", "busybox")


def write(path, kernel, programs, modules=()):
    """Write the archive. `programs` are {name: path}, "vm-agent" among them; `modules` are loaded beside the usual."""
    archive = Archive()
    for folder in ("dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "usr/lib", "usr/lib64"):
        archive.folder(folder)
    for name, target in (("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"),
                         ("usr/sbin", "bin")):
        archive.link(name, target)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    for name, content in zip(("passwd", "group"), ACCOUNTS):
        archive.file(f"etc/{name}", content.encode())
    archive.file("init", (SOURCE / "init").read_bytes(), 0o755)
    archive.file("usr/bin/rails", (SOURCE / "rails").read_bytes(), 0o755)
    add_applets(archive)
    libraries = Libraries(archive)
    # Not busybox's shell: it runs its own ip and tc, wherever PATH leads.
    libraries.add({"busybox": found("busybox"), "sh": found("dash"), **{name: found(name) for name in PROGRAMS},
                   **programs})
    libraries.add_verbs()
    added = Modules(archive, kernel)
    for name in (*MODULES, *modules):
        added.add(name)
    for name in OPTIONAL_MODULES:
        added.add(name, optional=True)
    added.finish()
    wanted = [name for name in (*MODULES, *OPTIONAL_MODULES, *modules) if name in added.needs]
    archive.file("etc/modules", "".join(f"{name}\n" for name in wanted).encode())
    with open(path, "wb") as file:
        file.writelines(archive.written())
