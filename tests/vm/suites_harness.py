# SPDX-License-Identifier: MIT OR Apache-2.0
"""The harness itself: what suites rely on."""
import signal

from vmlab import Failed, HostDied, Suite, check, contains, equal, judge, suite

EVERY_BYTE = bytes(range(256)) * 1024


@suite("one-host", limit=20, native=True)
def harness_commands(lab):
    """Exit codes, signals, both outputs byte for byte, files, users, background processes, time-outs."""
    host, = lab.hosts
    equal(tuple(host.run("echo out; echo err >&2; exit 7")), (7, b"out\n", b"err\n"), "a command")
    equal(host.run("kill -9 $$").status, -signal.SIGKILL, "a command that a signal ends")
    equal(host.ok(["printf", "%s", "a 'b' $c"]), "a 'b' $c", "words")
    path = host.ok("mktemp").strip()
    host.put(path, EVERY_BYTE * 5, 0o640)
    check(host.get(path) == EVERY_BYTE * 5, "a file comes back changed")
    host.put(path, b"short")
    equal(host.run(f"cat {path} >&2").stderr, b"short", "a file written again")
    host.put(path, EVERY_BYTE)
    equal(host.run(f"cat {path} {path} >&2").stderr == 2 * EVERY_BYTE, True, "stderr is exact")
    host.ok(f"rm {path}")
    equal(host.run("true && nosuchprogram").status, 127, "a missing program")
    try:
        host.ok("echo because; exit 3")
        raise RuntimeError("a command that failed was taken for one that did not")
    except Failed as failure:
        contains(str(failure), "because", "why a command failed")


@suite("one-host", limit=20, native=True, long=True)
def harness_processes(lab):
    """Background processes: output while they run, signals, stop, kill, several at once, time-outs."""
    host, = lab.hosts
    server = host.start("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    contains(server.wait_for("ready"), "ready", "output of a process that runs")
    equal((server.status, host.run(f"kill -0 {server.pid}").status), (None, 0), "a process that runs")
    equal(tuple(server.stop())[:2], (5, b"ready\nbye\n"), "a process that was stopped")
    sleeper = host.start(["sleep", "1000"])
    equal(sleeper.kill().status, -signal.SIGKILL, "a process that was killed")
    equal(sleeper.stop().status, -signal.SIGKILL, "a process that was stopped after its end")
    many = [host.start(f"echo {number}; exit {number}") for number in range(20)]
    equal([one.wait().status for one in many], list(range(20)), "twenty processes")
    equal([one.out for one in many], [b"%d\n" % number for number in range(20)], "what twenty processes wrote")
    for mistake, words in ((lambda: host.run("echo so far; sleep 1000", timeout=0.2), "so far"),
                           (lambda: host.start("echo other; exit 4").wait_for("never"), "ended with 4"),
                           (lambda: host.start("sleep 1000").wait_for("never", timeout=0.2), "wrote no 'never'")):
        try:
            mistake()
            raise RuntimeError(f"no failure that says {words}")
        except Failed as failure:
            contains(str(failure), words, "what a time-out says")


@suite("one-host", limit=20)
def harness_users(lab):
    """A command as user 1000 has that user's rights, home and limits."""
    host, = lab.hosts
    equal(host.ok("id -u; pwd; cat /proc/1/environ || echo no", user=1000), "1000\n/home/user\nno\n", "user 1000")
    equal(host.ok("ulimit -l; ulimit -l 64 && ulimit -l", user=1000), "unlimited\n64\n", "locked memory")


@suite("one-host", limit=30)
def harness_judge(lab):
    """A suite is failed by a wrong value, by its own mistake, by its time, by a kernel's warning."""
    host, = lab.hosts

    def verdict(function, limit=10):
        return judge(Suite("inner", "one-host", function, limit, (), (), False), lab)

    equal(verdict(lambda lab: None), None, "a suite in which all is well")
    equal(verdict(lambda lab: equal(1, 2, "one")), "one: got 1, wanted 2", "a wrong value")
    contains(str(verdict(lambda lab: {}["key"])), "KeyError at suites_harness.py", "a suite's own mistake")
    late = str(verdict(lambda lab: host.run("sleep 1000"), limit=0.2))
    contains(late, "took more than", "a suite that takes too long")
    contains(late, "sleep 1000 is still running", "a suite that takes too long")
    for line in ("WARNING: CPU: 0 PID: 1 at a/b.c:1 f+0x1/0x2", "BUG: unable to handle page fault",
                 "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
                 "INFO: task x:1 blocked for more than 120 seconds."):
        quoted = f"echo '<4>{line}' >/dev/kmsg"
        contains(str(verdict(lambda lab: host.ok(quoted))), f"host 1: {line}", "a complaint in the kernel's log")
    host.ok("echo '<4>all is well' >/dev/kmsg")
    equal(lab.kernel_faults(), [], "a harmless line, and complaints that were told of")
    lab.expect_in_kernel_log("meant")
    host.ok("echo '<4>WARNING: meant' >/dev/kmsg")
    equal(lab.kernel_faults(), [], "a complaint that was meant")


@suite("one-host", limit=60, long=True)
def harness_death(lab):
    """A host that panics or reboots is noticed, with the end of its console, and the next suite has a new one."""
    for command, words in (("echo c >/proc/sysrq-trigger", "sysrq triggered crash"), ("reboot -f", "host 1")):
        host, = lab.hosts
        try:
            host.run(f"echo 'last words' >/dev/console; {command}; sleep 1000", timeout=50)
            raise RuntimeError("the death of a host went unnoticed")
        except HostDied as death:
            contains(str(death), "host 1 has stopped", "a host that died")
            contains(str(death), "last words", "the end of its console")
            contains(str(death), words, "the end of its console")
        check(str(judge(Suite("inner", "one-host", lambda lab: None, 10, (), (), False), lab)).startswith("host 1"),
              "a suite during which a host died is no success")
        lab.reset()
        equal(lab.hosts[0].ok("echo alive"), "alive\n", "the new host")


@suite("one-host", limit=20, long=True)
def harness_silence(lab):
    """A host that does not answer any more is noticed."""
    host, = lab.hosts
    patience, host.slowness = host.slowness, 0.1
    host.freeze()
    try:
        host.run("true")
        raise RuntimeError("the silence of a host went unnoticed")
    except HostDied as death:
        contains(str(death), "host 1 does not answer", "a host that stands still")
    finally:
        host.slowness = patience
        host.freeze(False)
    equal(host.ok("echo alive"), "alive\n", "a host that goes on")


@suite("one-host", limit=20, long=True)
def harness_leftovers(lab):
    """What a suite leaves behind is put right: processes, MTU, addresses, devices, queueing, cables."""
    host, = lab.hosts
    process = host.start(["sleep", "1000"])
    host.plug(0, False)
    host.until("grep -q 0 /sys/class/net/eth0/carrier")
    host.ok("ip link set eth0 mtu 1500; ip addr flush dev eth0; rdma link delete rxe1; "
            "tc qdisc add dev eth1 root tbf rate 80mbit burst 64kb latency 50ms")
    lab.reset()
    equal(process.status, -signal.SIGKILL, "a process that was left running")
    equal(host.ok("cat /sys/class/net/eth0/mtu /sys/class/net/eth0/carrier"), "4200\n1\n", "MTU and carrier")
    contains(host.ok("ip -o addr show dev eth0"), "10.77.0.1/24", "the address")
    contains(host.ok("rdma link"), "rxe1/1 state ACTIVE", "the deleted device")
    check("tbf" not in host.ok("tc qdisc show dev eth1"), "a queueing discipline stayed")
