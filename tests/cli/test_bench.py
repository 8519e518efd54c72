#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys bench: what it measures, what it prints, what it refuses."""
import contextlib
import os
import signal
import subprocess
import tempfile

from gpusys_cli import DONE, FAILED, GPUSYS, NOT_HERE, USAGE, CommandTest, main

QUICK = ("--time", "10ms", "--sizes", "8,4K", "--depths", "1,16")


@contextlib.contextmanager
def serving(*words):
    """The address of a server with these words."""
    server = subprocess.Popen([GPUSYS, "serve", "--listen", "127.0.0.1:0", *words], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        line = server.stdout.readline()
        if not line.startswith("ready at "):
            raise AssertionError(f"gpusys serve said {line!r}")
        yield line.split()[2].rstrip(":")
    finally:
        server.terminate()
        server.communicate(timeout=60)


@contextlib.contextmanager
def served_file(size, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.bin")
        with open(path, "wb") as file:
            file.write(os.urandom(size))
        with serving(path, *words) as address:
            yield address


class Bench(CommandTest):
    def check_point(self, point):
        latency = point["latency_ns"]
        self.assertGreater(point["operations"], 0)
        self.assertGreater(latency["p50"], 0)
        self.assertLessEqual(latency["p50"], latency["p99"])
        self.assertLessEqual(latency["p99"], latency["p99_9"])
        self.assertLessEqual(latency["p99_9"], latency["max"])
        rate = point["operations"] / point["seconds"]
        self.assertAlmostEqual(point["kops_per_second"], rate / 1e3, delta=rate / 1e3 / 1e6)
        self.assertAlmostEqual(point["gib_per_second"], rate * point["size_bytes"] / 2**30, delta=rate)

    def points_of(self, run):
        for point in run["points"]:
            self.check_point(point)
        return [(point["op"], point["size_bytes"], point["depth"]) for point in run["points"]]

    def test_local_measures_both_transports(self):
        document = self.json("bench", "--local", *QUICK)
        self.assertFalse(document["interrupted"])
        self.assertEqual([run["transport"] for run in document["runs"]], ["shm", "tcp"])
        for run in document["runs"]:
            self.assertEqual(self.points_of(run), [("read", size, depth) for size in (8, 4096) for depth in (1, 16)])
            self.assertEqual(run["target"]["kind"], "arena")
            self.assertIsNone(run["target"]["name"])
            self.assertEqual(run["offsets"], "random")
            self.assertTrue(run["reason"])
            self.assertIn(run["buffer"]["pages"], ("normal", "transparent", "huge"))

    def test_one_transport_reading_and_writing_in_order(self):
        document = self.json("bench", "--local", "--require", "tcp", "--read", "--write", "--sequential", *QUICK)
        self.assertEqual([run["transport"] for run in document["runs"]], ["tcp"])
        run = document["runs"][0]
        self.assertEqual(self.points_of(run),
                         [(op, size, depth) for op in ("read", "write") for size in (8, 4096) for depth in (1, 16)])
        self.assertEqual(run["offsets"], "sequential")

    def test_small_operations_are_submitted_together(self):
        document = self.json("bench", "--local", "--require", "tcp", "--time", "10ms", "--sizes", "4K,1M",
                             "--depths", "1,2,16,64")
        batches = {(point["size_bytes"], point["depth"]): point["batch"] for point in document["runs"][0]["points"]}
        self.assertEqual(batches, {(4096, 1): 1, (4096, 2): 1, (4096, 16): 8, (4096, 64): 32,
                                   (1 << 20, 1): 1, (1 << 20, 2): 1, (1 << 20, 16): 1, (1 << 20, 64): 1})

    def test_text(self):
        out, err = self.expect(DONE, "bench", "--local", *QUICK)
        lines = out.splitlines()
        self.assertEqual(err, "")
        self.assertRegex(lines[0], r"^shm to a peer on this host: .")
        self.assertRegex(lines[1], r"^  an arena of 128 MiB, random offsets, ready after ")
        self.assertRegex(lines[2], r"^  landing buffer of 64\.0 MiB, (normal|transparent|huge) pages$")
        self.assertEqual(lines[3].split(), ["op", "size", "depth", "GiB/s", "kops/s", "p50", "p99", "p99.9"])
        self.assertRegex(lines[4], r"^  read +8 B +1 ")
        self.assertRegex(lines[7], r"^  read +4\.00 KiB +16 ")
        self.assertEqual(lines[8], "")
        self.assertRegex(lines[9], r"^tcp to a peer on this host: .")
        self.assertEqual(len(lines), 17)
        self.assertEqual({len(line) for line in lines[13:17]}, {len(lines[12])})

    def test_a_peer_that_gives_an_arena(self):
        with served_file(4096, "--arena", "32M") as address:
            run = self.json("bench", address, *QUICK)["runs"][0]
        self.assertEqual(run["peer"], address)
        self.assertEqual((run["target"]["kind"], run["target"]["bytes"]), ("arena", 32 << 20))
        self.assertEqual(len(self.points_of(run)), 4)

    def test_a_peer_with_files_only(self):
        for transport in ("shm", "tcp"):
            with served_file(1 << 20) as address:
                run = self.json("bench", address, "--require", transport, *QUICK)["runs"][0]
            self.assertEqual(run["transport"], transport)
            self.assertEqual((run["target"]["kind"], run["target"]["name"], run["target"]["bytes"]),
                             ("region", "weights.bin", 1 << 20))
            self.assertEqual(len(self.points_of(run)), 4)

    def test_a_region_by_name(self):
        with served_file(1 << 20, "--arena", "32M") as address:
            run = self.json("bench", address, "--region", "weights.bin", *QUICK)["runs"][0]
            self.assertEqual(run["target"]["name"], "weights.bin")
            _, err = self.expect(FAILED, "bench", address, "--region", "weight.bin", *QUICK)
        self.assertIn(f'the peer serves no region "weight.bin"\n  try     gpusys ls {address}', err)

    def test_writing_wants_an_arena(self):
        with served_file(1 << 20) as address:
            out, err = self.expect(FAILED, "bench", address, "--write", *QUICK)
        self.assertEqual(out, "")
        self.assertIn("cannot write: weights.bin, 1.00 MiB is read-only", err)
        self.assertIn("--arena", err)

    def test_what_does_not_fit_is_left_out(self):
        with served_file(100000) as address:
            out, err = self.expect(DONE, "bench", address, "--time", "10ms", "--sizes", "64K,1M", "--depths", "1,4096")
        self.assertEqual(len(out.splitlines()), 5)
        self.assertIn("64.0 KiB, 4096 deep, is more than the landing buffer holds: left out", err)
        self.assertIn("1.00 MiB is more than the region holds: left out", err)

    def test_nobody_there(self):
        with served_file(1) as address:
            pass
        out, err = self.expect(FAILED, "bench", address, *QUICK)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith(f"gpusys: {address}: "), err)

    def test_a_transport_that_is_not_there(self):
        _, err = self.expect(NOT_HERE, "bench", "--local", "--require", "verbs", *QUICK,
                             env={"GPUSYS_LIBIBVERBS": "/nonexistent"})
        self.assertIn("verbs", err)

    def test_misuse(self):
        for words, complaint in (
                ((), "either a peer's address or --local is wanted"),
                (("--local", "127.0.0.1:1"), "either a peer's address or --local is wanted"),
                (("--local", "--require", "ipx"), "--require takes shm, tcp or verbs"),
                (("--local", "--sizes", "4K,x"), '"x" is not one of the possible sizes'),
                (("--local", "--sizes", "0"), '"0" is not one of the possible sizes'),
                (("--local", "--sizes", "2G"), '"2G" is not one of the possible sizes'),
                (("--local", "--depths", "4097"), '"4097" is not one of the possible depths (1 to 4096)'),
                (("--local", "--depths", "1K"), '"1K" is not one of the possible depths'),
                (("--local", "--depths", ",".join(["1"] * 33)), "more than 32 depths")):
            out, err = self.expect(USAGE, "bench", *words)
            self.assertEqual(out, "")
            self.assertIn(complaint, err)

    def test_interrupted(self):
        bench = subprocess.Popen([GPUSYS, "bench", "--local", "--require", "tcp", "--time", "600s", "--sizes", "4K",
                                  "--depths", "16,256"], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        heading = [bench.stdout.readline() for _ in range(3)]
        self.assertRegex(heading[0], "^tcp to ")
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=60)  # 60 s: well before the point would end by itself
        self.assertEqual(bench.returncode, FAILED, err)
        self.assertIn("interrupted", err)
        self.assertLessEqual(len(out.splitlines()), 2)  # the heading of the table, and the line begun


if __name__ == "__main__":
    main()
