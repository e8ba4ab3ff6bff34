"""Runs that end early: all ranks end after the same report, successfully, with the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Callback, Checkpoint, ConfigError, DataParallelTrainer, EarlyStopping, Result, RunConfig, session

Fit = Callable[..., Result]


class Rows(Callback):
    """What all ranks reported."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any] | None]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.rows.append(results)


def steps(config: dict[str, Any]) -> None:
    """Fifty steps in lockstep with the other ranks; the loss is best at step 3."""
    for step in range(50):
        session.barrier(timeout=60)
        if step == config.get("stop") and session.get_world_rank() in config.get("ranks", [0]):
            session.request_stop()
        session.report({"step": step, "loss": abs(step - 3)}, checkpoint=Checkpoint.from_dict({"step": step}))


def check_end(result: Result, rows: Rows, *, last: tuple[int, ...]) -> None:
    step = result.metrics["step"]
    assert step in last
    assert result.state == "finished" and result.error is None and not result.failures
    assert result.metrics["done"] is True
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == step
    assert [[metrics and metrics["step"] for metrics in row] for row in rows.rows] == [[i, i] for i in range(step + 1)]


@pytest.mark.parametrize(("ranks", "last"), [((0, 1), (4,)), ((0,), (4, 5)), ((1,), (4, 5))])
def test_any_rank_may_ask(fit: Fit, ranks: tuple[int, ...], last: tuple[int, ...]) -> None:
    rows = Rows()
    result = fit(steps, config={"stop": 4, "ranks": ranks}, callbacks=[rows])
    check_end(result, rows, last=last)
    again = DataParallelTrainer.restore(result.path).fit()
    assert again.metrics["step"] == result.metrics["step"]


def test_a_tight_loop_of_one_worker_ends_at_the_report(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(100_000):
            if step == 7:
                session.request_stop()
                session.request_stop()
            session.report({"step": step})

    assert fit(train_func, workers=1).metrics["step"] == 7


def test_a_function_that_asks_ends_by_itself(fit: Fit) -> None:
    def train_func() -> None:
        step = 0
        while not session.should_stop():
            session.barrier(timeout=60)
            if step == 2:
                session.request_stop()
            session.report({"step": step})
            step += 1
        session.barrier(timeout=60)
        session.report({"step": step, "last": True}, checkpoint=Checkpoint.from_dict({"step": step}))

    result = fit(train_func)
    assert result.metrics["step"] == 3 and result.metrics["last"]
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 3


def test_the_function_cleans_up(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        try:
            for _ in range(50):
                try:
                    session.request_stop()
                    session.report({"x": 1})
                except Exception:
                    Path(config["file"]).write_text("wrong")
        finally:
            Path(config["file"]).write_text("cleaned up")

    file = tmp_path / "file"
    assert fit(train_func, workers=1, config={"file": str(file)}).state == "finished"
    assert file.read_text() == "cleaned up"


def test_early_stopping(fit: Fit) -> None:
    rows = Rows()
    early = EarlyStopping("loss", patience=3)
    check_end(fit(steps, config={}, callbacks=[rows, early]), rows, last=(6,))
    assert early.best == 0


def test_early_stopping_says_once_that_its_metric_is_missing(fit: Fit, capfd: pytest.CaptureFixture[str]) -> None:
    result = fit(steps, workers=1, config={"stop": 5}, callbacks=[EarlyStopping("los", patience=1)])
    assert result.metrics["step"] == 5
    assert capfd.readouterr().err.count('"los"') == 1


def test_early_stopping_refuses_what_makes_no_sense() -> None:
    for arguments in ({"patience": -1}, {"patience": "2"}, {"mode": "least"}, {"min_delta": -1.0}, {"metric": ""}):
        with pytest.raises(ConfigError, match="EarlyStopping"):
            EarlyStopping(**{"metric": "loss", **arguments})  # type: ignore[arg-type]


def test_a_callback_that_decides(fit: Fit) -> None:
    class Enough(Callback):
        def should_stop(self, metrics: dict[str, Any]) -> bool:
            return metrics["step"] == 4

    rows = Rows()
    check_end(fit(steps, config={}, callbacks=[rows, Enough()]), rows, last=(4,))


def test_a_callback_that_asks(fit: Fit) -> None:
    class Asks(Callback):
        def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
            if metrics["step"] == 4:
                self.request_stop()

    rows = Rows()
    check_end(fit(steps, config={}, callbacks=[rows, Asks()]), rows, last=tuple(range(4, 40)))


class AtFour:
    """A stopper."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        assert trial_id == result["trial_id"]
        self.step = result["step"]
        return False

    def stop_all(self) -> bool:
        return self.step >= 4


@pytest.mark.parametrize(
    "stop",
    [
        {"step": 4},
        {"loss": 100, "training_iteration": 5},
        lambda _, row: row["step"] >= 4,
        AtFour(),
        [lambda _, row: row["step"] >= 8, AtFour()],
    ],
)
def test_stop_of_run_config(fit: Fit, stop: Any) -> None:
    rows = Rows()
    check_end(fit(steps, config={}, callbacks=[rows], stop=stop), rows, last=(4,))


def test_stop_by_time_holds_after_restore_too(make_trainer: Callable[..., DataParallelTrainer]) -> None:
    def train_func(config: dict[str, Any]) -> None:
        checkpoint = session.get_checkpoint()
        step = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        while True:
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            step += 1
            if step == config["raise"]:
                raise ValueError("on purpose")

    trainer = make_trainer(train_func, workers=1, config={"raise": 2}, stop={"training_iteration": 4})
    with pytest.raises(ValueError, match="on purpose") as caught:
        trainer.fit()
    path = caught.value.result.path  # type: ignore[attr-defined]
    assert DataParallelTrainer.restore(path, train_loop_config={"raise": -1}).fit().metrics["step"] == 3


def test_stop_refuses_what_makes_no_sense() -> None:
    for stop in (5, "loss", {"loss": "low"}, {3: 1}, {"loss": float("nan")}, dict, [3], []):
        with pytest.raises(ConfigError, match=r"\[RunConfig\] stop"):
            RunConfig(stop=stop)  # type: ignore[arg-type]


def test_a_rank_that_never_reports_ends_too(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(1000):
            if session.get_world_rank() == 0:
                session.report({"step": step})
            session.barrier(timeout=60)

    result = fit(train_func, stop={"training_iteration": 3})
    assert result.state == "finished" and result.metrics["step"] == 2


def test_ranks_that_report_at_their_own_pace_do_not_wait_for_each_other(fit: Fit) -> None:
    def train_func() -> None:
        for step in range(6):
            for _ in range(1 + session.get_world_rank()):
                session.report({"step": step})
            session.barrier(timeout=60)

    assert fit(train_func, stop={"step": 100}).metrics["step"] == 5
