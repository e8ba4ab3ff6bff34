"""Checkpoints that are checked by a function beside the training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    SerializationError,
    TrainingFailedError,
    ValidationConfig,
    ValidationTaskConfig,
    session,
)

ACCURACIES = [0.5, 0.9, 0.7, 0.8]


def train(config: dict[str, Any]) -> None:
    for epoch in range(len(ACCURACIES)):
        checkpoint = Checkpoint.from_dict({"epoch": epoch})
        session.report({"loss": 1.0}, checkpoint=checkpoint, validate=epoch not in config.get("skip", ()))


def accuracy(checkpoint: Checkpoint, bonus: float = 0.0) -> dict[str, Any]:
    return {"accuracy": ACCURACIES[checkpoint.to_dict()["epoch"]] + bonus, "pid": os.getpid()}


def trainer(tmp_path: Path, validation: Any, function: Any = train, **settings: Any) -> DataParallelTrainer:
    workers = settings.pop("workers", 2)
    run = {"storage_path": tmp_path, "name": "run", "verbose": 0}
    return DataParallelTrainer(
        function,
        train_loop_config=settings.pop("config", {}),
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(**{**run, **settings.pop("run", {})}),
        validation_config=validation,
        **settings,
    )


BEST = {"checkpoint_config": CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy")}


def test_numbers_join_the_metrics_and_the_score(tmp_path: Path) -> None:
    result = trainer(tmp_path, ValidationConfig(accuracy), run=BEST).fit()
    found = [(checkpoint.to_dict()["epoch"], metrics["accuracy"]) for checkpoint, metrics in result.best_checkpoints]
    assert found == [(3, 0.8), (1, 0.9)]
    assert result.best_checkpoint is not None
    assert result.best_checkpoint.to_dict()["epoch"] == 1
    manifest = json.loads((tmp_path / "run" / "checkpoint_000001" / "manifest.json").read_text())
    assert manifest["metrics"]["accuracy"] == 0.9
    assert manifest["metrics"]["loss"] == 1.0
    assert manifest["validated"] is True
    assert {metrics["pid"] for _, metrics in result.best_checkpoints}.isdisjoint({os.getpid(), result.metrics["pid"]})
    again = Result.from_path(tmp_path / "run").best_checkpoints
    assert [metrics["accuracy"] for _, metrics in again] == [0.8, 0.9]
    for checkpoint, _ in again:
        checkpoint.verify()
    assert "accuracy" not in result.metrics


def test_only_reports_that_ask_are_checked(tmp_path: Path) -> None:
    result = trainer(tmp_path, ValidationConfig(accuracy), config={"skip": [0, 3]}).fit()
    assert ["accuracy" in metrics for _, metrics in result.best_checkpoints] == [False, True, True, False]


def test_arguments_of_the_function(tmp_path: Path) -> None:
    def ask() -> None:
        for validate in (True, {"bonus": 2}, ValidationTaskConfig(fn_kwargs={"bonus": 3})):
            session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"epoch": 0}), validate=validate)

    config = ValidationConfig(accuracy, task_config=ValidationTaskConfig(fn_kwargs={"bonus": 1}))
    result = trainer(tmp_path, config, ask).fit()
    assert [metrics["accuracy"] for _, metrics in result.best_checkpoints] == [1.5, 2.5, 3.5]


def test_training_goes_on_and_checkpoints_stay_meanwhile(tmp_path: Path) -> None:
    def checks(checkpoint: Checkpoint) -> dict[str, Any]:
        while not (tmp_path / "trained").exists():
            time.sleep(0.01)
        kept = sorted(path.name for path in (tmp_path / "run").glob("checkpoint_*"))
        return {"kept": len(kept), "accuracy": -checkpoint.to_dict()["epoch"]}

    def train_on() -> None:
        for epoch in range(4):
            session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"epoch": epoch}), validate=True)
        session.get_checkpoint()
        if session.get_world_rank() == 0:
            (tmp_path / "trained").touch()

    run = {"checkpoint_config": CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="accuracy")}
    result = trainer(tmp_path, ValidationConfig(checks), train_on, run=run).fit()
    ((checkpoint, metrics),) = result.best_checkpoints
    assert (checkpoint.to_dict()["epoch"], metrics["kept"]) == (0, 4)
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint_*")) == [
        "checkpoint_000000",
        "checkpoint_000003",
    ]


def test_callbacks_hear_of_it(tmp_path: Path) -> None:
    class Recorder(Callback):
        def __init__(self) -> None:
            self.seen: list[tuple[int, float]] = []

        def on_validated(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
            self.seen.append((checkpoint.to_dict()["epoch"], metrics["accuracy"]))

    recorder = Recorder()
    trainer(tmp_path, ValidationConfig(accuracy), run={"callbacks": [recorder]}).fit()
    assert recorder.seen == list(enumerate(ACCURACIES))


def test_a_function_that_fails_leaves_the_run_alone(tmp_path: Path) -> None:
    def fails(checkpoint: Checkpoint) -> Any:
        epoch = checkpoint.to_dict()["epoch"]
        if epoch == 0:
            raise ValueError("no data")
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"accuracy": 1.0} if epoch == 2 else 5

    with pytest.warns(RuntimeWarning) as warned:
        result = trainer(tmp_path, ValidationConfig(fails)).fit()
    texts = [str(each.message) for each in warned]
    assert any("checkpoint 0 has no validation metrics" in text and "no data" in text for text in texts)
    assert any("checkpoint 1 has" in text and "SIGKILL" in text for text in texts)
    assert any("checkpoint 3 has" in text and "returned a int" in text for text in texts)
    assert ["accuracy" in metrics for _, metrics in result.best_checkpoints] == [False, False, True, False]
    assert result.state == "finished"


def test_a_run_that_fails_waits_too(tmp_path: Path) -> None:
    def ends() -> None:
        session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"epoch": 1}), validate=True)
        session.get_checkpoint()
        raise KeyError("end")

    with pytest.raises(TrainingFailedError) as caught:
        trainer(tmp_path, ValidationConfig(accuracy), ends).fit()
    assert caught.value.result is not None
    assert [metrics["accuracy"] for _, metrics in caught.value.result.best_checkpoints] == [0.9]


def test_a_trainer_in_the_function(tmp_path: Path) -> None:
    def evaluate(checkpoint: Checkpoint) -> dict[str, Any]:
        def measure(config: dict[str, Any]) -> None:
            session.report({"accuracy": config["epoch"] + session.get_world_size()})

        inner = DataParallelTrainer(
            measure,
            train_loop_config={"epoch": checkpoint.to_dict()["epoch"]},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=tmp_path / "inner", verbose=0),
        )
        return {"accuracy": inner.fit().metrics["accuracy"]}

    result = trainer(tmp_path, ValidationConfig(evaluate), config={"skip": [1, 2, 3]}, workers=1).fit()
    assert result.best_checkpoints[0][1]["accuracy"] == 2


def test_in_this_process(tmp_path: Path) -> None:
    result = trainer(tmp_path, ValidationConfig(accuracy), workers=0, run=BEST).fit()
    assert [metrics["accuracy"] for _, metrics in result.best_checkpoints] == [0.8, 0.9]


def test_in_run_config(tmp_path: Path) -> None:
    result = trainer(tmp_path, None, run={"validation_config": ValidationConfig(accuracy)}).fit()
    assert [metrics["accuracy"] for _, metrics in result.best_checkpoints] == ACCURACIES


def test_an_object_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="object store"):
        trainer(tmp_path, ValidationConfig(accuracy), run={"storage_path": "s3://bucket/runs"}).fit()


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fn is 5"):
        ValidationConfig(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="validation_config is 5"):
        trainer(tmp_path, 5)
    with pytest.raises(ConfigError, match="given twice"):
        trainer(tmp_path, ValidationConfig(accuracy), run={"validation_config": ValidationConfig(accuracy)})
    with pytest.raises(ConfigError, match="no checkpoint"):
        session.report({"x": 1}, validate=True)
    checkpoint = Checkpoint.from_dict({"epoch": 1})
    with pytest.raises(ConfigError, match="int as validate"):
        session.report({"x": 1}, checkpoint=checkpoint, validate=3)  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="cannot be sent"):
        session.report({"x": 1}, checkpoint=checkpoint, validate={"x": object()})


def test_without_a_function_there_is_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = trainer(tmp_path, None, run={"verbose": 1}).fit()
    assert "the trainer has no validation_config" in capfd.readouterr().err
    assert len(result.best_checkpoints) == 4


def test_the_check_gets_what_the_workers_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"slot": 1}')
    result = DataParallelTrainer(
        train,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"slot": 1}),
        run_config=RunConfig(storage_path=tmp_path, name="run", verbose=0),
        validation_config=ValidationConfig(accuracy, resources={"slot": 1}),
    ).fit()
    assert [metrics["accuracy"] for _, metrics in result.best_checkpoints] == ACCURACIES


def test_in_memory_between(tmp_path: Path) -> None:
    run = {"checkpoint_config": CheckpointConfig(persist_every=2)}
    result = trainer(tmp_path, ValidationConfig(accuracy), run=run).fit()
    assert [metrics["accuracy"] for _, metrics in result.best_checkpoints] == [0.9, 0.8]
    for checkpoint, _ in result.best_checkpoints:
        assert checkpoint.metadata["validated"] is True
        checkpoint.verify()


def test_a_stopped_run_keeps_what_is_not_checked(tmp_path: Path) -> None:
    def blocks(checkpoint: Checkpoint) -> dict[str, Any]:
        time.sleep(600)
        return {}

    def train_on(config: dict[str, Any]) -> None:
        train(config)
        session.get_checkpoint()
        session.report({"trained": True})
        time.sleep(600)

    run = {"checkpoint_config": CheckpointConfig(num_to_keep=1)}
    handle = trainer(tmp_path, ValidationConfig(blocks), train_on, workers=1, run=run).start()
    next(metrics for metrics in handle if "trained" in metrics)
    handle.stop()
    assert handle.wait(60).state == "stopped"
    assert len(list((tmp_path / "run").glob("checkpoint_*"))) == len(ACCURACIES)


SCRIPT = """
import json, os, signal, sys, threading, time
from pathlib import Path
from lockstep import *

