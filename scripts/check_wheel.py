"""Says on which Linux a wheel can be installed: check_wheel.py WHEEL [--limit 2.28] [--tag]

Reads from every binary which versions of glibc and libstdc++ it needs, and which libraries. With --limit the exit
code is 1 if a newer glibc is needed; with --tag the wheel is renamed for the glibc that it needs (PEP 600).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

VERSION = re.compile(r"\b(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)+)")
NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")
SYSTEM = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux[^.]*)\.so\.\d+")
BESIDE = re.compile(r"lib(torch|c10|arrow|parquet|gomp)[\w-]*\.so.*|libsqlite3\.so\.0")
"""Libraries of the packages torch and pyarrow, beside which Lockstep is installed, and one that tuning loads."""

Version = tuple[int, ...]


class Needs:
    """What the binaries of a wheel need."""

    def __init__(self) -> None:
        self.highest: dict[str, tuple[Version, str]] = {}
        """By family of symbol versions: the highest, and a file that needs it."""
        self.foreign: dict[str, set[str]] = defaultdict(set)
        """Libraries that not every Linux has, by file."""

    def add(self, file: str, dynamic: str, versions: str) -> None:
        """`dynamic` and `versions`: what readelf printed with -d and --version-info."""
        for family, number in VERSION.findall(versions):
            version = tuple(map(int, number.split(".")))
            if version > self.highest.get(family, ((), ""))[0]:
                self.highest[family] = (version, file)
        for name in NEEDED.findall(dynamic):
            if not SYSTEM.fullmatch(name) and not BESIDE.fullmatch(name):
                self.foreign[file].add(name)

    @property
    def glibc(self) -> Version:
        """The glibc that is needed, as (major, minor)."""
        return self.highest.get("GLIBC", ((2, 17), ""))[0][:2]


def needs_of(wheel: Path) -> Needs:
    """What a wheel needs."""
    found = Needs()
    for name, path in _binaries(wheel):
        found.add(name, _readelf("-d", path), _readelf("--version-info", path))
    return found


def _binaries(wheel: Path) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as place:
        for name in archive.namelist():
            with archive.open(name) as file:
                if file.read(4) != b"\x7fELF":
                    continue
            yield name, archive.extract(name, place)


def _readelf(option: str, path: str) -> str:
    return subprocess.run(["readelf", "-W", option, path], check=True, capture_output=True, text=True).stdout


def text(version: Version) -> str:
    return ".".join(map(str, version))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--limit", help="the newest glibc that may be needed: 2.28")
    parser.add_argument("--tag", action="store_true", help="rename the wheel for the glibc that it needs")
    given = parser.parse_args(words)
    needs = needs_of(given.wheel)
    for family, (version, file) in sorted(needs.highest.items()):
        print(f"{family} {text(version)}: {file}")
    for file, names in sorted(needs.foreign.items()):
        print(f"not on every Linux: {', '.join(sorted(names))}: {file}")
    wheel = given.wheel
    if given.tag and needs.highest:
        major, minor = needs.glibc
        wheel = wheel.rename(
            wheel.with_name(re.sub(r"-linux_(\w+)\.whl$", rf"-manylinux_{major}_{minor}_\1.whl", wheel.name))
        )
    print(f"{wheel.name} can be installed where glibc is {text(needs.glibc)} or newer")
    if needs.foreign:
        return 1
    if given.limit is not None and needs.glibc > tuple(map(int, given.limit.split("."))):
        sys.stderr.write(f"[check_wheel] glibc {given.limit} is not enough; build on a system that has it\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
