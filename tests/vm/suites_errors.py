# SPDX-License-Identifier: MIT OR Apache-2.0
"""What is said where RDMA cannot be used, or is used wrongly: the cause, the values of both sides, one thing to do."""
import re

from pulling import MIB, NAMES_CAUSE, NAMES_HINT, make_tree, pull, pull_command, refused, start_server, stopped, sums, \
    wait_freed
from vmlab import Failed, check, contains, equal, suite

TREE, OUT = "/tmp/errors-tree", "/tmp/errors-out"
ABSENT = 77


def serve_tree(host, **more):
    make_tree(host, TREE, 1, MIB)
    host.ok(["chmod", "-R", "a+rX", TREE])
    return start_server(host, TREE, **more)


def falls_back(two, server, *reasons, limit="", user=0):
    """A pull that is left to choose takes tcp, and says why."""
    two.ok(["rm", "-rf", OUT])
    ended = two.run(limit + " ".join(pull_command(server, OUT)), timeout=20, user=user)
    said = ended.stderr.decode()
    equal((ended.status, said), (0, said), "a pull without RDMA")
    contains(ended.text, "over tcp, verified", "what a pull without RDMA says")
    for reason in reasons:
        contains(said, reason, "why not over verbs")
    equal(sums(two, f"{OUT}/errors-tree"), sums(server.host, TREE), "the tree")


def insists(two, server, status, *reasons, limit="", user=0, words=("--require", "verbs")):
    two.ok(["rm", "-rf", OUT])
    ended = two.run(limit + " ".join(pull_command(server, OUT, *words)), timeout=20, user=user)
    return refused(ended, status, *reasons)


def shows(host, status, *parts, limit="", user=0):
    """What gpusys rails says, on both outputs."""
    ended = host.run(f"{limit}gpusys rails 2>&1", user=user)
    equal((ended.status, ended.text), (status, ended.text), "the exit code of rails")
    for part in parts:
        contains(ended.text, part, "what rails says")


def doctor(host, row, words, limit="", user=0):
    found = host.run(f"{limit}gpusys doctor", user=user).text
    check(re.search(rf"{row} .*{words}", found), f"doctor's {row}: {found}")


@suite("two-hosts", limit=20, programs=["gpusys"])
def errors_library(lab):
    """No libibverbs: named, with the variable that leads there; a pull that may choose takes tcp."""
    one, two = lab.hosts
    server = serve_tree(one)
    without, name = "GPUSYS_LIBIBVERBS=/nonexistent ", "libibverbs: not found: /nonexistent"
    falls_back(two, server, name, limit=without)
    insists(two, server, ABSENT, "verbs was required", name, NAMES_HINT + "correct GPUSYS_LIBIBVERBS", limit=without)
    shows(two, ABSENT, name, NAMES_HINT + "correct GPUSYS_LIBIBVERBS", limit=without)
    doctor(two, "missing +rdma-library", name, limit=without)
    stopped(server)


@suite("two-hosts", limit=30, programs=["gpusys"])
def errors_devices(lab):
    """No /dev/infiniband, nodes that may not be opened, no device at all, a device of another name."""
    one, two = lab.hosts
    server = serve_tree(one)
    two.ok("mv /dev/infiniband /dev/hidden")
    try:
        name = "there is no /dev/infiniband"
        falls_back(two, server, name)
        insists(two, server, ABSENT, "verbs was required", name, NAMES_HINT)
        shows(two, ABSENT, f"rxe1        {name}", "--device=/dev/infiniband")
        doctor(two, "missing +rdma-devices", "rxe0 rxe1")
    finally:
        two.ok("mv /dev/hidden /dev/infiniband")
    two.ok("chmod 600 /dev/infiniband/*")
    try:
        name = "/dev/infiniband/uverbs1 may not be opened: Permission denied"
        insists(two, server, ABSENT, "verbs was required", name, NAMES_HINT, user=1000)
        shows(two, ABSENT, name, "chmod 0666", user=1000)
        doctor(two, "broken +rdma-devices", "Permission denied", user=1000)
    finally:
        two.ok("chmod 666 /dev/infiniband/*")
    insists(two, server, 1, 'no RDMA device or interface is called "rxe7"', NAMES_HINT + "name one of these",
            words=("--device", "rxe7"))
    two.ok("rdma link delete rxe0; rdma link delete rxe1")
    falls_back(two, server, "there is no RDMA device")
    insists(two, server, ABSENT, "there is no RDMA device", NAMES_CAUSE, "the kernel's RDMA modules are loaded",
            "modprobe rdma_rxe")
    shows(two, ABSENT, "there is no RDMA device", NAMES_CAUSE, NAMES_HINT)
    doctor(two, "not needed +rdma-ports", "no RDMA device")
    stopped(server)


