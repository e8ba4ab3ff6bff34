"""Tensors and arrays in reports: what they become, for callbacks and in files, and what is refused."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from lockstep import Callback, Checkpoint, Result, TrainingFailedError, _core, session
from lockstep._reported import reported
from lockstep.callbacks import CSVLoggerCallback, JsonLoggerCallback
from lockstep.integrations._tracking import numbers

Fit = Callable[..., Result]


class All(Callback):
    """Keeps what the hooks get."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []
        self.rows: list[list[dict[str, Any] | None]] = []
        self.saved: list[dict[str, Any]] = []

    def on_result(self, metrics: dict[str, Any]) -> None:
        self.results.append(metrics)

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.rows.append(results)

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self.saved.append(metrics)


def test_arrays_reach_callbacks_and_files_hold_what_they_are(fit: Fit, tmp_path: Path) -> None:
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")

    def train_func() -> None:
        import torch

        rank = session.get_world_rank()
        for step in range(2):
            session.report(
                {
                    "loss": torch.tensor(0.5, requires_grad=True) * (rank + 1),
                    "one": torch.tensor([[[7]]]),
                    "small": torch.arange(6, dtype=torch.float32).reshape(2, 3) + rank,
                    "nested": {"big": numpy.arange(65), "list": [torch.tensor(True), numpy.zeros((0, 4), "int8")]},
                    "odd": numpy.array([float("nan"), float("-inf")]),
                },
                checkpoint=Checkpoint.from_dict({"step": step}),
            )

    seen = All()
    copies = [JsonLoggerCallback(logdir=tmp_path / "copy"), CSVLoggerCallback(logdir=tmp_path / "copy")]
    result = fit(train_func, callbacks=[seen, *copies])
    small = numpy.array([[0, 1, 2], [3, 4, 5]], "float32")
    assert seen.rows[0][1] is not None and len(seen.results) == len(seen.rows) == len(seen.saved) == 2
    for metrics, rank in [(seen.results[1], 0), (result.metrics, 0), (seen.saved[1], 0), (seen.rows[0][1], 1)]:
        assert (metrics["loss"], metrics["one"]) == (0.5 * (rank + 1), 7) and type(metrics["one"]) is int
        assert type(metrics["small"]) is numpy.ndarray and metrics["small"].dtype == numpy.float32
        assert numpy.array_equal(metrics["small"], small + rank)
        assert numpy.array_equal(metrics["nested"]["big"], numpy.arange(65))
        assert metrics["nested"]["list"][0] is True and metrics["nested"]["list"][1].shape == (0, 4)
        metrics["small"][0, 0] = 1  # the callback's own

    filed: dict[str, Any] = {
        "loss": 0.5,
        "one": 7,
        "small": {"shape": [2, 3], "dtype": "float32", "values": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]},
        "nested": {
            "big": {"shape": [65], "dtype": "int64"},
            "list": [True, {"shape": [0, 4], "dtype": "int8", "values": []}],
        },
    }

    def check(metrics: dict[str, Any]) -> None:
        assert {key: metrics[key] for key in filed} == filed
        assert str(metrics["odd"]["values"]) == "[nan, -inf]"

    for place in (result.path / "result.json", tmp_path / "copy" / "result.json"):
        lines = place.read_text().splitlines()
        assert len(lines) == 2
        check(json.loads(lines[0]))
    check(json.loads((result.path / "run.json").read_text())["metrics"])
    check(json.loads((result.path / "checkpoint_000000" / "manifest.json").read_text())["metrics"])
    again = Result.from_path(result.path)
    check(again.metrics)
    for _, metrics in (*result.best_checkpoints, *again.best_checkpoints):
        check(metrics)
    for place in (result.path / "progress.csv", tmp_path / "copy" / "progress.csv"):
        with open(place, newline="") as file:
            row = next(csv.DictReader(file))
        assert json.loads(row["small"]) == filed["small"] and json.loads(row["nested/big"]) == filed["nested"]["big"]
    events = accumulator.EventAccumulator(str(result.path))
    events.Reload()
    assert {"loss", "one"} < set(events.Tags()["scalars"]) and "small" not in events.Tags()["scalars"]
    for tag, array in [("small", filed["small"]), ("nested/big", filed["nested"]["big"])]:
        first, second = events.Tensors(tag)
        assert (first.step, second.step) == (1, 2) and json.loads(first.tensor_proto.string_val[0]) == array
        assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    assert numbers(seen.results[0])["loss"] == 0.5 and "small" not in numbers(seen.results[0])


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *((name, 3) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
        *((name, 1.5) for name in ("float16", "float32", "float64", "bfloat16", "float8_e4m3fn")),
        ("bool", True),
    ],
)
def test_every_type_of_torch(dtype: str, number: Any) -> None:
    import torch

    kind = getattr(torch, dtype)
    for shape in ((), (1,), (1, 1, 1)):
        one = reported(torch.full(shape, number, dtype=torch.float32).to(kind))
        assert one == number and type(one) is type(number)
    several = reported(torch.full((3, 2), number, dtype=torch.float32).to(kind).t())
    wanted = dtype if hasattr(numpy, dtype) else "float32"
    assert several.dtype.name == wanted and several.shape == (2, 3) and several.flags.c_contiguous
    assert several.tolist() == [[number] * 3] * 2
    assert _core.as_in_files(several) == {"shape": [2, 3], "dtype": wanted, "values": [[number] * 3] * 2}


