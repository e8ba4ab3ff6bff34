"""Scalers against scikit-learn and numpy."""

from __future__ import annotations

from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
import sklearn.preprocessing
from lockstep import ConfigError
from lockstep.data.preprocessors import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

COLUMNS = ["a", "b", "n"]


@pytest.mark.parametrize(
    ("scaler", "oracle"),
    [
        (StandardScaler(COLUMNS), sklearn.preprocessing.StandardScaler()),
        (MinMaxScaler(COLUMNS), sklearn.preprocessing.MinMaxScaler()),
        (MaxAbsScaler(COLUMNS), sklearn.preprocessing.MaxAbsScaler()),
        (RobustScaler(COLUMNS), sklearn.preprocessing.RobustScaler()),
        (RobustScaler(COLUMNS, (0.1, 0.8)), sklearn.preprocessing.RobustScaler(quantile_range=(10, 80))),
    ],
    ids=repr,
)
def test_scalers_do_what_those_of_scikit_learn_do(scaler: Any, oracle: Any, frame: pandas.DataFrame) -> None:
    expected = oracle.fit_transform(frame[COLUMNS].to_numpy(float))
    scaler.fit(lockstep.data.from_pandas(frame))
    result = scaler.transform_batch(frame)
    assert list(result.columns) == list(frame.columns)
    assert numpy.isnan(expected).sum() > 10_000
    numpy.testing.assert_allclose(result[COLUMNS].to_numpy(), expected, rtol=1e-7, atol=1e-7)
    pandas.testing.assert_series_equal(result["kind"], frame["kind"])


def test_moments_do_not_lose_digits() -> None:
    """The sum of squares would: 1e9 squared has no digits left for a variance of 4."""
    random = numpy.random.default_rng(0)
    values = random.normal(1e9, 2.0, 300_000)
    scaler = StandardScaler(["x"]).fit(lockstep.data.from_numpy({"x": values}))
    assert scaler.stats_ == {"mean(x)": pytest.approx(values.mean(), rel=1e-15), "std(x)": pytest.approx(values.std())}
    blocks = numpy.concatenate([numpy.full(65_536, -1e6), random.normal(0, 1, 65_536), numpy.full(10, 7e8)])
    scaler = StandardScaler(["x"]).fit(lockstep.data.from_numpy({"x": blocks}))
    assert scaler.stats_["mean(x)"] == pytest.approx(blocks.mean())
    assert scaler.stats_["std(x)"] == pytest.approx(blocks.std())


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3e11])
def test_a_constant_column_becomes_zeros(value: float) -> None:
    """Also if the mean of equal numbers is not exactly this number."""
    ds = lockstep.data.from_numpy({"x": numpy.full(100_003, value)})
    for scaler in (StandardScaler(["x"]), MinMaxScaler(["x"]), RobustScaler(["x"])):
        scaler.fit(ds)
        assert scaler.transform_batch({"x": numpy.array([value, value + 1])})["x"].tolist() == [0.0, 1.0], scaler
    scaled = MaxAbsScaler(["x"]).fit(ds).transform_batch({"x": numpy.array([value])})
    assert scaled["x"].tolist() == [numpy.sign(value)]


def test_statistics_have_the_names_that_scripts_read() -> None:
    ds = lockstep.data.from_items([{"x": 1, "y": -8}, {"x": 3, "y": 4}, {"x": None, "y": None}])
    assert StandardScaler(["x"]).fit(ds).stats_ == {"mean(x)": 2.0, "std(x)": 1.0}
    assert MinMaxScaler(["x", "y"]).fit(ds).stats_ == {"min(x)": 1, "max(x)": 3, "min(y)": -8, "max(y)": 4}
    assert MaxAbsScaler(["y"]).fit(ds).stats_ == {"abs_max(y)": 8}
    expected = {"low_quantile(x)": 1.5, "median(x)": 2.0, "high_quantile(x)": 2.5}
    assert RobustScaler(["x"]).fit(ds).stats_ == expected


def test_columns_without_values() -> None:
    ds = lockstep.data.from_arrow(pyarrow.table({"x": pyarrow.nulls(3, pyarrow.float64())}))
    for scaler in (StandardScaler(["x"]), MinMaxScaler(["x"]), MaxAbsScaler(["x"]), RobustScaler(["x"])):
        scaled = scaler.fit(ds).transform_batch({"x": numpy.array([1.0])})
        assert numpy.isnan(scaled["x"]).tolist() == [True]


def test_nan_is_missing_whatever_the_source() -> None:
    values = numpy.array([1.0, numpy.nan, 3.0])
    for ds in (lockstep.data.from_numpy({"x": values}), lockstep.data.from_pandas(pandas.DataFrame({"x": values}))):
        assert StandardScaler(["x"]).fit(ds).stats_ == {"mean(x)": 2.0, "std(x)": 1.0}


def test_types_of_results() -> None:
    scaler = StandardScaler(["x"]).fit(lockstep.data.from_items([{"x": 1}, {"x": 3}]))
    kinds = {
        pyarrow.int8(): pyarrow.float64(),
        pyarrow.float32(): pyarrow.float32(),
        pyarrow.bool_(): pyarrow.float64(),
    }
    for given, expected in kinds.items():
        table = scaler.transform_batch(pyarrow.table({"x": pyarrow.array([1, None], pyarrow.int8()).cast(given)}))
        assert table.schema.field("x").type == expected
        assert table.column("x").to_pylist() == [-1.0, None]
    with pytest.raises(ConfigError, match=r"\[StandardScaler\] the column 'x' is string; it must be numbers"):
        scaler.transform_batch(pyarrow.table({"x": ["1.5"]}))
    with pytest.raises(ConfigError, match=r"\[MinMaxScaler\] the column 'x' is string"):
        MinMaxScaler(["x"]).fit(lockstep.data.from_items([{"x": "1.5"}]))


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="columns is 'x'; it must be a list of names"):
        StandardScaler("x")
    with pytest.raises(ConfigError, match="quantile_range"):
        RobustScaler(["x"], (25, 75))
    with pytest.raises(ValueError, match="norm is 'l3'; it must be one of l1, l2, max"):
        Normalizer(["x"], "l3")
    with pytest.raises(ValueError, match="method is 'log'"):
        PowerTransformer(["x"], 1, "log")


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_normalizer(norm: str) -> None:
    rows = numpy.random.default_rng(1).normal(size=(500, 3))
    rows[7] = 0
    expected = sklearn.preprocessing.normalize(rows, norm)
    batch = {name: rows[:, number] for number, name in enumerate("xyz")}
    result = Normalizer(["x", "y", "z"], norm).transform_batch(batch)
    numpy.testing.assert_allclose(numpy.stack([result[name] for name in "xyz"], axis=1), expected)
    one_missing = pyarrow.table({"x": [3.0, None], "y": [4, 5]})
    assert Normalizer(["x", "y"]).transform_batch(one_missing).to_pylist() == [
        {"x": 0.6, "y": 0.8},
        {"x": None, "y": None},
    ]


@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
@pytest.mark.parametrize("power", [-1.0, 0, 0.5, 1, 2, 3.5])
def test_power_transformer(method: str, power: float) -> None:
    import scipy.special
    import scipy.stats

    values = numpy.random.default_rng(2).normal(size=1000)
    expected = scipy.stats.yeojohnson(values, power)
    if method == "box-cox":
        values = numpy.abs(values) + 0.1
        expected = scipy.special.boxcox(values, power)
    result = PowerTransformer(["x"], power, method).transform_batch({"x": values})
    numpy.testing.assert_allclose(result["x"], expected, rtol=1e-9, atol=1e-12)
