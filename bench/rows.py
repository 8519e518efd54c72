# SPDX-License-Identifier: MIT OR Apache-2.0
"""The rows of the table, in groups that can be run one by one. Each group gives its rows as they are measured."""
import os
import shutil
import subprocess
import time

import nvidia
from context import BIG_BYTES, COLD_BYTES, FILE_BYTES, KIB, MIB
from figures import Row
from processes import Failed, Worker, run, seconds_of

GROUPS = {}
BIG, FILE, COLD = "served/big.bin", "served/file.bin", "served/cold.bin"
GB = 1e9


def group(function):
    GROUPS[function.__name__.replace("_", "-")] = function
    return function


# ---- a large region into memory ----

def pull_rate(context, slice_bytes=4 * MIB, depth=4, hashed=0):
    """GB/s over TCP into buffers that are used again and again."""
    worker = context.transfer("tcp")
    return BIG_BYTES / worker.ask("pull", BIG, slice_bytes, depth, hashed)[0] / GB


@group
def tcp_pull(context):
    iperf3, nginx = context.iperf3(), context.nginx()
    ours, theirs = context.pairs(lambda: pull_rate(context), lambda: iperf3.bytes_per_second(BIG_BYTES) / GB)
    yield Row("2 GiB over TCP into warm memory", "GB/s", ours, theirs, iperf3.name, target=0.95)
    ours, theirs = context.pairs(lambda: pull_rate(context),
                                 lambda: nginx.bytes_per_second("big.bin", "/dev/null") / GB)
    yield Row("the same", "GB/s", ours, theirs, "nginx sendfile, curl to /dev/null", target=2.0)


@group
def tcp_hashed(context):
    context.transfer("tcp").ask("pull", BIG, 4 * MIB, 4, 1)  # the peer computes its checksums once
    ours, theirs = context.pairs(lambda: pull_rate(context, hashed=1), lambda: pull_rate(context))
    yield Row("2 GiB over TCP, XXH3-128 of each chunk as it arrives", "GB/s", ours, theirs, "ours, not hashed",
              target=0.85)


# ---- into files ----

def interrupted_journal(context, folder):
    """The journal of a pull that was killed when the first chunk was done: a header of 48 bytes, a record of 16."""
    journal = os.path.join(folder, FILE) + ".part.journal"
    for _ in range(20):
        with subprocess.Popen(context.pull_words("tcp", "file.bin", folder, "--no-verify")) as pull:
            while pull.poll() is None and not (os.path.exists(journal) and os.path.getsize(journal) >= 64):
                time.sleep(0.001)
            pull.kill()
        if os.path.exists(journal):
            with open(journal, "rb") as file:
                return file.read(64)
        os.unlink(os.path.join(folder, FILE))
    raise Failed("a pull always ended before it could be interrupted")


def pulled_seconds(context, folder, *options, transport="tcp", journal=None):
    """The whole command. With a journal: the file's pages are all there, as if an earlier pull had been interrupted,
    and all but the first chunk come again."""
    path = os.path.join(folder, FILE)
    part = path + ".part"
    if journal:
        os.rename(path, part)
        with open(part + ".journal", "wb") as file:
            file.write(journal)
    elif os.path.exists(path):
        os.unlink(path)
    seconds = seconds_of(context.pull_words(transport, "file.bin", folder, *options))
    if os.path.getsize(path) != FILE_BYTES or os.path.exists(part):
        raise Failed("a pulled file is not whole")
    return seconds


def pulled_rate(*arguments, **more):
    return FILE_BYTES / pulled_seconds(*arguments, **more) / GB


def curl_rate(context, folder):
    output = os.path.join(folder, "curl.bin")
    if os.path.exists(output):
        os.unlink(output)
    return FILE_BYTES / seconds_of(context.nginx().curl("file.bin", output)) / GB