@suite("two-hosts", limit=30, programs=["gpusys"])
def errors_down(lab):
    """A port that is down: left out, or named with its interface when it was asked for; a port without carrier."""
    one, two = lab.hosts
    server = serve_tree(one)
    two.ok("ip link set eth1 down")
    two.until("grep -q DOWN /sys/class/infiniband/rxe1/ports/1/state")
    two.ok(["rm", "-rf", OUT])
    said = pull(two, server, OUT, "--require", "verbs")
    contains(said[0], "over verbs, verified", "a pull over the other rail")
    contains(said[1], "1 of 1 pairs of RDMA ports", "rails of a pull over the other rail")
    words = ("the port is DOWN: its interface eth1 is down", NAMES_HINT + "ip link set eth1 up")
    insists(two, server, 1, "rxe1 port 1: ", *words, words=("--device", "rxe1"))
    shows(two, 0, words[0], "not usable: eth1 is down")
    two.ok("ip link set eth1 up")
    lab.wait_rail(two, 1)
    two.plug(1, False)
    two.until("grep -q DOWN /sys/class/infiniband/rxe1/ports/1/state")
    insists(two, server, 1, "rxe1 port 1: the port is DOWN", NAMES_HINT, words=("--device", "rxe1"))
    stopped(server)


@suite("two-hosts", limit=30, programs=["gpusys"])
def errors_memlock(lab):
    """Too little lockable memory for a user: the limit and the need are named, and how to raise it; pulls go on."""
    one, two = lab.hosts
    two.ok(["rm", "-rf", OUT])
    server = serve_tree(one)
    little = "ulimit -l 64 && exec "
    falls_back(two, server, "registering ", "Cannot allocate memory", limit=little, user=1000)
    insists(two, server, 1, "memlock limit", "65536 bytes", "ulimit -l unlimited", limit=little, user=1000)
    doctor(two, "missing +rdma-memory", "the memlock limit is 64.0 KiB", limit="ulimit -l 64 && ", user=1000)
    some = "ulimit -l 2048 && exec "
    falls_back(two, server, "registering ", limit=some, user=1000)
    insists(two, server, 1, "memlock limit 2097152 bytes, this registration needs ", "ulimit -l unlimited", limit=some,
            user=1000)
    stopped(server)
    server = serve_tree(one, user=1000, limit="ulimit -l 512 && ")
    falls_back(two, server)
    insists(two, server, 1, "errors-tree/file-1: the peer cannot register it for RDMA",
            "limit on locked memory at the peer",
            NAMES_HINT + "raise memlock for the server, or pull with --require tcp")
    log = stopped(server)
    for part in ("registering 1048576 bytes", "limit 524288 bytes", "ulimit -l unlimited"):
        contains(log, part, "the server's log")


def case(host, words, limit="", user=0):
    """A case of vm-verbs: the errno's name, and the rest of what it says."""
    ended = host.run(f"{limit}exec vm-verbs {words}", timeout=20, user=user)
    if ended.status != 0:
        raise Failed(f"vm-verbs {words}: {ended}")
    name, _, rest = ended.text.partition("\n")
    return name, rest


def expect(host, words, name, *parts, **more):
    got, said = case(host, words, **more)
    equal((got, said), (name, said), f"vm-verbs {words}")
    for part in parts:
        contains(said, part, f"vm-verbs {words}")


