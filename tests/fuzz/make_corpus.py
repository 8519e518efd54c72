#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes the seeds of the fuzz targets into corpus/. Run again after changing it; commit the files."""
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "corpus"


def qp(number):
    return struct.pack("<II", 0x11223344 + number, 0xAABBCC + number) + bytes(range(0x60, 0x70))


def region(number):
    return struct.pack("<QI", 0x1122334455667788 + number, 0x99AABBCC + number)


def table(count, claimed=None):
    claimed = count if claimed is None else claimed
    return qp(9) + struct.pack("<I", claimed) + b"".join(region(i) for i in range(count))


def cache(number):
    return qp(number) + region(number)


def rails(count, record):
    return bytes([count]) + b"".join(record(i) for i in range(count))


def write(target, **seeds):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (folder / name).write_bytes(data)


def ro(*counts):
    return bytes([len(counts)]) + b"".join(table(n) for n in counts)


# How a peer behaves: [size of pieces << 2 | ending][limit of writes + 1, 0 for none]
PLAIN, DRIP, RESET, STALL, BROKEN = b"\0\0", b"\x04\0", b"\x01\0", b"\x02\0", b"\x03\0"

write("qp_params", golden=qp(0), truncated=qp(0)[:23], empty=b"", behind=qp(1) + b"next")
write("cache_server_params", golden=cache(0), truncated=cache(0)[:35], empty=b"", behind=cache(1) + b"next")
write("verbs_server_params", golden=table(1), three=table(3), sixty_four=table(64), most=table(4096),
      none=table(0), too_many=table(1, 4097), far_too_many=table(0, 0xFFFFFFFF), no_body=table(0, 4096),
      truncated=table(3)[:-1], head_cut=table(1)[:27], empty=b"", behind=table(2) + b"next")
write("server_rails_ro", one=b"\x01" + ro(1), two=b"\x02" + ro(1, 3), eight=b"\x08" + ro(*[1] * 8),
      none=b"\x00\x00", nine=b"\x09" + ro(*[1] * 9), other=b"\x02" + ro(1), truncated=b"\x02" + ro(1, 2)[:-1],
      no_regions=b"\x01\x01" + table(0), too_many=b"\x01\x01" + table(1, 4097), behind=b"\x01" + ro(2) + b"next")
for target, record in ("server_rails_rw", cache), ("client_rails", qp):
    write(target, one=b"\x01" + rails(1, record), two=b"\x02" + rails(2, record),
          most=b"\xff" + rails(255, record), none=b"\x00\x00", other=b"\x02" + rails(1, record),
          truncated=b"\x02" + rails(2, record)[:-1], behind=b"\x01" + rails(1, record) + b"next")
write("client_ro", one=b"\x01" + PLAIN + ro(1) + b"\0", two=b"\x02" + DRIP + ro(1, 2) + b"\0behind",
      eight=b"\x08" + PLAIN + ro(*range(1, 9)) + b"\0", refused=b"\x01" + PLAIN, reset=b"\x01" + RESET,
      stalled=b"\x01" + STALL + ro(2)[:30], broken=b"\x01" + BROKEN + ro(2)[:10], other=b"\x02" + PLAIN + ro(1),
      none=b"\x00" + PLAIN, nine=b"\x09" + PLAIN + ro(*[1] * 9), bad_ack=b"\x01" + PLAIN + ro(1) + b"\x01",
      no_room=b"\x02" + PLAIN + ro(1, 101) + b"\0", no_regions=b"\x01" + PLAIN + b"\x01" + table(0),
      too_many=b"\x01" + PLAIN + b"\x01" + table(1, 4097), most=b"\x01" + PLAIN + ro(4096) + b"\0",
      unwritable=b"\x01\0\x01", cut_in_step_3=b"\x01\0\x0a" + ro(1) + b"\0")
write("client_rw", one=b"\x01" + PLAIN + rails(1, cache) + b"\0", two=b"\x02" + DRIP + rails(2, cache) + b"\0behind",
      most=b"\xff" + PLAIN + rails(255, cache) + b"\0", refused=b"\x01" + PLAIN, reset=b"\x01" + RESET,
      stalled=b"\x01" + STALL + rails(1, cache)[:30], other=b"\x02" + PLAIN + rails(1, cache), none=b"\x00" + PLAIN,
      granted_none=b"\x01" + PLAIN + b"\0", bad_ack=b"\x01" + PLAIN + rails(1, cache) + b"\xff",
      unwritable=b"\x01\0\x01", cut_in_step_3=b"\x01\0\x0a" + rails(1, cache) + b"\0")
