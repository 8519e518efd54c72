# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernel of the virtual hosts: Debian's, fetched by apt once and unpacked in a cache."""
import collections
import contextlib
import fcntl
import lzma
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import tempfile

# Debian's name; QEMU's program, machine, the package it comes in; the serial console.
Architecture = collections.namedtuple("Architecture", "debian qemu machine package console")
ARCHITECTURES = {
    "x86_64": Architecture("amd64", "qemu-system-x86_64", "q35", "qemu-system-x86", "ttyS0"),
    "aarch64": Architecture("arm64", "qemu-system-aarch64", "virt", "qemu-system-arm", "ttyAMA0"),
}
Kernel = collections.namedtuple("Kernel", "version image modules")
# Of the drivers, only what a virtual host can have.
DRIVERS = ("block", "char", "infiniband", "net/*.ko*", "net/ethernet/mellanox", "virtio")
FETCH_S = 600


class Unavailable(Exception):
    """No virtual host can be had on this machine: not a failure of what is tested."""


def architecture():
    try:
        return ARCHITECTURES[platform.machine()]
    except KeyError:
        raise Unavailable(f"no virtual hosts on {platform.machine()} yet") from None


def cache():
    """The folder that is kept between runs."""
    named = os.environ.get("GPUSYS_VM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(named or pathlib.Path(base) / "gpusys-vm")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"no cache folder: {error}; GPUSYS_VM_CACHE names another") from None
    return folder


@contextlib.contextmanager
def locked(folder):
    """One process at a time fetches."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def said_by(*command, **more):
    try:
        done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=FETCH_S, **more)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"no kernel for the virtual hosts: {error}") from None
    if done.returncode:
        raise Unavailable(f"no kernel for the virtual hosts: {' '.join(command)}: "
                          f"{(done.stderr.strip() or done.stdout.strip())[-500:]}")
    return done.stdout


def fetch_package(folder):
    """Debian's newest kernel package in `folder`."""
    wanted = f"linux-image-{architecture().debian}"
    found = re.search(r"Depends: (linux-image-\d\S*)", said_by("apt-cache", "depends", wanted))
    if not found:
        raise Unavailable(f"no kernel for the virtual hosts: apt knows no {wanted}")
    said_by("apt-get", "download", "-q", found.group(1), cwd=folder)
    return next(folder.glob("linux-image-*.deb"))


def fetch(folder):
    """fetch_package, with apt's lists brought up to date where they are old."""
    try:
        return fetch_package(folder)
    except Unavailable:
        said_by("apt-get", "update", "-q")
        return fetch_package(folder)


def decompressed(image):
    """What the kernel would unpack itself into, which takes an emulated processor several seconds. Only for x86, whose
    header says where the payload is, and for the compression that Python knows; else the kernel stays as it is."""
    if image[0x202:0x206] != b"HdrS":
        return image
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (image[0x1F1] + 1) * 512 + offset
    try:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(image[start:start + length])
    except lzma.LZMAError:
        return image


def unpack(package, folder):
    """The boot image and the modules that a virtual host may want."""
    everything, kept = folder / "everything", folder / "kernel"
    said_by("dpkg-deb", "-x", str(package), str(everything))
    modules = next((everything / "lib/modules").iterdir())
    target = kept / "modules"
    target.mkdir(parents=True)
    shutil.copy(modules / "modules.builtin", target)
    for part in ["arch", "crypto", "fs", "lib", "mm", "net", *(f"drivers/{driver}" for driver in DRIVERS)]:
        for path in modules.glob(f"kernel/{part}"):
            to = target / path.relative_to(modules)
            to.parent.mkdir(parents=True, exist_ok=True)
            path.rename(to)
    (kept / "image").write_bytes(decompressed(next((everything / "boot").glob("vmlinu*")).read_bytes()))
    (kept / "version").write_text(modules.name)
    package.unlink()
    return kept


def kernel():
    """The kernel in the cache, fetched when there is none."""
    folder = cache()
    with locked(folder):
        if not (folder / "kernel").exists():
            with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as work:
                work = pathlib.Path(work)
                unpack(fetch(work), work).rename(folder / "kernel")
    kept = folder / "kernel"
    return Kernel((kept / "version").read_text(), kept / "image", kept / "modules")
