"""Shared by the parts of the benchmark: rows of the table, timing, and figures of processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lockstep import RunConfig


@dataclasses.dataclass
class Row:
    """One figure. `wanted` is the goal: at most (or, with at_least, at least) this value."""

    what: str
    value: float
    unit: str
    wanted: float | None = None
    at_least: bool = False
    samples: Sequence[float] = ()

    def text(self) -> str:
        return f"{self.value:.4g} {self.unit}"

    def wanted_text(self) -> str:
        if self.wanted is None:
            return ""
        return f"{'>=' if self.at_least else '<='} {self.wanted:g} {self.unit}"

    def verdict(self) -> str:
        if self.wanted is None:
            return ""
        met = self.value >= self.wanted if self.at_least else self.value <= self.wanted
        return "met" if met else "MISSED"

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "samples": list(self.samples), "verdict": self.verdict()}


def median_row(what: str, samples: Sequence[float], unit: str, wanted: float | None = None) -> Row:
    return Row(what, statistics.median(samples), unit, wanted, samples=samples)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory on the disk of the default storage path; /tmp may be in memory."""
    path = Path(tempfile.mkdtemp(prefix="lockstep-bench-", dir=Path.home()))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def quiet(storage: Path, **more: Any) -> RunConfig:
    return RunConfig(storage_path=str(storage), verbose=0, **more)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, kind: str = "Pss") -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) / 1000
    raise ValueError(kind)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found
