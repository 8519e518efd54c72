#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The field's dialects from the command: serve, pull and bench, over tcp and over a stand-in libibverbs."""
import json
import os
import random
import signal
import socket
import struct
import unittest

from gpusys_cli import DONE, FAILED, NOT_HERE, USAGE, main
from serving import MIB, ServeTest

NO_VERBS = {"GPUSYS_LIBIBVERBS": "/nonexistent/libibverbs.so.1"}
STAND_IN = os.environ.get("FAKE_IBVERBS", "")


def safetensors(path, tensors, metadata=None, header=None):
    """Write a file with these tensors, {name: (dtype, shape, bytes)}; `header` replaces what its header would say."""
    said, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, content) in tensors.items():
        said[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = header if header is not None else json.dumps(said).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def noise(size, seed):
    return random.Random(seed).randbytes(size)


class FieldTest(ServeTest):
    """A test with a model of two shards and extra weights, and three layers of experts."""

    verbs = NO_VERBS

    def setUp(self):
        super().setUp()
        self.environment.update(self.verbs)
        self.model, self.experts = self.served / "llama", self.served / "moe"
        self.model.mkdir()
        self.experts.mkdir()
        self.shards = {"part-1.safetensors": {"a": ("F32", [250], noise(1000, 1)), "b": ("U8", [5 * MIB], noise(5 * MIB, 2))},
                       "part-2.safetensors": {"c": ("BF16", [9, 1000], noise(18000, 3))}}
        for name, tensors in self.shards.items():
            safetensors(self.model / name, tensors, {"format": "pt"})
        safetensors(self.model / "extra_weights.safetensors", {"x": ("I8", [3], b"abc")})
        self.index({"a": "part-1.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"})
        self.header = dict(version=1, num_moe_layers=3, num_experts=5, record_stride=70001, file_template="layer_{layer:02}.bin")
        self.write_experts()

    def index(self, weight_map, name="model.safetensors.index.json"):
        (self.model / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    def write_experts(self, names=("layer_00.bin", "layer_01.bin", "layer_02.bin")):
        (self.experts / "header.json").write_text(json.dumps(self.header))
        for at, name in enumerate(names):
            (self.experts / name).write_bytes(noise(5 * 70001, 10 + at))

    def serve_dialect(self, dialect, *words):
        return self.serve("--dialect", dialect, *words)

    def pull_dialect(self, dialect, address, *words, **more):
        return self.pull(address, "--dialect", dialect, *words, env={**self.verbs, **self.fake()}, **more)

    def fake(self):
        return {}

    def same(self, folder, names):
        for name in names:
            self.assertEqual((folder / name).read_bytes(), (self.out / name).read_bytes(), name)

    def ask(self, address, request):
        """What a weight peer says to this request: its manifest, or None."""
        with socket.create_connection(address.rsplit(":", 1), timeout=30) as link:
            link.sendall(struct.pack("<I", len(request)) + request.encode())
            file = link.makefile("rb")
            head = file.read(4)
            return json.loads(file.read(struct.unpack("<I", head)[0])) if head else None

    def manifest(self, *words):
        server = self.serve_dialect("weights", self.model, *words)
        said = self.ask(server.address, "llama")
        self.assertEqual(server.end()[0], DONE)
        return said

    def refused(self, *words, dialect="weights", code=FAILED):
        _, err = self.expect(code, "serve", "--dialect", dialect, *map(str, words), "--listen", "127.0.0.1:0",
                             env={"XDG_RUNTIME_DIR": str(self.runtime), **self.verbs})
        return err


class Manifest(FieldTest):
    def test_fields(self):
        said = self.manifest()
        self.assertEqual(set(said), {"version", "model_id", "shard_files", "shard_lens", "tensors"})
        self.assertEqual((said["version"], said["model_id"]), (1, "llama"))
        self.assertEqual(said["shard_files"], ["part-1.safetensors", "part-2.safetensors", "extra_weights.safetensors"])
        self.assertEqual(said["shard_lens"], [(self.model / name).stat().st_size for name in said["shard_files"]])
        rows = {row["name"]: row for row in said["tensors"]}
        self.assertEqual(set(rows), {"a", "b", "c", "x"})
        self.assertEqual(set(rows["a"]), {"name", "dtype", "shape", "offset_in_shard", "len", "shard_index", "extra"})
        everything = {**self.shards["part-1.safetensors"], **self.shards["part-2.safetensors"], "x": ("I8", [3], b"abc")}
        for name, (dtype, shape, content) in everything.items():
            row = rows[name]
            self.assertEqual((row["dtype"], row["shape"], row["len"]), (dtype, shape, len(content)))
            self.assertEqual(row["extra"], name == "x")
            with open(self.model / said["shard_files"][row["shard_index"]], "rb") as file:
                file.seek(row["offset_in_shard"])
                self.assertEqual(file.read(row["len"]), content)

    def test_only_what_the_index_places(self):
        safetensors(self.model / "part-2.safetensors", {"c": ("U8", [2], b"cc"), "left": ("U8", [1], b"l")})
        self.index({"c": "part-2.safetensors"})
        said = self.manifest()
        self.assertEqual(said["shard_files"], ["part-2.safetensors", "extra_weights.safetensors"])
        self.assertEqual([row["name"] for row in said["tensors"]], ["c", "x"])

    def test_which_files_are_shards(self):
        """The first rule that matches."""
        one = {"t": ("U8", [1], b"1")}
        rules = [("consolidated-9.safetensors", "model.safetensors-2.safetensors", "model.safetensors-1.safetensors"),
                 ("adapter_model.safetensors",), ("model.safetensors",)]
        (self.model / "model.safetensors.index.json").unlink()
        (self.model / "extra_weights.safetensors").unlink()
        for names in rules:
            for name in names:
                safetensors(self.model / name, one)
            self.assertEqual(self.manifest()["shard_files"], sorted(names))
        self.index({"c": "part-2.safetensors"}, "consolidated.safetensors.index.json")
        self.assertEqual(self.manifest()["shard_files"], ["part-2.safetensors"])
        self.index({"a": "part-1.safetensors", "b": "part-1.safetensors"})
        self.assertEqual(self.manifest()["shard_files"], ["part-1.safetensors"])

    def test_links(self):
        (self.model / "part-1.safetensors").rename(self.work / "blob")
        (self.model / "part-1.safetensors").symlink_to(self.work / "blob")
        err = self.refused(self.model)
        self.assertIn("part-1.safetensors is a symbolic link", err)
        self.assertIn("--follow", err)
        self.assertEqual(self.manifest("--follow")["shard_files"][0], "part-1.safetensors")

    def test_nothing_there(self):
        self.assertIn("there is no safetensors model in it", self.refused(self.experts))
        self.assertIn("No such file or directory", self.refused(self.work / "nothing"))


class Damaged(FieldTest):
    def check(self, words, **damage):
        safetensors(self.model / "part-2.safetensors", {"c": ("U8", [4], b"cccc")}, **damage)
        err = self.refused(self.model)
        self.assertIn("part-2.safetensors", err)
        self.assertIn(words, err)

    def tensor(self, **changes):
        row = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4], **changes}
        return json.dumps({"c": {key: value for key, value in row.items() if value is not None}}).encode()

    def test_headers(self):
        for header, words in (
                (b"", "a header of 0 bytes"), (b"{}x", "no JSON object"), (b"[]", "no JSON object: another value"),
                (b"{\"c\": 1}", "no dtype and shape"), (self.tensor(dtype=None), "no dtype and shape"),
                (self.tensor(shape=[-4]), "no dtype and shape"), (self.tensor(shape=["4"]), "no dtype and shape"),
                (self.tensor(shape=[1] * 65), "no dtype and shape"),
                (self.tensor(data_offsets=[0]), "not within the file"), (self.tensor(data_offsets=[0, 5]), "not within the file"),
                (self.tensor(data_offsets=[4, 0]), "not within the file"), (self.tensor(data_offsets=[-1, 3]), "not within the file"),
                (self.tensor(data_offsets=[0, 2 ** 63]), "no JSON object: too big"),
                (self.tensor(shape=[5]), "do not fit"), (self.tensor(dtype="F64"), "do not fit"),
                (self.tensor(shape=[2 ** 62, 2 ** 62]), "do not fit"), (b'{"c": {}, "c": {}}', "duplicate"),
                (b"[" * 5000, "no JSON object"), (b'{"a\\u0000b": {}}', "no JSON object"),
                (json.dumps({n: {"dtype": "U8", "shape": [3], "data_offsets": [at, at + 3]} for at, n in enumerate("cd")}).encode(),
                 "overlaps another tensor")):
            with self.subTest(header=header[:60]):
                self.check(words, header=header)

    def test_files(self):
        shard = self.model / "part-2.safetensors"
        for content in (b"", b"1234567", struct.pack("<Q", 2 ** 63) + b"{}", struct.pack("<Q", 3) + b"{}"):
            shard.write_bytes(content)
            self.assertIn("part-2.safetensors is no safetensors file", self.refused(self.model))
        shard.unlink()
        self.assertIn("part-2.safetensors: No such file or directory", self.refused(self.model))
        os.mkfifo(shard)
        self.assertIn("part-2.safetensors is no plain file", self.refused(self.model))

    def test_index(self):
        for weight_map, words in (({}, "names no file"), ({"a": "../x"}, "in no plain file"), ({"a": 7}, "in no plain file"),
                                  ({"a": "/etc/passwd"}, "in no plain file"), ("x", "no weight_map"),
                                  ({"nowhere": "part-1.safetensors"}, "places 1 tensors, and 0 of them are in the files")):
            self.index(weight_map)
            self.assertIn(words, self.refused(self.model))
        (self.model / "model.safetensors.index.json").write_text("{")
        self.assertIn("model.safetensors.index.json is damaged", self.refused(self.model))


