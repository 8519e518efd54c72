# SPDX-License-Identifier: MIT OR Apache-2.0
"""What stands between a program and NVIDIA's libraries: calls, loading, ranks that come together, ranges. No GPU."""
import glob
import json
import os

from figures import Row
from processes import Failed, run

REAL_NCCL = ("/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2",
             "/usr/lib/*-linux-gnu/libnccl.so.2")


def stand_in(context, name):
    path = os.path.join(context.build, "tests", "gpu", name)
    if not os.path.exists(path):
        raise Failed(f"the stand-in {name} is not built; it needs cmocka")
    return path


def stand_ins(context, **more):
    return {**os.environ, "GPUSYS_LIBCUDA": stand_in(context, "libcuda.so.1"),
            "GPUSYS_LIBNCCL": stand_in(context, "libnccl.so.2"), **more}


def rounds_of(words, **more):
    return [json.loads(line) for line in run(words, **more).splitlines()]


def calls(context):
    rounds = rounds_of([context.program("nccl"), str(context.n_pairs), stand_in(context, "libnccl.so.2")],
                       env=stand_ins(context, FAKE_NCCL_ZERO="1"))
    bare = f"over the bare call, {rounds[0]['bare_ns']:.1f} ns"
    yield Row(f"gpusys_comm_all_reduce, no trace, {bare}", "ns", [r["plain_ns"] - r["bare_ns"] for r in rounds], target=20,
              at_most=True)
    yield Row("the same, with the ring", "ns", [r["ring_ns"] - r["bare_ns"] for r in rounds], target=250, at_most=True)


def load(context):
    """The real library where the machine has one: it is large, so that its own loading is what a user sees."""
    library = next((path for pattern in REAL_NCCL for path in glob.glob(pattern)), None)
    library = library or stand_in(context, "libnccl.so.2")
    program = context.program("nccl_start")
    ours, theirs = context.pairs(lambda: float(run([program, "table", library])),
                                 lambda: float(run([program, "bare", library])))
    kind = "the real libnccl" if "tests/gpu" not in library else "the stand-in"
    yield Row(f"gpusys_nccl_table, {kind}: over its own dlopen, {sorted(theirs)[len(theirs) // 2]:.1f} ms", "ms",
              [a - b for a, b in zip(ours, theirs)], target=1, at_most=True)


def ranks(context):
    program, env = context.program("nccl_start"), stand_ins(context)
    for count in (8, 64):
        yield Row(f"{count} processes, from their start to a communicator each", "ms",
                  context.singles(lambda n=count: float(run([program, "ranks", str(n)], env=env))),
                  target=300 if count == 64 else None, at_most=True)


def ranges(context):
    program = context.program("nvtx")
    if not os.path.exists(program):
        raise Failed("built without NVTX")
    rounds = rounds_of([program, stand_in(context, "libnvtxinject.so"), str(context.n_pairs)])
    none = [r for r in rounds if r["tool"] == "none"]
    counting = [r for r in rounds if r["tool"] == "counting"]
    yield Row("push and pop of a range, no tool", "ns", [r["ours_ns"] for r in none], target=1, at_most=True)
    yield Row("the same", "ns", [r["ours_ns"] for r in none], [r["bare_ns"] for r in none], "NVTX's own header",
              target=1.2, at_most=True)
    yield Row("the same, with a tool that counts", "ns", [r["ours_ns"] for r in counting],
              [r["bare_ns"] for r in counting], "NVTX's own header", target=1.2, at_most=True)