for target, most in ("server_ro", 8), ("server_rw", 255):
    write(target, one=PLAIN + b"\x01" + rails(1, qp), two=DRIP + b"\x02" + rails(2, qp) + b"behind",
          most=PLAIN + bytes([most]) + rails(most, qp), none=PLAIN + b"\0", nine=PLAIN + b"\x09" + rails(9, qp),
          other=PLAIN + b"\x02" + rails(1, qp), left=PLAIN, reset=RESET + b"\x02" + rails(2, qp)[:30],
          stalled=STALL + b"\x01", truncated=PLAIN + b"\x02" + rails(2, qp)[:-1],
          unwritable=b"\0\x01\x01" + rails(1, qp), cut_in_step_2=b"\0\x09\x01" + rails(1, qp))

# ---- gpusys/1 ----

MAGIC = b"GPUSYS/1"
COOKIE, ITS_COOKIE, SESSION, PROOF = (
    bytes(range(0x40, 0x50)), bytes(range(0x50, 0x60)), b"a hostile sessio", b"proof of nothing")
(HELLO, WELCOME, REFUSED, READY, GO, LIST, REGIONS, SUM, SUMS, ARENA, GRANTED, ARENA_FREE, FREED, FENCE, FENCED, NOTE, NOTED,
 PING, PONG, CHANGED, ATTACH, ATTACHED, MAP, MAPPED, RAIL, RAILED, KEY, KEYED) = range(1, 29)
TCP, SHM, VERBS = 2, 1, 3
FIRST_ARENA = 0x80000000
RAW = 0xF0


def text(value):
    return struct.pack("<H", len(value)) + value


def frame(kind, body=b"", serial=1, claimed=None):
    return struct.pack("<IHHQ", len(body) if claimed is None else claimed, kind, 0, serial) + body


def rail_record(device=b"mlx5_0:1"):
    return struct.pack("<BBH16sHHBBhIII24s", 3, 2, 0x102, bytes(range(16)), 3, 4096, 16, 8, -1, 0x112233, 0xAABBCC, 5, device)


def hello(rails=0, name=b"seed", version=1, cookie=COOKIE, claimed=None):
    return struct.pack("<IIQ", version, 0, 0) + cookie + bytes([rails if claimed is None else claimed]) + \
        rail_record() * rails + text(name)


def welcome(rails=0, path=b"", slice_max=1 << 24, requests=1024):
    return struct.pack("<IIQ", 1, 0, 0) + ITS_COOKIE + SESSION + PROOF + struct.pack("<QQII", 2, 1 << 20, slice_max, requests) + \
        bytes([rails]) + rail_record() * rails + text(path)


def entry(number, name, kind=0, access=1, place=0, length=5):
    return struct.pack("<IBBBBQqI", number, kind, access, place, 0, length, 1700000000123456789, 0o644) + text(name)


def page(*entries, total=None, first=0, count=None):
    count = len(entries) if count is None else count
    return struct.pack("<QQI", count if total is None else total, first, count) + b"".join(entries)


def sums(count, claimed=None):
    return struct.pack("<IQI", 0, 0, count if claimed is None else claimed) + bytes(range(16)) * count


def end(transport=VERBS, layer=2, gid=bytes(10) + b"\xff\xff\x7f\0\0\1", mtu=1024, reads=16, qpn=0x112233, psn=0xAABBCC,
        generation=1, device=b"fake0"):
    return struct.pack("<BBH16sHHBBhIII24s", transport, layer, 0, gid, 0, mtu, reads, reads, -1, qpn, psn, generation, device)


def rail(offer=0, rest=bytes(7), **changes):
    return end(**changes) + bytes([offer]) + rest


def railed(size=8192, **changes):
    return end(**changes) + struct.pack("<QII", 0x7000, 0xDEADBEEF, size)


def keyed(pieces, region_number=0, place=0, size=4096, claimed=None, rest=0):
    return struct.pack("<IIQII", region_number, place, size, pieces if claimed is None else claimed, 0) + \
        struct.pack("<QII", 0x1000, 0x1234, rest) * pieces


def attach(transport=TCP, rail=0, generation=1, session=SESSION):
    return session + struct.pack("<BBHI", transport, rail, 0, generation)


