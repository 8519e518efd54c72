# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys serve and pull over two real rails, while they work."""
import json
import re

from pulling import MIB, full_speed, make_tree, pull, received, shape, start_server, stopped, sums, wait_freed
from vmlab import check, contains, equal, suite

TREE = "/tmp/verbs-tree"


def tree(host, files=4, each=MIB + 77):
    make_tree(host, TREE, files, each)
    return TREE


def moved(hosts, action):
    """What an action returns, and the packets that each rail carried meanwhile."""
    before = [sum(received(host, rail) for host in hosts) for rail in range(2)]
    value = action()
    return value, [sum(received(host, rail) for host in hosts) - before[rail] for rail in range(2)]


def pulled(two, server, *words, **more):
    """Pull the tree, compare it, remove it; what pull said."""
    out = "/tmp/verbs-pulled"
    said = pull(two, server, out, *words, **more)
    equal(sums(two, f"{out}/verbs-tree"), sums(server.host, TREE), "the tree")
    two.ok(["rm", "-r", out])
    return said


@suite("two-hosts", limit=20, programs=["gpusys"])
def verbs_pull(lab):
    """A pull that is left to choose takes both rails, says which and why, and is byte for byte what was served."""
    one, two = lab.hosts
    server = start_server(one, tree(one, 4, 2 * MIB + 77))
    shape(one, "80mbit")
    (out, err), packets = moved(lab.hosts, lambda: pulled(two, server))
    full_speed(one)
    contains(out, "over verbs, verified", "what pull says")
    contains(err, "2 of 2 pairs of RDMA ports", "why verbs")
    for rail in range(2):
        check(re.search(rf"rxe{rail} port 1: .*MTU 4096, GID 1 {two.address(rail)}: RoCE v2", err),
              f"pull does not say how it knows rail {rail}: {err}")
        check(packets[rail] > 200, f"rail {rail} carried {packets[rail]} packets of over 2000")
    (out, err), packets = moved(lab.hosts, lambda: pulled(two, server, "--require", "verbs", rail=1))
    contains(out, "over verbs, verified", "a pull with the control connection over the other rail")
    contains(err, f"GID 1 {two.address(1)}: RoCE v2, the address of the control connection", "why this GID")
    log = stopped(server)
    for rail in range(2):
        contains(log, f"client 1 has rail {rail} between rxe{rail} and our rxe{rail}", "the server's log")
    copied = set(re.findall(r'"(verbs-tree/file-\d)" is copied into memory \(2097229 bytes\)', log))
    check(len(copied) in (0, 4), f"a kernel registers files where they lie, or none of them: {log}")
    contains(server.out.decode(), "2 clients, 0 refused, 0 B sent and 0 B received over tcp", "the server's totals")
    for host in lab.hosts:
        wait_freed(host)


@suite("two-hosts", limit=20, programs=["gpusys"])
def verbs_one_rail(lab):
    """--device and --rails choose rails, on either side; the others carry nothing."""
    one, two = lab.hosts
    server = start_server(one, tree(one, 2))
    for words, rail in ((("--device", "rxe1"), 1), (("--device", "eth1"), 1), (("--rails", "1"), 0)):
        (out, err), packets = moved(lab.hosts, lambda: pulled(two, server, *words))
        contains(out, "over verbs, verified", f"a pull with {words}")
        check(packets[rail] > 400 and packets[1 - rail] == 0, f"packets with {words}: {packets}")
        contains(err, "1 of ", f"a pull with {words}")
    stopped(server)
    server = start_server(one, TREE, "--device", "rxe1")
    (out, err), packets = moved(lab.hosts, lambda: pulled(two, server))
    contains(out, "over verbs, verified", "a pull from a server with one rail")
    check(packets[1] > 400 and packets[0] == 0, f"packets from a server with rxe1 alone: {packets}")
    stopped(server)