class Weights(FieldTest):
    def test_pull(self):
        server = self.serve_dialect("weights", self.model)
        self.assertRegex(server.ready, r"^ready at 127\.0\.0\.1:\d+: weights, 3 files, [\d.]+ MiB, for anybody on this host\n$")
        for name in ("llama", str(self.model)):
            out, err = self.pull_dialect("weights", server.address, name)
            self.assertRegex(out, r"^pulled [\d.]+ MiB in 3 files .* over \w+, not verified \(the dialect has no checksums\)\n$")
            self.same(self.model, ["part-1.safetensors", "part-2.safetensors", "extra_weights.safetensors"])
        index = json.loads((self.out / "model.safetensors.index.json").read_text())
        self.assertEqual(index["weight_map"], {"a": "part-1.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"})
        code, out, err = server.end()
        self.assertEqual(code, DONE)
        self.assertRegex(out, r"^stopped after .*: 2 clients, \d of them over verbs, 0 refused, .* sent over tcp\n$")
        again = self.serve_dialect("weights", self.out)  # what was pulled can be served
        self.assertEqual(len(self.ask(again.address, "out")["tensors"]), 4)

    def test_several_models(self):
        other = self.served / "qwen"
        other.mkdir()
        safetensors(other / "model.safetensors", {"q": ("U8", [1], b"q")})
        server = self.serve_dialect("weights", self.model, other)
        self.pull_dialect("weights", server.address, "qwen")
        self.same(other, ["model.safetensors"])
        self.assertEqual(sorted(os.listdir(self.out)), ["model.safetensors"])
        _, err = self.pull_dialect("weights", server.address, "mistral", code=FAILED)
        self.assertIn('it has no model "mistral"', err)
        self.assertIn('is refused: there is no model "mistral" here', server.end()[2])

    def test_file_that_changes(self):
        server = self.serve_dialect("weights", self.model)
        os.truncate(self.model / "part-1.safetensors", 5000)
        _, err = self.pull_dialect("weights", server.address, "llama", "--require", "tcp", code=FAILED)
        self.assertIn("part-1.safetensors", err)
        self.assertIn("part-1.safetensors changed while served", server.end()[2])
        self.assertEqual([name for name in os.listdir(self.out) if not name.endswith(".part")
                          and name != "extra_weights.safetensors" and name != "part-2.safetensors"], [])

    def test_wrong_dialect(self):
        weights, experts = self.serve_dialect("weights", self.model), self.serve_dialect("experts", self.experts)
        _, err = self.pull_dialect("weights", experts.address, "llama", code=FAILED)
        self.assertIn("this is the header of an expert peer", err)
        _, err = self.pull_dialect("experts", weights.address, "--timeout", "1s", code=FAILED)
        self.assertIn("took too long", err)
        own = self.serve(self.model)
        _, err = self.pull_dialect("weights", own.address, "llama", code=FAILED)
        self.assertIn(own.address, err)
        _, err = self.pull(weights.address, code=FAILED)
        self.assertIn(weights.address, err)


