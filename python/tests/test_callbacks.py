"""Callbacks: the hooks and their order, and the loggers of the older API."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    LoggerCallback,
    Result,
    RunConfig,
    TrainingFailedError,
    session,
)
from lockstep.callbacks import CallbackAdapter, CSVLoggerCallback, TorchTensorboardProfilerCallback, Trial

Fit = Callable[..., Result]


class Recorder(Callback):
    """Writes down every hook."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_start(self, run: Any) -> None:
        assert run.path.is_dir()
        self.calls.append(("start", run.name, run.path, run.config, run.world_size))

    def on_attempt_started(self, attempt: int) -> None:
        self.calls.append(("attempt", attempt))

    def on_result(self, metrics: dict[str, Any]) -> None:
        self.calls.append(("result", metrics["epoch"], metrics["training_iteration"]))

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        assert checkpoint.path is not None and os.path.exists(os.path.join(checkpoint.path, "manifest.json"))
        self.calls.append(("checkpoint", checkpoint.to_dict()["epoch"], metrics["epoch"]))

    def on_attempt_failed(self, failures: list[Any], again: bool) -> None:
        self.calls.append(("failed", failures[0].rank, failures[0].message, again))

    def on_end(self, result: Result) -> None:
        self.calls.append(("end", result.state, result.metrics.get("epoch")))


def test_hooks_in_their_order(fit: Fit) -> None:
    def train_func() -> None:
        session.barrier()  # an attempt has started when all its workers run
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, 2):
            session.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
            session.get_checkpoint()
            session.barrier()
            if session.get_attempt() == 0 and session.get_world_rank() == 1:
                raise ValueError("once")
            session.barrier()

    recorder = Recorder()
    config = {"lr": 1}
    result = fit(
        train_func, config=config, name="mine", callbacks=[recorder], failure_config=FailureConfig(max_failures=1)
    )
    assert recorder.calls == [
        ("start", "mine", result.path, {"lr": 1}, 2),
        ("attempt", 0),
        ("result", 0, 1),
        ("checkpoint", 0, 0),
        ("failed", 1, "once", True),
        ("attempt", 1),
        ("result", 1, 2),
        ("checkpoint", 1, 1),
        ("end", "finished", 1),
    ]


def test_on_end_of_a_failed_run_has_the_error(tmp_path: Path) -> None:
    class End(Callback):
        error: Exception | None = None

        def on_end(self, result: Result) -> None:
            self.error = result.error

    def train_func() -> None:
        raise ValueError("boom")

    class OwnTrainer(DataParallelTrainer):
        pass

    end = End()
    trainer = OwnTrainer(train_func, run_config=RunConfig(storage_path=tmp_path, verbose=0, callbacks=[end]))
    with pytest.raises(TrainingFailedError) as caught:
        trainer.fit()
    assert isinstance(end.error, TrainingFailedError) and "boom" in str(end.error)
    assert caught.value.result is not None
    for error in (caught.value, end.error, Result.from_path(caught.value.result.path).error):
        assert "OwnTrainer.restore(" in str(error)


