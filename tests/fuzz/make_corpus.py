#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes the seeds of the handshake's fuzz targets into corpus/. Run again after changing it; commit the files."""
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