class Experts(FieldTest):
    def test_pull(self):
        server = self.serve_dialect("experts", self.experts)
        self.pull_dialect("experts", server.address)
        self.same(self.experts, ["header.json", "layer_00.bin", "layer_01.bin", "layer_02.bin"])
        again = self.serve_dialect("experts", self.out)
        self.assertIn("experts, 3 files", again.ready)

    def test_templates(self):
        for template, names in (("l{}.x", ["l0.x", "l1.x", "l2.x"]), ("l%03d.x", ["l000.x", "l001.x", "l002.x"]),
                                ("{moe_layer:d}", ["0", "1", "2"]), ("m-{model_layer:2}", ["m-03", "m-05", "m-11"]),
                                (None, ["a.bin", "b.bin", "c.bin"])):
            with self.subTest(template=template):
                for path in self.experts.iterdir():
                    path.unlink()
                self.header["moe_layer_to_model_layer"] = [3, 5, 11]
                self.header["file_template"] = template
                self.write_experts(names)
                server = self.serve_dialect("experts", self.experts)
                self.pull_dialect("experts", server.address)
                pulled = names if template else ["layer-0000.bin", "layer-0001.bin", "layer-0002.bin"]
                for served, name in zip(names, pulled):
                    self.assertEqual((self.experts / served).read_bytes(), (self.out / name).read_bytes())
                server.end()

    def test_linked_folder(self):
        """A layer behind a link to a folder elsewhere is no more served than one that is a link."""
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir()
        for path in self.experts.glob("*.bin"):
            path.rename(elsewhere / path.name)
        (self.experts / "sub").symlink_to(elsewhere)
        self.header["file_template"] = "sub/layer_{layer:02}.bin"
        (self.experts / "header.json").write_text(json.dumps(self.header))
        self.assertIn("sub/layer_00.bin is a symbolic link, or behind one", self.refused(self.experts, dialect="experts"))
        self.serve_dialect("experts", self.experts, "--follow")

    def test_damaged(self):
        for changes, words in (
                ({"num_experts": 0}, "0 experts"), ({"num_experts": -1}, '"num_experts" is no number'),
                ({"record_stride": None}, '"record_stride" is no number'), ({"num_moe_layers": 4097}, '"num_moe_layers" is no number'),
                ({"num_moe_layers": 0}, "0 regions"), ({"num_experts": 6}, "a layer has 420006"),
                ({"file_template": "x"}, "no placeholder"), ({"file_template": "{a}"}, "no placeholder"),
                ({"file_template": "%s"}, "no placeholder"), ({"file_template": "{}{}"}, "no placeholder"),
                ({"file_template": "{:999}"}, "no placeholder"), ({"file_template": "../{}"}, "../0"),
                ({"file_template": None, "num_moe_layers": 2}, "3 files *.bin, its header has 2 layers"),
                ({"file_template": "{model_layer}"}, "has no number for layer 0"), ({"file_template": "no-{}"}, "no-0: No such file")):
            with self.subTest(changes=changes):
                (self.experts / "header.json").write_text(json.dumps({**self.header, **changes}))
                self.assertIn(words, self.refused(self.experts, dialect="experts"))
        (self.experts / "header.json").unlink()
        self.assertIn("there is no header.json in it", self.refused(self.experts, dialect="experts"))


