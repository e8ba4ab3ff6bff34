"""RunConfig(resume=...): scripts that are started again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lockstep import Checkpoint, ConfigError, DataParallelTrainer, RunConfig, TrainingFailedError, session


def train_func(config: dict[str, Any]) -> None:
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    for epoch in range(start, config["epochs"]):
        session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
        if epoch == config.get("fails_at"):
            session.barrier()  # rank 0 has reported, too
            raise RuntimeError("once")


@pytest.fixture
def script(make_trainer: Any) -> Any:
    """What a script does each time that it is started."""

    def start(config: dict[str, Any], **options: Any) -> Any:
        return make_trainer(train_func, config=config, **{"name": "again", "resume": "auto", **options}).fit()

    return start


def test_a_script_that_is_started_again_continues_its_run(script: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TrainingFailedError) as failed:
        script({"epochs": 4, "fails_at": 1})
    assert "continues" not in capfd.readouterr().err
    result = script({"epochs": 4}, verbose=1)
    assert result.path == failed.value.result.path
    assert (result.metrics["epoch"], result.metrics["start"]) == (3, 2)
    assert result.metrics["training_iteration"] == 4
    assert "the run had failed; it continues from checkpoint_000001" in capfd.readouterr().err


def test_a_finished_run_gives_its_result_until_the_configuration_changes(script: Any) -> None:
    first = script({"epochs": 2})
    again = script({"epochs": 2})
    assert again.metrics == first.metrics
    assert script({"epochs": 3}).metrics["start"] == 2


def test_one_trainer_can_be_run_again(make_trainer: Any) -> None:
    trainer = make_trainer(train_func, config={"epochs": 2}, name="twice", resume="auto")
    assert trainer.fit().metrics == trainer.fit().metrics


def test_a_run_without_a_checkpoint_begins_again(make_trainer: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def fails_once() -> None:
        if not (Path(os.environ["LOCKSTEP_TEST_PLACE"]) / "failed").exists():
            (Path(os.environ["LOCKSTEP_TEST_PLACE"]) / "failed").touch()
            raise RuntimeError("once")
        session.report({"done": True})

    def start() -> Any:
        return make_trainer(fails_once, workers=1, name="fresh", resume="auto", verbose=1).fit()

    with pytest.raises(TrainingFailedError):
        start()
    assert start().metrics["done"]
    assert "it has no checkpoint, so it begins again" in capfd.readouterr().err


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_TEST_PLACE", str(tmp_path))
    return tmp_path


def test_a_path_means_that_run(script: Any, make_trainer: Any) -> None:
    first = script({"epochs": 2})
    result = make_trainer(train_func, config={"epochs": 3}, resume=first.path).fit()
    assert (result.path, result.metrics["start"]) == (first.path, 2)
    with pytest.raises(ConfigError, match="there is no run; give the path of a run"):
        make_trainer(train_func, config={"epochs": 3}, resume=str(first.path) + "-not").fit()


def test_never_refuses_a_name_that_is_taken(script: Any) -> None:
    script({"epochs": 1})
    with pytest.raises(ConfigError, match="already holds a run"):
        script({"epochs": 1}, resume="never")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": "auto"}, r"\[RunConfig\] resume is 'auto'; it needs a name"),
        ({"resume": "results/x", "name": "y"}, "a path names the run, so leave out name"),
        ({"resume": ""}, "'never', 'auto' or the path of a run"),
        ({"resume": True}, "'never', 'auto' or the path of a run"),
    ],
)
def test_wrong_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(**options)


def test_the_restored_trainer_is_not_asked(script: Any) -> None:
    first = script({"epochs": 1})
    trainer = DataParallelTrainer.restore(first.path, run_config=RunConfig(verbose=0))
    assert trainer.fit().metrics == first.metrics
