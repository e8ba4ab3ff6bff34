"""Reports: what may be in them, what is added, where they go."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from lockstep import Callback, Result, TrainingFailedError, session
from lockstep.result import AUTOFILLED_KEYS

Fit = Callable[..., Result]
DETAILED = {"_date", "_hostname", "_node_ip", "_pid", "_time_total_s"}


def test_autofilled_keys(fit: Fit) -> None:
    import os
    import time

    def train_func() -> None:
        for epoch in range(2):
            time.sleep(0.05)
            session.report({"epoch": epoch, "worker": os.getpid()})

    result = fit(train_func, name="mine", config={"lr": 1})
    metrics = result.metrics
    assert set(metrics) == (AUTOFILLED_KEYS - DETAILED) | {"epoch", "worker"}
    assert metrics["training_iteration"] == metrics["_training_iteration"] == metrics["iterations_since_restore"] == 2
    assert metrics["done"] is True
    assert metrics["config"] == {"lr": 1}
    assert metrics["experiment_tag"] == "0" and metrics["trial_id"].endswith("_00000")
    assert metrics["pid"] == metrics["worker"]
    assert metrics["episodes_total"] is None and metrics["timesteps_total"] is None
    assert metrics["time_total_s"] >= metrics["time_this_iter_s"] >= 0.04
    assert next(iter(metrics)) == "epoch", "what was reported comes first"
    rows = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    assert [row["training_iteration"] for row in rows] == [1, 2]
    assert rows[0]["done"] is False


def test_detailed_keys(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_DETAILED_METRICS", "1")
    assert set(fit(lambda: session.report({}), workers=1).metrics) >= DETAILED


def test_plain_values_arrive(fit: Fit) -> None:
    import numpy

    def train_func() -> None:
        session.report(
            {
                "none": None,
                "bool": True,
                "int": -(2**62),
                "float": 0.1,
                "nan": float("nan"),
                "inf": float("inf"),
                "text": 'é "quoted", 😀',
                "list": [1, [2.5, "x"]],
                "tuple": (1, 2),
                "dict": {"a": {"b": 1}, "empty": {}},
                "np_float": numpy.float32(0.5),
                "np_int": numpy.int64(7),
                "np_bool": numpy.bool_(True),
            }
        )

    metrics = fit(train_func).metrics
    assert metrics["nan"] != metrics["nan"]
    expected = {
        "none": None,
        "bool": True,
        "int": -(2**62),
        "float": 0.1,
        "inf": float("inf"),
        "text": 'é "quoted", 😀',
        "list": [1, [2.5, "x"]],
        "tuple": [1, 2],
        "dict": {"a": {"b": 1}, "empty": {}},
        "np_float": 0.5,
        "np_int": 7,
        "np_bool": True,
    }
    assert {key: metrics[key] for key in expected} == expected
    assert type(metrics["np_bool"]) is bool and type(metrics["np_int"]) is int


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"outer": {"value": object()}}, ['["outer"]["value"]', "object"]),
        ({"set": {1}}, ['["set"]', "set"]),
        ({"big": 2**70}, ['["big"]', "64 bits"]),
        ({(1, 2): 3}, ["(1, 2)", "str keys"]),
        ({"half": ["a\udcffb"]}, ['["half"][0]', "surrogate"]),
        ({"a\udcffb": 1}, ["metrics has the key", "surrogate"]),
        ([1], ["list", "must be a dict"]),
    ],
)
def test_other_values_are_refused_and_named(fit: Fit, metrics: Any, words: list[str]) -> None:
    def train_func() -> None:
        try:
            session.report(metrics)
        except TypeError as error:
            raise RuntimeError(f"as a TypeError: {error}") from error
        except ValueError as error:
            raise RuntimeError(f"as a ValueError: {error}") from error

    with pytest.raises(TrainingFailedError, match="as a ") as caught:
        fit(train_func, workers=1)
    for word in words:
        assert word in caught.value.failures[0].message


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("torch", r"\.item\(\).*\.tolist\(\)"),
        ("jaxlib._jax", r"\.item\(\).*\.tolist\(\)"),
        ("tensorflow.python", r"\.numpy\(\)"),
    ],
)
def test_a_tensor_is_refused_with_advice(fit: Fit, module: str, advice: str) -> None:
    class Tensor:
        """Looks like a tensor by the name of its module."""

    Tensor.__module__ = module

    with pytest.raises(TrainingFailedError, match=rf'\["loss"\].*{advice}'):
        fit(lambda: session.report({"loss": Tensor()}), workers=1)


def test_a_checkpoint_must_be_one(fit: Fit) -> None:
    def train_func() -> None:
        session.report({}, checkpoint={"epoch": 1})  # type: ignore[arg-type]

    with pytest.raises(TrainingFailedError, match=r"Checkpoint\.from_dict"):
        fit(train_func, workers=1)


def test_the_users_own_keys_win(fit: Fit) -> None:
    assert fit(lambda: session.report({"timestamp": 5, "pid": "mine"}), workers=1).metrics["pid"] == "mine"


def test_none_are_lost_and_all_are_in_order(fit: Fit) -> None:
    def train_func() -> None:
        for i in range(5000):
            session.report({"i": i})

    result = fit(train_func)
    rows = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    assert [row["i"] for row in rows] == list(range(5000))
    assert result.metrics["training_iteration"] == 5000


def test_a_new_key_widens_the_table(fit: Fit) -> None:
    def train_func() -> None:
        session.report({"a": 1, "text": 'x, "y"\n'})
        session.report({"a": 2, "b": {"c": 3}})
        session.report({"b": {"c": 4}})

    result = fit(train_func)
    with open(result.path / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["a"] for row in rows] == ["1", "2", ""]
    assert [row["b/c"] for row in rows] == ["", "3", "4"]
    assert rows[0]["text"] == 'x, "y"\n'


def test_tensorboard_reads_the_scalars(fit: Fit) -> None:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")

    def train_func() -> None:
        for step in range(3):
            session.report({"loss": 1.0 / (step + 1), "validation": {"accuracy": step}, "name": "text"})

    events = accumulator.EventAccumulator(str(fit(train_func).path))
    events.Reload()
    assert [(e.step, round(e.value, 4)) for e in events.Scalars("loss")] == [(1, 1.0), (2, 0.5), (3, 0.3333)]
    assert [e.value for e in events.Scalars("validation/accuracy")] == [0, 1, 2]
    assert "name" not in events.Tags()["scalars"]


def test_rank_zero_counts_and_all_ranks_reach_who_asks(fit: Fit) -> None:
    class Rows(Callback):
        def __init__(self) -> None:
            self.rows: list[Any] = []

        def on_report(self, results: list[dict[str, Any] | None]) -> None:
            self.rows.append([None if metrics is None else metrics["rank"] for metrics in results])

    def train_func() -> None:
        for _ in range(3):
            session.report({"rank": session.get_world_rank()})

    rows = Rows()
    result = fit(train_func, workers=3, callbacks=[rows])
    assert result.metrics["rank"] == 0
    assert rows.rows == [[0, 1, 2]] * 3


def test_ranks_may_report_unequally_often(fit: Fit) -> None:
    class Rows(Callback):
        def __init__(self) -> None:
            self.rows: list[Any] = []

        def on_report(self, results: list[dict[str, Any] | None]) -> None:
            self.rows.append([metrics is not None for metrics in results])

    def train_func() -> None:
        for i in range(3 - session.get_world_rank()):
            session.report({"i": i})

    rows = Rows()
    assert fit(train_func, callbacks=[rows]).metrics["i"] == 2
    assert rows.rows == [[True, True], [True, True], [True, False]]


def test_only_another_rank_reports(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_world_rank() == 1:
            session.report({"x": 1})

    assert "x" not in fit(train_func).metrics
