# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two rails between two hosts, as others' programs find them: what our own suites build on."""
import re
import signal

from vmlab import check, contains, equal, suite

PORT = "/sys/class/infiniband/{}/ports/1/"


def port_file(host, rail, name):
    return host.ok(["cat", PORT.format(host.device(rail)) + name]).strip()


def received(host, rail):
    """How many RDMA packets a rail has received."""
    return int(port_file(host, rail, "hw_counters/rcvd_pkts"))


def perftest(program, host, rail, *words):
    return [program, "-d", host.device(rail), "-x", "1", "-F", *words]


def transfer(lab, program, rail, *words):
    """Run perftest over a rail; the server's and the client's exit codes, and what the client says."""
    one, two = lab.hosts
    server = one.start(perftest(program, one, rail, *words))
    one.until("netstat -ltn | grep -q :18515")
    client = two.run(perftest(program, two, rail, *words, one.address(rail)), timeout=20)
    return server.wait(timeout=20).status, client.status, client.text


@suite("two-hosts", limit=10)
def rails_up(lab):
    """Both rails of both hosts: active, an MTU of 4096, the RoCE v2 GID of the IPv4 address at index 1."""
    for host in lab.hosts:
        for rail in range(2):
            equal(port_file(host, rail, "state"), "4: ACTIVE", f"{host}, rail {rail}")
            equal(port_file(host, rail, "gids/1"), f"0000:0000:0000:0000:0000:ffff:0a4{'de'[rail]}:000{host.number}",
                  f"{host}, rail {rail}: GID 1")
            equal(port_file(host, rail, "gid_attrs/types/1"), "RoCE v2", f"{host}, rail {rail}: type of GID 1")
            equal(port_file(host, rail, "gid_attrs/ndevs/1"), host.netdev(rail), f"{host}, rail {rail}: netdev")
            check(port_file(host, rail, "gids/0").startswith("fe80:"), "GID 0 is link-local")
            said = host.ok(["ibv_devinfo", "-d", host.device(rail)])
            check(re.search(r"active_mtu:\s+4096 ", said), f"{host}, rail {rail}: no MTU of 4096 in {said}")


@suite("two-hosts", limit=40, long=True)
def rails_carry(lab):
    """perftest reads and writes over each rail, and the other rail carries none of it."""
    def packets():
        return [sum(received(host, rail) for host in lab.hosts) for rail in range(2)]

    for rail in range(2):
        for program in ("ib_read_bw", "ib_write_bw"):
            before = packets()
            equal(transfer(lab, program, rail, "-s", "65536", "-n", "200")[:2], (0, 0), f"{program} over rail {rail}")
            moved = [after - earlier for earlier, after in zip(before, packets())]
            check(moved[rail] >= 200 * 16, f"{program}: {moved[rail]} packets over rail {rail}")
            equal(moved[1 - rail], 0, f"{program}: packets over rail {1 - rail}")


