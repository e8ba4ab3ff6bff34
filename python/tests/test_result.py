"""Result: from fit() and from the run directory."""

from __future__ import annotations

import importlib
import json
import math
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    LockstepError,
    Result,
    SerializationError,
    StorageError,
    TrainingFailedError,
    _core,
    session,
)
from lockstep._nested import leaves

Fit = Callable[..., Result]


@pytest.fixture
def done(fit: Fit) -> Result:
    def train_func(config: dict[str, float]) -> None:
        for epoch, (loss, accuracy) in enumerate([(3.0, 0.1), (1.0, 0.9), (2.0, float("nan"))]):
            metrics = {"epoch": epoch, "loss": loss, "validation": {"accuracy": accuracy}, "word": "x"}
            session.report(metrics, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    return fit(train_func, config={"lr": 0.5}, name="run")


def test_from_path_reads_the_same(done: Result) -> None:
    read = Result.from_path(done.path)
    assert str(read.metrics) == str(done.metrics), "NaN equals nothing"
    assert (read.path, read.state, read.config, read.error) == (done.path, "finished", {"lr": 0.5}, None)
    assert read.checkpoint is not None and done.checkpoint is not None
    assert read.checkpoint.path == done.checkpoint.path
    assert [(c.path, m["epoch"]) for c, m in read.best_checkpoints] == [
        (c.path, m["epoch"]) for c, m in done.best_checkpoints
    ]
    assert read.best_checkpoint is not None and read.best_checkpoint.to_dict()["epoch"] == 2


def test_from_path_of_no_run(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Result.from_path(tmp_path)


def test_a_missing_metric_names_those_there_are(done: Result) -> None:
    with pytest.raises(
        KeyError, match="'num_epochs' was not reported; reported: 'epoch', 'loss', 'validation', 'word'"
    ):
        done.metrics["num_epochs"]
    assert done.metrics.get("num_epochs") is None


def test_paths_are_pathlib(done: Result) -> None:
    assert isinstance(done.path, Path) and done.log_dir == done.path


def test_best_checkpoint_by_metric(done: Result) -> None:
    assert done.get_best_checkpoint("loss", "min").to_dict()["epoch"] == 1
    assert done.get_best_checkpoint("loss", "max").to_dict()["epoch"] == 0
    assert done.get_best_checkpoint("validation/accuracy", "max").to_dict()["epoch"] == 1
    assert done.get_best_checkpoint("validation/accuracy", "min").to_dict()["epoch"] == 0, "NaN is never best"
    with pytest.raises(ConfigError, match="mode is 'best'"):
        done.get_best_checkpoint("loss", "best")
    for metric in ("unknown", "word"):
        with pytest.raises(ConfigError, match="epoch, loss, validation, word"):
            done.get_best_checkpoint(metric, "max")


def test_best_checkpoint_of_a_run_without_any(fit: Fit) -> None:
    with pytest.raises(LockstepError, match="has no checkpoint"):
        fit(lambda: None, workers=1).get_best_checkpoint("loss", "min")


def test_ties_go_to_the_later(fit: Fit) -> None:
    def train_func() -> None:
        for epoch in range(3):
            session.report({"loss": 1}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    assert fit(train_func, workers=1).get_best_checkpoint("loss", "min").to_dict()["epoch"] == 2


def test_best_checkpoints_are_worst_first(fit: Fit) -> None:
    def train_func() -> None:
        for loss in (2, 4, 1, 3):
            session.report({"loss": loss}, checkpoint=Checkpoint.from_dict({"loss": loss}))

    config = CheckpointConfig(num_to_keep=3, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    result = fit(train_func, checkpoint_config=config)
    assert [metrics["loss"] for _, metrics in result.best_checkpoints] == [3, 2, 1]
    assert [metrics["loss"] for _, metrics in Result.from_path(result.path).best_checkpoints] == [3, 2, 1]


def test_the_dataframe_has_all_reports(done: Result) -> None:
    importlib.import_module("pandas")
    frame = done.metrics_dataframe
    assert frame["loss"].tolist() == [3.0, 1.0, 2.0]
    assert frame["validation/accuracy"].tolist()[:2] == [0.1, 0.9]
    assert frame["config/lr"].tolist() == [0.5] * 3
    assert frame["training_iteration"].tolist() == [1, 2, 3]


ODD_ROWS: list[dict[str, Any]] = [
    {"loss": 0.5, "step": 1, "on": True, "text": "a", "deep": {"x": {"y": 1}, "none": {}}},
    {"loss": 0.25, "step": 2, "on": False, "text": "b", "deep": {"x": {"y": 2}, "none": {}}},
    {"loss": 1, "step": 2**70, "on": None, "text": "a", "deep": {"x": 3}, "more": [1, {"z": 2}]},
    {"step": 2**63, "deep/x/y": 7, "new": {"a": math.nan, "b": math.inf}},
    {},
    {"empty": {}, "new": {"b": 1, "a": 2}},
]


def plain_frame(rows: list[dict[str, Any]]) -> Any:
    """One row after the other, in lists: slow and simple."""
    import pandas

    columns: dict[str, list[Any]] = {}
    for count, row in enumerate(rows):
        flat = {key: value for key, value in leaves(row) if value != {}}
        for key in flat:
            columns.setdefault(key, [math.nan] * count)
        for key, column in columns.items():
            column.append(flat.get(key, math.nan))
    return pandas.DataFrame(columns)


@pytest.mark.parametrize(
    "rows",
    [
        ODD_ROWS,
        [row for row in ODD_ROWS for _ in range(20)],
        [row for row in reversed(ODD_ROWS) for _ in range(20)],
        ODD_ROWS[:2] * 50,
        [*[{"loss": 0.5, "step": i} for i in range(99)], {"loss": 0.5, "step": 99, "val": {"loss": 2}}] * 3,
        [{"big": 2**62 + i, "mixed": i if i % 2 else i / 2} for i in range(100)],
        [{"a": 1 if i % 2 else {"b": i}, "c": 2} for i in range(100)],
        [{"text": '\u00e9\n"\\' * i, "\u00e9\n": [], "null": None, "some": None if i % 3 else 0.5} for i in range(9)],
    ],
)
def test_the_dataframe_is_the_same_as_one_made_row_by_row(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    from pandas.testing import assert_frame_equal

    (tmp_path / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_frame_equal(Result(path=tmp_path).metrics_dataframe, plain_frame(rows))


def test_numbers_of_the_dataframe_are_read_into_arrays(tmp_path: Path) -> None:
    rows = [{"loss": i / 2, "step": i, "on": True, "config": {"lr": 0.5}} for i in range(20_000)]
    (tmp_path / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = _core.read_reports(str(tmp_path / "result.json"))
    assert {key: column.dtype.name for key, column in columns.items()} == {
        "loss": "float64",
        "step": "int64",
        "on": "bool",
        "config/lr": "float64",
    }


def test_the_dataframe_copes_with_half_a_line(done: Result) -> None:
    importlib.import_module("pandas")
    with open(done.path / "result.json", "a") as file:
        file.write('{"loss": 5, "trai')
    assert len(done.metrics_dataframe) == 3


def test_the_dataframe_of_no_reports(fit: Fit) -> None:
    importlib.import_module("pandas")
    assert len(fit(lambda: None, workers=1).metrics_dataframe) == 0


def test_without_pandas_the_dataframe_says_so(done: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        done.metrics_dataframe  # noqa: B018


def test_repr_shows_what_was_reported(done: Result) -> None:
    text = repr(done)
    assert "'loss': 2.0" in text and "state='finished'" in text and str(done.path) in text
    assert "time_total_s" not in text


def test_a_result_can_be_pickled(done: Result) -> None:
    again = pickle.loads(pickle.dumps(done))
    assert str(again.metrics) == str(done.metrics) and again.path == done.path
    assert again.checkpoint.to_dict()["epoch"] == 2


def test_a_failed_run_read_again_has_its_error(fit: Fit) -> None:
    def train_func() -> None:
        session.report({"x": 1})
        raise ValueError("boom")

    with pytest.raises(TrainingFailedError) as caught:
        fit(train_func, workers=1)
    assert caught.value.result is not None
    read = Result.from_path(caught.value.result.path)
    assert read.state == "failed" and read.metrics["x"] == 1
    assert isinstance(read.error, TrainingFailedError)
    assert isinstance(read.error.__cause__, ValueError)
    assert read.failures[0].traceback == caught.value.failures[0].traceback
    assert "error=TrainingFailedError" in repr(read)


def test_what_rank_zero_returned(fit: Any) -> None:
    def function() -> Any:
        return {"rank": session.get_world_rank(), "size": session.get_world_size()}

    result = fit(function)
    assert result.return_value == {"rank": 0, "size": 2}
    assert result.return_value is result.return_value
    assert fit(lambda: None).return_value is None
    assert Result.from_path(result.path).return_value is None


def test_a_returned_value_that_cannot_be_pickled_is_an_error_of_those_who_ask(fit: Any) -> None:
    def function() -> Any:
        return (each for each in ())  # a generator

    result = fit(function, workers=1)
    assert result.state == "finished"
    with pytest.raises(SerializationError, match="return_value"):
        result.return_value  # noqa: B018
