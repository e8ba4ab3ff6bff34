"""Horovod: from the start to the end of ``hvd.init()`` on 4 ranks, compared with horovodrun; and an elastic job's
recovery.

Everything runs in .venv-horovod. Both sides run the same function, which imports torch and Horovod.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from pathlib import Path

from marks import MARK, kill_one_a_time, last_mark
from measure import Row, median_row, scratch

ROOT = Path(__file__).parents[1]
BIN = ROOT / ".venv-horovod" / "bin"
WORKERS, TIMES = 4, 5

INIT = (
    MARK
    + """
import sys

place = sys.argv[1]

def train_func():
    import horovod.torch as hvd

    hvd.init()
    mark(place, f"0_{hvd.rank()}")
"""
)

THEIRS = INIT + "train_func()\n"

OURS = (
    INIT
    + """
from lockstep import RunConfig, ScalingConfig
from lockstep.horovod import HorovodTrainer

if __name__ == "__main__":
    run_config = RunConfig(storage_path=place + "/runs", verbose=0)
    HorovodTrainer(train_func, scaling_config=ScalingConfig(num_workers=4), run_config=run_config).fit()
"""
)

ELASTIC = (
    INIT
    + """
from lockstep import FailureConfig, RunConfig, ScalingConfig, session
from lockstep.horovod import HorovodConfig, HorovodTrainer

kills, workers = int(sys.argv[2]), int(sys.argv[3])

def elastic():
    import horovod.torch as hvd
    import torch

    hvd.init()
    me = session.get_world_rank()

    @hvd.elastic.run
    def train(state):
        # Another life of the job: as many as there were deaths before, and one.
        state.life += 1
        hvd.allreduce(torch.ones(1000), name="gradient")
        state.commit()
        mark(place, f"{state.life}_{me}")
        while state.life < kills:
            hvd.allreduce(torch.ones(1000), name="gradient")

    train(hvd.elastic.TorchState(life=-1))

if __name__ == "__main__":
    run_config = RunConfig(storage_path=place + "/runs", verbose=0, failure_config=FailureConfig(max_failures=-1))
    scaling_config = ScalingConfig(num_workers=workers)
    config = HorovodConfig(elastic=True)
    HorovodTrainer(elastic, horovod_config=config, scaling_config=scaling_config, run_config=run_config).fit()
"""
)


def measure() -> list[Row]:
    subprocess.run([ROOT / "scripts" / "environments.sh", "horovod"], check=True)
    ours = [start(OURS, [str(BIN / "python")]) for _ in range(TIMES)]
    run = [str(BIN / "horovodrun"), "--gloo", "-np", str(WORKERS), "--network-interfaces", "lo", str(BIN / "python")]
    theirs = [start(THEIRS, run) for _ in range(TIMES)]
    rows = [
        median_row("Horovod, cold script: to the end of hvd.init() on 4 ranks", ours, "s"),
        median_row("  horovodrun", theirs, "s"),
        Row("  ours, of theirs", statistics.median(ours) / statistics.median(theirs), "x", 0.7),
    ]
    for workers in (2, 4):
        what = f"Horovod, elastic: kill -9 of one of {workers} to the next step on all"
        rows.append(median_row(what, deaths(workers), "s", 0.5))
    return rows


def start(text: str, command: list[str]) -> float:
    """Seconds from the start of the command to the last rank's mark."""
    with scratch() as place:
        script = place / "script.py"
        script.write_text(text)
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        before = time.time()
        subprocess.run(
            [*command, str(script), str(place)],
            check=True,
            env={**os.environ, "PATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return last_mark(place, 0, WORKERS) - before


def deaths(workers: int, times: int = TIMES) -> list[float]:
    """Seconds from each of some kills, one rank after the other, to the step after it on every rank."""
    with scratch() as place:
        script = place / "script.py"
        script.write_text(ELASTIC)
        job = subprocess.Popen([str(BIN / "python"), str(script), str(place), str(times), str(workers)])
        samples = kill_one_a_time(place, workers, times, pause=0.5)
        job.wait(60)
    return samples