def request(op, region, offset, length, tag):
    return struct.pack("<IIQII", op, region, offset, length, tag)


def reply(status, length, tag):
    return struct.pack("<III", status, length, tag)


BODIES = {
    HELLO: [hello(), hello(1), hello(8), hello(9), hello(1, claimed=2), hello(name=b"a" * 1024), hello(name=b"a" * 1025),
            hello(name=b"a\0b"), hello(name=b"a\x1bb")],
    WELCOME: [welcome(), welcome(1, b"/run/peer"), welcome(slice_max=0), welcome(slice_max=1 + (1 << 24)), welcome(requests=0)],
    REFUSED: [struct.pack("<I", n) + text(b"a reason") for n in range(12)],
    READY: [b"\x02" + text(b"tcp: as required"), b"\x01" + text(b"")],
    LIST: [struct.pack("<QI", 0, 0xFFFFFFFF), struct.pack("<QI", 3, 1)],
    REGIONS: [page(), page(entry(0, b"a"), entry(1, b"b/c", 1)), page(entry(0, b"a"), total=9), page(entry(0, b"a"), count=2),
              page(entry(0, b"a" * 4095)), page(entry(0, b"a" * 4096)), page(entry(0, b"a\0")), page(entry(0, b"a")) + b"x",
              page(total=1, first=2), page(entry(0, b"../x"))],
    SUM: [struct.pack("<IQI", 0, 0, n) for n in (0, 1, 1024, 1025)] + [struct.pack("<IQI", 0, (1 << 64) - 1, 1)],
    SUMS: [sums(1), sums(1024), sums(2, 3), sums(3, 2)],
    ARENA: [struct.pack("<Q", n) for n in (0, 4096, 1 << 40)],
    GRANTED: [struct.pack("<IQ", FIRST_ARENA, 4096)],
    ARENA_FREE: [struct.pack("<I", FIRST_ARENA)],
    FENCE: [struct.pack("<II", n, 1) for n in (0, 7, 8)],
    NOTE: [b"", b"done", b"n" * 256, b"n" * 257],
    CHANGED: [struct.pack("<I", 0)],
    ATTACH: [attach(), attach(SHM, 7), attach(TCP, 8)],
    ATTACHED: [PROOF],
    MAP: [struct.pack("<I", 0)],
    MAPPED: [struct.pack("<IIQ", 0, huge, 4096) for huge in (0, 1, 2)],
    RAIL: [rail(), rail(7), rail(8), rail(layer=3), rail(layer=4), rail(transport=TCP), rail(qpn=0), rail(qpn=1 << 24),
           rail(psn=1 << 24), rail(mtu=255), rail(reads=0), rail(rest=b"\1" * 7), rail(device=b"d" * 24)],
    RAILED: [railed(), railed(0), railed(qpn=0), railed(layer=0)],
    KEY: [struct.pack("<I", 0), struct.pack("<I", FIRST_ARENA)],
    KEYED: [keyed(1), keyed(3), keyed(0), keyed(2, claimed=3), keyed(2, claimed=0x10000002), keyed(1, place=2), keyed(1, place=3),
            keyed(1, size=0), keyed(1, size=(1 << 64) - 1), keyed(2, rest=1), keyed(300)],
    PING: [b""], PONG: [b""], GO: [b""], FREED: [b""], FENCED: [b""], NOTED: [b""],
}
write("message", empty=b"", **{f"{kind}_{i}": bytes([kind]) + body for kind, bodies in BODIES.items()
                               for i, body in enumerate(bodies)},
      **{f"{kind}_cut": bytes([kind]) + bodies[0][:-1] for kind, bodies in BODIES.items() if bodies[0]})
write("message_page", none=b"", one=b"\x05\x00\x01", three=b"\x05\x00\x01" * 3, long=b"\xff\x0f\x00" * 70,
      mixed=bytes((i * 37) % 256 for i in range(3 * 600)), empty_names=b"\0\0\0" * 3000)
