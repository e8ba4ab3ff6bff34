"""A checkpoint of 100 MB of arrays: how long report() blocks, relative to a copy, and how fast it is written, relative
to dd."""

from __future__ import annotations

import re
import statistics
import subprocess
from pathlib import Path
from typing import Any

from lockstep import DataParallelTrainer, ScalingConfig
from measure import Row, quiet, scratch

ARRAYS, EACH = 10, 10_000_000


def save(config: dict[str, Any]) -> None:
    import os
    import time

    import numpy as np
    from lockstep import Checkpoint, session

    arrays = {f"array_{i}": np.random.default_rng(i).random(EACH // 8) for i in range(ARRAYS)}
    copies, blocked, durable = [], [], []
    for number in range(config["times"]):
        begin = time.perf_counter()
        copied = [array.copy() for array in arrays.values()]
        copies.append(time.perf_counter() - begin)
        del copied
        begin = time.perf_counter()
        session.report({}, checkpoint=Checkpoint.from_dict(arrays))
        blocked.append(time.perf_counter() - begin)
        committed = os.path.join(session.get_trial_dir(), f"checkpoint_{number:06d}")
        while not os.path.exists(committed):
            time.sleep(0.0005)
        durable.append(time.perf_counter() - begin)
        session.get_checkpoint()  # the previous one has been deleted
    session.report({"copies": copies, "blocked": blocked, "durable": durable})


def dd_rate(place: Path) -> float:
    """MB/s of dd with fsync on the same disk."""
    target = place / "dd"
    command = ["dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=100", "conv=fsync"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C"}).stderr
    target.unlink()
    size, seconds = re.search(r"(\d+) bytes.* copied, ([\d.e-]+) s", text).groups()  # type: ignore[union-attr]
    return float(size) / 1e6 / float(seconds)


def measure() -> list[Row]:
    with scratch() as place:
        rates = [dd_rate(place) for _ in range(5)]
        from lockstep import CheckpointConfig

        result = DataParallelTrainer(
            save,
            train_loop_config={"times": 8},
            scaling_config=ScalingConfig(num_workers=1),
            run_config=quiet(place, checkpoint_config=CheckpointConfig(num_to_keep=1)),
        ).fit()
        rates += [dd_rate(place) for _ in range(5)]
    metrics = result.metrics
    copy = statistics.median(metrics["copies"])
    # The write begins when report() returns: before that, the arrays are only copied.
    writes = [end - begin for begin, end in zip(metrics["blocked"][1:], metrics["durable"][1:], strict=True)]
    rate = ARRAYS * EACH / 1e6 / statistics.median(writes)
    ratio = statistics.median(metrics["blocked"][1:]) / copy
    return [
        Row("100 MB checkpoint: report() blocks, against a plain copy", ratio, "x", 2),
        Row("100 MB checkpoint: plain copy", copy * 1000, "ms"),
        Row("100 MB checkpoint: to committed", statistics.median(metrics["durable"][1:]) * 1000, "ms"),
        Row("100 MB checkpoint: write rate, against dd with fsync", rate / statistics.median(rates), "x", 0.8, True),
        Row("dd with fsync", statistics.median(rates), "MB/s"),
    ]
