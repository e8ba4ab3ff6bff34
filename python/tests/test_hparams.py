"""TensorBoard's tab HPARAMS, and the loggers of Ray Tune's names driven by hand."""

from __future__ import annotations

import csv
import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lockstep.callbacks import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback

CONFIG = {"lr": 0.25, "net": "small", "deep": {"bias": True}, "layers": [8, 4], "none": None}


def trial_at(path: Path, name: str = "t1") -> Any:
    (path / name).mkdir()
    return SimpleNamespace(logdir=str(path / name), trial_id=name, config=CONFIG)


def drive(logger: LoggerCallback, trial: Any) -> None:
    logger.log_trial_start(trial)
    for iteration in (1, 2):
        logger.log_trial_result(iteration, trial, {"loss": 1 / iteration, "training_iteration": iteration})
    logger.log_trial_end(trial, failed=False)


def hparams_of(directory: str) -> dict[str, Any]:
    """As TensorBoard reads them."""
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    data = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    events = accumulator.EventAccumulator(directory)
    events.Reload()
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = data.HParamsPluginData.FromString(content)
    assert found.session_start_info.start_time_secs > 1e9
    return {key: getattr(value, value.WhichOneof("kind")) for key, value in found.session_start_info.hparams.items()}


def test_hyperparameters_are_in_the_event_file(tmp_path: Path) -> None:
    trial = trial_at(tmp_path)
    drive(TBXLoggerCallback(), trial)
    expected = {"lr": 0.25, "net": "small", "deep/bias": True, "layers": "[8, 4]", "none": "null"}
    assert hparams_of(trial.logdir) == expected


def test_json_by_hand(tmp_path: Path) -> None:
    trial = trial_at(tmp_path)
    drive(JsonLoggerCallback(), trial)
    lines = [json.loads(line) for line in (tmp_path / "t1" / "result.json").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [1.0, 0.5]


def test_csv_by_hand(tmp_path: Path) -> None:
    drive(CSVLoggerCallback(), trial_at(tmp_path))
    with open(tmp_path / "t1" / "progress.csv", newline="") as file:
        assert [row["loss"] for row in csv.DictReader(file)] == ["1.0", "0.5"]


def test_tensorboard_by_hand(tmp_path: Path) -> None:
    trial = trial_at(tmp_path)
    drive(TBXLoggerCallback(), trial)
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(trial.logdir)
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 0.5)]


@pytest.mark.parametrize("kind", [JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback])
def test_trials_interleaved_through_the_hooks_of_tune(kind: type[LoggerCallback], tmp_path: Path) -> None:
    logger, trials = kind(), [trial_at(tmp_path, name) for name in ("t1", "t2")]
    logger.on_trial_start(0, trials, trials[0])
    for number, trial in enumerate(trials):  # the second one was not announced
        logger.on_trial_result(iteration=1, trials=trials, trial=trial, result={"loss": number})
    logger.on_trial_complete(2, trials, trials[0])
    logger.on_trial_error(2, trials, trials[1])
    for trial in trials:
        (file,) = (each for each in Path(trial.logdir).iterdir() if not each.name.startswith("params."))
        assert file.stat().st_size > 0
