#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the data path costs: instructions of our own code per operation, and the time to connect a rail set.

Usage: cost.py PROGRAM

PROGRAM is built from cost.c and runs over the stand-in libibverbs that GPUSYS_LIBIBVERBS names. Instructions are counted
by valgrind's callgrind while posting and polling, those of the program's own file only: not the stand-in's, not libc's.
Exit code 77 where valgrind is missing.
"""
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

COUNT = 16000
LIMITS = {16: 60, 1: 150}  # depth: instructions per operation
CONNECT_MS, CONNECT_SLACK = 20, 5  # the aim, and how much a busy machine may take


def own_cost(profile, program):
    """Instructions spent in the program's file itself: every line of cost but those of calls, which include the callee's."""
    total, own, after_call = 0, False, False
    names = {}
    for line in profile.splitlines():
        named = re.match(r"(c?)ob=\((\d+)\)\s*(.*)", line)  # a name comes once, then its number stands for it
        if named:
            called, number, name = named.groups()
            name = names.setdefault(number, name) if name else names[number]
            own = own if called else name == str(program)
        elif line.startswith("calls="):
            after_call = True
        elif re.match(r"[+*\-\d]\S* \d+$", line):
            total += int(line.split()[1]) if own and not after_call else 0
            after_call = False
    return total


def count(program, kind, depth):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "profile"
        subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--toggle-collect=gpusys_qp_post",
                        "--toggle-collect=gpusys_qp_poll", str(program), kind, str(depth), str(COUNT)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
        return own_cost(out.read_text(), program) / COUNT


def connect_ms(program, times=9):
    ran = subprocess.run([str(program), "connect", str(times)], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return statistics.median(int(line) for line in ran.stdout.split()) / 1000


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    took = connect_ms(program)
    good = took <= CONNECT_MS * CONNECT_SLACK
    print(f"connecting 2 rails with 64 regions, both ends: {took:.2f} ms (aim {CONNECT_MS})")
    if not shutil.which("valgrind"):
        print("no valgrind: instructions are not counted")
        return 77 if good else 1
    for depth, limit in LIMITS.items():
        for kind in "read", "write":
            cost = count(program, kind, depth)
            print(f"instructions per {kind}, {depth} at once: {cost:.1f} (limit {limit})")
            good = good and 0 < cost <= limit
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
