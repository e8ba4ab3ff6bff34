"""Loggers of files, and what all integrations share."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from lockstep import Callback, ConfigError, LockstepError, TrainingFailedError, session
from lockstep.callbacks import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, RunInfo, TBXLoggerCallback, Trial
from lockstep.integrations._tracking import numbers
from lockstep.integrations.mlflow import MLflowLoggerCallback
from lockstep.integrations.wandb import WandbLoggerCallback
from reported import CONFIG, Fit, three_reports
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.mark.parametrize("named", [False, True], ids=["default", "the run directory itself"])
def test_loggers_of_files_write_nothing_twice(fit: Fit, tmp_path: Path, named: bool) -> None:
    place = tmp_path / "runs" / "once" if named else None
    loggers = [TBXLoggerCallback(place), JsonLoggerCallback(place), CSVLoggerCallback(place)]
    assert all(isinstance(logger, LoggerCallback) for logger in loggers)
    path = fit(three_reports(), name="once", config=CONFIG, callbacks=loggers).path
    assert len((path / "result.json").read_text().splitlines()) == 3
    assert len((path / "progress.csv").read_text().splitlines()) == 4
    assert len(list(path.glob("events.out.tfevents.*"))) == 1


def test_loggers_of_files_write_the_same_elsewhere(fit: Fit, tmp_path: Path) -> None:
    place = tmp_path / "else" / "where"
    loggers = [TBXLoggerCallback(place), JsonLoggerCallback(place, "mine.json"), CSVLoggerCallback(place)]
    path = fit(three_reports(), config=CONFIG, callbacks=loggers).path
    assert (place / "mine.json").read_bytes() == (path / "result.json").read_bytes()
    assert (place / "progress.csv").read_bytes() == (path / "progress.csv").read_bytes()
    ours, theirs = EventAccumulator(str(path)), EventAccumulator(str(place))
    ours.Reload(), theirs.Reload()
    assert "validation/loss" in theirs.Tags()["scalars"] and ours.Tags() == theirs.Tags()
    assert [(event.step, event.value) for event in theirs.Scalars("epoch")] == [(1, 0), (2, 1), (3, 2)]
    assert place.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in place.iterdir()} == {0o600}


def test_a_json_logger_with_another_name_in_the_run_directory(fit: Fit) -> None:
    path = fit(lambda: session.report({"loss": 0.5}), callbacks=[JsonLoggerCallback(filename="again.json")]).path
    assert (path / "again.json").read_bytes() == (path / "result.json").read_bytes()


@pytest.mark.parametrize("filename", ["", "a/b.json", "..", "/x"])
def test_a_json_logger_refuses_paths(filename: str) -> None:
    with pytest.raises(ConfigError, match="a name without a path"):
        JsonLoggerCallback(filename=filename)


def test_loggers_whose_run_never_started_end_quietly(fit: Fit, tmp_path: Path, database: str) -> None:
    class Refuses(Callback):
        refuse = False

        def on_start(self, run: RunInfo) -> None:
            if self.refuse:
                raise ValueError("not today")

    class Ends(LoggerCallback):
        trials: list[str]

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            self.trials.append(trial.logdir)

    refuses, ends, tracker = Refuses(), Ends(), MLflowLoggerCallback(database)
    ends.trials = []
    loggers = [refuses, ends, CSVLoggerCallback(tmp_path / "else"), tracker, WandbLoggerCallback("p", mode="offline")]
    path = fit(lambda: session.report({"loss": 0.5}), workers=1, callbacks=loggers).path
    refuses.refuse = True
    with pytest.raises(TrainingFailedError, match="not today") as caught:
        fit(lambda: session.report({"loss": 0.5}), workers=1, callbacks=loggers)
    assert len(caught.value.failures) == 1
    assert ends.trials == [str(path)]
    assert tracker.run_id is not None
    status = mlflow.MlflowClient(database).get_run(tracker.run_id).info.status
    assert status == "FINISHED", "the run before is not touched"


def test_what_has_a_curve() -> None:
    result = {
        "loss": 1,
        "deep": {"er": {"x": True}, "no": "text"},
        "list": [1],
        "none": None,
        "pid": 7,
        "config": {"a": 1},
    }
    assert numbers({**result, "time_total_s": 2.5}) == {"loss": 1.0, "deep/er/x": 1.0, "time_total_s": 2.5}


@pytest.mark.parametrize(("make", "package"), [(MLflowLoggerCallback, "mlflow"), (WandbLoggerCallback, "wandb")])
def test_a_missing_package_is_named(make: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LockstepError, match=f"pip install {package}"):
        make()


def test_importing_the_integrations_imports_no_tracker() -> None:
    program = """
import sys, lockstep.integrations.mlflow, lockstep.integrations.wandb
print("mlflow" in sys.modules, "wandb" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]
