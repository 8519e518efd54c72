#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys nccl: over stand-ins for libcuda and libnccl, with one of them absent, and with one that hangs."""
import os
import pathlib
import tempfile
import time
import unittest

from gpusys_cli import DONE, FAILED, NOT_HERE, USAGE, CommandTest, main

CUDA = os.environ.get("FAKE_CUDA", "")
NCCL = os.environ.get("FAKE_NCCL", "")
ABSENT = "/nonexistent/lib.so"
LOOKS = ["driver", "gpus", "library", "versions", "copies", "environment", "interface", "rdma", "gpudirect", "shm",
         "memlock", "open-files", "iommu", "acs", "fabric", "container"]
VERDICTS = {"ok", "missing", "broken", "not needed"}


class Nccl(CommandTest):
    def setUp(self):
        for name in [n for n in os.environ if n.startswith("NCCL_")]:
            value = os.environ.pop(name)
            self.addCleanup(os.environ.__setitem__, name, value)

    @staticmethod
    def env(cuda=CUDA, nccl=NCCL, **more):
        return {"GPUSYS_LIBCUDA": cuda, "GPUSYS_LIBNCCL": nccl, **more}

    def document(self, code=DONE, words=(), **more):
        return self.json("nccl", *words, code=code, env=self.env(**more))

    def checks(self, code=DONE, words=(), **more):
        return {c["name"]: c for c in self.document(code, words, **more)["checks"]}


class Absent(Nccl):
    def test_no_driver(self):
        out, err = self.expect(NOT_HERE, "nccl", env=self.env(cuda=ABSENT, nccl=ABSENT))
        self.assertIn("gpusys: nccl: there is no CUDA driver: ", err)
        self.assertIn("gpusys: nccl: there is no libnccl: NCCL: not found: " + ABSENT, err)
        self.assertEqual(err.count("\n  try     "), 2)
        self.assertTrue(out.startswith("no library: NCCL: not found: " + ABSENT), out)

    def test_no_driver_in_json(self):
        document = self.document(NOT_HERE, cuda=ABSENT, nccl=ABSENT)
        self.assertEqual(list(document), ["schema", "library", "problem", "functions", "counts", "checks"])
        self.assertEqual((document["library"], document["functions"]), (None, []))
        self.assertEqual(set(document["problem"]), {"message", "detail", "cause", "hint"})
        self.assertEqual([c["name"] for c in document["checks"]], LOOKS)
        for check in document["checks"]:
            self.assertEqual(set(check), {"name", "title", "verdict", "evidence", "consequence", "fix"})
            self.assertIn(check["verdict"], VERDICTS)
            self.assertTrue(check["evidence"] and check["title"])
            self.assertEqual(bool(check["fix"]), check["verdict"] in ("missing", "broken"), check)
        counts = {v: sum(c["verdict"] == v for c in document["checks"]) for v in VERDICTS}
        self.assertEqual(document["counts"], counts)

    def test_quiet(self):
        out, err = self.expect(NOT_HERE, "nccl", "--quiet", env=self.env(cuda=ABSENT, nccl=ABSENT))
        self.assertEqual(out, "")
        self.assertIn("there is no CUDA driver", err)

    def test_usage(self):
        self.expect(USAGE, "nccl", "one")

    def test_library_that_is_none(self):
        with tempfile.NamedTemporaryFile("w", suffix=".so") as file:
            file.write("not a library\n")
            file.flush()
            checks = self.checks(NOT_HERE, cuda=ABSENT, nccl=file.name)
        self.assertEqual(checks["library"]["verdict"], "broken")
        self.assertIn("damaged or made for another machine", checks["library"]["evidence"])


