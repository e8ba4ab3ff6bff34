"""Checkpoints outlive their worker: the agent holds and writes them, and some stay in memory only."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from lockstep import (
    Callback,
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    FailureConfig,
    Result,
    TrainingFailedError,
    session,
)

Fit = Callable[..., Result]


def numbers(result: Result) -> list[int]:
    """Of the checkpoints on disk."""
    return sorted(int(path.name.removeprefix("checkpoint_")) for path in result.path.glob("checkpoint_??????"))


@pytest.mark.parametrize("persist_every", [1, 1000])
@pytest.mark.parametrize("size", [10, 5_000_000])
def test_a_worker_that_is_killed_at_once_loses_nothing(fit: Fit, persist_every: int, size: int) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = 0
        if checkpoint is not None:
            data = checkpoint.to_dict()
            start = data["step"] + 1
            assert (data["weights"] == data["step"]).all()
        session.report({"start": start, "attempt": session.get_attempt()})
        for step in range(start, 6):
            weights = numpy.full(size, float(step))
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))
            if session.get_attempt() < 3:
                os.kill(os.getpid(), signal.SIGKILL)

    starts = []

    class Starts(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            if "start" in metrics:
                starts.append(metrics["start"])

    result = fit(
        train_func,
        workers=1,
        callbacks=[Starts()],
        failure_config=FailureConfig(max_failures=3),
        checkpoint_config=CheckpointConfig(persist_every=persist_every),
    )
    assert starts == [0, 1, 2, 3]
    assert [failure.kind for failure in result.failures] == ["signal"] * 3
    assert result.checkpoint is not None and result.checkpoint.path is not None
    result.checkpoint.verify()
    assert result.checkpoint.to_dict()["step"] == 5
    assert numbers(result) == (list(range(6)) if persist_every == 1 else [5])


def test_every_nth_goes_to_disk_and_the_last_one(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(8):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))

    result = fit(train_func, checkpoint_config=CheckpointConfig(persist_every=3))
    assert numbers(result) == [2, 5, 7]
    for number in numbers(result):
        checkpoint = Checkpoint.from_directory(result.path / f"checkpoint_{number:06d}")
        checkpoint.verify()
        assert checkpoint.to_dict()["step"] == number and checkpoint.metadata["metrics"]["step"] == number
    assert result.checkpoint is not None and result.checkpoint.metadata["seq"] == 7
    assert Result.from_path(result.path).checkpoint.to_dict()["step"] == 7  # type: ignore[union-attr]


def test_retention_is_about_those_on_disk(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(20):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "loss": -step}))

    config = CheckpointConfig(
        persist_every=4, num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="max"
    )
    result = fit(train_func, checkpoint_config=config)
    assert numbers(result) == [3, 19]
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [3]


def test_what_was_in_memory_is_saved_when_the_run_fails(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(5):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        raise ValueError("bad batch")

    with pytest.raises(TrainingFailedError) as caught:
        fit(train_func, workers=1, checkpoint_config=CheckpointConfig(persist_every=100))
    result = caught.value.result
    assert result is not None and result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 4
    assert numbers(result) == [4]


def test_get_checkpoint_finds_what_is_in_memory(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(6):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "w": numpy.zeros(10**5)}))
            found = session.get_checkpoint()
            assert found is not None
            data = found.to_dict()
            assert data["step"] >= step and data["_current_checkpoint_id"] == data["step"]

    result = fit(train_func, workers=3, checkpoint_config=CheckpointConfig(persist_every=4))
    assert numbers(result) == [3, 5]


def test_directories_stay_in_memory_too(fit: Fit, tmp_path: Path) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = 0
        if checkpoint is not None:
            with checkpoint.as_directory() as path:
                start = int(Path(path, "deep", "step").read_text()) + 1
        for step in range(start, 4):
            place = tmp_path / "source" / "deep"
            place.mkdir(parents=True, exist_ok=True)
            (place / "step").write_text(str(step))
            session.report({"step": step}, checkpoint=Checkpoint.from_directory(place.parent))
            if session.get_attempt() == 0 and step == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    result = fit(
        train_func,
        workers=1,
        failure_config=FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(persist_every=100),
    )
    assert numbers(result) == [3] and result.metrics["step"] == 3
    assert result.checkpoint is not None and result.checkpoint.path is not None
    assert Path(result.checkpoint.path, "deep", "step").read_text() == "3"


def train_with_random_kills(config: dict[str, Any]) -> None:
    """Each step makes the weights from those before, so that a lost or repeated step would show."""
    checkpoint = session.get_checkpoint()
    start, weights = 0, numpy.zeros(20_000)
    if checkpoint is not None:
        data = checkpoint.to_dict()
        start, weights = data["step"] + 1, data["weights"].copy()
    for step in range(start, 60):
        weights = weights * 0.9 + numpy.random.default_rng(step).standard_normal(weights.size)
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))
        if config["kills"] and random.SystemRandom().random() < 0.15:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("persist_every", [1, 7, 50])
def test_random_kills_change_nothing(fit: Fit, persist_every: int) -> None:
    options = {"workers": 2, "checkpoint_config": CheckpointConfig(persist_every=persist_every)}
    steps: list[int] = []

    class Steps(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            steps.append(metrics["step"])

    killed = fit(
        train_with_random_kills,
        config={"kills": True},
        callbacks=[Steps()],
        failure_config=FailureConfig(max_failures=-1),
        name="killed",
        **options,
    )
    calm = fit(train_with_random_kills, config={"kills": False}, name="calm", **options)
    assert killed.checkpoint is not None and calm.checkpoint is not None
    assert (killed.checkpoint.to_dict()["weights"] == calm.checkpoint.to_dict()["weights"]).all()
    attempts = len({failure.attempt for failure in killed.failures})
    assert len(steps) - len(set(steps)) <= attempts, "at most one step is repeated for each kill"
    assert sorted(set(steps)) == list(range(60))


def test_with_skip_a_busy_disk_delays_nothing_and_what_it_misses_is_counted(fit: Fit) -> None:
    def train_func() -> None:
        weights = numpy.zeros(1_000_000)
        for step in range(30):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))

    result = fit(train_func, workers=1, checkpoint_config=CheckpointConfig(when_busy="skip"))
    skipped = json.loads((result.path / "run.json").read_text())["checkpoints_skipped"]
    assert len(numbers(result)) + skipped == 30
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 29
    steps = [
        json.loads((result.path / f"checkpoint_{n:06d}" / "data.json").read_text())["step"] for n in numbers(result)
    ]
    assert steps == sorted(steps)


def test_what_another_rank_reported_is_committed_before_the_restart(fit: Fit) -> None:
    """Rank 1 dies while rank 0's checkpoint is being written: it is committed, and the next attempt starts from it."""

    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        if checkpoint is not None:
            session.report({"found": checkpoint.to_dict()["step"]})
            return
        if session.get_world_rank() == 0:
            for step in range(3):
                weights = numpy.zeros(4_000_000)
                session.report({}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))
        session.barrier()
        if session.get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    result = fit(train_func, failure_config=FailureConfig(max_failures=1))
    assert result.metrics["found"] == 2


@pytest.mark.parametrize(
    "wrong", [{"persist_every": 0}, {"persist_every": 1.5}, {"when_busy": "drop"}, {"when_busy": None}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CheckpointConfig(**wrong)


def test_skip_does_not_go_with_all_ranks() -> None:
    with pytest.raises(ConfigError, match="when_busy"):
        CheckpointConfig(when_busy="skip", keep_all_ranks=True)