@suite("two-hosts", limit=40, long=True)
def rails_cut(lab):
    """A cut cable stops a transfer, both ports go down, and the transfer goes on when the cable is mended."""
    one, two = lab.hosts
    words = ("-s", "65536", "-n", str(10000 // lab.slowness))
    server = one.start(perftest("ib_read_bw", one, 0, *words))
    one.until("netstat -ltn | grep -q :18515")
    before = received(two, 0)
    client = two.start(perftest("ib_read_bw", two, 0, *words, one.address(0)))
    two.until(f"[ $(cat {PORT.format('rxe0')}hw_counters/rcvd_pkts) -gt {before + 200} ]")
    lab.cut(0)
    for host in lab.hosts:
        host.until(f"grep -q DOWN {PORT.format('rxe0')}state && grep -q 0 /sys/class/net/eth0/carrier")
        equal(port_file(host, 1, "state"), "4: ACTIVE", f"{host}: the other rail")
    stopped_at = received(two, 0)
    check(two.run(f"ping -c 1 -W 1 {one.address(0)}").status != 0, "ping got through a cut cable")
    equal(two.run(f"ping -c 1 -W 5 {one.address(1)}").status, 0, "ping over the other rail")
    equal((received(two, 0), client.status, server.status), (stopped_at, None, None), "a transfer over a cut cable")
    lab.mend(0)
    equal((client.wait().status, server.wait().status), (0, 0), "the transfer, once the cable was mended")


@suite("two-hosts", limit=20)
def rails_unplugged(lab):
    """A cable pulled at the far end: this end keeps its carrier and sees nothing but silence."""
    one, two = lab.hosts
    one.plug(1, False)
    one.until("grep -q 0 /sys/class/net/eth1/carrier")
    equal(port_file(two, 1, "state"), "4: ACTIVE", "the near end's port")
    check(two.run(f"ping -c 1 -W 1 {one.address(1)}").status != 0, "ping got through a pulled cable")
    one.plug(1)
    lab.wait_rail(one, 1)
    two.until(f"ping -c 1 -W 1 {one.address(1)}")


@suite("two-hosts", limit=30, long=True)
def rails_killed(lab):
    """kill -9 of both ends in the middle of a transfer leaves nothing in the kernels, and the rail works again."""
    one, two = lab.hosts
    server = one.start(perftest("ib_write_bw", one, 0, "-s", "65536", "-D", "100"))
    one.until("netstat -ltn | grep -q :18515")
    before = received(one, 0)
    client = two.start(perftest("ib_write_bw", two, 0, "-s", "65536", "-D", "100", one.address(0)))
    one.until(f"[ $(cat {PORT.format('rxe0')}hw_counters/rcvd_pkts) -gt {before + 100} ]")
    contains(one.ok("rdma resource show qp"), f"pid {server.pid} comm ib_write_bw", "the server's queue pair")
    equal((server.kill().status, client.kill().status), (-signal.SIGKILL, -signal.SIGKILL), "how they ended")
    for host in lab.hosts:
        host.until("! rdma resource show qp | grep ib_write_bw && ! rdma resource show mr | grep ib_write_bw")
    equal(transfer(lab, "ib_write_bw", 0, "-s", "4096", "-n", "100")[:2], (0, 0), "the rail afterwards")


@suite("two-hosts", limit=30, long=True)
def rails_changed(lab):
    """An interface's MTU bounds its port's; a deleted rxe device is gone, and one added in its place works."""
    one, two = lab.hosts
    two.ok("ip link set eth1 mtu 1500")
    two.until("ibv_devinfo -d rxe1 | grep -q 'active_mtu:.*1024 '")
    equal(transfer(lab, "ib_read_bw", 1, "-s", "65536", "-n", "100")[:2], (0, 0), "perftest between 4096 and 1024")
    two.ok("rdma link delete rxe1")
    equal(two.ok("ls /sys/class/infiniband"), "rxe0\n", "devices")
    check(two.run(perftest("ib_read_bw", two, 1, one.address(1))).status != 0, "perftest used a deleted device")
    two.ok("ip link set eth1 mtu 4200; rdma link add rxe1 type rxe netdev eth1")
    lab.wait_rail(two, 1)
    equal(transfer(lab, "ib_read_bw", 1, "-s", "65536", "-n", "100")[:2], (0, 0), "the new device")


@suite("one-host", limit=20)
def memlock(lab):
    """A user's limit of locked memory refuses a registration; root has none."""
    host, = lab.hosts
    words = "ibv_rc_pingpong -d rxe0 -g 1 -s 1048576 -n 10"
    small = "ulimit -l 64 && exec "
    refused = host.run(small + words, user=1000, timeout=10)
    check(refused.status != 0, "1 MiB was registered with 64 KiB allowed")
    contains(refused.stderr.decode(), "Couldn't register MR", "why")
    for user, before in ((1000, "exec "), (0, small)):
        server = host.start(before + words, user)
        host.until("netstat -ltn | grep -q :18515")
        equal(host.run(before + f"{words} {host.address(0)}", user=user).status, 0, f"user {user}, enough allowed")
        equal(server.wait().status, 0, f"the server of user {user}")