def empty_folder(parent, name):
    folder = os.path.join(parent, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    return folder


@group
def file_pull(context):
    folder = empty_folder(context.memory_folder, "pulled")
    ours, theirs = context.pairs(lambda: pulled_rate(context, folder, "--no-verify"),
                                 lambda: curl_rate(context, folder))
    yield Row("1 GiB over TCP into a tmpfs file, unverified", "GB/s", ours, theirs, "nginx sendfile, curl -o",
              target=2.0)
    os.unlink(os.path.join(folder, FILE))
    journal = interrupted_journal(context, folder)
    pulled_seconds(context, folder)
    ours, theirs = context.pairs(lambda: pulled_rate(context, folder, journal=journal),
                                 lambda: pulled_rate(context, folder, "--no-verify", journal=journal))
    yield Row("the same, verified, over existing pages", "GB/s", ours, theirs, "ours, unverified", target=0.75)
    shutil.rmtree(folder)


@group
def disk_pull(context):
    folder = empty_folder(context.disk_folder, "pulled")
    n = min(5, context.n_pairs)
    ours, theirs = context.pairs(lambda: pulled_rate(context, folder, "--no-verify"),
                                 lambda: curl_rate(context, folder), n)
    yield Row("1 GiB over TCP into a file on disk, unverified", "GB/s", ours, theirs, "nginx sendfile, curl -o")
    ours, theirs = context.pairs(lambda: pulled_rate(context, folder),
                                 lambda: pulled_rate(context, folder, "--no-verify"), n)
    yield Row("the same, verified", "GB/s", ours, theirs, "ours, unverified")
    shutil.rmtree(folder)


@group
def same_host_file(context):
    folder = empty_folder(context.memory_folder, "pulled")

    def copied_rate():
        output = os.path.join(folder, "cp.bin")
        if os.path.exists(output):
            os.unlink(output)
        return FILE_BYTES / seconds_of(["cp", os.path.join(context.served, "file.bin"), output]) / GB

    for remark, options, target in (("unverified", ["--no-verify"], 0.9), ("verified", [], None)):
        ours, theirs = context.pairs(lambda words=options: pulled_rate(context, folder, *words, transport="shm"),
                                     copied_rate)
        yield Row(f"1 GiB tmpfs to tmpfs on one host, {remark}", "GB/s", ours, theirs, "cp", target=target)
    shutil.rmtree(folder)


# ---- random reads ----

@group
def random_reads(context):
    worker, redis = context.transfer("tcp"), context.redis()
    for depth, batch, count, target in ((16, 8, 100000, 1.8), (256, 32, 200000, 3.0)):
        latencies = []

        def ours_rate(depth=depth, batch=batch, count=count, latencies=latencies):
            seconds, p50, p99 = worker.ask("random", "@", 4096, depth, batch, count)
            latencies.append((p50, p99))
            return count / seconds / 1e3

        ours, theirs = context.pairs(
            ours_rate, lambda depth=depth, count=count: redis.reads_per_second(depth, count) / 1e3)
        p50, p99 = sorted(latencies)[len(latencies) // 2]
        yield Row(f"random 4-KiB reads over TCP, {depth} deep", "kops/s", ours, theirs,
                  f"redis GET, -P {depth} -c 1", target=target, remark=f"p50 {p50:.0f} µs, p99 {p99:.0f} µs")


@group
def random_reads_one(context):
    worker, netperf = context.transfer("tcp"), context.netperf()
    ours, theirs = context.pairs(lambda: 20 / worker.ask("random", "@", 4096, 1, 1, 20000)[0],
                                 lambda: netperf.transactions_per_second() / 1e3)
    yield Row("random 4-KiB reads over TCP, 1 deep", "kops/s", ours, theirs, netperf.name, target=0.8)


# ---- shared memory ----

def size_text(size):
    return f"{size} B" if size < 1024 else f"{size >> 10} KiB" if size < MIB else f"{size >> 20} MiB"


@group
def shm_memcpy(context):
    lines = run([context.program("shm"), context.address(), str(context.n_pairs)]).splitlines()
    _, setup, pages = lines[0].split()
    yield Row("set-up of a 256-MiB arena over shm, until it can be read", "ms", [float(setup) * 1e3],
              remark=f"landing buffer on {pages} pages")
    measured = {}
    for text in lines[1:]:
        size, get, copied = text.split()
        measured.setdefault(int(size), []).append((float(get), float(copied)))
    for size, values in measured.items():
        ours, theirs = [list(column) for column in zip(*values)]
        if size < 4096:
            yield Row(f"shm read of {size_text(size)}, in order", "ns", ours, target=3, at_most=True,
                      remark=f"memcpy {sorted(theirs)[len(theirs) // 2]:.1f} ns")
        else:
            yield Row(f"shm read of {size_text(size)}, at random", "ns", ours, theirs, "memcpy", target=0.95,
                      smaller_is_better=True)


@group
def shm_ucx(context):
    worker, ucx = context.transfer("shm"), context.ucx()
    for size, count in ((8, 2000000), (4096, 500000), (65536, 50000), (MIB, 4000)):
        ours, theirs = context.pairs(
            lambda size=size, count=count: worker.ask("same", "@", size, count)[0] / count * 1e9,
            lambda size=size, count=count: ucx.seconds(size, count) * 1e9)
        yield Row(f"shm read of {size_text(size)}, the same bytes", "ns", ours, theirs, ucx.name, target=1.0,
                  smaller_is_better=True)


@group
def shm_bulk(context):
    worker = context.transfer("shm")
    ours, theirs = context.pairs(lambda: COLD_BYTES / worker.ask("bulk", COLD, MIB)[0] / GB,
                                 lambda: COLD_BYTES / worker.ask("mapped", COLD, MIB)[0] / GB)
    yield Row("512 MiB of a file over shm, 1 MiB at a time, 4-KiB pages", "GB/s", ours, theirs,
              "memcpy from a fresh mapping")


# ---- RDMA ----

RDMA_SHAPES = ((4 * KIB, 1, 1000, 0.95), (64 * KIB, 8, 400, 0.95), (MIB, 32, 96, 1.5))


@group
def rdma(context):
    """The same bytes again and again over one rail, as perftest does it."""
    hosts = context.rdma_hosts()
    for op in ("read", "write"):
        for size, depth, count, target in RDMA_SHAPES:
            ours, theirs = context.pairs(
                lambda shape=(op, size, depth, count): hosts.ours(*shape),
                lambda shape=(op, size, depth, count): hosts.perftest(*shape), n=max(15, context.n_pairs))
            yield Row(f"RDMA {op} of {size_text(size)}, {depth} deep, two Soft-RoCE hosts", "MB/s", ours, theirs,
                      f"ib_{op}_bw", target=target)


# ---- the control stream ----

@group
def table(context):
    worker = Worker([context.program("transfer"), context.serve(context.many_files(10000)), "tcp"])
    try:
        times = context.singles(lambda: worker.ask("list"))
    finally:
        worker.stop()
    if any(count < 10000 for _, count in times):
        raise Failed("the table is not whole")
    yield Row("a table of 10,000 regions, from nothing to listed", "ms", [seconds * 1e3 for seconds, _ in times],
              target=50, at_most=True)


# ---- between a program and NVIDIA's libraries ----

@group
def nccl(context):
    yield from nvidia.calls(context)
    yield from nvidia.load(context)
    yield from nvidia.ranks(context)


@group
def nvtx(context):
    yield from nvidia.ranges(context)


@group
def codec(context):
    """Rows of bench/codec.c: "  NAME  MEDIAN UNIT  [LEAST-MOST]" under headings."""
    heading, found = "", {}
    for text in run([context.program("codec")], timeout=300).splitlines():
        if not text.startswith(" "):
            heading = text
        elif "[" in text:
            name, unit = text[:30].strip(), text[30:].split()[1]
            low, high = text[text.index("[") + 1:text.index("]")].split("-")
            found[heading.split(" (")[0], name] = (float(text[30:].split()[0]), float(low), float(high), unit)
    yield from codec_rows(found)


def codec_rows(found):
    for regions, gates in (("64 regions", {"encode": 40, "decode": 50}), ("4096 regions", {})):
        key = f"VerbsServerParams, {regions}"
        memcpy = found[key, "memcpy"]
        for verb in ("encode", "decode"):
            median, low, high, _ = found[key, verb]
            yield Row(f"{verb} {key}", "ns", [low, median, high], target=gates.get(verb), at_most=True)
            yield Row("the same, in memcpys of the same bytes", "ns", [median], [memcpy[0]], "memcpy", target=6,
                      at_most=True, smaller_is_better=True)
    for (heading, name), (median, low, high, _) in found.items():
        if heading.startswith("Handshake"):
            yield Row(f"{heading}: {name}", "µs", [low, median, high], target=200, at_most=True)
