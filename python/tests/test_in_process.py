"""ScalingConfig(num_workers=0): the training function runs in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Callback, Checkpoint, CheckpointConfig, ConfigError, Result, session

Fit = Callable[..., Result]


def test_the_function_runs_here(fit: Fit) -> None:
    seen: list[int] = []

    def function(config: dict[str, Any]) -> str:
        assert (session.get_world_rank(), session.get_world_size(), session.get_experiment_name()) == (0, 1, "here")
        for epoch in range(config["epochs"]):
            seen.append(os.getpid())
            session.report({"epoch": epoch, "loss": 1 / (epoch + 1)})
        return "done"

    result = fit(function, 0, {"epochs": 3}, name="here")
    assert seen == [os.getpid()] * 3
    assert (result.metrics["epoch"], result.metrics["training_iteration"], result.state) == (2, 3, "finished")
    assert result.return_value == "done"
    assert list(result.metrics_dataframe["epoch"]) == [0, 1, 2]
    assert session._session is None


def test_checkpoints(fit: Fit) -> None:
    def function() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, start + 4):
            session.report({"score": [3, 9, 5, 1][epoch % 4]}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    keeps = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    result = fit(function, 0, checkpoint_config=keeps)
    assert result.checkpoint is not None and result.checkpoint.to_dict()["epoch"] == 3
    assert result.best_checkpoint is not None and result.best_checkpoint.to_dict()["epoch"] == 1
    assert sorted(path.name for path in result.path.glob("checkpoint_*")) == ["checkpoint_000001", "checkpoint_000003"]
    again = fit(function, 0, resume_from_checkpoint=result.checkpoint)
    assert again.checkpoint is not None and again.checkpoint.to_dict()["epoch"] == 7


def test_errors_are_raised_as_they_are(fit: Fit) -> None:
    class Own(Exception):
        pass

    def function() -> None:
        raise Own("as it is")

    with pytest.raises(Own, match="as it is") as caught:
        fit(function, 0)
    assert type(caught.value) is Own
    assert session._session is None


def test_data_sets_callbacks_and_stop(fit: Fit) -> None:
    data = pytest.importorskip("lockstep.data")
    heard: list[Any] = []

    class Hear(Callback):
        def on_start(self, run: Any) -> None:
            heard.append(run.world_size)

        def on_result(self, metrics: dict[str, Any]) -> None:
            heard.append(metrics["rows"])

        def on_end(self, result: Result) -> None:
            heard.append(result.state)

    def function() -> None:
        while True:
            session.report({"rows": sum(1 for _ in session.get_dataset_shard("train").iter_rows())})

    fit(function, 0, datasets={"train": data.range(7)}, callbacks=[Hear()], stop={"training_iteration": 2})
    assert heard == [1, 7, 7, "finished"]


def test_what_needs_workers(make_trainer: Any, tmp_path: Path) -> None:
    trainer = make_trainer(lambda: None, 0, name="taken")
    with pytest.raises(ConfigError, match="call fit"):
        trainer.start()
    trainer.fit()
    with pytest.raises(ConfigError, match="there is a run 'taken'"):
        trainer.fit()
