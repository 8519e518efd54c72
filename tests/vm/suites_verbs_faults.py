# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys pull over two real rails, when cables are cut and processes are killed in its middle."""
import re
import signal

from pulling import NAMES_HINT, full_speed, make_tree, pull, pull_command, received, refused, shape, start_server, \
    stopped, sums, wait_freed, wait_packets
from vmlab import check, contains, equal, suite

TREE = "/tmp/faults-tree"
OUT = "/tmp/faults-out"
KIB = 1 << 10


def begin(lab, files=16, rate="24mbit"):
    """A served tree, and rails so slow that pulling it takes a while."""
    one, two = lab.hosts
    make_tree(one, TREE, files, 512 * KIB)
    two.ok(["rm", "-rf", OUT])
    shape(one, rate)
    return start_server(one, TREE)


def in_its_middle(two, pulling):
    """Until the first file is whole and others are not."""
    two.until(f"ls {OUT}/faults-tree/file-* | grep -qv part")
    check(pulling.status is None, "the pull has ended before its middle")


def compare(server, two):
    equal(sums(two, f"{OUT}/faults-tree"), sums(server.host, TREE), "the tree")


def finish(two, server):
    """The same command again: it goes on where the first one stopped."""
    full_speed(server.host)
    said, _ = pull(two, server, OUT)
    contains(said, "over verbs, verified", "the second pull")
    check(re.search(r"\d+ files? already here", said), f"the second pull began anew: {said}")
    compare(server, two)


@suite("two-hosts", limit=30, programs=["gpusys"])
def verbs_cut(lab):
    """A cable cut in the middle of a pull: it says so, and completes over the other rail."""
    one, two = lab.hosts
    server = begin(lab)
    pulling = two.start(pull_command(server, OUT))
    wait_packets(pulling, two, 1, 200)
    lab.cut(1)
    ended = pulling.wait(timeout=20)
    said = ended.stderr.decode()
    equal((ended.status, said), (0, said), "the pull's exit code")
    contains(ended.text, "over verbs, verified", "what pull says")
    check(re.search(r"rail 1 \(verbs\) died: (Network is down|Connection timed out)", said), f"of the cut rail: {said}")
    check("rail 0 (verbs) died" not in said, f"the whole rail died: {said}")
    compare(server, two)
    contains(stopped(server), "rxe1 port 1: port error", "the server's log")


@suite("two-hosts", limit=40, programs=["gpusys"])
def verbs_back(lab):
    """A cable pulled at the far end: silence ends the rail, and it is used again once the cable is back."""
    one, two = lab.hosts
    server = begin(lab, 32, "16mbit")
    pulling = two.start(pull_command(server, OUT))
    wait_packets(pulling, two, 1, 100)
    one.plug(1, False)
    said = pulling.wait_for("rail 1 (verbs) died: Connection timed out")
    for part in ("rxe1 port 1: request ", "retry count exceeded", f"GID 1 {two.address(1)}", one.address(1), "something between drops the packets"):
        contains(said, part, "what pull says of the silent rail")
    one.plug(1)
    pulling.wait_for("rail 1 is back")
    before = received(two, 1)
    ended = pulling.wait(timeout=30)
    said = ended.stderr.decode()
    equal((ended.status, said), (0, said), "the pull's exit code")
    contains(ended.text, "over verbs, verified", "what pull says")
    check(received(two, 1) - before >= 128, "the rail that came back carried nothing more")
    compare(server, two)
    stopped(server)


@suite("two-hosts", limit=40, programs=["gpusys"])
def verbs_all_cut(lab):
    """Both cables cut: the pull fails in its time, says what became of each rail, and can be resumed."""
    one, two = lab.hosts
    server = begin(lab, 24, "16mbit")
    pulling = two.start(pull_command(server, OUT, timeout="2s"))
    in_its_middle(two, pulling)
    for rail in range(2):
        lab.cut(rail)
    said = refused(pulling.wait(timeout=20), 1, "files are whole", NAMES_HINT + "run the same command again")
    for rail in range(2):
        check(re.search(rf"rail {rail} \(verbs\) died: (Network is down|Connection timed out)", said),
              f"what pull says of rail {rail}: {said}")
    for rail in range(2):
        lab.mend(rail)
    two.until(f"ping -c 1 -W 1 {one.address(0)}")
    finish(two, server)
    stopped(server)


@suite("two-hosts", limit=40, programs=["gpusys"])
def verbs_killed(lab):
    """kill -9 of the server, then of the client, in the middle: the kernels keep nothing, and a pull resumes."""
    one, two = lab.hosts
    server = begin(lab, 24, "16mbit")
    pulling = two.start(pull_command(server, OUT, timeout="5s"))
    in_its_middle(two, pulling)
    equal(server.kill().status, -signal.SIGKILL, "how the server ended")
    refused(pulling.wait(timeout=20), 1, "the peer is gone", "files are whole",
            NAMES_HINT + "run the same command again")
    for host in lab.hosts:
        wait_freed(host)
    server = start_server(one, TREE)
    pulling = two.start(pull_command(server, OUT))
    wait_packets(pulling, two, 0, 100)
    contains(one.ok("rdma resource show mr"), "comm gpusys", "the server's registrations")
    equal(pulling.kill().status, -signal.SIGKILL, "how the client ended")
    wait_freed(two)
    server.wait_for("client 1 is gone")
    wait_freed(one)
    finish(two, server)
    stopped(server)


@suite("two-hosts", limit=30, programs=["gpusys"])
def verbs_frozen(lab):
    """A host that stands still, its cables in place: the pull fails in its time and can be resumed."""
    one, two = lab.hosts
    server = begin(lab, 24, "16mbit")
    pulling = two.start(pull_command(server, OUT, timeout="1s"))
    in_its_middle(two, pulling)
    one.freeze()
    try:
        refused(pulling.wait(timeout=20), 1, "the peer has stopped answering", "files are whole",
                NAMES_HINT + "run the same command again")
    finally:
        one.freeze(False)
    finish(two, server)
    stopped(server)
