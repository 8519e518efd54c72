# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the programs lie that suites name."""
import os
import pathlib
import shutil

from .image import SEARCHED


def in_build(build):
    """{name: path} of the programs in a build folder."""
    programs = {}
    for folder, _, names in os.walk(build):
        for name in names:
            path = pathlib.Path(folder) / name
            if os.access(path, os.X_OK) and not path.is_symlink() and ".so" not in name:
                programs.setdefault(name, path)
    return programs


def find_programs(names, build=None, given=()):
    """{name: path}: from the paths `given`, else the build folder, else PATH. KeyError names a missing one."""
    known = {pathlib.Path(path).name: pathlib.Path(path) for path in given}
    built = in_build(build) if build and not set(names) <= set(known) else {}
    programs = {}
    for name in names:
        path = known.get(name) or built.get(name) or shutil.which(name, path=SEARCHED)
        if not path:
            raise KeyError(f"there is no program {name}: build it, or name it with --program")
        programs[name] = path
    return programs