def test_views_parameters_and_others_of_torch() -> None:
    import torch

    assert reported(torch.nn.Parameter(torch.ones(1))) == 1.0
    assert reported(torch.nn.Parameter(torch.ones(2))).tolist() == [1.0, 1.0]
    assert reported(torch.tensor([1 + 2j, 3 + 4j]).conj().imag).tolist() == [-2.0, -4.0]
    assert reported(torch.arange(6)[::2]).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("made", "advice"),
    [
        ("torch.eye(2).to_sparse()", r"\.to_dense\(\)"),
        ("torch.ones(1).to_sparse()", r"\.to_dense\(\)"),
        ("torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])", "nested"),
        ("torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)", r"\.dequantize\(\)"),
        ("torch.ones(2, device='meta')", "no values"),
        ("torch.ones(2, dtype=torch.complex64)", r"\.real and \.imag"),
        ("numpy.ones(1, 'complex64')", r"\.real and \.imag"),
        ("numpy.ma.masked_array([1, 2], [0, 1])", r"\.filled"),
        ("numpy.array([1, object()], dtype=object)", r'\["x"\]\[1\] is a object'),
        ("numpy.array(['2026-01-01'], dtype='datetime64[D]')", r'\["x"\]\[0\] is a datetime'),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_has_no_numbers_is_refused_with_advice(made: str, advice: str) -> None:
    import torch

    value = eval(made, {"torch": torch, "numpy": numpy})
    with pytest.raises(TypeError, match=advice) as caught:
        _core.as_in_files({"x": value})
    assert str(caught.value).startswith('value["x"]')


def test_other_arrays_of_numpy() -> None:
    assert reported(numpy.array(["a", "b"])) == ["a", "b"]
    assert reported(numpy.array([1, "a"], dtype=object)) == [1, "a"]
    assert reported(numpy.longdouble(0.5)) == 0.5 and type(reported(numpy.longdouble(0.5))) is float
    assert reported(numpy.ones(2, "longdouble")).dtype == numpy.float64
    big_endian = reported(numpy.array([1.5, 2.5], ">f8"))
    assert big_endian.dtype.isnative and big_endian.tolist() == [1.5, 2.5]
    assert reported(numpy.array([[2**64 - 1]], "uint64")) == 2**64 - 1
    assert _core.as_in_files(numpy.array([2**64 - 1, 0], "uint64"))["values"] == [2**64 - 1, 0]
    assert reported(object()) is NotImplemented


def test_other_frameworks_are_not_imported_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    class EagerTensor:
        def numpy(self) -> Any:
            return numpy.array([2.5], "float32")

    class GraphTensor(EagerTensor):
        def numpy(self) -> Any:
            raise NotImplementedError

    class JaxArray:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return numpy.ones((2, 2), "float32")

    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(Tensor=EagerTensor))
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=JaxArray))
    assert reported(EagerTensor()) == 2.5
    with pytest.raises(TypeError, match=r"outside of the tf\.function"):
        reported(GraphTensor())
    assert reported(JaxArray()).tolist() == [[1.0, 1.0]] * 2


def test_many_keys_cost_no_more_than_their_number() -> None:
    def cost(keys: int) -> float:
        metrics = {f"key_{i}": 1.0 for i in range(keys)}
        tries = []
        for _ in range(5):
            begin = time.thread_time()  # what other processes do does not count
            assert len(_core.as_in_files(metrics)) == keys
            tries.append(time.thread_time() - begin)
        return min(tries)

    small, large = cost(4_000), cost(32_000)
    assert large < 24 * small, "8 times the keys; 64 would be the square"
    assert _core.as_in_files({1: "int", "1": "str", 2: 3}) == {"1": "str", "2": 3}


def test_a_report_that_is_too_big_is_refused_before_it_is_sent(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_world_rank() == 0:
            session.report({"before": 1})
            try:
                session.report({"small": "x", "outer": {"text": "x" * 17_000_000, "few": [1.0] * 10}})
            except ValueError as error:
                session.report({"error": str(error), "fits": "é" * 7_900_000})

    metrics = fit(train_func).metrics
    for words in ("take 17 MB", 'metrics["outer"]["text"] is 17 MB', "at most 16 MB", "checkpoint", "max_report_size"):
        assert words in metrics["error"]
    assert metrics["training_iteration"] == 2 and len(metrics["fits"]) == 7_900_000


def test_the_size_of_reports_can_be_set(fit: Fit) -> None:
    with pytest.raises(TrainingFailedError, match=r'metrics\["x"\] is 1 kB; a report may have at most 500 B'):
        fit(lambda: session.report({"x": "y" * 1000}), workers=1, max_report_size=500)


def test_a_big_report_of_a_hostile_worker_fails_its_rank(fit: Fit) -> None:
    def train_func() -> None:
        import os
        import socket
        import stat

        def text(word: str) -> bytes:
            return bytes([0x60 + len(word)]) + word.encode()

        if session.get_world_rank() == 1:
            report = b"\xa2" + text("i") + b"\0" + text("m") + b"\x59\x03\xe8" + bytes(1000)
            message = b"\xa2" + text("type") + text("reports") + text("reports") + b"\x81" + report
            for entry in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.stat(int(entry)).st_mode):
                        socket.socket(fileno=os.dup(int(entry))).send(len(message).to_bytes(4, "little") + message)
        session.barrier()

    with pytest.raises(TrainingFailedError, match=r"sent an invalid message: .*a report of 1\.0 kB") as caught:
        fit(train_func, max_report_size=500)
    assert caught.value.failures[0].rank == 1
