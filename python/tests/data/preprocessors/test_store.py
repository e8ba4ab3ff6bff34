"""Preprocessors as bytes."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
from lockstep.data.preprocessor import Preprocessor
from lockstep.data.preprocessors import (
    BatchMapper,
    Categorizer,
    Chain,
    Concatenator,
    CountVectorizer,
    CustomKBinsDiscretizer,
    FeatureHasher,
    HashingVectorizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    MultiHotEncoder,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
    Tokenizer,
    UniformKBinsDiscretizer,
    _store,
)
from lockstep.errors import SerializationError, StorageError

TABLE = pyarrow.table(
    {
        "x": [1.5, None, 7.25],
        "n": [1, 5, 3],
        "c": ["b", "a", "$b"],
        "l": [["p", "q"], [], ["q"]],
        "t": ["a b", "b", "c b"],
    }
)

BUILT_IN = [
    StandardScaler(["x"]),
    MinMaxScaler(["n"]),
    MaxAbsScaler(["x"]),
    RobustScaler(["x"], (0.1, 0.9)),
    Normalizer(["x", "n"], "l1"),
    OneHotEncoder(["c"], max_categories={"c": 2}),
    OrdinalEncoder(["n", "c"]),
    OrdinalEncoder(["l"], encode_lists=False),
    LabelEncoder("c"),
    MultiHotEncoder(["l"]),
    Categorizer(["c"], {"c": pandas.CategoricalDtype(["a", "b"], ordered=True)}),
    Categorizer(["c", "n"]),
    SimpleImputer(["x"]),
    SimpleImputer(["c"], "constant", "none"),
    Concatenator(include=["n"], dtype=numpy.float32),
    Tokenizer(["t"]),
    FeatureHasher(["x", "n"], 4),
    HashingVectorizer(["t"], 4),
    CountVectorizer(["t"], max_features=2),
    PowerTransformer(["x"], 0.5),
    CustomKBinsDiscretizer(["n"], [0, 2, float("inf")], dtypes={"n": numpy.dtype("int8")}),
    UniformKBinsDiscretizer(["n"], {"n": 2}),
    Chain(SimpleImputer(["x"]), Chain(StandardScaler(["n"]))),
]


class Own(Preprocessor):
    _is_fittable = False

    def _transform_numpy(self, np_data: dict[str, Any]) -> dict[str, Any]:
        return {"n": np_data["n"] * 10}


class OwnScaler(StandardScaler):
    """Of a built-in class, but not one itself."""


@pytest.mark.parametrize("preprocessor", BUILT_IN, ids=repr)
def test_built_in_ones_are_stored_without_pickle(preprocessor: Preprocessor, monkeypatch: pytest.MonkeyPatch) -> None:
    unfitted = _store.load(_store.dump(preprocessor))
    assert repr(unfitted) == repr(preprocessor) and unfitted.fit_status() is preprocessor.fit_status()
    if preprocessor.fit_status() is not Preprocessor.FitStatus.FITTED:
        preprocessor.fit(lockstep.data.from_arrow(TABLE))
    data = _store.dump(preprocessor)
    assert not _store.is_pickled(data)
    monkeypatch.setattr(pickle, "loads", None)
    loaded = _store.load(data)
    assert type(loaded) is type(preprocessor) and repr(loaded) == repr(preprocessor)
    assert loaded.fit_status() is preprocessor.fit_status()
    assert vars(loaded).get("stats_") == vars(preprocessor).get("stats_")
    assert loaded.transform_batch(TABLE).equals(preprocessor.transform_batch(TABLE))


@pytest.mark.parametrize("preprocessor", BUILT_IN, ids=repr)
def test_all_can_be_pickled(preprocessor: Preprocessor) -> None:
    if preprocessor.fit_status() is Preprocessor.FitStatus.NOT_FITTED:
        preprocessor.fit(lockstep.data.from_arrow(TABLE))
    loaded = pickle.loads(pickle.dumps(preprocessor))
    assert loaded.transform_batch(TABLE).equals(preprocessor.transform_batch(TABLE))


@pytest.mark.parametrize("preprocessor", BUILT_IN, ids=repr)
def test_types_of_columns_do_not_depend_on_the_rows(preprocessor: Preprocessor) -> None:
    """Else the blocks of a data set would differ."""
    if preprocessor.fit_status() is Preprocessor.FitStatus.NOT_FITTED:
        preprocessor.fit(lockstep.data.from_arrow(TABLE))
    schema = preprocessor.transform_batch(TABLE).schema
    for part in (TABLE.slice(0, 0), TABLE.slice(0, 1), TABLE.slice(1, 1)):
        result = preprocessor.transform_batch(part)
        assert result.schema.equals(schema) and result.num_rows == part.num_rows


@pytest.mark.parametrize(
    "values",
    [
        [1, 2**70],
        [True, False],
        [0.1, float("inf"), -0.0],
        [b"\xff", b""],
        [decimal.Decimal("1.10")],
        [datetime.date(2020, 1, 2)],
        [datetime.datetime(2020, 1, 2, 3, 4, 5, 6), datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)],
        [datetime.time(1, 2)],
        [("a", (1, None))],
        [numpy.float32(0.5), numpy.int64(3)],
        ["ä", "\u2028", "$tuple"],
        [pandas.Timestamp("2020-01-01 00:00:00.000000001")],
    ],
    ids=str,
)
def test_statistics_of_all_types(values: list[Any]) -> None:
    encoder = OrdinalEncoder(["c"])
    encoder.stats_ = {"unique_values(c)": {value: number for number, value in enumerate(values)}}
    data = _store.dump(encoder)
    assert not _store.is_pickled(data)
    loaded = list(_store.load(data).stats_["unique_values(c)"].items())  # type: ignore[attr-defined]
    assert loaded == list(zip(values, range(len(values)), strict=True))
    plain = [value.item() if isinstance(value, numpy.generic) else value for value in values]
    assert [type(value) for value, _ in loaded] == [type(value) for value in plain]


def test_what_is_written() -> None:
    scaler = MinMaxScaler(["x"]).fit(lockstep.data.from_items([{"x": 0}, {"x": 30}]))
    assert json.loads(_store.dump(scaler)) == {
        "format": "lockstep.preprocessor",
        "version": 1,
        "class": "MinMaxScaler",
        "arguments": {"columns": ["x"]},
        "statistics": {"min(x)": 0.0, "max(x)": 30.0},
    }


@pytest.mark.parametrize(
    "preprocessor",
    [
        Own(),
        OwnScaler(["n"]),
        BatchMapper(lambda batch: batch, "numpy"),
        Tokenizer(["t"], str.split),
    ],
    ids=lambda each: type(each).__name__,
)
def test_own_code_is_pickled_and_marked(preprocessor: Preprocessor) -> None:
    ds = lockstep.data.from_arrow(TABLE)
    chain = Chain(SimpleImputer(["x"]).fit(ds), preprocessor.fit(ds))
    for each in (preprocessor, chain):
        data = _store.dump(each)
        assert _store.is_pickled(data)
        loaded = _store.load(data)
        assert type(loaded).__name__ == type(each).__name__
        assert loaded.transform_batch(TABLE).equals(each.transform_batch(TABLE))
    assert json.loads(_store.dump(chain))["preprocessors"][0]["class"] == "SimpleImputer"


def test_refuses() -> None:
    own = Own()
    own.lock = (each for each in "ab")  # type: ignore[attr-defined]
    with pytest.raises(SerializationError, match=r"a Own cannot be stored: .*generator"):
        _store.dump(own)
    for data in (b"", b"[]", b"{}", b"\x80\x04N.", b'{"format": "lockstep.preprocessor", "version": 2}'):
        with pytest.raises(StorageError, match=r"\[preprocessor\]"):
            _store.load(data)
    document = json.loads(_store.dump(MinMaxScaler(["x"])))
    for change in ({"class": "Preprocessor"}, {"class": "_Scaler"}, {"class": "os.system"}, {"arguments": {"$x": 1}}):
        with pytest.raises(StorageError):
            _store.load(json.dumps(document | change).encode())
