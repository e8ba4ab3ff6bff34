"""``fit()`` with a Backend, whose hooks run in the trainer's process, as in Ray."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
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
from lockstep.errors import ConfigError, LockstepError, TrainingInterrupted

Fit = Callable[..., Result]
MakeTrainer = Callable[..., DataParallelTrainer]


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
    assert notes == ["on_start", *once, "failed, again: True", *once, "shutdown", "on_end, finished"]
    notes.clear()
    trainer.run_config.failure_config = None
    trainer.run_config.name = "failing"
    with pytest.raises(ValueError, match="once"):
        trainer.fit()
    assert notes == ["on_start", *once, "failed, again: False", "shutdown", "on_end, failed"]
    assert Result.from_path(tmp_path / "failing").state == "failed"
    restored = DataParallelTrainer.restore(tmp_path / "failing", backend_config=NotingConfig())
    assert restored.fit().metrics["epoch"] == 2


# ---------------------------------------------------------------------- failures


def report_attempt() -> None:
    session.report({"attempt": session.get_attempt()})


@pytest.fixture
def make(tmp_path: Path) -> MakeTrainer:
    """A trainer of two workers with a backend that does what it is told in its hooks."""

    def trainer(
        train_func: Callable[[], Any] = report_attempt,
        *,
        max_failures: int = 0,
        name: str = "run",
        callbacks: Any = (),
        **hooks: Callable[[Any], Any],
    ) -> DataParallelTrainer:
        bodies = {hook: lambda self, group, config, body=body: body(group) for hook, body in hooks.items()}
        config = type("MyConfig", (BackendConfig,), {"backend_cls": type("MyBackend", (Backend,), bodies)})()
        return DataParallelTrainer(
            train_func,
            backend_config=config,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name=name,
                storage_path=tmp_path,
                verbose=0,
                callbacks=list(callbacks),
                failure_config=FailureConfig(max_failures=max_failures),
            ),
        )

    return trainer


@pytest.fixture
def fit(make: MakeTrainer) -> Fit:
    return lambda **options: make(**options).fit()


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


def leave(value: str) -> None:
    os.environ["LEFT"] = value


def test_the_last_hook_reaches_workers_whose_function_has_returned(make: MakeTrainer) -> None:
    left: list[Any] = []
    result = make(
        lambda: leave(f"by rank {session.get_world_rank()}"),
        on_shutdown=lambda group: left.extend(group.execute(os.getenv, "LEFT")),
    ).fit()
    assert result.state == "finished"
    assert left == ["by rank 0", "by rank 1"]


def test_after_a_failure_the_last_hook_reaches_nobody(make: MakeTrainer) -> None:
    def fail() -> None:
        raise ValueError("boom")

    trainer = make(fail, on_shutdown=lambda group: group.execute(os.getpid))
    with pytest.raises(ValueError, match="boom") as caught, pytest.warns(RuntimeWarning, match="cannot be called"):
        trainer.fit()
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_error_of_the_function_is_not_that_of_a_hook_before(make: MakeTrainer) -> None:
    calls: list[int] = []

    def refuse_once(group: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("no such port")

    def fail() -> None:
        raise ValueError("boom")

    with pytest.raises(TrainingFailedError, match="boom") as caught:
        make(fail, max_failures=1, on_start=refuse_once).fit()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "no such port" in caught.value.result.failures[0].message  # type: ignore[union-attr]


def test_hooks_of_a_run_in_the_background(make: MakeTrainer) -> None:
    notes: list[Any] = []
    handle = make(
        on_start=lambda group: notes.append((threading.current_thread().name, group.execute(session.get_world_rank))),
        on_shutdown=lambda group: notes.append(group.execute_single(1, session.get_world_rank)),
    ).start()
    assert handle.wait(60).state == "finished"
    assert notes == [(f"lockstep {handle.name}", [0, 1]), 1]


def sleep_on_worker(mark: Path) -> None:
    mark.touch()
    time.sleep(600)


def wait_for(mark: Path) -> None:
    deadline = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_hook_that_waits_for_its_workers_is_stopped(make: MakeTrainer, tmp_path: Path) -> None:
    mark = tmp_path / "asleep"
    handle = make(on_start=lambda group: group.execute(sleep_on_worker, mark)).start()
    wait_for(mark)
    handle.stop()
    assert handle.wait(60).state == "stopped"


def test_ctrl_c_while_a_hook_waits_for_its_workers(make: MakeTrainer, tmp_path: Path) -> None:
    mark = tmp_path / "asleep"

    def interrupt() -> None:
        wait_for(mark)
        os.kill(os.getpid(), signal.SIGINT)

    trainer = make(on_start=lambda group: group.execute(sleep_on_worker, mark))
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    thread.join()
    assert caught.value.result is not None and not caught.value.result.failures


def test_the_group_of_a_hook_is_of_no_use_elsewhere(make: MakeTrainer) -> None:
    groups: list[Any] = []
    errors: list[BaseException] = []

    def call_in_thread(group: Any) -> None:
        def call() -> None:
            try:
                group.execute(os.getpid)
            except LockstepError as error:
                errors.append(error)

        groups.append(group)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    make(on_start=call_in_thread).fit()
    with pytest.raises(LockstepError, match="only the hook that runs"):
        groups[0].execute(os.getpid)
    assert "in its own thread" in str(errors[0])


def test_the_size_of_the_group(fit: Fit) -> None:
    sizes: list[int] = []
    fit(on_start=lambda group: sizes.extend([len(group), group.num_workers]))
    assert sizes == [2, 2]


def test_a_backend_that_is_no_class() -> None:
    config = type("MyConfig", (BackendConfig,), {"backend_cls": 3})()
    with pytest.raises(ConfigError, match="backend_cls is 3; it must be a class"):
        DataParallelTrainer(print, backend_config=config)