frames = frame(PING) + frame(NOTE, b"note", 2) + frame(LIST, BODIES[LIST][0], 3)
write("message_frames", plain=b"\0\0" + frames, drip=b"\1\0" + frames, magic=b"\0\1" + MAGIC + frames,
      drip_magic=b"\1\1" + MAGIC + frames, other=b"\1\1GPUSYS/2", http=b"\3\1GET / HTTP/1.1\r\n", cut=b"\7\0" + frames[:-1],
      too_long=b"\0\0" + frame(NOTE, claimed=256 * 1024 + 1), reserved=b"\0\0" + frame(NOTE)[:6] + b"\1" + frame(NOTE)[7:],
      empty=b"\0\0", magic_only=b"\0\1" + MAGIC, half=b"\0\1GPUS")
write("request", read=request(0, 0, 0, 5, 7), write=request(1, 1, 1 << 40, 1 << 24, 1023), long=request(0, 0, 0, 1 + (1 << 24), 0),
      other=request(2, 0, 0, 0, 0), reserved=request(0x100, 0, 0, 0, 0), short=b"\0" * 23)
write("reply", ok=reply(0, 5, 7), range=reply(1, 0, 7), unknown=reply(255, 0, 0), reserved=reply(256, 0, 0),
      long=reply(0, 1 + (1 << 24), 0), short=b"\0" * 11)
write("session_open", left=b"", hello=MAGIC + frame(HELLO, hello()), half=MAGIC[:5], other=b"GET / HTTP/1.1\r\n\r\n",
      cookie=MAGIC + frame(HELLO, hello(cookie=bytes(16))), old=MAGIC + frame(HELLO, hello(version=0)),
      rails=MAGIC + frame(HELLO, hello(8)), list=MAGIC + frame(HELLO, hello()) + frame(LIST, BODIES[LIST][0], 2),
      attach=MAGIC + frame(ATTACH, attach()), attach_0=MAGIC + frame(ATTACH, attach(), 0), again=(MAGIC + frame(HELLO, hello())) * 2,
      ping=MAGIC + frame(PING), too_long=MAGIC + frame(HELLO, claimed=1 << 30), waits=MAGIC + frame(HELLO, hello())[:-1],
      malformed=MAGIC + frame(HELLO, hello()[:-1]), behind=MAGIC + frame(ATTACH, attach()) + frame(PING, serial=2))


def record(kind, body=b""):
    return bytes([kind, len(body)]) + body


WHOLE = {"ready": record(READY, BODIES[READY][0]), "list": record(LIST, BODIES[LIST][0]),
         "sums": b"".join(record(SUM, struct.pack("<IQI", n, 0, 1)) for n in range(6)),
         "many_sums": record(SUM, struct.pack("<IQI", 2, 0, 1)) * 30, "ping": record(PING),
         "arena": record(ARENA, struct.pack("<Q", 8192)) + record(ARENA_FREE, struct.pack("<I", FIRST_ARENA)),
         "arenas": record(ARENA, struct.pack("<Q", 4096)) * 20 + record(SUM, struct.pack("<IQI", FIRST_ARENA, 0, 1)),
         "too_much": record(ARENA, struct.pack("<Q", 1 << 40)) + record(ARENA, struct.pack("<Q", 0)),
         "fence": record(FENCE, struct.pack("<II", 0, 1)), "note": record(NOTE, b"done") + record(NOTE, b"n" * 255),
         "pages": record(LIST, struct.pack("<QI", 1, 2)) * 40, "frees": record(ARENA_FREE, struct.pack("<I", 0)) * 3}
write("session_control", nothing=b"", all=b"".join(WHOLE.values()), **WHOLE, hello=record(HELLO, hello()),
      pong=record(PONG), unknown=record(99, b"?"), answer=record(GO), malformed=record(LIST, b"short"), raw=record(0xF0, b"garbage"),
      cut=record(0xF0, frame(LIST, claimed=100)), fence_8=record(FENCE, struct.pack("<II", 8, 1)),
      no_sums=record(SUM, struct.pack("<IQI", 0, 0, 0)))


def on_control(kind, body=b""):
    return record(0xE0, bytes([kind]) + body)


def key(number):
    return record(KEY, struct.pack("<I", number))


