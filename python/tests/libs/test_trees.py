"""XGBoost and LightGBM on the rows of data sets, divided among workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import lockstep.data
import numpy as np
import pandas as pd
import pytest
import xgboost
from lockstep import CheckpointConfig, ConfigError, FailureConfig, RunConfig, ScalingConfig, session
from lockstep.lightgbm import LightGBMCheckpoint, LightGBMTrainer
from lockstep.xgboost import XGBoostCheckpoint, XGBoostTrainer

TRAINERS = [XGBoostTrainer, LightGBMTrainer]
PARAMS: dict[type, dict[str, Any]] = {
    XGBoostTrainer: {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 3, "tree_method": "hist"},
    LightGBMTrainer: {"objective": "binary", "metric": "binary_logloss", "max_depth": 3, "deterministic": True},
}
METRIC = {XGBoostTrainer: "logloss", LightGBMTrainer: "binary_logloss"}


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Few different values, so that every number of workers finds the same places to split."""
    chance = np.random.default_rng(seed)
    frame = pd.DataFrame(chance.integers(0, 16, (rows, 3)), columns=["a", "b", "c"]).astype(np.float64)
    frame["target"] = (frame.a + 2 * frame.b > frame.c + 20).astype(np.int64)
    return frame


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Any]:
    def make(kind: type, workers: int = 2, **options: Any) -> Any:
        run = {"storage_path": tmp_path / "runs", "verbose": 0, **options.pop("run", {})}
        return kind(
            **{
                "params": PARAMS[kind],
                "label_column": "target",
                "num_boost_round": 5,
                "datasets": {"train": lockstep.data.from_pandas(table(1000)).repartition(4)},
                "scaling_config": ScalingConfig(num_workers=workers),
                "run_config": RunConfig(**run),
                **options,
            }
        )

    return make


def predicted(kind: type, booster: Any, frame: pd.DataFrame) -> Any:
    features = frame.drop(columns=["target"])
    return booster.predict(xgboost.DMatrix(features) if kind is XGBoostTrainer else features)


def alone(kind: type, frame: pd.DataFrame) -> Any:
    features, label = frame.drop(columns=["target"]), frame["target"]
    if kind is XGBoostTrainer:
        return xgboost.train(PARAMS[kind], xgboost.DMatrix(features, label=label), 5)
    return lightgbm.train({**PARAMS[kind], "verbosity": -1}, lightgbm.Dataset(features, label=label), 5)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", TRAINERS)
def test_the_model_is_that_of_one_process(kind: type, workers: int, trainer: Callable[..., Any]) -> None:
    valid = table(200, seed=1)
    result = trainer(
        kind,
        workers,
        datasets={
            "train": lockstep.data.from_pandas(table(1000)).repartition(6),
            "valid": lockstep.data.from_pandas(valid).repartition(3),
        },
    ).fit()
    assert result.metrics["training_iteration"] == 5, "one report a round"
    expected = predicted(kind, alone(kind, table(1000)), valid)
    np.testing.assert_allclose(
        predicted(kind, kind.get_model(result.checkpoint), valid), expected, rtol=1e-3, atol=1e-4
    )
    right = np.clip(expected, 1e-15, 1 - 1e-15)
    loss = -np.mean(np.where(valid.target == 1, np.log(right), np.log(1 - right)))
    assert result.metrics[f"valid-{METRIC[kind]}"] == pytest.approx(loss, rel=2e-2)
    assert 0 < result.metrics[f"train-{METRIC[kind]}"] < 0.6


@pytest.mark.parametrize("kind", TRAINERS)
def test_checkpoints_come_as_often_as_asked(kind: type, trainer: Callable[..., Any]) -> None:
    result = trainer(kind, run={"checkpoint_config": CheckpointConfig(checkpoint_frequency=2)}).fit()
    assert [metrics["training_iteration"] for _, metrics in result.best_checkpoints] == [2, 4, 5]
    assert isinstance(result.checkpoint, XGBoostCheckpoint if kind is XGBoostTrainer else LightGBMCheckpoint)
    never = trainer(kind, run={"checkpoint_config": CheckpointConfig(checkpoint_at_end=False)}).fit()
    assert never.checkpoint is None


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_killed_worker_loses_no_round_that_was_saved(kind: type, trainer: Callable[..., Any], tmp_path: Path) -> None:
    class Kills:
        """A callback of both libraries."""

        order = 30

        def __call__(self, env: Any) -> None:
            self.at(env.iteration)

        def at(self, iteration: int) -> None:
            if iteration == 3 and session.get_world_rank() == 1 and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    class ForXGBoost(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            Kills().at(epoch)
            return False

    callback = ForXGBoost() if kind is XGBoostTrainer else Kills()
    result = trainer(
        kind,
        callbacks=[callback],
        run={
            "checkpoint_config": CheckpointConfig(checkpoint_frequency=1),
            "failure_config": FailureConfig(max_failures=2),
        },
    ).fit()
    assert result.failures
    assert (tmp_path / "killed").exists()
    frame = table(200, seed=1)
    np.testing.assert_allclose(
        predicted(kind, kind.get_model(result.checkpoint), frame),
        predicted(kind, alone(kind, table(1000)), frame),
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_model_goes_into_a_checkpoint_and_back(kind: type) -> None:
    booster = alone(kind, table(100))
    checkpoint = (XGBoostCheckpoint if kind is XGBoostTrainer else LightGBMCheckpoint).from_model(booster)
    frame = table(20, seed=2)
    assert predicted(kind, checkpoint.get_model(), frame).tolist() == predicted(kind, booster, frame).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datasets": {}}, 'it must be a dict with the data set "train"'),
        ({"num_boost_round": 0}, "num_boost_round is 0; it must be an int of at least 1"),
        ({"label_column": None}, "it must be the name of a column"),
        ({"params": 3}, "it must be a dict of (XGBoost|LightGBM)'s parameters"),
    ],
)
@pytest.mark.parametrize("kind", TRAINERS)
def test_wrong_arguments_are_refused(
    kind: type, options: dict[str, Any], message: str, trainer: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(kind, **options)


def test_a_missing_label_is_named(trainer: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="label_column is 'y', but the data set has the columns a, b, c, target"):
        trainer(XGBoostTrainer, label_column="y").fit()