class Hostile(FieldTest):
    """A peer whose description is a lie; nothing outside the directory is touched, and the words say what is wrong."""

    def pull_from(self, dialect, text, *words):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        child = self.start_pull("127.0.0.1:%d" % listener.getsockname()[1], "--dialect", dialect, *words)
        link, _ = listener.accept()
        link.sendall(struct.pack("<I", len(text)) + text)
        out, err = child.communicate(timeout=60)
        link.close()
        self.assertEqual(child.returncode, FAILED, err)
        self.assertFalse(self.out.exists() and os.listdir(self.out))
        return err

    def test_manifests(self):
        good = {"version": 1, "model_id": "m", "shard_files": ["a"], "shard_lens": [1], "tensors": []}
        for changes, words in (
                ({"version": 2}, "version is 2, 1 is understood"), ({"version": "1"}, '"version" is no number'),
                ({"shard_files": []}, "0 shard_files, 1 shard_lens"), ({"shard_files": [], "shard_lens": []}, "0 regions"),
                ({"shard_files": ["../a"]}, "no possible name"), ({"shard_files": ["/a"]}, "no possible name"),
                ({"shard_files": [1]}, "no possible name"), ({"shard_files": ["a\x1b[31m"]}, "no possible name"),
                ({"shard_lens": [0]}, "no possible length"), ({"shard_lens": [-1]}, "no possible length"),
                ({"shard_lens": [2 ** 50]}, "no possible length"), ({"shard_lens": [1.5]}, "no possible length"),
                ({"shard_files": ["a"] * 4097, "shard_lens": [1] * 4097}, "4097 regions")):
            with self.subTest(changes=list(changes)):
                err = self.pull_from("weights", json.dumps({**good, **changes}).encode(), "m")
                self.assertIn(words, err)
                self.assertNotIn("\x1b", err)
        self.assertIn("no JSON object", self.pull_from("weights", b"\xff\x00", "m"))
        self.assertIn("no JSON object", self.pull_from("experts", b"[]"))