@unittest.skipUnless(CUDA and os.path.exists(CUDA) and os.path.exists(NCCL), "built without the stand-ins")
class StandIns(Nccl):
    def old(self, name):
        return str(pathlib.Path(NCCL).with_name(f"libnccl_{name}.so"))

    def test_all_is_well(self):
        document = self.document(FAKE_CUDA_DEVICES="2")
        self.assertEqual(document["library"]["version"], "2.32.3")
        self.assertEqual(document["library"]["code"], 23203)
        self.assertEqual(os.path.realpath(document["library"]["path"]), os.path.realpath(NCCL))
        self.assertEqual(document["library"]["copies"], [os.path.realpath(NCCL)])
        self.assertFalse(document["library"]["reused"])
        self.assertIsNone(document["problem"])
        checks = {c["name"]: c for c in document["checks"]}
        self.assertEqual(checks["driver"]["verdict"], "ok")
        self.assertRegex(checks["driver"]["evidence"], r"^2 GPUs, CUDA 13\.0, kernel driver ")
        self.assertRegex(checks["gpus"]["evidence"], r"^Fake GPU 0 GPU-[0-9a-f-]+, 1 GPU-[0-9a-f-]+$")
        self.assertEqual(document["counts"]["broken"], 0)

    def test_text(self):
        out, err = self.expect(DONE, "nccl", env=self.env())
        self.assertEqual(err, "")
        head, rest = out.split("\n", 1)
        self.assertEqual(head, f"NCCL 2.32.3  {os.path.realpath(NCCL)}")
        self.assertIn("\n  2.18    ncclCommSplit\n", rest)
        self.assertRegex(rest, r"\nok          library             2\.32\.3, ")
        self.assertRegex(out.splitlines()[-1], r"^\d+ ok, \d+ missing, \d+ broken, \d+ not needed$")

    def test_old_library(self):
        """Every function that it lacks is listed, with the version that brought it."""
        document = self.document(nccl=self.old("210"))
        functions = {f["name"]: f for f in document["functions"]}
        self.assertEqual(document["library"]["version"], "2.10.3")
        self.assertTrue(functions["ncclAllReduce"]["present"])
        self.assertEqual(functions["ncclCommSplit"],
                         {"name": "ncclCommSplit", "since": "2.18", "present": False, "in_table": True})
        self.assertFalse(functions["ncclCommInitRankConfig"]["present"])
        library = next(c for c in document["checks"] if c["name"] == "library")
        self.assertEqual(library["verdict"], "missing")
        self.assertIn("2.14 or newer", library["fix"])
        out, _ = self.expect(DONE, "nccl", env=self.env(nccl=self.old("218")))
        has, lacks = out.split(" functions that it lacks, by the version that brought them\n")
        self.assertIn("ncclCommSplit", has)
        self.assertNotIn("ncclCommShrink", has)
        self.assertRegex(lacks, r"(?m)^  2\.27    ncclCommShrink ")

    def test_duplicate_gpu(self):
        uuid = "GPU-00000000-0000-0000-0000-0000000000ab"
        checks = self.checks(FAILED, FAKE_CUDA_DEVICES="2", FAKE_CUDA_UUIDS=f"{uuid},{uuid}")
        self.assertEqual(checks["gpus"]["verdict"], "broken")
        self.assertEqual(checks["gpus"]["evidence"], f"0 and 1 are {uuid}")
        _, err = self.expect(FAILED, "nccl", "-q", env=self.env(FAKE_CUDA_DEVICES="2",
                                                               FAKE_CUDA_UUIDS=f"{uuid},{uuid}"))
        self.assertEqual(err, f"gpusys: nccl: gpus is broken: 0 and 1 are {uuid}\n")

    def test_interface_that_is_not_there(self):
        check = self.checks(FAILED, NCCL_SOCKET_IFNAME="nosuch")["interface"]
        self.assertEqual(check["verdict"], "broken")
        self.assertTrue(check["evidence"].startswith(
            "NCCL_SOCKET_IFNAME=nosuch: no interface has a name that begins so; there are "), check)
        self.assertIn("no socket interface found", check["consequence"])

    def test_setting_that_it_does_not_know(self):
        check = self.checks(NCCL_SOKET_IFNAME="lo")["environment"]
        self.assertEqual(check["verdict"], "missing")
        self.assertEqual(check["evidence"], "NCCL does not know NCCL_SOKET_IFNAME=lo")
        self.assertTrue(check["fix"].startswith("did you mean NCCL_SOCKET_IFNAME?"))

    def test_configuration_that_is_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "conf")
            os.mkfifo(fifo)
            for path in (fifo, "/dev/zero"):
                row = self.checks(NCCL_CONF_FILE=path)["environment"]
                self.assertIn(path + " (not a small file that can be read)", row["evidence"])
            # In doctor this look is a row too, and nothing there may wait either.
            self.run_gpusys("doctor", env=self.env(NCCL_CONF_FILE=fifo), timeout=30)

    def test_library_that_is_a_fifo(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "libnccl.so.2")
            os.mkfifo(fifo)
            start = time.monotonic()
            _, err = self.expect(FAILED, "nccl", env=self.env(nccl=fifo))
            self.assertIn("is not a regular file", err)
            _, err = self.expect(FAILED, "nccl", env=self.env(cuda=fifo))
            self.assertIn("is not a regular file", err)
            self.assertLess(time.monotonic() - start, 9)  # a look that hangs is ended after ten seconds

    def test_only_its_own_settings_are_shown(self):
        out, _ = self.expect(DONE, "nccl", env=self.env(NCCL_DEBUG="WARN", SECRET_TOKEN="quite-secret"))
        self.assertIn("NCCL_DEBUG=WARN", out)
        self.assertNotIn("quite-secret", out)

    def test_driver_that_fails(self):
        checks = self.checks(NOT_HERE, FAKE_CUDA_DEVICES="0")
        self.assertIn(checks["driver"]["verdict"], ("missing", "not needed"))

    def test_library_that_hangs(self):
        """It ends by the deadline, with the other looks as they are."""
        start = time.monotonic()
        document = self.document(FAILED, ("--timeout", "2s"), FAKE_NCCL_HANG="ncclGetVersion")
        self.assertLess(time.monotonic() - start, 10)
        checks = {c["name"]: c for c in document["checks"]}
        self.assertEqual(document["problem"]["message"], "NCCL: loading it did not come to an end in time")
        self.assertEqual(checks["library"]["verdict"], "broken")
        self.assertEqual(checks["library"]["evidence"], "the check did not come back in time and was ended")
        self.assertEqual(checks["driver"]["verdict"], "ok")

    def test_lines_are_wrapped_on_a_terminal(self):
        for columns in (80, 120):
            text = self.on_terminal("nccl", env=self.env(NO_COLOR="1", NCCL_SOKET_IFNAME="lo"), columns=columns)
            wide = [line for line in text.splitlines() if len(line) > columns and not line.startswith("NCCL ")
                    and " " in line[32:]]
            self.assertEqual(wide, [])
            words = text.split()
            self.assertIn("NCCL_SOCKET_IFNAME?", words)
            self.assertIn("ncclCommInitRankScalable", words)

    def test_colour_of_verdicts(self):
        text = self.on_terminal("nccl", env=self.env())
        self.assertIn("\x1b[32mok        \x1b[0m  driver", text)


if __name__ == "__main__":
    main()
