"""What run.json keeps of every attempt: when it began and ended, on which nodes, and how."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import DataParallelTrainer, FailureConfig, Result, RunConfig, TrainingFailedError, session

MakeTrainer = Callable[..., DataParallelTrainer]


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((path / "run.json").read_text())
    return record


def fails_once() -> None:
    if session.get_attempt() == 0 and session.get_world_rank() == 1:
        raise ValueError("boom")
    session.report({"attempt": session.get_attempt()})


def test_attempts_and_their_failures(make_trainer: MakeTrainer) -> None:
    before = time.time()
    result = make_trainer(fails_once, failure_config=FailureConfig(max_failures=1)).fit()
    after = time.time()
    record = read(result.path)
    first, second = record["attempts"]
    assert list(first) == ["number", "started", "ended", "world_size", "nodes", "outcome", "failures"]
    assert (first["number"], first["outcome"]) == (0, "failed")
    assert (second["number"], second["outcome"], second["failures"]) == (1, "finished", [])
    for attempt in (first, second):
        assert (attempt["world_size"], attempt["nodes"]) == (2, [socket.gethostname()])
    (failure,) = (record["failures"][place] for place in first["failures"])
    assert (failure["rank"], failure["attempt"], failure["type"]) == (1, 0, "ValueError")
    times = [before, first["started"], failure["time"], first["ended"], second["started"], second["ended"], after]
    assert times == sorted(times)
    assert result.failures[0].time == failure["time"]
    assert Result.from_path(result.path).failures == result.failures


def test_an_attempt_that_fails_for_good(make_trainer: MakeTrainer) -> None:
    with pytest.raises(TrainingFailedError) as caught:
        make_trainer(fails_once, name="run").fit()
    assert caught.value.result is not None
    (attempt,) = read(caught.value.result.path)["attempts"]
    assert (attempt["outcome"], attempt["failures"]) == ("failed", [0])
    assert caught.value.failures[0].time > 0


def test_restore_goes_on_with_the_history(make_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        session.report({"attempt": session.get_attempt()})

    path = make_trainer(train_func).fit().path
    record = read(path)
    del record["attempts"]  # as an earlier version wrote it
    record["state"] = "interrupted"
    (path / "run.json").write_text(json.dumps(record))
    DataParallelTrainer.restore(path, run_config=RunConfig(verbose=0)).fit()
    record = read(path)
    (attempt,) = record["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "finished")

    attempt.update(outcome="running", ended=None)  # as a driver leaves it that is killed
    record["state"] = "running"
    (path / "run.json").write_text(json.dumps(record))
    DataParallelTrainer.restore(path, run_config=RunConfig(verbose=0)).fit()
    attempts = read(path)["attempts"]
    assert [(each["number"], each["outcome"]) for each in attempts] == [(1, "died"), (2, "finished")]
    assert attempts[0]["ended"] == record["updated"], "the last sign of life"
