"""Marks: small files that ranks write when they reach a point, and measurements based on them.

A mark's name is ``<attempt>_<rank>``; it holds the time before the file was written, and the rank's process id.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

MARK = """
def mark(place, name):
    import os, time
    now = time.time()
    with open(f"{place}/{name}.part", "w") as file:
        file.write(f"{now!r} {os.getpid()}")
    os.rename(f"{place}/{name}.part", f"{place}/{name}")
"""
"""As text, for the scripts of ranks: they must not spend time on importing this module."""


class Mark(NamedTuple):
    when: float
    pid: int


def marks(place: Path, attempt: int, workers: int) -> list[Mark]:
    """The marks by rank. Waits for all, and raises RuntimeError after two minutes."""
    return [_read(place / f"{attempt}_{rank}") for rank in range(workers)]


def last_mark(place: Path, attempt: int, workers: int) -> float:
    """The time of the last rank's mark."""
    return max(mark.when for mark in marks(place, attempt, workers))


def kill_one_a_time(place: Path, workers: int, times: int, pause: float = 0.3) -> list[float]:
    """Kills one rank in each attempt; returns the seconds from each kill to the last mark of the next attempt."""
    samples: list[float] = []
    for attempt in range(times):
        pids = [mark.pid for mark in marks(place, attempt, workers)]
        time.sleep(pause)
        killed = time.time()
        os.kill(pids[attempt % workers], signal.SIGKILL)
        samples.append(last_mark(place, attempt + 1, workers) - killed)
    return samples


@contextmanager
def killing(place: Path, workers: int, times: int) -> Iterator[Future[list[float]]]:
    """Runs kill_one_a_time() in parallel with the body; its result is available afterwards."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(kill_one_a_time, place, workers, times)


def _read(path: Path) -> Mark:
    deadline = time.time() + 120
    while not path.exists():
        if time.time() > deadline:
            raise RuntimeError(f"{path.name} was not made within two minutes")
        time.sleep(0.005)
    when, pid = path.read_text().split()
    return Mark(float(when), int(pid))
