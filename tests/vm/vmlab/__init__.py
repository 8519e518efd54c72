# SPDX-License-Identifier: MIT OR Apache-2.0
"""Virtual hosts with real RDMA devices (Soft-RoCE), and suites that run on them.

How to write a suite. Put a function into a file tests/vm/suites_SUBJECT.py:

    from vmlab import check, contains, equal, suite

    @suite("two-hosts", limit=20, programs=["gpusys"])
    def pull_over_tcp(lab):
        '''One line that --list shows.'''
        one, two = lab.hosts
        server = one.start(["gpusys", "serve", "/tmp/x", "--listen", "0.0.0.0:7471", "--insecure"])
        server.wait_for("ready at")
        equal(two.run("gpusys pull ... ", timeout=10).status, 0, "pull's exit code")
        equal(server.stop().status, 0, "serve's exit code")

One boot serves all suites of a topology ("two-hosts" or "one-host"), in the order of the files' names and of the
functions in them. Afterwards processes that still run are killed, cables are mended, `rails` puts addresses, MTU,
queueing and rxe devices back, and the kernels' logs are searched for oopses, warnings and lockups, which fail the
suite (lab.expect_in_kernel_log forgives what was meant). Files in /tmp stay: use names of your own. A suite fails by
raising: check, equal, contains and every call on a host that goes wrong do. All times are for KVM; without it they
are multiplied by lab.slowness.

A host:  run(command, timeout=60, user=0) -> (status, stdout, stderr), bytes; a status below 0 is a signal's number
         ok(command) -> stdout as text, and it must succeed      until(command) again and again until it succeeds
         start(command, user=0) -> a process: wait_for(text), wait(), send_signal(n), stop(), kill(), out, err, status
         put(path, bytes, mode), get(path)      address(rail), device(rail), netdev(rail)
         plug(rail, False or True): its end of a cable      freeze(True or False): the whole host
         A string goes to sh; a list is one program, which then gets the signals and gives the status itself.
         User 1000 is there too. Locked memory is unlimited; `ulimit -l KIB && exec program` lowers it.
The lab: cut(rail), mend(rail), wait_rail(host, rail), kernel_faults(), hosts, slowness, reset()
Programs named in `programs` come from --program, the build folder (--build) or PATH, with their libraries. On the hosts
are busybox, ip, rdma, tc, ibv_devinfo, ibv_rc_pingpong and perftest's ib_{read,write}_{bw,lat}. Rails are 0 and 1:
eth0 and rxe0 with 10.77.0.N, eth1 and rxe1 with 10.78.0.N; the RoCE v2 GID of the address is index 1; MTU 4200 (4096).
A suite with native=True uses one host, rail 0's device at most and no cable; `run --native DEVICE` runs it right here.

A lab can be used without suites:  with Lab("two-hosts", find_programs(["vm-agent"], build="build")) as lab: ...
"""
from .debian import Unavailable
from .hosts import Failed, HostDied, Result
from .lab import Lab, NativeLab, TOPOLOGIES
from .programs import find_programs
from .suites import SUITES, Suite, check, contains, equal, judge, run_all, suite

__all__ = ["Failed", "HostDied", "Lab", "NativeLab", "Result", "SUITES", "Suite", "TOPOLOGIES", "Unavailable", "check",
           "contains", "equal", "find_programs", "judge", "run_all", "suite"]
