"""Predictors of single batches and of whole data sets."""

from __future__ import annotations

import os
from typing import Any

import lightgbm
import lockstep.data
import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
import xgboost
from lockstep import Checkpoint, ConfigError
from lockstep.data.preprocessors import BatchMapper, StandardScaler
from lockstep.lightgbm import LightGBMCheckpoint, LightGBMPredictor
from lockstep.predict import BatchPredictor, Predictor
from lockstep.torch import TorchCheckpoint, TorchPredictor
from lockstep.xgboost import XGBoostCheckpoint, XGBoostPredictor


def line() -> torch.nn.Linear:
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.fill_(1.0)
    return model


FRAME = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0)[::-1].copy()})


def test_kinds_of_batches_come_back() -> None:
    predictor = TorchPredictor(line())
    x = np.array([[1.0], [2.0]], dtype=np.float32)
    assert predictor.predict(x)["predictions"].tolist() == [[3.0], [5.0]]
    assert predictor.predict({"x": x})["predictions"].tolist() == [[3.0], [5.0]]
    frame = TorchPredictor(torch.nn.Flatten(0)).predict(pd.DataFrame({"x": [1.0, 2.0]}), dtype=torch.float32)
    assert isinstance(frame, pd.DataFrame)
    assert frame["predictions"].tolist() == [1.0, 2.0]
    table = TorchPredictor(torch.nn.Flatten(0)).predict(pyarrow.table({"x": [1.0]}))
    assert isinstance(table, pyarrow.Table)
    assert table.to_pylist() == [{"predictions": 1.0}]


def test_several_columns_are_a_dict_of_tensors() -> None:
    class Sum(torch.nn.Module):
        def forward(self, columns: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {
                "sum": columns["a"] + columns["b"],
                "dtype": torch.tensor([columns["a"].dtype == torch.float64] * 20),
            }

    predicted = TorchPredictor(Sum()).predict(FRAME, dtype={"a": torch.float64, "b": torch.float32})
    assert predicted["sum"].tolist() == [19.0] * 20
    assert predicted["dtype"].all()


def test_the_checkpoints_preprocessor_comes_first() -> None:
    doubled = BatchMapper(lambda batch: {"x": batch["x"] * 2}, batch_format="numpy")
    checkpoint = TorchCheckpoint.from_state_dict(line().state_dict(), preprocessor=doubled)
    predictor = TorchPredictor.from_checkpoint(checkpoint, line())
    x = np.array([[1.0]], dtype=np.float32)
    assert predictor.predict({"x": x})["predictions"].tolist() == [[5.0]]
    predictor.set_preprocessor(None)
    assert predictor.predict({"x": x})["predictions"].tolist() == [[3.0]]


def test_a_data_set_is_predicted_in_other_processes() -> None:
    class Where(TorchPredictor):
        def call_model(self, inputs: Any) -> Any:
            return {"y": self.model(inputs), "pid": torch.full((len(inputs),), os.getpid())}

    ds = lockstep.data.from_numpy({"x": np.arange(100, dtype=np.float32).reshape(-1, 1), "id": np.arange(100)})
    checkpoint = TorchCheckpoint.from_state_dict(line().state_dict())
    predicted = BatchPredictor.from_checkpoint(checkpoint, Where, model=line()).predict(
        ds, feature_columns=["x"], keep_columns=["id"], batch_size=32, min_scoring_workers=2
    )
    rows = predicted.take_all()
    assert [row["id"] for row in rows] == list(range(100))
    assert [float(np.ravel(row["y"])[0]) for row in rows] == [2.0 * i + 1 for i in range(100)]
    assert os.getpid() not in {row["pid"] for row in rows}


@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_trees_predict_as_their_booster_does(kind: str) -> None:
    label = (FRAME.a > 10).astype(int)
    scaler = StandardScaler(["a", "b"]).fit(lockstep.data.from_pandas(FRAME))
    scaled = scaler.transform_batch(FRAME)
    if kind == "xgboost":
        booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(scaled, label=label), 3)
        expected = booster.predict(xgboost.DMatrix(scaled))
        checkpoint: Checkpoint = XGBoostCheckpoint.from_model(booster, preprocessor=scaler)
        predictor: type[Predictor] = XGBoostPredictor
    else:
        options = {"objective": "binary", "verbosity": -1, "min_data_in_leaf": 2}
        booster = lightgbm.train(options, lightgbm.Dataset(scaled, label=label), 3)
        expected = booster.predict(scaled)
        checkpoint = LightGBMCheckpoint.from_model(booster, preprocessor=scaler)
        predictor = LightGBMPredictor
    batch = predictor.from_checkpoint(checkpoint).predict(FRAME)
    assert batch["predictions"].tolist() == expected.tolist()
    whole = BatchPredictor(checkpoint, predictor).predict(lockstep.data.from_pandas(FRAME), keep_columns=["a"])
    frame = whole.to_pandas()
    assert frame["predictions"].tolist() == expected.tolist()
    assert frame["a"].tolist() == FRAME["a"].tolist()


def test_a_function_of_a_frame_is_a_predictor() -> None:
    predictor = BatchPredictor.from_pandas_udf(lambda frame: pd.DataFrame({"n": frame["a"] + frame["b"]}))
    assert predictor.predict(lockstep.data.from_pandas(FRAME)).to_pandas()["n"].tolist() == [19.0] * 20
    assert Predictor.from_pandas_udf(lambda frame: frame * 2).predict({"a": np.ones(2)})["a"].tolist() == [2.0, 2.0]


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="model is a int; it must be a"):
        TorchPredictor(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a batch is a list"):
        TorchPredictor(line()).predict([1, 2])
    with pytest.raises(ConfigError, match="predictor_cls is <class 'int'>; it must be a class of Predictor"):
        BatchPredictor(Checkpoint.from_dict({}), int)  # type: ignore[arg-type]
    predicted = BatchPredictor.from_pandas_udf(lambda frame: frame).predict(
        lockstep.data.from_pandas(FRAME), keep_columns=["c"]
    )
    with pytest.raises(Exception, match="the data set has no column 'c', only a, b"):
        predicted.take_all()
