#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys doctor: its verdicts, its two forms, what --require does, and checks that misbehave."""
import os
import pathlib
import resource
import subprocess
import tempfile
import time
import unittest

from gpusys_cli import DONE, FAILED, USAGE, GPUSYS, CommandTest, main

VERDICTS = {"ok", "missing", "broken", "not needed"}
CHECKS = ["open-files", "locked-memory", "memfd", "shm-size", "huge-pages", "tcp-loopback", "tcp6-loopback",
          "tcp-reno", "unix-sockets", "runtime-dir", "kernel", "openat2", "preadv2-nowait", "populate-read",
          "copy-file-range", "cachestat", "clock", "processors", "rdma-modules", "rdma-devices", "rdma-library",
          "rdma-providers", "rdma-ports", "rdma-gids", "rdma-mtu", "rdma-memory", "cuda-driver", "cuda-gpudirect", "nccl-library",
          "nccl-versions", "nccl-copies", "nccl-environment", "nccl-interface", "nccl-shm"]
FAKE = os.environ.get("FAKE_IBVERBS", "")
CUDA, NCCL = os.environ.get("FAKE_CUDA", ""), os.environ.get("FAKE_NCCL", "")


class Doctor(CommandTest):
    def checks(self, *words, **more):
        return {check["name"]: check for check in self.json("doctor", *words, **more)["checks"]}

    def test_json(self):
        document = self.json("doctor")
        self.assertEqual(next(iter(document)), "schema")
        self.assertEqual([c["name"] for c in document["checks"]][:len(CHECKS)], CHECKS)
        for check in document["checks"]:
            self.assertEqual(set(check), {"name", "title", "verdict", "required", "evidence", "consequence", "fix"})
            self.assertIn(check["verdict"], VERDICTS)
            self.assertTrue(check["evidence"])
            self.assertEqual(bool(check["fix"]), check["verdict"] in ("missing", "broken"), check)
            self.assertEqual(bool(check["consequence"]), bool(check["fix"]))
        counts = {v: sum(c["verdict"] == v for c in document["checks"]) for v in VERDICTS}
        self.assertEqual(document["counts"], counts)

    def test_text_says_the_same(self):
        out, err = self.expect(DONE, "doctor")
        self.assertEqual(err, "")
        lines = {line[12:30].strip(): line for line in out.splitlines() if line[:1].strip()}
        for name, check in self.checks().items():
            self.assertTrue(lines[name].startswith(check["verdict"] + " "), lines[name])
        self.assertRegex(out.splitlines()[-1], r"^\d+ ok, \d+ missing, \d+ broken, \d+ not needed$")

    def test_require_what_is_there(self):
        self.expect(DONE, "doctor", "--require", "kernel,unix-sockets", "--require=memfd")
        self.assertTrue(self.checks("--require", "kernel")["kernel"]["required"])

    def test_require_what_is_not_there(self):
        _, err = self.expect(FAILED, "doctor", "--self-test", "--timeout", "2s", "--require",
                             "kernel,self-test-noisy")
        self.assertEqual(err, "gpusys: doctor: self-test-noisy is required and missing: a noisy library\n")

    def test_require_an_unknown_name(self):
        out, err = self.expect(USAGE, "doctor", "--require", "kernel,nosuch")
        self.assertEqual(out, "")
        self.assertTrue(err.startswith('gpusys: doctor: there is no check called "nosuch"\n  checks  '), err)
        for name in CHECKS:
            self.assertIn(" " + name, err)

    def test_self_test_is_not_a_usual_check(self):
        self.expect(USAGE, "doctor", "--require", "self-test-fine")

    def test_quick(self):
        """50 ms is what it may take; the test allows five times that, for the best of five."""
        times = []
        for _ in range(5):
            start = time.monotonic()
            self.expect(DONE, "doctor")
            times.append(time.monotonic() - start)
        self.assertLess(min(times), 0.250)

    def test_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            out, _ = self.expect(DONE, "doctor", env={"XDG_RUNTIME_DIR": folder})
            self.assertIn(f"{folder}/gpusys will be made when it is first used", out)
            self.assertEqual(os.listdir(folder), [])


