"""A worker that gets SIGINT while the run is not being stopped; checkpoints in progress when another rank fails."""

from __future__ import annotations

import _thread
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from lockstep import Checkpoint, DataParallelTrainer, FailureConfig, Result, TrainingFailedError, session

Trainer = Callable[..., DataParallelTrainer]


def interrupt_itself(config: dict[str, Any]) -> None:
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(start, 6):
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        if step == 2 and session.get_attempt() == 0 and session.get_world_rank() == config["rank"]:
            if config["how"] == "signal":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                _thread.interrupt_main()
            time.sleep(60)
    session.barrier(timeout=60)


@pytest.mark.parametrize("how", ["signal", "interrupt_main"])
@pytest.mark.parametrize("rank", [0, 1])
def test_sigint_of_one_worker_is_its_failure(make_trainer: Trainer, rank: int, how: str) -> None:
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(interrupt_itself, config={"rank": rank, "how": how}).fit()
    failure = caught.value.failures[0]
    assert (failure.kind, failure.rank, failure.type) == ("exception", rank, "KeyboardInterrupt")
    assert "not being stopped" in failure.message
    assert "interrupt_itself" in failure.traceback
    assert not isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.result is not None and caught.value.result.state == "failed"
    assert DataParallelTrainer.restore(caught.value.result.path).fit().metrics["step"] == 5


def test_sigint_of_one_worker_counts_as_a_failure(make_trainer: Trainer) -> None:
    config = {"rank": 1, "how": "signal"}
    result = make_trainer(interrupt_itself, config=config, failure_config=FailureConfig(max_failures=1)).fit()
    assert result.metrics["step"] == 5
    assert [(failure.rank, failure.type) for failure in result.failures] == [(1, "KeyboardInterrupt")]


def lose_rank_1(config: dict[str, Any]) -> None:
    checkpoint = session.get_checkpoint()
    if checkpoint is not None:
        session.report({"resumed": checkpoint.to_dict()["step"]})
        return
    import numpy as np

    state = np.ones(config["size"], np.uint8)
    for step in range(3):
        session.barrier(timeout=60)
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "state": state}))
    session.barrier(timeout=60)  # rank 0's last report has returned
    if session.get_world_rank() == 1:
        time.sleep(config["delay"])
        if config["how"] == "raise":
            raise ValueError("on purpose")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize(("size", "delay"), [(8 << 20, 0.0), (8 << 20, 0.005), (100 << 20, 0.02)])
def test_a_checkpoint_under_way_is_not_lost(make_trainer: Trainer, how: str, size: int, delay: float) -> None:
    config = {"size": size, "delay": delay, "how": how}
    result: Result = make_trainer(lose_rank_1, config=config, failure_config=FailureConfig(max_failures=1)).fit()
    assert result.metrics["resumed"] == 2
    assert [failure.rank for failure in result.failures] == [1]