place = Path(sys.argv[1])

def validate(checkpoint):
    (place / "checks").touch()
    time.sleep(600)

def train_func():
    for epoch in range(3):
        session.report({"x": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch}), validate=True)
    if TRAINS:
        session.get_checkpoint()
        time.sleep(600)

def wait_for(condition):
    while not condition():
        time.sleep(0.01)

def shown():
    return (place / "stderr").read_text()

def wait_for_the_end():
    wait_for(lambda: (place / "checks").exists() and "waiting for the validation of 3 checkpoints" in shown())

os.dup2(os.open(place / "stderr", os.O_WRONLY | os.O_CREAT), 2)
trainer = DataParallelTrainer(
    train_func,
    scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(name="run", storage_path=place, checkpoint_config=CheckpointConfig(num_to_keep=1)),
    validation_config=ValidationConfig(validate),
)
"""


def scripted(tmp_path: Path, more: str, trains: bool) -> tuple[list[str], str]:
    """What the script prints, and the run's state at its end. No check has ended then."""
    script = SCRIPT.replace("TRAINS", str(trains)) + more
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, timeout=120)
    shown = (tmp_path / "stderr").read_text()
    assert done.returncode == 0 and "Traceback" not in shown and "no validation metrics" not in shown, shown
    assert len(list((tmp_path / "run").glob("checkpoint_*"))) == 3, "what is not checked stays"
    return done.stdout.split(), json.loads((tmp_path / "run" / "run.json").read_text())["state"]


def test_ctrl_c_ends_the_wait_for_checks(tmp_path: Path) -> None:
    more = """
def interrupt():
    wait_for_the_end()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    trainer.fit()
except TrainingInterrupted as error:
    print(error.result.state, error.signal == signal.SIGINT)
"""
    assert scripted(tmp_path, more, trains=False) == (["interrupted", "True"], "interrupted")


def test_stop_ends_the_wait_for_checks(tmp_path: Path) -> None:
    more = """
handle = trainer.start()
wait_for_the_end()
handle.stop()
print(handle.wait(60).state)
"""
    assert scripted(tmp_path, more, trains=False) == (["finished"], "finished")


def test_the_end_of_the_program_does_not_wait(tmp_path: Path) -> None:
    more = """
handle = trainer.start()
for metrics in handle:
    if metrics["x"] == 2:
        break
wait_for(lambda: (place / "checks").exists() and (place / "run" / "checkpoint_000002").exists())
"""
    assert scripted(tmp_path, more, trains=True) == ([], "stopped")
