"""Checkpoints of 100 MB that stay in memory: what one at every step costs, and how soon a restart has one back."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from checkpoint import ARRAYS, EACH
from lockstep import CheckpointConfig, DataParallelTrainer, FailureConfig, ScalingConfig
from measure import Row, quiet, scratch

STEPS, KILLS, WORKERS = 110, 5, 2


def every_step(config: dict[str, Any]) -> None:
    import time

    import numpy as np
    from lockstep import Checkpoint, session

    arrays = {f"array_{i}": np.random.default_rng(i).random(EACH // 8) for i in range(ARRAYS)}
    copies, blocked = [], []
    for step in range(config["steps"]):
        begin = time.perf_counter()
        copied = [array.copy() for array in arrays.values()]
        copies.append(time.perf_counter() - begin)
        del copied
        begin = time.perf_counter()
        session.report({"step": step}, checkpoint=Checkpoint.from_dict(arrays))
        blocked.append(time.perf_counter() - begin)
        time.sleep(config["step"])
    session.report({"copies": copies, "blocked": blocked})


def killed(config: dict[str, Any]) -> None:
    """Rank 0 is killed right after its report; each rank notes when it has all arrays back."""
    import os
    import signal
    import time

    import numpy as np
    from lockstep import Checkpoint, session

    attempt, rank = session.get_attempt(), session.get_world_rank()
    place = Path(config["place"])
    checkpoint = session.get_checkpoint()
    if checkpoint is not None:
        data = checkpoint.to_dict()
        assert sum(data[f"array_{i}"][0] for i in range(ARRAYS)) > 0
        (place / f"back_{attempt}_{rank}").write_text(repr(time.time()))
    session.barrier()
    if attempt == config["kills"]:
        return
    if rank == 0:
        arrays = {f"array_{i}": np.random.default_rng(i).random(EACH // 8) for i in range(ARRAYS)}
        session.report({"attempt": attempt}, checkpoint=Checkpoint.from_dict(arrays))
        (place / f"killed_{attempt + 1}").write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def measure() -> list[Row]:
    kept = CheckpointConfig(persist_every=50, num_to_keep=1)
    with scratch() as place:
        metrics = (
            DataParallelTrainer(
                every_step,
                train_loop_config={"steps": STEPS, "step": 0.05},
                scaling_config=ScalingConfig(num_workers=1),
                run_config=quiet(place / "steps", checkpoint_config=kept),
            )
            .fit()
            .metrics
        )
        DataParallelTrainer(
            killed,
            train_loop_config={"place": str(place), "kills": KILLS},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=quiet(place / "kills", checkpoint_config=kept, failure_config=FailureConfig(max_failures=KILLS)),
        ).fit()
        back = []
        for attempt in range(1, KILLS + 1):
            begin = float((place / f"killed_{attempt}").read_text())
            back.append(max(float(path.read_text()) for path in place.glob(f"back_{attempt}_*")) - begin)
    copy = statistics.median(metrics["copies"])
    # The first ones make the memory.
    blocked = statistics.fmean(metrics["blocked"][10:])
    return [
        Row(
            "100 MB checkpoint at every step, persist_every=50: blocked, against a plain copy", blocked / copy, "x", 1.2
        ),
        Row("kill -9 to 100 MB from memory on 2 ranks", statistics.median(back), "s", 0.3),
    ]
