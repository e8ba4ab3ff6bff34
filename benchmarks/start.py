"""From fit() to the first line of the function on all ranks: warm, and cold from the start of the interpreter."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from lockstep import DataParallelTrainer, ScalingConfig, sgd
from lockstep.backend import BackendConfig
from measure import Row, median_row, quiet, scratch

WORKERS = 4

COLD = """
import sys
from lockstep import DataParallelTrainer, RunConfig, ScalingConfig
def function():
    import time
    from lockstep import session
    with open(sys.argv[1] + f"/{session.get_world_rank()}", "w") as file:
        file.write(repr(time.time()))
import sys
DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=4),
                    run_config=RunConfig(storage_path=sys.argv[1] + "/runs", verbose=0)).fit()
"""


def last_line(place: Path) -> float:
    return max(float((place / str(rank)).read_text()) for rank in range(WORKERS))


def measure() -> list[Row]:
    return [warm(), cold(), warm_group()]


def warm_group(times: int = 30) -> Row:
    with scratch() as place, sgd.Trainer(BackendConfig(), WORKERS, logdir=place) as trainer:
        samples = []
        for _ in range(times + 1):
            begin = time.perf_counter()
            trainer.run(nothing)
            samples.append(time.perf_counter() - begin)
        return median_row("warm sgd.Trainer.run() of an empty function on 4 workers", samples[1:], "s", 0.02)


def nothing() -> None:
    pass


def warm(times: int = 15) -> Row:
    with scratch() as place:

        def function() -> None:
            now = time.time()
            from lockstep import session

            (place / str(session.get_world_rank())).write_text(repr(now))

        trainer = DataParallelTrainer(
            function, scaling_config=ScalingConfig(num_workers=WORKERS), run_config=quiet(place / "runs")
        )
        samples = []
        for _ in range(times + 1):
            begin = time.time()
            trainer.fit()
            samples.append(last_line(place) - begin)
        return median_row("warm fit(): to the first line on 4 ranks", samples[1:], "s", 0.1)


def cold(times: int = 7) -> Row:
    samples = []
    for _ in range(times):
        with scratch() as place:
            script = place / "cold.py"
            script.write_text(COLD.replace("sys.argv[1]", repr(str(place))))
            begin = time.time()
            subprocess.run([sys.executable, script], check=True)
            samples.append(last_line(place) - begin)
    return median_row("cold script: to the first line on 4 ranks", samples, "s", 1.0)
