"""kill -9 of one of 4 workers to the first line of the restarted function on all ranks."""

from __future__ import annotations

import os
import time

from lockstep import DataParallelTrainer, FailureConfig, ScalingConfig
from marks import killing
from measure import Row, median_row, quiet, scratch

WORKERS, TIMES = 4, 10


def measure() -> list[Row]:
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

        trainer = DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=quiet(place / "runs", failure_config=FailureConfig(max_failures=-1)),
        )
        with killing(place, WORKERS, TIMES) as samples:
            trainer.fit()
    return [median_row("kill -9 of one of 4 workers: to the first line on all ranks", samples.result(), "s", 0.15)]
