# SPDX-License-Identifier: MIT OR Apache-2.0
"""The field's dialects over two real rails: our servers with our clients, and with one that only knows the bytes."""
import ipaddress
import json
import os
import re
import struct

from pulling import MIB, full_speed, received, refused, shape, start_server, stopped, sums, wait_freed
from vmlab import check, contains, equal, suite

MODEL, EXPERTS, OUT = "/tmp/field/llama", "/tmp/field-experts", "/tmp/field-out"
STRIDE, RECORDS, LAYERS = 4100, 5, 3
TCP, VERBS = 0, 1
STOP = b"\xFF" * 8
CACHE_MAGIC = 0x5041474500000002


def safetensors(tensors):
    """The bytes of a file with these tensors of type U8."""
    header, body = {}, b""
    for name, content in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(content)], "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def make_model(host, bytes_each=MIB + 13):
    shards = [f"model-{number:05}-of-00002.safetensors" for number in (1, 2)]
    host.ok(f"rm -rf {MODEL} && mkdir -p {MODEL}")
    for number, shard in enumerate(shards):
        host.put(f"{MODEL}/{shard}", safetensors({f"layer.{number}": os.urandom(bytes_each)}))
    index = {"metadata": {}, "weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}}
    host.put(f"{MODEL}/model.safetensors.index.json", json.dumps(index).encode())
    return shards


def make_experts(host):
    header = {"version": 1, "num_moe_layers": LAYERS, "num_experts": RECORDS, "record_stride": STRIDE,
              "file_template": "layer_{layer:02}.bin"}
    host.ok(f"rm -rf {EXPERTS} && mkdir -p {EXPERTS}")
    host.put(f"{EXPERTS}/header.json", json.dumps(header).encode())
    layers = [os.urandom(STRIDE * RECORDS) for _ in range(LAYERS)]
    for number, content in enumerate(layers):
        host.put(f"{EXPERTS}/layer_{number:02}.bin", content)
    return layers


def pull_words(server, dialect, *words, rail=0):
    names = ["llama"] if dialect == "weights" else []
    return ["gpusys", "-v", "--timeout", "8s", "pull", "--dialect", dialect, f"{server.host.address(rail)}:7471",
            *names, "-o", OUT, *words]


def field_pull(two, server, dialect, *words, rail=0):
    """A pull that must succeed; what it says on stderr."""
    two.ok(["rm", "-rf", OUT])
    ended = two.run(pull_words(server, dialect, *words, rail=rail), timeout=20)
    said = ended.stderr.decode()
    equal((ended.status, said), (0, said), f"a pull of {dialect} with {words}")
    contains(ended.text, "not verified (the dialect has no checksums)", f"a pull of {dialect}")
    return said


def compare(two, one, folder, pattern):
    def of(host, place):
        return host.ok(f"cd {place} && md5sum {pattern}")
    equal(of(two, OUT), of(one, folder), "the files")


def packets(hosts, rail):
    return sum(received(host, rail) for host in hosts)


@suite("two-hosts", limit=20, programs=["gpusys"])
def field_weights(lab):
    """A model over two rails, over one and over tcp, byte for byte; a model that is not there."""
    one, two = lab.hosts
    make_model(one, 4 * MIB + 13)
    server = start_server(one, "--dialect", "weights", MODEL)
    shape(one, "80mbit")
    before = [packets(lab.hosts, rail) for rail in range(2)]
    contains(field_pull(two, server, "weights"), "over verbs: both sides have RDMA, 2 rails", "what pull says")
    moved = [packets(lab.hosts, rail) - before[rail] for rail in range(2)]
    check(min(moved) > 100, f"packets over each rail: {moved} of over 2000")
    full_speed(one)
    compare(two, one, MODEL, "*.safetensors")
    contains(field_pull(two, server, "weights", "--device", "rxe0"), "over verbs: both sides have RDMA, 1 rail", "pull")
    compare(two, one, MODEL, "*.safetensors")
    contains(field_pull(two, server, "weights", "--require", "tcp"), "over tcp: tcp was required", "what pull says")
    compare(two, one, MODEL, "*.safetensors")
    lost = [word.replace("llama", "alpaca") for word in pull_words(server, "weights")]
    refused(two.run(lost, timeout=20), 1, "refused this client", 'it has no model "alpaca"', "  try     ")
    log = stopped(server)
    contains(log, 'is refused: there is no model "alpaca" here', "the server's log")
    check(re.search(r"stopped after .*: 3 clients, 2 of them over verbs, ", server.out.decode()), "the server's totals")
    for host in lab.hosts:
        wait_freed(host)


@suite("two-hosts", limit=20, programs=["gpusys"])
def field_rails(lab):
    """More rails asked for than the peer has: refused, both numbers in the server's log; tcp where that may be."""
    one, two = lab.hosts
    make_model(one)
    server = start_server(one, "--dialect", "weights", MODEL, "--device", "rxe0")
    two.ok(["rm", "-rf", OUT])
    refused(two.run(pull_words(server, "weights", "--rails", "2", "--require", "verbs"), timeout=20), 1,
            "refused this client", "asked   2 rails", "  try     ")
    field_pull(two, server, "weights", "--rails", "1", "--require", "verbs")
    compare(two, one, MODEL, "*.safetensors")
    contains(field_pull(two, server, "weights"), "tcp instead of verbs", "a pull that may choose")
    compare(two, one, MODEL, "*.safetensors")
    refused(two.run(pull_words(server, "weights", "--rails", "3", "--require", "verbs"), timeout=20), 1,
            "3 rails wanted, 2 devices")
    check(re.search(r"refused: \S+ asked for 2 rails, here (are|is) 1", stopped(server)), "the server's log")
    wait_freed(one)


@suite("two-hosts", limit=20, programs=["gpusys"])
def field_experts(lab):
    """Records of experts over verbs and over tcp, byte for byte."""
    one, two = lab.hosts
    make_experts(one)
    server = start_server(one, "--dialect", "experts", EXPERTS)
    for words, over in (((), "over verbs"), (("--require", "tcp"), "over tcp")):
        contains(field_pull(two, server, "experts", *words), over, "what pull says")
        compare(two, one, EXPERTS, "*")
    stopped(server)
    wait_freed(one)


@suite("two-hosts", limit=20, programs=["gpusys"])
def field_cache(lab):
    """An arena of a cache peer is read and written; one above the cap is refused, with the numbers in the log."""
    one, two = lab.hosts
    server = start_server(one, "--dialect", "cache", "--max-arena", "32M")
    command = ["gpusys", "bench", "--dialect", "cache", f"{one.address(0)}:7471", "--json", "--sizes", "4K,256K",
               "--depths", "4", "--time", "50ms", "--arena"]
    run, = json.loads(two.ok([*command, "4M"]))["runs"]
    equal((run["transport"], run["target"]["bytes"]), ("verbs", 4 * MIB), "the run")
    equal({(point["op"], point["size_bytes"]) for point in run["points"] if point["operations"]},
          {(op, size) for op in ("read", "write") for size in (4096, MIB // 4)}, "what was measured")
    wait_freed(two)
    refused(two.run([*command, "64M"], timeout=20), 1, "refused this client", "arena", "  try     ")
    log = stopped(server)
    contains(log, "an arena of 4194304 bytes", "the server's log")
    contains(log, "an arena of 67108864 bytes was asked for; of 33554432 for all arenas", "the server's log")
    wait_freed(one)


@suite("two-hosts", limit=40, programs=["gpusys"])
def field_mtu(lab):
    """A smaller MTU on either side, of which the dialects say nothing: reads and writes work all the same."""
    one, two = lab.hosts
    make_model(one)
    for small in (one, two):
        for rail in range(2):
            small.ok(f"ip link set {small.netdev(rail)} mtu 1500")
            small.until(f"ibv_devinfo -d {small.device(rail)} | grep -q 'active_mtu:.*1024 '")
        server = start_server(one, "--dialect", "weights", MODEL)
        said = field_pull(two, server, "weights", "--require", "verbs")
        if small is one:
            for rail in range(2):
                check(re.search(rf"rail {rail} \(rxe{rail} port 1\) .*MTU 1024 instead of 4096", said), said)
        compare(two, one, MODEL, "*.safetensors")
        stopped(server)
        server = start_server(one, "--dialect", "cache", "--max-arena", "8M")
        two.ok(f"gpusys bench --dialect cache {one.address(0)}:7471 --arena 2M --sizes 64K --depths 4 --time 50ms")
        stopped(server)
        full_speed(small)
        for rail in range(2):
            small.until(f"ibv_devinfo -d {small.device(rail)} | grep -q 'active_mtu:.*4096 '")


# ---- a client that knows nothing of gpusys: the bytes go through netcat ----

class Talk:
    """A connection on which the client's bytes are given word for word."""

    def __init__(self, host, address, number):
        self.host, self.base = host, f"/tmp/field-talk-{number}"
        host.ok(f"rm -f {self.base}.*; mkfifo {self.base}.in")
        self.client = host.start(f"nc {address} 7471 <{self.base}.in >{self.base}.out")
        self.feeder = host.start(f"exec 3>{self.base}.in; : >{self.base}.next; while :; do "
                                 f"[ -e {self.base}.send ] && cat {self.base}.send >&3 && rm {self.base}.send; "
                                 f"[ -e {self.base}.end ] && exit; sleep 0.02; done")
        self.taken = 0

    def send(self, content):
        self.host.put(f"{self.base}.part", content)
        self.host.ok(f"mv {self.base}.part {self.base}.send")

    def take(self, count):
        """The next bytes of the server's, once they are there."""
        wanted = self.taken + count
        self.host.until(f"[ $(stat -c %s {self.base}.out) -ge {wanted} ]")
        piece = self.host.get(f"{self.base}.out")[self.taken:wanted]
        self.taken = wanted
        return piece

    def number(self):
        return struct.unpack("<I", self.take(4))[0]

    def ended(self):
        """The server closes, and nothing more has come."""
        self.client.wait()
        equal(self.host.get(f"{self.base}.out")[self.taken:], b"", "bytes behind the last ones")
        self.close()

    def close(self):
        self.host.ok(f"touch {self.base}.end")
        self.feeder.wait()
        self.client.wait()


def record_of_rail(talk, n_regions):
    """A rail of a server's table: its queue pair's number, its packet number, its GID, its regions' bases and keys."""
    qpn, psn = struct.unpack("<II", talk.take(8))
    gid = talk.take(16)
    equal(talk.number(), n_regions, "regions of a rail")
    return qpn, psn, gid, [struct.unpack("<QI", talk.take(12)) for _ in range(n_regions)]


def mapped(address):
    return b"\0" * 10 + b"\xFF\xFF" + ipaddress.ip_address(address).packed


@suite("two-hosts", limit=30, programs=["gpusys"])
def field_bytes_tcp(lab):
    """Experts and weights over tcp, asked for byte by byte."""
    one, two = lab.hosts
    layers = make_experts(one)
    server = start_server(one, "--dialect", "experts", EXPERTS)
    talk = Talk(two, one.address(1), 1)
    header = json.loads(talk.take(talk.number()))
    equal((header["num_moe_layers"], header["num_experts"], header["record_stride"]), (LAYERS, RECORDS, STRIDE),
          "the header")
    asked = ((0, 0), (2, 4), (1, 3))
    talk.send(bytes([TCP]) + b"".join(struct.pack("<II", *pair) for pair in (*asked, (1, RECORDS), (LAYERS, 0))))
    for layer, record in asked:
        equal(talk.take(1), b"\0", "the status of a record")
        check(talk.take(STRIDE) == layers[layer][record * STRIDE:][:STRIDE], f"record {record} of layer {layer}")
    equal(talk.take(2), b"\1\1", "the status of two records that are not there")
    talk.send(STOP)
    talk.ended()
    stopped(server)
    shards = make_model(one, 5000)
    files = [one.get(f"{MODEL}/{shard}") for shard in shards]
    server = start_server(one, "--dialect", "weights", MODEL)
    talk = Talk(two, one.address(0), 10)
    talk.send(struct.pack("<I", len(MODEL)) + MODEL.encode())
    equal(json.loads(talk.take(talk.number()))["shard_lens"], [len(content) for content in files], "the manifest")
    asked = ((0, 0, 0), (1, 2, 4000), (0, len(files[0]) - 1, 1), (2, 0, 1), (0, len(files[0]), 1))
    talk.send(bytes([TCP]) + b"".join(struct.pack("<IQI", *one_asked) for one_asked in asked))
    for shard, offset, length in asked[:3]:
        check(talk.take(1 + length) == b"\0" + files[shard][offset:offset + length], f"{length} bytes of {shard}")
    equal(talk.take(2), b"\1\1", "the status of what is not there")
    talk.send(struct.pack("<IQI", 0xFFFFFFFF, 0, 0))
    talk.ended()
    stopped(server)


@suite("two-hosts", limit=30, programs=["gpusys"])
def field_bytes_cache(lab):
    """The rail handshake with a cache peer, byte by byte: one arena with a key for each rail; what is refused."""
    one, two = lab.hosts
    server = start_server(one, "--dialect", "cache", "--max-arena", "8M")
    talk = Talk(two, one.address(0), 20)
    talk.send(struct.pack("<QBQQ", CACHE_MAGIC, 1, MIB, 0) + bytes([2]))
    equal(talk.take(1), b"\2", "the server's count")
    rails = [struct.unpack("<II16sQI", talk.take(36)) for _ in range(2)]
    shown = one.ok("rdma resource show mr")
    for rail, (_, _, gid, _, key) in enumerate(rails):
        equal(gid, mapped(one.address(rail)), f"the GID of rail {rail}")
        check(re.search(rf"dev rxe{rail} .*rkey {key:#x} .*mrlen {MIB} ", shown), f"the arena on rail {rail}: {shown}")
    equal(rails[0][3], rails[1][3], "the arena's address on both rails")
    talk.send(b"\2" + b"".join(struct.pack("<II", 0x100 + rail, 7) + mapped(two.address(rail)) for rail in range(2)))
    equal(talk.take(1), b"\0", "the ack")
    talk.close()
    wait_freed(one)
    for number, (magic, kind, arena, blob) in enumerate(((CACHE_MAGIC - 1, 1, MIB, 0), (CACHE_MAGIC, 2, MIB, 0),
                                                         (CACHE_MAGIC, 0, 0, 0), (CACHE_MAGIC, 1, MIB, 4096),
                                                         (CACHE_MAGIC, 1, 1 << 43, 0)), 21):
        talk = Talk(two, one.address(0), number)
        talk.send(struct.pack("<QBQQ", magic, kind, arena, blob))
        talk.ended()
    log = stopped(server)
    equal(len(re.findall(r"warning: \S+ is refused: ", log)), 5, "refusals in the server's log")
    for part in ("retired", "RAW", "4096"):
        contains(log, part, "the server's log")
    wait_freed(one)


@suite("two-hosts", limit=30, programs=["gpusys"])
def field_bytes_verbs(lab):
    """The rail handshake with a weight peer, byte by byte, and what a server does with nonsense."""
    one, two = lab.hosts
    shards = make_model(one)
    server = start_server(one, "--dialect", "weights", MODEL)
    talk = Talk(two, one.address(0), 2)
    talk.send(struct.pack("<I", 5) + b"llama")
    manifest = json.loads(talk.take(talk.number()))
    equal((manifest["version"], manifest["shard_files"]), (1, shards), "the manifest")
    equal(manifest["shard_lens"], [len(one.get(f"{MODEL}/{shard}")) for shard in shards], "the shards' lengths")
    talk.send(bytes([VERBS, 2]))
    equal(talk.take(1), b"\2", "the server's count")
    rails = [record_of_rail(talk, 2) for _ in range(2)]
    for rail, (qpn, psn, gid, regions) in enumerate(rails):
        check(0 < qpn < 1 << 24 and psn < 1 << 24, f"numbers of rail {rail}: {qpn:#x} {psn:#x}")
        equal(gid, mapped(one.address(rail)), f"the GID of rail {rail}")
        shown = one.ok("rdma resource show mr")
        for base, key in regions:
            check(base and re.search(rf"dev rxe{rail} .*rkey {key:#x} ", shown), f"key {key:#x}, rail {rail}: {shown}")
        contains(one.ok("rdma resource show qp"), f"link rxe{rail}/1 lqpn {qpn} ", "the server's queue pairs")
    ours = [struct.pack("<II", 0x100 + rail, 7) + mapped(two.address(rail)) for rail in range(2)]
    talk.send(b"\2" + b"".join(ours))
    equal(talk.take(1), b"\0", "the ack")
    shown = one.ok("rdma resource show qp")
    for rail, (qpn, *_) in enumerate(rails):
        check(re.search(rf"link rxe{rail}/1 lqpn {qpn} rqpn {0x100 + rail} .*state RTS", shown), f"{rail}: {shown}")
    talk.close()
    wait_freed(one)
    asked = struct.pack("<I", 5) + b"llama"
    for number, nonsense in enumerate((struct.pack("<I", 0), struct.pack("<I", 8193), struct.pack("<I", 3) + b"cow",
                                       asked + bytes([7]), asked + bytes([VERBS, 0]), asked + bytes([VERBS, 9])), 3):
        talk = Talk(two, one.address(0), number)
        talk.send(nonsense)
        talk.client.wait()
        talk.close()
    wait_freed(one)
    check(len(re.findall(r"warning: \S+ is refused: ", stopped(server))) >= 6, "refusals in the server's log")
