"""kill -9 of one of 4 workers to the first line of the restarted function on all ranks."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from lockstep import DataParallelTrainer, FailureConfig, ScalingConfig
from measure import Row, median_row, quiet, scratch

WORKERS, TIMES = 4, 10


def measure() -> list[Row]:
    samples: list[float] = []
    with scratch() as place:

        def function() -> None:
            now = time.time()
            from lockstep import session

            line = place / f"{session.get_attempt()}_{session.get_world_rank()}"
            part = line.with_suffix(".part")
            part.write_text(f"{now!r} {os.getpid()}")
            part.rename(line)
            if session.get_attempt() < TIMES:
                time.sleep(600)

        killer = threading.Thread(target=kill_one_a_time, args=(place, samples))
        killer.start()
        DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=quiet(place / "runs", failure_config=FailureConfig(max_failures=-1)),
        ).fit()
        killer.join()
    return [median_row("kill -9 of one of 4 workers: to the first line on all ranks", samples, "s", 0.15)]


def lines_of(place: Path, attempt: int) -> list[tuple[float, int]]:
    """When each rank printed its first line, and its pid; waits for all."""
    found = []
    for rank in range(WORKERS):
        path = place / f"{attempt}_{rank}"
        while not path.exists():
            time.sleep(0.005)
        when, pid = path.read_text().split()
        found.append((float(when), int(pid)))
    return found


def kill_one_a_time(place: Path, samples: list[float]) -> None:
    for attempt in range(TIMES):
        lines = lines_of(place, attempt)
        time.sleep(0.3)
        killed = time.time()
        os.kill(lines[attempt % WORKERS][1], signal.SIGKILL)
        samples.append(max(when for when, _ in lines_of(place, attempt + 1)) - killed)
