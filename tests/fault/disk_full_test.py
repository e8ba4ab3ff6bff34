"""The disk is full: the error says so, what was committed before loads, and no process is left. Needs root to mount."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from lockstep import (
    Callback,
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    Result,
    TrainingFailedError,
    session,
)
from lockstep.errors import StorageError
from process_tree import workers_of

MakeTrainer = Callable[..., DataParallelTrainer]
WORDS = os.strerror(errno.ENOSPC)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", disk], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> None:
    """To the last byte."""
    with open(disk / "filler", "ab", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2


class FillDisk(Callback):
    """Fills the disk at one hook; others may make room again."""

    def __init__(self, disk: Path, hook: str) -> None:
        self.disk = disk
        self.filled = 0
        setattr(self, hook, lambda *_: self.fill())

    def fill(self) -> None:
        self.filled += 1
        fill(self.disk)


def check_failed(caught: Any) -> Result:
    first = caught.value.failures[0]
    assert first.kind == "storage"
    assert WORDS in first.message and WORDS in str(caught.value)
    assert not workers_of(os.getpid())
    result: Result = caught.value.result
    assert result.state == "failed"
    return result


def check_next_fit(make_trainer: MakeTrainer) -> None:
    assert make_trainer(lambda: session.report({"x": 1}), name="next").fit().metrics["x"] == 1


@pytest.mark.parametrize("max_failures", [0, 1])
def test_checkpoints_that_do_not_fit(make_trainer: MakeTrainer, small_disk: Path, max_failures: int) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 20):
            weights = numpy.full(150_000, float(step))  # 1.2 MB
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))

    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(train_func, storage_path=small_disk, failure_config=FailureConfig(max_failures=max_failures)).fit()
    result = check_failed(caught)
    # Whoever asks for the last bytes sees it first: rank 0 with the next checkpoint, or the driver with a manifest.
    assert caught.value.failures[0].rank in (0, -1)
    assert len({failure.attempt for failure in result.failures}) == max_failures + 1
    assert result.checkpoint is not None
    result.checkpoint.verify()
    data = result.checkpoint.to_dict()
    assert data["step"] >= 2 and (data["weights"] == data["step"]).all()
    again = Result.from_path(result.path)
    assert (
        again.state == "failed" and again.checkpoint is not None and again.checkpoint.to_dict()["step"] == data["step"]
    )
    check_next_fit(make_trainer)


def test_the_driver_cannot_write_its_logs(make_trainer: MakeTrainer, small_disk: Path) -> None:
    def train_func() -> None:
        session.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
        session.get_checkpoint()
        for step in range(1, 100_000):
            session.report({"step": step, "text": "x" * 100})

    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(train_func, workers=1, storage_path=small_disk).fit()
    result = check_failed(caught)
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 0
    check_next_fit(make_trainer)


@pytest.mark.parametrize("hook", ["on_checkpoint", "on_attempt_started", "on_start"])
@pytest.mark.parametrize("max_failures", [0, 1])
def test_the_disk_fills_up(make_trainer: MakeTrainer, small_disk: Path, hook: str, max_failures: int) -> None:
    """With `on_start` not even the first attempt can be recorded."""

    def train_func() -> None:
        for step in range(1000):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))

    callback = FillDisk(small_disk, hook)
    with pytest.raises((TrainingFailedError, StorageError), match=WORDS) as caught:
        make_trainer(
            train_func,
            storage_path=small_disk,
            callbacks=[callback],
            failure_config=FailureConfig(max_failures=max_failures),
        ).fit()
    assert callback.filled
    assert not workers_of(os.getpid())
    run = small_disk / "run"
    json.loads((run / "run.json").read_text())
    for path in run.glob("checkpoint_??????"):
        Checkpoint.from_directory(path).verify()
    if hook == "on_checkpoint":
        assert isinstance(caught.value, TrainingFailedError)
        assert Checkpoint.from_directory(run / "checkpoint_000000").to_dict()["step"] == 0
    # With room again it can be restored.
    (small_disk / "filler").unlink()

    def rest() -> None:
        session.report({"done": True})

    assert DataParallelTrainer.restore(run, rest).fit().metrics["done"]


def test_no_room_for_the_run_at_all(make_trainer: MakeTrainer, small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(StorageError, match=WORDS):
        make_trainer(lambda: None, storage_path=small_disk).fit()
    check_next_fit(make_trainer)