@suite("one-host", limit=30, programs=["vm-verbs"])
def errors_ports(lab):
    """Devices and GID indexes that cannot be: what there is instead, and both sides' addresses."""
    host, = lab.hosts
    first, second = host.address(0), host.address(1)
    good = NAMES_HINT + f"use GID index 1 ({first}, RoCE v2)"
    for words, gid in (("any", first), ("rxe0", first), ("rxe1:1", second), ("eth1", second), (second, second)):
        equal(case(host, f"open {words}"), ("0", f"GID 1 {gid}\n"), f"the port {words}")
    equal(case(host, "open rxe0 0")[0], "0", "a link-local GID, when it is asked for and no peer is known")
    for device in ("rxe9", "rxe0:2"):
        expect(host, f"open {device}", "ENODEV", device.partition(":")[0], f"rxe0:1  ACTIVE, eth0, {first}",
               f"rxe1:1  ACTIVE, eth1, {second}", NAMES_HINT + "name one of these")
    expect(host, "open 10.99.0.1", "ENODEV", "10.99.0.1 is not an address of this host", NAMES_HINT)
    expect(host, "open rxe0 7", "EINVAL", "rxe0 port 1: GID index 7 is empty", good)
    expect(host, "open rxe0 1024", "EINVAL", "GID index 1024 is ", good)
    expect(host, "open rxe0 0 10.77.0.2", "EINVAL", "GID index 0 does not reach the peer", "GID 0 fe80::",
           "peer    10.77.0.2", good)
    expect(host, "open rxe0 0 fd00::2", "EINVAL", "it is link-local and the peer's is not", "peer    fd00::2", good)
    expect(host, "open rxe0 1 fd00::2", "EINVAL", "it is an IPv4 address and the peer's is IPv6",
           f"GID 1 {first} (RoCE v2)", "peer    fd00::2", NAMES_HINT)
    wait_freed(host, "vm-verbs")


@suite("one-host", limit=30, programs=["vm-verbs"])
def errors_connect(lab):
    """A queue pair that cannot be connected: which of GID, QPN, PSN and MTU it was, with both ends' values."""
    host, = lab.hosts
    ours = f"GID 1 {host.address(0)}, MTU 4096"

    def refuses(words, name, peer, *parts):
        expect(host, f"connect rxe0 {words}", name, "rxe0 port 1: ", "  local   QPN 0x", ours, f"  remote  {peer}",
               NAMES_HINT, *parts)

    nobody = "10.77.0.99"
    refuses(nobody, "ETIMEDOUT", f"QPN 0x11, PSN 0x1, GID {nobody}, MTU 1024", "the queue pair to RTR",
            NAMES_CAUSE + "the peer's GID did not resolve to a hardware address")
    refuses("fd00::99", "EINVAL", "QPN 0x11, PSN 0x1, GID fd00::99", "an IPv4 GID on one side and an IPv6 GID on the")
    refuses("::", "EINVAL", "QPN 0x11, PSN 0x1, GID ::", "the peer's GID is empty")
    refuses(f"{nobody} 0x1000001", "EINVAL", "QPN 0x1000001, ", "queue pair number")
    refuses(f"{nobody} 17 0x1000001", "EINVAL", "QPN 0x11, PSN 0x1000001, ", "24 bits")
    refuses(f"{nobody} 17 1 1000", "EINVAL", f"QPN 0x11, PSN 0x1, GID {nobody}, MTU 1000", "the peer's MTU is none",
            "256, 512, 1024, 2048 and 4096")
    wait_freed(host, "vm-verbs")


@suite("one-host", limit=30, programs=["vm-verbs"])
def errors_access(lab):
    """What a peer may not do is refused, moves nothing, and is explained with both ends; silence as well."""
    host, = lab.hosts
    for good in ("read", "write"):
        equal(case(host, f"transfer rxe0 {good}"), ("0", "\nmoved all\n"), f"a {good} that is allowed")
    ends = ("rxe0 port 1: request 77 failed: ", "  local   QPN 0x", "  remote  QPN 0x", f"GID {host.address(0)}",
            "MTU 4096", NAMES_CAUSE, NAMES_HINT, "moved nothing")
    for bad in ("wrong-key", "outside", "read-only"):
        expect(host, f"transfer rxe0 {bad}", "EREMOTEIO", "the peer refused the access", *ends)
    expect(host, "transfer rxe0 gone", "ETIMEDOUT", "the peer did not answer (retry count exceeded)", *ends)
    wait_freed(host, "vm-verbs")


@suite("one-host", limit=20, programs=["vm-verbs"])
def errors_locked(lab):
    """Memory beyond a user's limit: the limit, the need, and how to raise it. Root has no limit."""
    host, = lab.hosts
    little = "ulimit -l 64 && "
    expect(host, "register rxe0 1048576", "ENOMEM", "rxe0: registering 1048576 bytes", "limit 65536 bytes",
           "needs 1048576", NAMES_CAUSE + "the limit on locked memory is smaller", NAMES_HINT, "ulimit -l unlimited",
           limit=little, user=1000)
    for user, limit in ((1000, ""), (0, little)):
        expect(host, "register rxe0 1048576", "0", limit=limit, user=user)
    wait_freed(host, "vm-verbs")
