#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The version script of a libnccl of some version: nccl_map.py nccl_api.h CODE > MAP"""
import pathlib
import re
import sys


def main():
    header, version = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    table = re.findall(r"\bX\((nccl\w+), (\d+)\)", header.read_text())
    names = [name for name, since in table if int(since) <= version]
    print("{\n    global:")
    for name in names:
        print(f"        {name};")
    print("        fake_nccl_*;\n    local: *;\n};")


main()