ONE_RAIL, AN_ARENA = record(RAIL, rail()), on_control(ARENA, struct.pack("<Q", 8192))
write("session_verbs", nothing=b"", rail=ONE_RAIL, keys=ONE_RAIL + b"".join(key(n) for n in range(7)), twice=ONE_RAIL * 2,
      key_first=key(0), infiniband=record(RAIL, rail(1, layer=1)) + key(0), grh=record(RAIL, rail(1, layer=3)) + key(2),
      no_offer=record(RAIL, rail(2)) + record(RAIL, rail(7)) + ONE_RAIL + key(1), layers=record(RAIL, rail(1)) + ONE_RAIL,
      family=record(RAIL, rail(gid=bytes(range(16)))) + ONE_RAIL, mtu=record(RAIL, rail(mtu=257)) + ONE_RAIL,
      other_generation=record(RAIL, rail(generation=2)), qpn=record(RAIL, rail(qpn=1 << 24)), short=record(RAIL, rail()[:-1]),
      arena=ONE_RAIL + AN_ARENA + key(FIRST_ARENA) + on_control(ARENA_FREE, struct.pack("<I", FIRST_ARENA)) + key(FIRST_ARENA),
      race=ONE_RAIL + (AN_ARENA + key(FIRST_ARENA) + on_control(ARENA_FREE, struct.pack("<I", FIRST_ARENA))) * 6,
      fence=ONE_RAIL + on_control(FENCE, struct.pack("<II", 3, 1)) + key(0), again=ONE_RAIL + key(0) * 30,
      other_fence=ONE_RAIL + on_control(FENCE, struct.pack("<II", 3, 2)) + key(0), ping=ONE_RAIL + record(PING),
      unknown=ONE_RAIL + record(99, b"?"), malformed=ONE_RAIL + record(KEY, b"short"), bad_control=ONE_RAIL + on_control(GO),
      raw=ONE_RAIL + record(RAW, b"garbage" * 9), cut=ONE_RAIL + record(RAW, frame(KEY, claimed=100)))


def op(kind, region, offset, length, payload=b""):
    return bytes([kind, region]) + offset.to_bytes(3, "little") + length.to_bytes(3, "little") + payload


write("session_rail", nothing=b"", reads=b"".join(op(0, n, 3, 50) for n in range(6)), long=op(0, 0, 0, 100000) + op(0, 2, 0, 70000),
      short=op(0, 2, 69999, 1) + op(0, 3, 0, 0) + op(0, 0, 100000, 0), beyond=op(0, 0, 99999, 2) + op(0, 0x80, 1, 100),
      writes=op(1, 1, 10, 20, b"w" * 20) + op(0, 1, 0, 5000) + op(1, 1, 0, 5000), refused=op(1, 0, 0, 9, b"x" * 9) + op(1, 1, 4999, 2, b"yy"),
      large_refused=op(1, 0, 0, 400000), arena=op(0, 0x40, 0, 1) + op(1, 0x7F, 0, 1, b"z"), none=op(1, 1, 0, 0),
      raw=op(0, 0, 0, 5) + b"\x10" + request(7, 0, 0, 0, 0), waits=b"\x10" + request(1, 1, 0, 5000, 0) + b"half",
      unread=b"\x10" + request(0, 0, 0, 100000, 0) * 40, cut=b"\x10" + request(0, 0, 0, 5, 0)[:20])


# Scripts of a hostile peer (hostile.h).
WAIT, ANSWER, ON_RAIL = 0x80, 0x40, 0x20


def says(kind, body=b"", flags=WAIT | ANSWER):
    return bytes([kind, flags, len(body)]) + body


ONE_PAGE = page(entry(0, b"a", length=64), entry(1, b"dir/b", 0, 3, 0, 32))
ANSWERS = {"go": says(GO), "regions": says(REGIONS, ONE_PAGE), "sums": says(SUMS, sums(1)), "noted": says(NOTED),
           "granted": says(GRANTED, struct.pack("<IQ", FIRST_ARENA, 4096)), "freed": says(FREED), "pong": says(PONG)}
