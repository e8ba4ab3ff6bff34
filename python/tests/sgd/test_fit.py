"""``fit()`` with a Backend, whose hooks run beside the trainer: Ray's way to write one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    session,
)
from lockstep.backend import Backend, BackendConfig
from lockstep.errors import ConfigError

Fit = Callable[..., Result]


def test_hooks_and_callbacks_of_a_run(tmp_path: Path) -> None:
    def join(value: str) -> None:
        os.environ["JOINED"] = value

    class Noting(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("start")
            worker_group.execute(join, value="yes")

        def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("training")

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            notes.append("shutdown")

    class NotingConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Noting

        def on_worker_start(self) -> None:
            os.environ["IN_WORKER"] = "yes"

    class Heard(Callback):
        def on_start(self, run: Any) -> None:
            notes.append("on_start")

        def on_attempt_failed(self, failures: Any, again: bool) -> None:
            notes.append(f"failed, again: {again}")

        def on_end(self, result: Result) -> None:
            notes.append(f"on_end, {result.state}")

    def train_func(config: dict[str, Any]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, 3):
            metrics = {"epoch": epoch, "env": os.environ["JOINED"] + os.environ["IN_WORKER"], "lr": config["lr"]}
            session.report(metrics, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
            if epoch == 1 and start == 0:
                session.get_checkpoint()
                raise ValueError("once")

    notes: list[str] = []
    trainer = DataParallelTrainer(
        train_func,
        train_loop_config={"lr": 0.5},
        backend_config=NotingConfig(),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=tmp_path, verbose=0, callbacks=[Heard()], failure_config=FailureConfig(max_failures=1)
        ),
    )
    result = trainer.fit()
    assert result.metrics["epoch"] == 2 and result.metrics["env"] == "yesyes" and result.metrics["lr"] == 0.5
    assert [failure.message for failure in result.failures][:1] == ["once"]
    once = ["start", "training"]
    assert notes == [*once, "on_start", "failed, again: True", *once, "on_end, finished", "shutdown"]
    notes.clear()
    trainer.run_config.failure_config = None
    trainer.run_config.name = "failing"
    with pytest.raises(ValueError, match="once"):
        trainer.fit()
    assert notes == [*once, "on_start", "failed, again: False", "on_end, failed", "shutdown"]
    assert Result.from_path(tmp_path / "failing").state == "failed"
    restored = DataParallelTrainer.restore(tmp_path / "failing", backend_config=NotingConfig())
    assert restored.fit().metrics["epoch"] == 2


# ---------------------------------------------------------------------- failures


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    """Trains on two workers with a backend that does what it is told in its hooks."""

    def run(*, max_failures: int = 0, name: str = "run", callbacks: Any = (), **hooks: Callable[[Any], Any]) -> Result:
        bodies = {hook: lambda self, group, config, body=body: body(group) for hook, body in hooks.items()}
        config = type("MyConfig", (BackendConfig,), {"backend_cls": type("MyBackend", (Backend,), bodies)})()
        return DataParallelTrainer(
            lambda: session.report({"attempt": session.get_attempt()}),
            backend_config=config,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name=name,
                storage_path=tmp_path,
                verbose=0,
                callbacks=list(callbacks),
                failure_config=FailureConfig(max_failures=max_failures),
            ),
        ).fit()

    return run


def die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("hook", ["on_start", "on_training_start"])
def test_a_worker_that_dies_in_a_hook_is_a_failure_like_any_other(fit: Fit, tmp_path: Path, hook: str) -> None:
    dies = {hook: lambda group: group.execute_single(1, die_once, tmp_path / "died")}
    result = fit(max_failures=1, **dies)
    assert result.metrics["attempt"] == 1
    assert f"MyBackend.{hook}" in result.failures[0].message and "SIGKILL" in result.failures[0].message
    (tmp_path / "died").unlink()
    with pytest.raises(TrainingFailedError, match="SIGKILL") as caught:
        fit(name="once", **dies)
    assert caught.value.result is not None and caught.value.result.state == "failed"


@pytest.mark.parametrize("hook", ["on_start", "on_training_start"])
def test_an_error_of_a_hook_fails_the_run(fit: Fit, tmp_path: Path, hook: str) -> None:
    def refuse(group: Any) -> None:
        raise KeyError("no such port")

    heard: list[str] = []

    class Heard(Callback):
        def on_start(self, run: Any) -> None:
            heard.append("start")

        def on_attempt_failed(self, failures: Any, again: bool) -> None:
            heard.append(f"failed, again: {again}")

        def on_end(self, result: Result) -> None:
            heard.append(result.state)

    with pytest.raises(TrainingFailedError, match=rf"MyBackend\.{hook}\(\) raised: KeyError: 'no such port'") as caught:
        fit(callbacks=[Heard()], **{hook: refuse})
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.result is not None and caught.value.result.path == tmp_path / "run"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "failed"
    assert heard == ["start", "failed, again: False", "failed"]


def test_what_a_hook_raises_on_a_worker(fit: Fit) -> None:
    def boom() -> None:
        raise ValueError("in the worker")

    with pytest.raises(TrainingFailedError, match="in the worker") as caught:
        fit(max_failures=1, on_start=lambda group: group.execute(boom))
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(caught.value.result.failures) == 2  # type: ignore[union-attr]


def test_an_error_of_the_last_hook_leaves_the_result(fit: Fit) -> None:
    def refuse(group: Any) -> None:
        raise RuntimeError("will not end")

    with pytest.warns(RuntimeWarning, match=r"MyBackend\.on_shutdown\(\) raised RuntimeError: will not end"):
        assert fit(on_shutdown=refuse).state == "finished"


def test_the_size_of_the_group(fit: Fit) -> None:
    sizes: list[int] = []
    fit(on_start=lambda group: sizes.extend([len(group), group.num_workers]))
    assert sizes == [2, 2]


def test_a_backend_that_is_no_class() -> None:
    config = type("MyConfig", (BackendConfig,), {"backend_cls": 3})()
    with pytest.raises(ConfigError, match="backend_cls is 3; it must be a class"):
        DataParallelTrainer(print, backend_config=config)
