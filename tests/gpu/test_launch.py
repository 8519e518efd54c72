#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""examples/all_reduce.c as people start it: by hand, by mpirun of two makers, in torchrun's environment, and two jobs that
meet by mistake. Over the stand-ins of NVIDIA's libraries.
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["ALL_REDUCE"]
LAUNCHERS = ("GPUSYS_", "OMPI_", "PMI", "PMIX_", "MPI_", "SLURM_", "MASTER_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_")
DEADLINE_S = 90


def environment(**more):
    """The stand-ins, eight GPUs, and nothing that a launcher of this test run may have left."""
    keep = {key: value for key, value in os.environ.items()
            if not key.startswith(LAUNCHERS) or key in ("GPUSYS_LIBCUDA", "GPUSYS_LIBNCCL")}
    return {**keep, "FAKE_CUDA_DEVICES": "8", **{key: str(value) for key, value in more.items()}}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ranks:
    """Processes of one job, started by hand."""

    def __init__(self, environments):
        self.running = [subprocess.Popen([PROGRAM], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                        for env in environments]

    def end(self):
        """(exit code, output) of each rank."""
        try:
            return [(process, process.communicate(timeout=DEADLINE_S)[0]) for process in self.running]
        finally:
            for process in self.running:
                process.kill()


def by_hand(count, port, **more):
    return [environment(GPUSYS_RANK=rank, GPUSYS_RANKS=count, GPUSYS_LOCAL_RANK=rank, GPUSYS_LOCAL_RANKS=count,
                        GPUSYS_MASTER=f"127.0.0.1:{port}", **more) for rank in range(count)]


class ByHand(unittest.TestCase):
    def started(self, environments):
        ended = Ranks(environments).end()
        for rank, (process, output) in enumerate(ended):
            self.assertEqual(process.returncode, 0, f"rank {rank}: {output}")
        return ended[0][1]

    def test_two_four_and_eight_ranks(self):
        for count in (2, 4, 8):
            with self.subTest(ranks=count):
                output = self.started(by_hand(count, free_port()))
                self.assertIn(f"{count} ranks: the sum of 1048576 floats is right ({count * (count + 1) // 2})", output)

    def test_one_rank(self):
        self.assertIn("1 ranks: the sum", self.started(by_hand(1, free_port())))

    def test_the_environment_of_torchrun(self):
        port = free_port()
        output = self.started([environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_PORT=port,
                                           MASTER_ADDR="127.0.0.1", TORCHELASTIC_RUN_ID="7") for rank in range(2)])
        self.assertIn("2 ranks: the sum", output)

    def test_no_launcher(self):
        (process, output), = Ranks([environment()]).end()
        self.assertEqual(process.returncode, 1)
        self.assertIn("GPUSYS_RANK", output)

    def test_no_gpu(self):
        (process, output), = Ranks([{**by_hand(1, free_port())[0], "FAKE_CUDA_DEVICES": "0"}]).end()
        self.assertEqual(process.returncode, 1)
        self.assertIn("CUDA_ERROR_NO_DEVICE", output)

    def test_two_jobs_at_one_address(self):
        port = free_port()
        one = by_hand(2, port, GPUSYS_JOB_ID="1" * 32)
        other = by_hand(2, port, GPUSYS_JOB_ID="2" * 32)
        first = Ranks(one[:1])
        stray = Ranks(other[1:])
        (process, output), = stray.end()
        self.assertEqual(process.returncode, 1)
        self.assertIn("another job", output)
        (process, output), = Ranks(other[:1]).end()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(output, "in use|another job")
        for process, output in Ranks(one[1:]).end() + first.end():
            self.assertEqual(process.returncode, 0, output)

    def test_two_ranks_with_one_gpu(self):
        port = free_port()
        for process, output in Ranks([{**env, "FAKE_CUDA_DEVICES": "1", "FAKE_CUDA_UUIDS": "5", "GPUSYS_LOCAL_RANK": "0"}
                                      for env in by_hand(2, port)]).end():
            self.assertEqual(process.returncode, 1)
            self.assertRegex(output, "ranks 0 and 1 on .* both use GPU-")


class ByMpirun(unittest.TestCase):
    def start(self, *command):
        with tempfile.TemporaryDirectory() as runtime:
            # Open MPI wants a HOME, and root to be sure.
            env = environment(XDG_RUNTIME_DIR=runtime, OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
            ran = subprocess.run([*command, PROGRAM], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=DEADLINE_S, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertIn("4 ranks: the sum of 1048576 floats is right (10)", ran.stdout)

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "no mpich")
    def test_mpich(self):
        self.start("mpirun.mpich", "-n", "4")

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI")
    def test_open_mpi(self):
        self.start("mpirun.openmpi", "--oversubscribe", "-n", "4")


if __name__ == "__main__":
    sys.exit(unittest.main())