class Machine(CommandTest):
    """Take something away, and doctor must see it."""

    def verdict(self, name, **more):
        checks = self.json("doctor", **more)["checks"]
        return next(check for check in checks if check["name"] == name)

    def test_few_descriptors(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        check = self.verdict("open-files", preexec_fn=few)
        self.assertEqual((check["verdict"], check["evidence"]), ("missing", "256 open descriptors, 256 at most"))
        self.assertIn("ulimit -n 65536", check["fix"])

    def test_one_processor(self):
        one = min(os.sched_getaffinity(0))
        check = self.verdict("processors", preexec_fn=lambda: os.sched_setaffinity(0, {one}))
        self.assertEqual(check["verdict"], "missing")
        self.assertTrue(check["evidence"].startswith("1 of "))

    def test_runtime_dir_that_others_can_enter(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/gpusys")
            os.chmod(folder + "/gpusys", 0o755)
            check = self.verdict("runtime-dir", env={"XDG_RUNTIME_DIR": folder})
            self.assertEqual(check["verdict"], "broken")
            self.assertEqual(check["evidence"], f"{folder}/gpusys: mode 0755, owner {os.geteuid()}")
            os.chmod(folder + "/gpusys", 0o700)
            check = self.verdict("runtime-dir", env={"XDG_RUNTIME_DIR": folder})
            self.assertEqual((check["verdict"], check["evidence"]), ("ok", f"{folder}/gpusys is ours alone"))

    def test_runtime_dir_that_is_a_link(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink("/tmp", folder + "/gpusys")
            self.assertEqual(self.verdict("runtime-dir", env={"XDG_RUNTIME_DIR": folder})["verdict"], "broken")

    def test_runtime_dir_without_its_parent(self):
        check = self.verdict("runtime-dir", env={"GPUSYS_RUNTIME_DIR": "/nonexistent/gpusys"})
        self.assertEqual(check["verdict"], "missing")
        self.assertEqual(check["evidence"], "/nonexistent/gpusys: No such file or directory")

    def test_name_that_is_not_utf8(self):
        done = subprocess.run([GPUSYS, "doctor", "--json"], capture_output=True, timeout=60,
                              env={**os.environ, "GPUSYS_RUNTIME_DIR": b"/nonexistent/\xff\x1b[31m/gpusys"})
        self.assertEqual(done.returncode, DONE)
        self.assertIn(rb"/nonexistent/\\xff\\x1b[31m/gpusys", done.stdout)


@unittest.skipUnless(FAKE and os.path.exists(FAKE), "built without RDMA")
class Rdma(CommandTest):
    """RDMA ports as a stand-in libibverbs has them: doctor must see what is amiss."""

    def found(self, devices, library=FAKE):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(devices)
            file.flush()
            checks = self.json("doctor", env={"GPUSYS_LIBIBVERBS": library, "FAKE_IBVERBS_CONFIG": file.name})["checks"]
        return {c["name"][5:]: (c["verdict"], c["evidence"]) for c in checks if c["name"].startswith("rdma-")}

    def test_all_is_well(self):
        found = self.found("device roce0\nport 1\ngid 0 fe80::1 roce2 lo\ngid 1 127.0.0.1 roce2 lo\n"
                           "device ib0\nport 1\nlink_layer infiniband\nlid 7\n")
        self.assertEqual(found["library"], ("ok", os.path.realpath(FAKE)))
        self.assertEqual(found["ports"], ("ok", "2 of 2 are up: roce0:1 100 Gb/s; ib0:1 100 Gb/s"))
        self.assertEqual(found["gids"], ("ok", "roce0:1 GID 1 127.0.0.1; ib0:1 by LID 7"))
        self.assertEqual(found["mtu"], ("ok", "roce0:1 4096; ib0:1 4096"))
        self.assertEqual(found["memory"][0], "ok")
        self.assertTrue(found["memory"][1].startswith("64 MiB were registered (the memlock limit is "), found)

    def test_no_device(self):
        found = self.found("# none\n")
        for name in ("ports", "gids", "mtu"):
            self.assertEqual(found[name], ("not needed", "there is no RDMA device"))
        self.assertEqual(found["memory"][0], "not needed")

    def test_no_library(self):
        found = self.found("", "/nonexistent/libibverbs.so.1")
        self.assertIn(found["library"][0], ("not needed", "missing"))  # where devices are, it is missed
        self.assertEqual(found["providers"], ("not needed", "libibverbs is not there"))

    def test_port_is_down(self):
        found = self.found("device roce0\nport 1\nstate down\n")
        self.assertEqual(found["ports"], ("broken", "0 of 1 are up: roce0: the port is DOWN"))
        self.assertEqual(found["gids"], ("not needed", "no port is up"))
        found = self.found("device roce0\nport 1\nstate down\nport 2\ngid 0 127.0.0.1 roce2 lo\n")
        self.assertEqual(found["ports"], ("ok", "1 of 2 are up: roce0:2 100 Gb/s; roce0: the port is DOWN"))

    def test_link_local_only(self):
        found = self.found("device roce0\nport 1\ngid 0 fe80::1 roce2 lo\n")
        self.assertEqual(found["gids"], ("missing", "roce0:1 GID 0 fe80::1: RoCE v2, link-local, of use on its own "
                                                    "segment only"))
        found = self.found("device roce0\nport 1\n")
        self.assertEqual(found["gids"], ("missing", "roce0:1 has none"))

    def test_small_mtu(self):
        found = self.found("device roce0\nport 1\nactive_mtu 1024\ngid 0 127.0.0.1 roce2 lo\n")
        self.assertEqual(found["mtu"][0], "missing")  # lo carries more
        self.assertTrue(found["mtu"][1].startswith("roce0:1 is at 1024, though lo carries 4096 (its MTU is "), found)

    def test_memory_cannot_be_registered(self):
        found = self.found("memlock_bytes 4096\ndevice roce0\nport 1\ngid 0 127.0.0.1 roce2 lo\n")
        self.assertEqual(found["memory"][0], "missing")
        self.assertIn("Cannot allocate memory", found["memory"][1])
        self.assertIn("the memlock limit is ", found["memory"][1])

    def test_providers_of_another_version(self):
        """A real provider beside the stand-in, which has not the private version that it wants."""
        real = sorted(pathlib.Path("/usr/lib").glob("*/libibverbs/librxe-rdmav*.so"))
        if not real:
            self.skipTest("no provider is installed")
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/libibverbs")
            os.symlink(real[0], f"{folder}/libibverbs/{real[0].name}")
            copy = folder + "/libibverbs.so.1"
            pathlib.Path(copy).write_bytes(pathlib.Path(FAKE).read_bytes())
            verdict, evidence = self.found("device roce0\nport 1\n", copy)["providers"]
        self.assertEqual(verdict, "broken")
        self.assertRegex(evidence, rf"^0 load, 1 do not: {real[0].name}: version `IBVERBS_PRIVATE_\d+' not found")


@unittest.skipUnless(CUDA and os.path.exists(CUDA), "built without the stand-ins")
class Gpu(CommandTest):
    """The CUDA driver and NCCL, as stand-ins have them or as they are absent."""

    def found(self, **env):
        with_them = {"GPUSYS_LIBCUDA": CUDA, "GPUSYS_LIBNCCL": NCCL, **env}
        checks = self.json("doctor", env=with_them)["checks"]
        return {c["name"]: (c["verdict"], c["evidence"]) for c in checks if c["name"][:5] in ("cuda-", "nccl-")}

    def test_all_is_well(self):
        found = self.found(FAKE_CUDA_DEVICES="1")
        self.assertEqual(found["cuda-driver"][0], "ok")
        self.assertTrue(found["cuda-driver"][1].startswith("1 GPU, CUDA 13.0, "), found)
        self.assertEqual(found["nccl-library"][0], "ok")
        self.assertIn(os.path.realpath(NCCL), found["nccl-library"][1])

    def test_nothing_there(self):
        found = self.found(GPUSYS_LIBCUDA="/nonexistent/libcuda.so.1", GPUSYS_LIBNCCL="/nonexistent/libnccl.so.2")
        self.assertIn(found["cuda-driver"][0], ("missing", "not needed"))
        self.assertIn(found["nccl-library"][0], ("missing", "not needed"))
        self.assertEqual(found["cuda-gpudirect"][0], "not needed")

    def test_settings(self):
        found = self.found(NCCL_IB_HCAA="mlx5", NCCL_SOCKET_IFNAME="=nosuch")
        self.assertEqual(found["nccl-environment"], ("missing", "NCCL does not know NCCL_IB_HCAA=mlx5"))
        self.assertEqual(found["nccl-interface"][0], "broken")

    def test_required(self):
        self.expect(DONE, "doctor", "-q", "--require", "cuda-driver,nccl-library",
                    env={"GPUSYS_LIBCUDA": CUDA, "GPUSYS_LIBNCCL": NCCL})


class Child(CommandTest):
    """Checks in a process of their own that misbehave as a vendor's library might."""

    def setUp(self):
        start = time.monotonic()
        document = self.json("doctor", "--self-test", "--timeout", "2s")
        self.took = time.monotonic() - start
        self.found = {c["name"][10:]: c for c in document["checks"] if c["name"].startswith("self-test-")}

    def test_verdicts(self):
        expected = {
            "fine": ("ok", "answered"),
            "noisy": ("missing", "a noisy library"),
            "crash": ("broken", "the check crashed: signal 11 (Segmentation fault)"),
            "hang": ("broken", "the check did not come back in time and was ended"),
            "fork": ("broken", "the check did not come back in time and was ended"),
            "exit": ("broken", "the check ended with exit code 3 and no answer"),
            "garbage": ("broken", "the check answered something unreadable (7 bytes)"),
            "flood": ("broken", "the check answered something unreadable (1024 bytes)"),
        }
        self.assertEqual({k: (c["verdict"], c["evidence"]) for k, c in self.found.items()}, expected)
        self.assertLess(self.took, 12)  # one deadline for all of them, not one each
        limit = time.monotonic() + 10  # the kernel ends them in its own time
        while self.children() and time.monotonic() < limit:
            os.sched_yield()
        self.assertEqual(self.children(), [])

    @staticmethod
    def children():
        """Processes of this command's doctor-child that are still there."""
        left = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                ours = os.path.samefile(f"/proc/{pid}/exe", GPUSYS)
            except OSError:
                continue
            if b"doctor-child" in words and ours:
                left.append(words)
        return left


if __name__ == "__main__":
    main()
