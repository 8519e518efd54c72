#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys rails: what it shows of ports and GIDs, over a stand-in libibverbs; and without one."""
import os
import tempfile
import unittest

from gpusys_cli import DONE, FAILED, NOT_HERE, USAGE, CommandTest, main
from serving import ServeTest

FAKE = os.environ.get("FAKE_IBVERBS", "")

DEVICES = """
device roce0
fw_ver 20.31.1014
port 1
active_mtu 1024
gid 0 fe80::1 roce1 lo
gid 1 fe80::1 roce2 lo
gid 2 127.0.0.1 roce1 lo
gid 3 127.0.0.1 roce2 lo
gid 4 ::1 roce2 lo
gid 5 198.51.100.9 roce2 lo
port 2
state down
device ib0
port 1
link_layer infiniband
lid 7
sm_lid 1
gid 0 fe80::a ib
"""


class Rails(CommandTest):
    """Without a library nothing can be shown, and that is said."""

    def test_no_library(self):
        out, err = self.expect(NOT_HERE, "rails", env={"GPUSYS_LIBIBVERBS": "/nonexistent/libibverbs.so.1"})
        self.assertEqual(out, "")
        self.assertIn("gpusys: ", err)
        if FAKE and os.path.exists(FAKE):
            self.assertIn("/nonexistent/libibverbs.so.1", err)
            self.assertIn("  try     correct GPUSYS_LIBIBVERBS", err)

    def test_usage(self):
        self.expect(USAGE, "rails", "one", "two")

    def test_peer_that_has_no_address(self):
        _, err = self.expect(FAILED, "rails", "no-such-host.invalid:7471")
        self.assertTrue(err.startswith("gpusys: rails: no-such-host.invalid: "), err)


