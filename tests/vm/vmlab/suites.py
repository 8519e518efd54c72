# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of suites, and what runs them and says how they went."""
import collections
import contextlib
import os
import signal
import time
import traceback

from .debian import Unavailable
from .hosts import Failed, HostDied

Suite = collections.namedtuple("Suite", "name topology function limit programs modules native long", defaults=(False,))
SUITES = []  # in the order in which they run
DONE, FAILED, NOT_HERE = 0, 1, 77


def suite(topology, limit, name=None, programs=(), modules=(), native=False, long=False):
    """Enter a function in the table. Its name, with - for _, is the suite's. `limit` is in seconds, with KVM;
    `programs` and `modules` are names of what is to be on the hosts beside the usual; `native`: fit for a real
    machine; `long`: left to --long."""
    def enter(function):
        entered = Suite(name or function.__name__.replace("_", "-"), topology, function, limit, tuple(programs),
                        tuple(modules), native, long)
        if any(other.name == entered.name for other in SUITES):
            raise ValueError(f"two suites have the name {entered.name}")
        SUITES.append(entered)
        return function
    return enter


def check(condition, why):
    if not condition:
        raise Failed(why)


def equal(got, wanted, what):
    if got != wanted:
        raise Failed(f"{what}: got {shown(got)}, wanted {shown(wanted)}")


def contains(text, part, what):
    if part not in text:
        raise Failed(f"{what}: no {part!r} in {shown(text)}")


def shown(value):
    text = repr(value)
    return text if len(text) <= 1000 else f"{text[:500]} ... {text[-500:]} ({len(value)} in all)"


class OverTime(Exception):
    """A suite's time is over."""


@contextlib.contextmanager
def time_limit(seconds):
    """OverTime in the middle of whatever runs when the time is over. One limit may lie inside another."""
    def over(_number, _frame):
        raise OverTime

    old = signal.signal(signal.SIGALRM, over)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    start = time.monotonic()
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 0.001) if left else 0)


def judge(one, lab):
    """Run a suite; None when all was well, else the reason."""
    limit = one.limit * lab.slowness
    reason = None
    try:
        with time_limit(limit):
            one.function(lab)
    except OverTime:
        reason = f"took more than {limit} s"
        for host in lab.hosts:
            reason += running(host)
    except Failed as failure:
        reason = str(failure)
    except Exception as error:  # a mistake of the suite's is its failure, not the end of the others
        reason = f"{type(error).__name__} at {place(error)}: {error}"
    return with_kernel_log(reason, lab)


def place(error):
    """The line of a suite in which something was raised that the suite did not mean."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.basename(frame.filename).startswith("suites_")] or frames
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}"


def running(host):
    return "".join(f"\n{process} is still running" for process in host.processes if process.status is None)


def with_kernel_log(reason, lab):
    """A reason, and what the kernels have to complain of."""
    try:
        faults = lab.kernel_faults()
    except HostDied as death:
        return reason if reason and str(death) in reason else "\n".join(filter(None, [reason, str(death)]))
    if faults:
        return "\n".join([*filter(None, [reason]), "the kernel's log:", *faults])
    return reason


def run(lab, suites, say=print):
    """Run suites in a lab that is booted, say how each went; how many failed."""
    failed = 0
    for one in suites:
        start = time.monotonic()
        reason = judge(one, lab)
        took = f"{time.monotonic() - start:.1f} s"
        lab.reset()
        reason = with_kernel_log(reason, lab)  # what clearing up after it has brought about counts too
        failed += reason is not None
        say(f"ok      {one.name} ({took})" if reason is None else f"FAILED  {one.name} ({took}): {reason}")
    return failed


def run_all(make_lab, suites, say=print):
    """The exit code for suites of one topology; the last line says why there was nothing to run."""
    start, lab, up = time.monotonic(), None, False
    try:
        lab = make_lab(suites)
        lab.boot()
        up = True
        say(f"{lab.topology}: up in {time.monotonic() - start:.1f} s")
        failed = run(lab, suites, say)
    except (Failed, Unavailable) as why:
        if up or isinstance(why, Failed):
            say(f"FAILED  {suites[0].topology}: {why}")
            return FAILED
        say(f"skipped: {'; '.join(str(why).splitlines())}")
        return NOT_HERE
    finally:
        if lab:
            lab.close()
    say(f"{lab.topology}: {len(suites) - failed} ok, {failed} failed")
    return FAILED if failed else DONE