class CommandLine(FieldTest):
    def test_mistakes(self):
        for words, complaint in (
                (("serve", "--dialect", "x"), "--dialect takes weights, cache or experts"),
                (("serve", "--dialect", "weights"), "name a model's directory"),
                (("serve", "--dialect", "cache", "x"), "serves no files"),
                (("serve", "--dialect", "experts", "x", "y"), "serves one directory"),
                (("serve", "--dialect", "weights", "x", "--arena", "1G"), "have no --cookie, --arena and --threads"),
                (("serve", "--dialect", "weights", "x", "--max-arena", "1G"), "--max-arena is for the cache dialect"),
                (("serve", "x", "--max-arena", "1G"), "--max-arena is for --dialect cache"),
                (("pull", "a", "-o", "x", "--dialect", "cache"), "--dialect takes weights or experts"),
                (("pull", "a", "-o", "x", "--dialect", "weights"), "takes ADDR and MODEL"),
                (("pull", "a", "b", "-o", "x", "--dialect", "experts"), "takes ADDR alone"),
                (("pull", "a", "-o", "x", "--rails", "9"), "--rails takes 1 to 8"),
                (("bench", "a", "--dialect", "weights"), "--dialect takes cache"),
                (("bench", "--local", "--dialect", "cache"), "has no --local")):
            _, err = self.expect(USAGE, *words)
            self.assertIn(complaint, err)

    def test_without_rdma(self):
        server = self.serve_dialect("weights", self.model)
        _, err = self.pull_dialect("weights", server.address, "llama", "--require", "verbs", code=NOT_HERE)
        self.assertNotEqual(err, "")
        self.expect(NOT_HERE, "bench", server.address, "--dialect", "cache", env=self.verbs)
        self.refused(dialect="cache", code=NOT_HERE)
        self.assertIn("reachable from other hosts", self.expect(
            FAILED, "serve", "--dialect", "weights", str(self.model), "--listen", "0.0.0.0:0", env=self.verbs)[1])
        self.assertIn("for anybody who reaches the port", self.serve_dialect(
            "weights", self.model, "--listen=0.0.0.0:0", "--insecure").ready)