GOOD = ANSWERS["go"] + ANSWERS["regions"]
BYTES = b"0123456789abcdef" * 4
LIES = {
    "good": GOOD + ANSWERS["sums"] * 2 + ANSWERS["regions"] + ANSWERS["granted"] + ANSWERS["freed"] + ANSWERS["pong"],
    "refused": says(REFUSED, struct.pack("<I", 7) + text(b"no")), "no_go": says(PONG), "gone": b"",
    "noted_0": GOOD + says(NOTED, flags=0) * 3 + says(NOTED, flags=WAIT), "noted": GOOD + says(NOTED, flags=1),
    "fenced_0": GOOD + says(FENCED, flags=0), "ahead": GOOD + says(PONG, flags=31), "pings": ANSWERS["go"] + says(PING, flags=3) * 50,
    "ping_as_answer": ANSWERS["go"] + says(PING), "changed": GOOD + says(CHANGED, struct.pack("<I", 0), 0) + ANSWERS["regions"],
    "longer": GOOD + ANSWERS["sums"] + says(REGIONS, page(entry(0, b"a", length=1 << 40), entry(1, b"b", 0, 3, 0, 1 << 30))) * 12,
    "shrunk": GOOD + ANSWERS["sums"] + says(REGIONS, page(entry(0, b"a"))) * 3,
    "names": ANSWERS["go"] + says(REGIONS, page(entry(0, b"../a"))), "endless": ANSWERS["go"] + says(REGIONS, page(total=5)),
    "pieces": ANSWERS["go"] + says(REGIONS, page(entry(0, b"a"), total=2)) + says(REGIONS, page(entry(1, b"b"), total=2, first=1)),
    "zero_arena": GOOD + says(GRANTED, struct.pack("<IQ", FIRST_ARENA, 0)) * 9, "raw": GOOD + says(RAW, b"garbage", 0),
    "sums_of_other": GOOD + says(SUMS, sums(2)) * 3, "refused_sums": GOOD + says(REFUSED, struct.pack("<I", 8) + text(b"changed")) * 6,
}
RAILS = {
    "none": b"", "reads": b"".join(reply(0, 64, 0) + BYTES for _ in range(2)), "short": reply(0, 64, 0) + BYTES[:10],
    "unasked": reply(0, 0, 5), "range": reply(1, 0, 0), "changed": reply(4, 0, 0), "lies": reply(0, 1, 0), "far": reply(0, 64, 1 << 30),
    "all": b"".join(reply(0, 8, n) + BYTES[:8] for n in range(8)) * 3, "raw": b"garbage in twelve", "twice": reply(0, 64, 0) + BYTES + reply(0, 64, 0),
    "writes": b"".join(reply(0, 64, 0) + BYTES + reply(0, 32, n) for n in range(3)),
}
WELCOMED = says(WELCOME, welcome())
write("remote_open", left=b"", welcome=WELCOMED, refused=says(REFUSED, struct.pack("<I", 2) + text(b"the cookie")),
      control_bytes=says(REFUSED, struct.pack("<I", 2) + text(b"\x1b[2J")), other=says(RAW, b"HTTP/1.1 400 Bad Request\r\n", WAIT),
      early=says(WELCOME, welcome(), 0), late=says(WELCOME, welcome(), WAIT | 9), path=says(WELCOME, welcome(path=b"/nowhere")),
      slices=says(WELCOME, welcome(slice_max=1, requests=1)), none=says(WELCOME, welcome(slice_max=0)),
      cut=says(RAW, frame(WELCOME, welcome())[:-1], WAIT), **{"then_" + name: WELCOMED + lie for name, lie in LIES.items()})


def visit(what, rail, control):
    return struct.pack("<BH", what, len(rail)) + rail + control


def mapped(region=0, length=64, huge=0, serial=1):
    return frame(MAPPED, struct.pack("<IIQ", region, huge, length), serial)


write("remote_session", **{"lie_" + name: visit(0, RAILS["reads"], lie) for name, lie in LIES.items()},
      **{"rail_" + name: visit(0, rail, LIES["good"]) for name, rail in RAILS.items()},
      **{f"shm_{what}": visit(1 | what << 1, mapped() + mapped(1, 32, serial=2), LIES["good"]) for what in range(6)},
      shm_short=visit(7, mapped(length=65536), LIES["good"]), shm_huge=visit(3, mapped(huge=1), LIES["good"]),
      shm_longer=visit(3, mapped(), LIES["longer"]), shm_refused=visit(1, frame(REFUSED, struct.pack("<I", 8) + text(b"no")), LIES["good"]),
      shm_late=visit(3, mapped(serial=9), LIES["good"]), shm_cut=visit(3, mapped()[:20], LIES["good"]))
LARGE_PAGE = says(REGIONS, page(entry(0, b"a", access=3, length=8), entry(1, b"b", 0, 3, 0, 1 << 20)))
write("remote_session", silence=visit(0, b"", GOOD), noted_0=visit(0, b"", GOOD + says(NOTED, flags=ON_RAIL) * 4),
      fenced_0=visit(0, b"", GOOD + says(FENCED, flags=ON_RAIL) * 4), changed=visit(0, b"", GOOD + says(CHANGED, bytes(4), ON_RAIL) * 4),
      unsent=visit(0, b"".join(reply(0, 8, n) + (BYTES[:8] if n % 2 else b"") for n in range(1, 8)),
                   ANSWERS["go"] + LARGE_PAGE + ANSWERS["sums"] * 2 + LARGE_PAGE * 9))