@suite("two-hosts", limit=20, programs=["gpusys"])
def verbs_bench(lab):
    """bench reads and writes an arena over RDMA, in small pieces and in large ones."""
    one, two = lab.hosts
    server = start_server(one, "--arena", "32M")
    command = ["gpusys", "bench", f"{one.address(0)}:7471", "--require", "verbs", "--json", "--read", "--write",
               "--arena", "4M", "--sizes", "8,256K", "--depths", "1,4", "--time", "50ms"]
    result, packets = moved(lab.hosts, lambda: two.ok(command))
    run, = json.loads(result)["runs"]
    equal((run["transport"], run["target"]["kind"], run["target"]["bytes"]), ("verbs", "arena", 4 * MIB), "the run")
    points = {(point["op"], point["size_bytes"], point["depth"]) for point in run["points"]}
    equal(points, {(op, size, depth) for op in ("read", "write") for size in (8, MIB // 4) for depth in (1, 4)},
          "what was measured")
    check(all(point["operations"] > 0 for point in run["points"]), f"points without an operation: {run['points']}")
    check(sum(packets) > 500, f"packets over the rails: {packets}")
    contains(stopped(server), "client 1 has an arena of 4194304 bytes", "the server's log")
    wait_freed(one)


@suite("two-hosts", limit=30, programs=["gpusys"])
def verbs_mtu(lab):
    """An interface with a smaller MTU on either side: both use the smaller one, and rails shows it."""
    one, two = lab.hosts
    tree(one, 2)
    for small in lab.hosts:
        for rail in range(2):
            small.ok(f"ip link set {small.netdev(rail)} mtu 1500")
            small.until(f"ibv_devinfo -d {small.device(rail)} | grep -q 'active_mtu:.*1024 '")
        shown = small.ok(["gpusys", "rails"])
        equal(len(re.findall(r"rxe\d:1 +ACTIVE .* 1024 of 4096 ", shown)), 2, f"ports of 1024 bytes in {shown}")
        server = start_server(one, TREE, "--arena", "8M")
        out, _ = pulled(two, server, "--require", "verbs")
        contains(out, "over verbs, verified", f"a pull with the smaller MTU on {small}")
        two.ok(f"gpusys bench {one.address(0)}:7471 --require verbs --write --arena 2M --sizes 256K --depths 4 "
               "--time 50ms")
        stopped(server)
        full_speed(small)
        for rail in range(2):
            small.until(f"ibv_devinfo -d {small.device(rail)} | grep -q 'active_mtu:.*4096 '")


@suite("two-hosts", limit=20, programs=["gpusys"])
def verbs_shown(lab):
    """gpusys rails, with and without a peer, and doctor on a host with rails."""
    one, two = lab.hosts
    shown = two.ok(["gpusys", "rails"])
    for rail in range(2):
        check(re.search(rf"rxe{rail}:1 +ACTIVE +RoCE .* 4096 of 4096 .*eth{rail}", shown), f"port {rail}: {shown}")
        check(re.search(rf"rxe{rail}:1 +1 +{two.address(rail)} +eth{rail} +RoCE v2, global\n"
                        rf"rxe{rail}:1 +0 +fe80::\S+ +eth{rail} +RoCE v2, link-local", shown),
              f"GIDs of port {rail}, the best first: {shown}")
    for rail in range(2):
        shown = two.ok(["gpusys", "rails", one.address(rail)])
        contains(shown, f"the peer {one.address(rail)} is reached from {two.address(rail)} on eth{rail}", "rails")
        check(re.search(rf"rxe{rail}:1 +GID 1, {two.address(rail)} +the peer's +RoCE v2, the address of the control",
                        shown), f"the rail that reaches the peer: {shown}")
        check(re.search(rf"rxe{1 - rail}:1 +GID 1, {two.address(1 - rail)} +another ", shown), f"the other: {shown}")
    ports = json.loads(two.ok(["gpusys", "rails", "--json"]))["ports"]
    equal([(port["device"], port["state"], port["mtu_bytes"], port["gids"][0]["index"], port["problem"])
           for port in ports], [(f"rxe{rail}", "ACTIVE", 4096, 1, None) for rail in range(2)], "rails --json")
    found = two.run(["gpusys", "doctor"]).text
    for row, words in (("rdma-modules", "rdma_rxe"), ("rdma-devices", "rxe0 rxe1"), ("rdma-library", "libibverbs.so.1"),
                       ("rdma-ports", "2 of 2 are up"), ("rdma-gids", f"rxe1:1 GID 1 {two.address(1)}"),
                       ("rdma-mtu", "rxe0:1 4096"), ("rdma-memory", "registered")):
        check(re.search(rf"^ok +{row} .*{re.escape(words)}", found, re.MULTILINE), f"doctor's {row}: {found}")


@suite("one-host", limit=20, programs=["verbs-sequences"])
def verbs_sequences(lab):
    """The table of legal and illegal call sequences gives on Soft-RoCE what it gives over the stand-in libibverbs."""
    host, = lab.hosts
    result = host.run("verbs-sequences -d rxe0", timeout=20)
    rows = result.text.splitlines()
    bad = [line for line in rows if line.startswith("not ok")]
    equal((bad, result.status), ([], 0), "the rows that went wrong")
    planned = int(rows[0].partition("1..")[2])
    check(planned >= 100, f"a table of {planned} rows")
    equal(sum(line.startswith("ok ") for line in rows), planned, "rows")
    wait_freed(host, "verbs-sequences")