@pytest.mark.parametrize(
    "hook", ["on_start", "on_attempt_started", "on_result", "on_report", "on_checkpoint", "on_end"]
)
def test_a_callback_that_raises_ends_the_run_and_is_named(fit: Fit, hook: str) -> None:
    def broken(self: Callback, *arguments: Any) -> None:
        raise ZeroDivisionError("in the callback")

    breaking = type("Breaking", (Callback,), {hook: broken})()

    def train_func() -> None:
        for epoch in range(3):
            session.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    with pytest.raises(TrainingFailedError, match=hook) as caught:
        fit(train_func, callbacks=[breaking], failure_config=FailureConfig(max_failures=5))
    assert "Breaking" in str(caught.value)
    assert caught.value.failures[0].kind == "callback"
    assert isinstance(caught.value.__cause__, ZeroDivisionError), "the exception itself, it was raised in this process"
    assert caught.value.__cause__.__traceback__ is not None


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no \udcff file"), r"ValueError: no \udcff file"),
        (NoText(), "NoText: (its text is unknown: __str__ failed)"),
    ],
)
def test_any_exception_of_a_callback_is_named(fit: Fit, error: Exception, text: str) -> None:
    class Odd(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            raise error

    with pytest.raises(TrainingFailedError) as caught:
        fit(lambda: session.report({"epoch": 0}), callbacks=[Odd()])
    assert caught.value.failures[0].message == f"[callback] Odd.on_result raised: {text}"
    assert caught.value.__cause__ is error


def test_a_stop_request_belongs_to_the_run_whose_hook_makes_it(fit: Fit) -> None:
    def train_func(config: dict[str, Any]) -> None:
        for epoch in range(config["epochs"]):
            session.report({"epoch": epoch})
            time.sleep(0.01)

    class Shared(Callback):
        inner: Result | None = None

        def on_result(self, metrics: dict[str, Any]) -> None:
            if metrics["config"]["epochs"] == 1000 and self.inner is None:
                self.request_stop()
                self.inner = fit(train_func, workers=1, config={"epochs": 20}, callbacks=[self])

    shared = Shared()
    assert fit(train_func, config={"epochs": 1000}, callbacks=[shared]).metrics["epoch"] < 999
    assert shared.inner is not None and shared.inner.metrics["epoch"] == 19


def test_a_callback_that_raises_on_the_last_row_fails_the_run(fit: Fit) -> None:
    class Strict(Callback):
        def on_report(self, results: list[dict[str, Any] | None]) -> None:
            if None in results:
                raise ValueError("a rank is missing")

    def train_func() -> None:
        session.barrier()
        for _ in range(1 + (session.get_world_rank() == 0)):
            session.report({"epoch": 1})

    with pytest.raises(TrainingFailedError, match=r"Strict\.on_report raised: ValueError: a rank is missing") as caught:
        fit(train_func, callbacks=[Strict()])
    assert caught.value.result is not None
    assert Result.from_path(caught.value.result.path).state == "failed"


def test_all_ranks_are_only_wanted_by_those_who_ask() -> None:
    class Asks(Callback):
        def on_report(self, results: list[dict[str, Any] | None]) -> None:
            pass

    assert CallbackAdapter(Asks()).wants_all_ranks()
    assert not CallbackAdapter(Recorder()).wants_all_ranks()
    assert CallbackAdapter(Asks()).name == "Asks"


def test_several_callbacks_in_their_order(fit: Fit) -> None:
    order: list[str] = []

    class Named(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_result(self, metrics: dict[str, Any]) -> None:
            order.append(self.name)

    fit(lambda: session.report({}), callbacks=[Named("a"), Named("b")])
    assert order == ["a", "b"]


def test_the_documents_logging_callback(fit: Fit) -> None:
    class LoggingCallback(LoggerCallback):
        def __init__(self) -> None:
            self.results: list[Any] = []

        def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
            self.results.append(trial.last_result)

    def train_func() -> None:
        for i in range(3):
            session.report({"epoch": i})

    callback = LoggingCallback()
    fit(train_func, callbacks=[callback])
    first, second, third = callback.results
    assert set(first) == {"trial_id", "experiment_id", "date", "timestamp", "pid", "hostname", "node_ip", "config"}
    assert (second["epoch"], second["training_iteration"]) == (0, 1)
    assert (third["epoch"], third["training_iteration"]) == (1, 2)
    assert first["trial_id"] == third["trial_id"] and first["experiment_id"] == third["experiment_id"]


class Log(LoggerCallback):
    """Records every hook of a logger."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def log_trial_start(self, trial: Trial) -> None:
        assert Path(trial.logdir).is_dir() and trial.local_path == trial.logdir
        self.calls.append(("start", trial.status, trial.config, trial.experiment_tag))

    def log_trial_restore(self, trial: Trial) -> None:
        self.calls.append(("restore",))

    def log_trial_save(self, trial: Trial) -> None:
        assert trial.checkpoint is not None
        self.calls.append(("save", trial.checkpoint.to_dict()["epoch"]))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        self.calls.append(("result", iteration, result["epoch"]))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self.calls.append(("end", trial.status, failed, trial.last_result["epoch"], str(trial)[-5:]))


def test_logger_hooks(fit: Fit) -> None:
    def train_func() -> None:
        session.barrier()
        if session.get_checkpoint() is None:
            session.report({"epoch": 0}, checkpoint=Checkpoint.from_dict({"epoch": 0}))
            session.get_checkpoint()
            session.barrier()
            raise ValueError("once")
        session.report({"epoch": 1})

    log = Log()
    fit(train_func, config={"lr": 1}, callbacks=[log], failure_config=FailureConfig(max_failures=1))
    assert log.calls == [
        ("start", "RUNNING", {"lr": 1}, "0"),
        ("result", 1, 0),
        ("save", 0),
        ("restore",),
        ("result", 2, 1),
        ("end", "TERMINATED", False, 1, "00000"),
    ]


def test_logger_end_of_a_failed_run(fit: Fit) -> None:
    def train_func() -> None:
        session.report({"epoch": 0})
        raise ValueError("boom")

    log = Log()
    with pytest.raises(TrainingFailedError):
        fit(train_func, workers=1, callbacks=[log])
    assert log.calls[-1][:3] == ("end", "ERROR", True)


def test_every_callback_hears_of_the_end_though_another_raises(fit: Callable[..., Result]) -> None:
    class Raises(Callback):
        def on_end(self, result: Result) -> None:
            raise ValueError("at the end")

    class Hears(Callback):
        ended = False

        def on_end(self, result: Result) -> None:
            self.ended = True

    hears = Hears()
    with pytest.raises(TrainingFailedError, match="at the end"):
        fit(lambda: session.report({"epoch": 1}), callbacks=[Raises(), hears])
    assert hears.ended


# ---------------------------------------------------------------------- misspelled hooks


def test_a_misspelled_hook_is_named() -> None:
    class Mine(Callback):
        def on_reslt(self, metrics: dict[str, Any]) -> None: ...

        def on_result(self, metrics: dict[str, Any]) -> None: ...

        def show(self) -> None: ...

    class Derived(Mine):
        def on_epoch_end(self) -> None: ...

    class Logger(LoggerCallback):
        def log_trial_results(self, iteration: int, trial: Trial, result: Any) -> None: ...

    with pytest.warns(UserWarning, match=r"Mine\.on_reslt is not a hook .*; did you mean on_result\?") as caught:
        RunConfig(callbacks=[Mine()])
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning) as caught:
        RunConfig(callbacks=[Derived(), Logger()])
    epoch_end, reslt, log = sorted(str(warning.message) for warning in caught)
    assert "Derived.on_epoch_end" in epoch_end and "Derived.on_reslt" in reslt
    assert "did you mean log_trial_result?" in log


def test_names_that_are_right_or_not_ours_are_no_mistakes() -> None:
    class Other:
        """Such as another library's callback."""

        def on_epoch_end(self) -> None: ...

    class Mine(Recorder, Other):
        on_loss = 3

        def _on_reslt(self) -> None: ...

        def on_epoch_end(self) -> None: ...

        def results(self) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RunConfig(callbacks=[Mine(), LoggerCallback(), CSVLoggerCallback(), TorchTensorboardProfilerCallback()])