@unittest.skipUnless(FAKE and os.path.exists(FAKE), "built without RDMA")
class Devices(CommandTest):
    def setUp(self):
        file = tempfile.NamedTemporaryFile("w", suffix=".devices")
        self.addCleanup(file.close)
        self.file = file
        self.set_devices(DEVICES)
        self.env = {"GPUSYS_LIBIBVERBS": FAKE, "FAKE_IBVERBS_CONFIG": file.name}

    def set_devices(self, text):
        self.file.seek(0)
        self.file.truncate()
        self.file.write(text)
        self.file.flush()

    def rows(self, *words):
        """The tables, each a list of rows split at two blanks or more, without the heading."""
        out, err = self.expect(DONE, "rails", *words, env=self.env)
        self.assertEqual(err, "")
        tables = [t.splitlines() for t in out.split("\n\n")]
        return [[[c.strip() for c in line.split("  ") if c.strip()] for line in table[1:]] for table in tables]

    def test_tables(self):
        ports, problems, gids = self.rows()
        self.assertEqual(ports, [
            ["roce0:1", "ACTIVE", "RoCE", "100 Gb/s", "1024 of 4096", "-", "-", "lo", "20.31.1014"],
            ["roce0:2", "DOWN", "RoCE", "100 Gb/s", "4096 of 4096", "-", "-", "-", "20.31.1014"],
            ["ib0:1", "ACTIVE", "InfiniBand", "100 Gb/s", "4096 of 4096", "7", "-", "-", "1.0.0"]])
        self.assertEqual(problems, [["roce0:2", "the port is DOWN"]])
        self.assertEqual([row[:4] for row in gids[:6]], [
            ["roce0:1", "3", "127.0.0.1", "lo"], ["roce0:1", "4", "::1", "lo"], ["roce0:1", "1", "fe80::1", "lo"],
            ["roce0:1", "2", "127.0.0.1", "lo"], ["roce0:1", "0", "fe80::1", "lo"],
            ["roce0:1", "5", "198.51.100.9", "-"]])
        self.assertEqual(gids[0][4], "RoCE v2, global")
        self.assertIn("another network namespace", gids[5][4])
        self.assertEqual(gids[6][:3], ["ib0:1", "0", "fe80::a"])

    def test_json(self):
        document = self.json("rails", env=self.env)
        self.assertEqual(list(document), ["schema", "library", "ports"])
        self.assertEqual(os.path.realpath(document["library"]), os.path.realpath(FAKE))
        first, second, third = document["ports"]
        self.assertEqual((first["device"], first["port"], first["state"], first["link"]), ("roce0", 1, "ACTIVE", "RoCE"))
        self.assertEqual((first["mtu_bytes"], first["max_mtu_bytes"], first["rate_mbps"]), (1024, 4096, 100000))
        self.assertEqual((first["interface"], first["numa_node"], first["problem"]), ("lo", None, None))
        self.assertEqual(first["max_mr_bytes"], 2 ** 63 - 1)  # all that JSON's numbers hold here
        self.assertEqual([g["index"] for g in first["gids"]], [3, 4, 1, 2, 0, 5])
        self.assertEqual([g["usable"] for g in first["gids"]], [True] * 5 + [False])
        self.assertEqual(first["gids"][3]["type"], "RoCE v1")
        self.assertEqual(second["problem"], "the port is DOWN")
        self.assertEqual((third["link"], third["lid"], third["sm_lid"]), ("InfiniBand", 7, 1))
        self.assertNotIn("against_peer", first)

    def test_peer(self):
        for peer, shown in (("127.0.0.1", "127.0.0.1"), ("127.0.0.1:7471", "127.0.0.1")):
            tables = self.rows(peer)
            self.assertEqual(tables[4], [
                ["roce0:1", "GID 3, 127.0.0.1", "the peer's", "RoCE v2, the address of the control connection"],
                ["roce0:2", "-", "another", "the port is DOWN"],
                ["ib0:1", "LID 7", "another",
                 "the port GID; InfiniBand is addressed by LID, with the GID only where it must be"]])
            out, _ = self.expect(DONE, "rails", peer, env=self.env)
            self.assertIn(f"\nthe peer {shown} is reached from 127.0.0.1 on lo\n", out)
            self.assertIn("\nno rails could be set up with a gpusys server there: ", out)

    def test_peer_by_name(self):
        out, _ = self.expect(DONE, "rails", "localhost:1", env=self.env)
        self.assertRegex(out, r"the peer localhost \((127\.0\.0\.1|::1)\) is reached from (127\.0\.0\.1|::1) on lo\n")

    def test_peer_in_json(self):
        document = self.json("rails", "127.0.0.1:7471", env=self.env)
        self.assertEqual(document["peer"], {"address": "127.0.0.1", "local_address": "127.0.0.1", "interface": "lo"})
        against = [port["against_peer"] for port in document["ports"]]
        self.assertEqual(against, [
            {"usable": True, "shares_subnet": True, "gid_index": 3, "lid": None},
            {"usable": False, "shares_subnet": False, "gid_index": None, "lid": None},
            {"usable": True, "shares_subnet": False, "gid_index": None, "lid": 7}])

    @unittest.skipUnless(os.path.exists("/proc/net/if_inet6"), "no IPv6")
    def test_peer_of_ipv6(self):
        for peer in ("::1", "[::1]:7471"):
            self.assertEqual(self.json("rails", peer, env=self.env)["ports"][0]["against_peer"]["gid_index"], 4)

    def test_no_device(self):
        self.set_devices("# none\n")
        out, err = self.expect(NOT_HERE, "rails", env=self.env)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("gpusys: there is no RDMA device\n"), err)
        self.assertIn("  try     ", err)

    def test_no_device_opens(self):
        rules = "".join(f"on ibv_open_device {nth} fail EACCES\n" for nth in range(1, 5))
        self.set_devices(rules + DEVICES)
        out, err = self.expect(NOT_HERE, "rails", env=self.env)
        self.assertIn("roce0       opening the device: Permission denied\n", out)
        self.assertNotIn("GID", out)
        self.assertTrue(err.startswith("gpusys: roce0: opening the device: Permission denied\n  try     "), err)

    def test_one_device_does_not_open(self):
        self.set_devices("on ibv_open_device 1 fail EIO\n" + DEVICES)
        first, second = self.json("rails", env=self.env)["ports"]
        self.assertEqual((first["device"], first["state"], first["gids"]), ("roce0", "-", []))
        self.assertEqual(first["problem"], "opening the device: Input/output error")
        self.assertEqual(second["device"], "ib0")


@unittest.skipUnless(FAKE and os.path.exists(FAKE), "built without RDMA")
class Server(ServeTest):
    """A gpusys server answers: the rails that both agree on."""

    def setUp(self):
        super().setUp()
        (self.served / "x").write_bytes(b"x")
        network = self.work / "network"
        network.mkdir()
        self.env = {"GPUSYS_LIBIBVERBS": FAKE, "FAKE_IBVERBS_DIR": str(network),
                    "XDG_RUNTIME_DIR": str(self.runtime)}
        self.environment.update(self.env)

    def test_rails_of_both_sides(self):
        server = self.serve(self.served)
        rails = self.json("rails", server.address, env=self.env)["rails"]
        self.assertEqual([(r["device"], r["peer_device"], r["mtu_bytes"], r["reads_out"], r["shares_subnet"])
                          for r in rails],
                         [("fake0", "fake0", 4096, 16, True), ("fake1", "fake1", 4096, 16, False)])
        out, _ = self.expect(DONE, "rails", server.address, env=self.env)
        self.assertRegex(out, r"\nwith the gpusys server there:\n\n[^\n]*\n *fake0:1 .* 127\.0\.0\.1 .* 4096 \(4096 and 4096\)")


if __name__ == "__main__":
    main()
