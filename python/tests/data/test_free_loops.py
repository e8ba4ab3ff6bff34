"""Training loops whose ranks never meet: no collective, no barrier."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.data
import pytest
from lockstep import Checkpoint, FailureConfig, Result, session

Fit = Callable[..., Result]
ROWS, BATCH = 1200, 10


def train_func(config: dict[str, Any]) -> None:
    checkpoint, shard = session.get_checkpoint(), session.get_dataset_shard("train")
    rank, attempt = session.get_world_rank(), session.get_attempt()
    step = first = checkpoint.to_dict()["step"] if checkpoint else 0
    with open(f"{config['folder']}/{rank}_{attempt}", "w") as log:
        for batch in shard.iter_batches(batch_size=BATCH):
            step += 1
            time.sleep(0.001 if rank == 0 else 0.004)  # rank 0 runs ahead
            log.write(json.dumps([first, step, batch["id"].tolist()]) + "\n")
            log.flush()
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            if rank == 1 and attempt < 2 and step == (15, 30)[attempt]:
                os.kill(os.getpid(), signal.SIGKILL)


def lines(log: Path) -> list[Any]:
    """Of one rank in one attempt. A slow rank may have been killed before it began."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("workers", [2, 3])
def test_kill_9_loses_and_repeats_nothing(fit: Fit, tmp_path: Path, workers: int) -> None:
    fit(
        train_func,
        workers,
        {"folder": str(tmp_path)},
        failure_config=FailureConfig(max_failures=2),
        datasets={"train": lockstep.data.range(ROWS)},
    )
    logs = {(rank, attempt): lines(tmp_path / f"{rank}_{attempt}") for rank in range(workers) for attempt in range(3)}
    firsts = [logs[1, attempt][0][0] for attempt in range(3)]  # what the checkpoints say that attempts resume from
    assert firsts[1] <= 15 and firsts[1] <= firsts[2] <= 30 and firsts[2] > 0
    used: Counter[int] = Counter()
    for (_, attempt), log in logs.items():
        assert {first for first, _, _ in log} <= {firsts[attempt]}
        end = firsts[attempt + 1] if attempt < 2 else ROWS
        used.update(number for _, step, ids in log if step <= end for number in ids)
    assert used == Counter(range(ROWS))
