# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the suites of gpusys over RDMA have in common: servers, pulls, what came of them."""
import time

from vmlab import Failed, contains, equal

MIB = 1 << 20
PORT = 7471
NAMES_CAUSE = "  cause   "
NAMES_HINT = "  try     "


def received(host, rail):
    """How many RDMA packets a rail has received."""
    return int(host.ok(f"cat /sys/class/infiniband/{host.device(rail)}/ports/1/hw_counters/rcvd_pkts"))


def shape(host, rate):
    """Slow both rails down in the direction away from a host, so that a transfer has a middle on any machine."""
    for rail in range(2):
        host.ok(f"tc qdisc replace dev {host.netdev(rail)} root tbf rate {rate} burst 128kb limit 16mb")


def full_speed(host):
    host.ok("rails")


def make_tree(host, folder, files, bytes_each):
    host.ok(f"rm -rf {folder} && mkdir -p {folder} && cd {folder} && for i in $(seq {files}); do "
            f"head -c {bytes_each} /dev/urandom >file-$i; done; : >empty; echo hello >small")


def sums(host, folder):
    return host.ok(f"cd {folder} && find . -type f | sort | xargs md5sum")


def start_server(host, *words, port=PORT, user=0, limit=""):
    """gpusys serve beyond loopback, once it is ready."""
    command = ["gpusys", "-v", "serve", *words, "--insecure", "--listen", f"0.0.0.0:{port}"]
    server = host.start(f"{limit}exec {' '.join(command)}" if limit else command, user)
    contains(server.wait_for("ready at"), f"ready at 0.0.0.0:{port}: ", "the server's first line")
    return server


def pull_command(server, out, *words, rail=0, port=PORT, timeout=None, names=()):
    before = ["--timeout", timeout] if timeout else []
    return ["gpusys", "-v", *before, "pull", f"{server.host.address(rail)}:{port}", *names, "-o", out, *words]


def pull(host, server, out, *words, **more):
    """A pull that must succeed: what it says on stdout, and on stderr."""
    result = host.run(pull_command(server, out, *words, **more), timeout=30)
    if result.status != 0:
        raise Failed(f"{host}: a pull ended with {result.status}: {result.text}{result.stderr.decode()}")
    return result.text, result.stderr.decode()


def refused(result, status, *parts):
    """A command that failed as it should: this exit code, and an error with all of these in it."""
    said = result.stderr.decode()
    equal((result.status, said), (status, said), "a refusal's exit code")
    for part in parts:
        contains(said, part, "what the refusal says")
    return said


def stopped(server):
    """End a server as a user does; what it said on stderr."""
    equal(server.stop().status, 0, "the server's exit code")
    return server.err.decode()


def wait_packets(process, host, rail, more):
    """Until a rail of this host has received so many packets beyond what it had; the process must be running then."""
    start, end = received(host, rail), time.monotonic() + 30 * host.slowness
    while received(host, rail) < start + more:
        if process.status is not None:
            raise process.failed(f"ended with {process.status} before its middle")
        if time.monotonic() > end:
            raise process.failed(f"moved too little over {host.device(rail)}")


def wait_freed(host, name="gpusys"):
    """Until the kernel has nothing left that a program of this name made."""
    host.until(f"! rdma resource show qp | grep 'comm {name}' && ! rdma resource show mr | grep 'comm {name}' && "
               f"! rdma resource show cq | grep 'comm {name}' && ! rdma resource show pd | grep 'comm {name}'")
