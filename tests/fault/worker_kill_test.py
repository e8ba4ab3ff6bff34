"""Workers that are killed or stopped at random moments: the run ends correctly, and committed checkpoints stay
intact."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    FailureConfig,
    session,
)
from lockstep.errors import StorageError
from process_tree import workers_of

MakeTrainer = Callable[..., DataParallelTrainer]
SIZE = 16_384


class Watcher(threading.Thread):
    """Watches the run directory continuously: every committed checkpoint must be intact as long as it exists."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run_directory = run
        self.broken: list[str] = []
        self.steps: dict[int, tuple[int, int]] = {}  # attempt and step by seq
        self.looks = 0
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(0.005):
            for path in sorted(self.run_directory.glob("checkpoint_??????")):
                if (path / "manifest.json").exists():
                    self.look(path)

    def look(self, path: Path) -> None:
        try:
            checkpoint = Checkpoint.from_directory(path)
            checkpoint.verify()
            data, metadata = checkpoint.to_dict(), checkpoint.metadata
            assert (data["weights"] == data["step"]).all() and metadata["metrics"]["step"] == data["step"]
        except (AssertionError, KeyError, OSError, ValueError) as error:
            if path.exists():  # else retention took it meanwhile
                self.broken.append(f"{path.name}: {error!r}")
            return
        self.looks += 1
        seen = (metadata["attempt"], data["step"])
        if self.steps.setdefault(metadata["seq"], seen) != seen:
            self.broken.append(f"{path.name} was {self.steps[metadata['seq']]} and is {seen}")

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class Killer(threading.Thread):
    """From the first checkpoint on, SIGKILL to a random worker of this process's run every 0.5 to 1 s.

    When the time is over, and another checkpoint was committed, it says that the run may end.
    """

    def __init__(self, seconds: float, run: Path, stop_file: Path) -> None:
        super().__init__()
        self.killed = 0
        self.ended = threading.Event()
        self._seconds, self._run_directory, self._stop_file = seconds, run, stop_file

    def run(self) -> None:
        self._wait_for_checkpoint(0)
        left = self._seconds
        while left > 0 and not self.ended.is_set():
            pause = random.uniform(0.5, 1.0)
            left -= pause
            self.ended.wait(pause)
            workers = workers_of(os.getpid())
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(workers), signal.SIGKILL)
                    self.killed += 1
        self._wait_for_checkpoint(self._last() + 1)
        self._stop_file.touch()

    def _last(self) -> int:
        names = [path.name for path in self._run_directory.glob("checkpoint_??????")]
        return max((int(name.removeprefix("checkpoint_")) for name in names), default=-1)

    def _wait_for_checkpoint(self, seq: int) -> None:
        while self._last() < seq and not self.ended.wait(0.01):
            pass


def counting() -> Callable[..., None]:
    """The training function, made here so that it is pickled by value."""

    def train_func(config: dict[str, Any]) -> None:
        checkpoint = session.get_checkpoint()
        size = config["size"]
        state = checkpoint.to_dict() if checkpoint else {"step": -1, "weights": numpy.full(size, -1.0)}
        assert (state["weights"] == state["step"]).all()
        step = state["step"] + 1
        with open(config["starts"], "a") as starts:
            line = {"attempt": session.get_attempt(), "rank": session.get_world_rank(), "start": step}
            starts.write(json.dumps(line) + "\n")
        while not session.broadcast_from_rank_zero(os.path.exists(config["stop"])):
            data = {"step": step, "weights": numpy.full(size, float(step))}
            session.report({"step": step}, checkpoint=Checkpoint.from_dict(data))
            step += 1
        session.report({"step": step, "last": True})

    return train_func


def check_result_lines(run: Path, starts: dict[int, int]) -> None:
    """Each attempt's steps follow each other from where it started, and no step is missing."""
    steps = []
    for line in (run / "result.json").read_text().splitlines():
        row = json.loads(line)
        assert row["training_iteration"] == row["step"] + 1
        steps.append(row["step"])
    assert steps[0] == 0
    for before, step in itertools.pairwise(steps):
        assert step == before + 1 or (step <= before and step in starts.values()), f"{step} follows {before}"
    assert sorted(set(steps)) == list(range(steps[-1] + 1))