# The field's dialects. A server's input is [which] and what a client says, a client's [which] and what a peer says.
CACHE = struct.pack("<QBQQ", 0x5041474500000002, 1, 1 << 20, 0)
ASK, GOODBYE = b"\x01\0\0\0m", struct.pack("<IQI", 0xFFFFFFFF, 0, 0)


def piece(shard, offset, length):
    return struct.pack("<IQI", shard, offset, length)


write("field_records", cache=CACHE, retired=b"\x01" + CACHE[1:], kind=CACHE[:8] + b"\x02" + CACHE[9:],
      paging=CACHE[:17] + struct.pack("<Q", 4096), huge=CACHE[:9] + b"\xff" * 8 + bytes(8), empty=bytes(25))
write("field_server", weights=b"\0" + ASK + b"\0" + piece(0, 0, 0) + piece(0, 5, 7) + GOODBYE,
      most=b"\0" + ASK + b"\0" + piece(0, 0, 70000) + piece(0, 69999, 1), beyond=b"\0" + ASK + b"\0" + piece(0, 70000, 1) + piece(1, 0, 1),
      long=b"\0" + ASK + b"\0" + piece(0, 0, (16 << 20) + 1), verbs=b"\0" + ASK + b"\x01\x01", other=b"\0\x01\0\0\0n", none=b"\0",
      name=b"\0\xff\xff\xff\xff", cut=b"\0" + ASK + b"\0" + piece(0, 0, 9)[:9],
      experts=b"\x01\0" + struct.pack("<IIII", 0, 1, 0, 99) + b"\xff" * 8, experts_beyond=b"\x01\0" + struct.pack("<IIII", 0, 100, 1, 0),
      experts_verbs=b"\x01\x01\x02", experts_mode=b"\x01\x07")
TEXT = b"\x02\0\0\0{}"
write("field_client", weights=b"\0" + TEXT + b"\0" + (b"\0" + bytes(40)) * 3, errors=b"\0" + TEXT + b"\0\x01\x01\x01", status=b"\0" + TEXT + b"\x05",
      cut=b"\0" + TEXT + b"\0\0" + bytes(20), none=b"\0", length=b"\0\xff\xff\xff\xff{}", empty=b"\0" + bytes(4),
      experts=b"\x01" + TEXT + (b"\0" + bytes(16)) * 9, experts_error=b"\x01" + TEXT + b"\0" + bytes(16) + b"\x01\0" + bytes(16),
      experts_more=b"\x01" + TEXT + (b"\0" + bytes(16)) * 30, experts_length=b"\x01\x01\0\0\x01")