@unittest.skipUnless(os.path.exists(STAND_IN), "this build has no stand-in libibverbs")
class OverVerbs(FieldTest):
    """The same over RDMA, as far as the stand-in goes: server and client are two processes."""

    verbs = {"GPUSYS_LIBIBVERBS": STAND_IN}

    def setUp(self):
        super().setUp()
        (self.work / "fake").mkdir()
        self.environment.update(self.fake())

    def fake(self):
        return {"FAKE_IBVERBS_DIR": str(self.work / "fake")}

    def test_weights(self):
        server = self.serve_dialect("weights", self.model, "--device", "fake0,fake1")
        for rails in ((), ("--rails", "1"), ("--device", "fake1", "--rails", "1")):
            out, _ = self.pull_dialect("weights", server.address, "llama", "--require", "verbs", *rails)
            self.assertIn("over verbs, not verified", out)
            self.same(self.model, ["part-1.safetensors", "part-2.safetensors", "extra_weights.safetensors"])
        self.assertIn("3 clients, 3 of them over verbs, 0 refused, 0 B sent over tcp", server.end()[1])

    def test_experts(self):
        server = self.serve_dialect("experts", self.experts)
        out, _ = self.pull_dialect("experts", server.address)
        self.assertIn("over verbs", out)
        self.same(self.experts, ["header.json", "layer_00.bin", "layer_01.bin", "layer_02.bin"])

    def test_fewer_rails_at_the_server(self):
        server = self.serve_dialect("weights", self.model, "--device", "fake0")
        _, err = self.pull_dialect("weights", server.address, "llama", "--require", "verbs", code=FAILED)
        self.assertIn("refused", err)
        out, err = self.pull_dialect("weights", server.address, "llama")
        self.assertIn("over tcp", out)
        self.assertIn("tcp instead of verbs", err)

    def test_cache(self):
        server = self.serve_dialect("cache", "--max-arena", "64M")
        self.assertIn("cache, arenas up to 64.0 MiB", server.ready)
        more = {"env": {**self.verbs, **self.fake()}}
        document = self.json("bench", server.address, "--dialect", "cache", "--arena", "8M", "--sizes", "4K,1M", "--depths", "4",
                             "--time", "10ms", **more)
        run = document["runs"][0]
        self.assertEqual(run["transport"], "verbs")
        self.assertEqual({point["op"] for point in run["points"]}, {"read", "write"})
        _, err = self.expect(FAILED, "bench", server.address, "--dialect", "cache", "--arena", "65M", **more)
        self.assertIn("refused this client", err)
        _, out, err = server.end()
        self.assertIn("of 67108864 for all arenas", err)
        self.assertIn("1 clients, 1 of them over verbs, 1 refused", out)

    def test_killed_server(self):
        server = self.serve_dialect("cache", "--max-arena", "64M")
        server.end(signal.SIGKILL)
        self.expect(FAILED, "bench", server.address, "--dialect", "cache", env={**self.verbs, **self.fake()})


if __name__ == "__main__":
    main()