@pytest.mark.timeout(600)
def test_a_storm_of_kills(make_trainer: MakeTrainer, tmp_path: Path, storm_seconds: float) -> None:
    config = {"starts": str(tmp_path / "starts"), "stop": str(tmp_path / "stop"), "size": SIZE}
    run = tmp_path / "runs" / "run"
    watcher, killer = Watcher(run), Killer(storm_seconds, run, tmp_path / "stop")
    trainer = make_trainer(
        counting(),
        workers=3,
        config=config,
        failure_config=FailureConfig(max_failures=-1),
        checkpoint_config=CheckpointConfig(num_to_keep=3),
    )
    watcher.start()
    killer.start()
    try:
        result = trainer.fit()
    finally:
        killer.ended.set()
        killer.join()
        watcher.stop()

    assert watcher.broken == []
    assert watcher.looks > 3
    assert killer.killed >= storm_seconds / 3
    failed_attempts = {failure.attempt for failure in result.failures if failure.kind == "signal"}
    assert len(failed_attempts) >= killer.killed / 3
    assert {failure.kind for failure in result.failures} == {"signal"}

    rows = [json.loads(line) for line in Path(config["starts"]).read_text().splitlines()]
    starts = {row["attempt"]: row["start"] for row in rows}
    assert all(row["start"] == starts[row["attempt"]] for row in rows), "all ranks begin at the same step"
    for attempt, start in starts.items():
        committed = [step for of, step in watcher.steps.values() if of < attempt]
        assert start > max(committed, default=-1), f"attempt {attempt}"
    by_seq = [watcher.steps[seq][1] for seq in sorted(watcher.steps)]
    assert by_seq == sorted(set(by_seq)), "a step is committed once, in order"

    assert result.state == "finished" and result.metrics["last"]
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == result.metrics["step"] - 1
    check_result_lines(run, starts)
    left = {path.name for path in run.iterdir() if path.name.startswith("checkpoint_")}
    assert len(left) <= 4 and not any("." in name for name in left), "no .partial and no .trash"
    verified = subprocess.run(
        [Path(sys.executable).parent / "lockstep", "checkpoint", "verify", run], capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout


def test_a_damaged_checkpoint_would_be_seen(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """The watcher above can fail."""
    config = {"starts": str(tmp_path / "starts"), "stop": str(tmp_path / "stop"), "size": SIZE}

    def train_func() -> None:
        weights = numpy.full(SIZE, 7.0)
        session.report({"step": 7}, checkpoint=Checkpoint.from_dict({"step": 7, "weights": weights}))

    result = make_trainer(train_func, workers=1, config=config).fit()
    watcher = Watcher(result.path)
    watcher.look(result.path / "checkpoint_000000")
    assert watcher.broken == [] and watcher.steps == {0: (0, 7)}
    file = result.path / "checkpoint_000000" / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    watcher.look(result.path / "checkpoint_000000")
    assert len(watcher.broken) == 1
    with pytest.raises(StorageError):
        Checkpoint.from_directory(result.path / "checkpoint_000000").verify()


def test_a_stopped_worker_is_replaced(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def train_func(config: dict[str, str]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        stopped = Path(config["pid"])
        for step in range(start, 6):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            session.get_checkpoint()  # committed, on rank 0
            session.barrier()
            if step == 2 and session.get_attempt() == 0 and session.get_world_rank() == 1:
                stopped.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)
                session.report({"step": 99}, checkpoint=Checkpoint.from_dict({"step": 99}))
            if step == 3 and session.get_world_rank() == 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(stopped.read_text()), signal.SIGCONT)

    result = make_trainer(
        train_func,
        config={"pid": str(tmp_path / "pid")},
        heartbeat_timeout=1.5,
        failure_config=FailureConfig(max_failures=1),
    ).fit()
    assert [(failure.kind, failure.rank) for failure in result.failures] == [("heartbeat", 1)]
    assert "stopped" in result.failures[0].message
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 5
    assert result.metrics["step"] == 5 and result.metrics["training_iteration"] == 6
    stacks = (result.path / "logs" / "stacks_attempt_0.txt").read_text()
    assert "==== rank 0 ====" in stacks and "train_func" in stacks, "rank 0 waits in the barrier"
    assert "stopped by a signal" in stacks.partition("==== rank 1 ====")[2]


def test_a_worker_that_goes_on_just_when_it_is_given_up(make_trainer: MakeTrainer) -> None:
    """Whether it was in time or not, each step counts once."""

    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 4):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            if step == 1 and session.get_attempt() == 0 and session.get_world_rank() == 0:
                session.get_checkpoint()
                subprocess.Popen(["sh", "-c", f"sleep 1.02; kill -CONT {os.getpid()}"], start_new_session=True)
                os.kill(os.getpid(), signal.SIGSTOP)
            session.barrier()

    result = make_trainer(train_func, heartbeat_timeout=1.0, failure_config=FailureConfig(max_failures=1)).fit()
    assert {(failure.kind, failure.rank) for failure in result.failures} <= {("heartbeat", 0)}
    rows = [json.loads(line)["step"] for line in (result.path / "result.json").read_text().splitlines()]
    assert sorted(set(rows)) == [0, 1, 2, 3] and rows[-1] == 3
    seqs = [json.loads(path.read_text()) for path in sorted(result.path.glob("checkpoint_*/manifest.json"))]
    assert [manifest["metrics"]["step"] for manifest in seqs] == [0, 1, 2, 3]