# Parties of ranks (docs/protocol.md, section 13). A message's input is [type] and its body; a hostile side's is [how it
# begins] and all that it says.
PARTY_BODIES = {
    "hello": (1, struct.pack("<I16sIIIi16s", 1, bytes(16), 2, 1, 7, 22809, bytes(range(16))) + text(b"node7")),
    "hello_later": (1, struct.pack("<I", 2) + b"anything"),
    "welcome": (2, struct.pack("<II", 3, 15000) + (struct.pack("<Ii16s", 7, 22809, bytes(16)) + text(b"h") + text(b"a")) * 3),
    "refused": (3, struct.pack("<I", 17) + text(b"rank 1 came twice") + text(b"why") + text(b"do")),
    "waiting": (4, text(b"ranks 3 and 5 of 8")), "ping": (5, b""),
    "gather": (6, struct.pack("<QQII", 9, 0x30DF94C5AA4C0AE5, 2, 8) + b"a share"),
    "gather_other": (6, struct.pack("<QQII", 9, 1, 2, 8) + b"a share"), "gather_bytes": (6, struct.pack("<QQII", 9, 1, 2, 1025)),
    "gathered": (7, struct.pack("<QII", 9, 3, 8) + b"".join(struct.pack("<II", r, 3) + b"abc" for r in (2, 0, 1))),
    "gathered_twice": (7, struct.pack("<QII", 9, 3, 8) + struct.pack("<II", 1, 0) * 3),
    "gathered_none": (7, struct.pack("<QII", 9, 3, 8)), "gathered_far": (7, struct.pack("<QIIII", 9, 3, 8, 70000, 8) + bytes(8)),
    "ungathered": (8, struct.pack("<QI", 9, 74) + text(b"no")), "late": (9, struct.pack("<Q", 9)),
    "given": (10, struct.pack("<QI", 9, 3) + b"\x05"), "given_more": (10, struct.pack("<QI", 9, 3) + b"\xff"),
    "alarm": (11, struct.pack("<QIBBH", 77, 110, 1, 0, 0) + text(b"a wait ran out") + struct.pack("<I", 2) + b"\x03"),
    "alarm_told": (11, struct.pack("<QIBBH", 78, 5, 0, 0, 0) + text(b"no") + struct.pack("<I", 2) + b"\x00"),
    "ask": (12, struct.pack("<Q", 77)), "ask_other": (12, struct.pack("<Q", 5)),
    "report": (13, struct.pack("<QBBHIQQ", 77, 1, 0, 0, 1, 42, 41) + struct.pack("<QQHBBI", 42, 1024, 1, 7, 0, 0)),
    "report_none": (13, struct.pack("<QBBHIQQ", 77, 0, 0, 0, 0, 0, 0)),
    "report_down": (13, struct.pack("<QBBHIQQ", 77, 1, 0, 0, 2, 42, 41) + struct.pack("<QQHBBI", 42, 1, 1, 7, 0, 0) * 2),
    "failure": (14, struct.pack("<QIII", 0, 104, 1, 2) + text(b"rank 2 died")), "failure_self": (14, struct.pack("<QIII", 0, 112, 1, 1) + text(b"you")),
    "failure_key": (14, struct.pack("<QII", 77, 110, 0) + text(b"it is over")), "failure_far": (14, struct.pack("<QIII", 0, 104, 1, 70000) + text(b"?")),
    "goodbye": (15, struct.pack("<II", 1, 1)), "goodbye_hub": (15, struct.pack("<II", 1, 0)), "goodbye_far": (15, struct.pack("<II", 1, 99)),
}


def party_frame(name):
    kind, body = PARTY_BODIES[name]
    return struct.pack("<IHH", len(body), kind, 0) + body


PARTY_MAGIC = b"GPUSYS/P"
write("party_message", empty=b"", **{name: bytes([kind]) + body for name, (kind, body) in PARTY_BODIES.items()},
      **{"cut_" + name: bytes([kind]) + body[:-1] for name, (kind, body) in PARTY_BODIES.items() if body})
for target in "party_hub", "party_member":
    write(target, silence=b"\0", magic=b"\0" + PARTY_MAGIC, http=b"\0HTTP/1.1 400 Bad Request\r\n", huge=b"\0" + PARTY_MAGIC + b"\xff\xff\xff\xff\x01\0\0\0",
          behind=b"\1\xff\xff\xff\xff\x06\0\0\0", zeros=b"\1" + bytes(64),
          **{"first_" + name: b"\0" + PARTY_MAGIC + party_frame(name) for name in PARTY_BODIES},
          **{"then_" + name: b"\1" + party_frame(name) for name in PARTY_BODIES})
write("party_hub", alone=b"\3", alone_gather=b"\3" + party_frame("gather"), pair=b"\1" + party_frame("gather") + party_frame("late") + party_frame("gather_other"),
      asked=b"\1" + party_frame("alarm") + party_frame("report") + party_frame("goodbye"), tags=b"\1" + b"".join(
          struct.pack("<IHH", 24, 6, 0) + struct.pack("<QQII", tag, 1, 2, 8) for tag in range(100, 180)),
      alarms=b"\1" + b"".join(struct.pack("<IHHQIBBH", 23, 11, 0, key, 5, 1, 0, 0) + text(b"") + struct.pack("<I", 2) + b"\x03" for key in range(1, 60)))
write("party_member", refused_empty=b"\0" + PARTY_MAGIC + struct.pack("<IHHI", 10, 3, 0, 11) + bytes(6), asked=b"\1" + party_frame("ask") + party_frame("failure_key"),
      gathered=b"\1" + party_frame("gathered") * 2 + party_frame("given"), over=b"\1" + party_frame("goodbye_hub") + party_frame("failure"))
