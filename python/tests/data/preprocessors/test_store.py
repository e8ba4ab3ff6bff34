"""Preprocessors as bytes."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
from lockstep import Checkpoint, _preprocessors
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
    CustomKBinsDiscretizer(["n"], {"n": range(0, 9, 3)}),
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
    unfitted = _preprocessors.load(_preprocessors.dump(preprocessor))
    assert repr(unfitted) == repr(preprocessor) and unfitted.fit_status() is preprocessor.fit_status()
    if preprocessor.fit_status() is not Preprocessor.FitStatus.FITTED:
        preprocessor.fit(lockstep.data.from_arrow(TABLE))
    data = _preprocessors.dump(preprocessor)
    assert not _preprocessors.is_pickled(data)
    monkeypatch.setattr(pickle, "loads", None)
    loaded = _preprocessors.load(data)
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
        [datetime.timedelta(-3, 4, 5), pandas.Timedelta(7, "ns")],
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
    data = _preprocessors.dump(encoder)
    assert not _preprocessors.is_pickled(data)
    loaded = list(_preprocessors.load(data).stats_["unique_values(c)"].items())  # type: ignore[attr-defined]
    assert loaded == list(zip(values, range(len(values)), strict=True))
    plain = [value.item() if isinstance(value, numpy.generic) else value for value in values]
    assert [type(value) for value, _ in loaded] == [type(value) for value in plain]


def test_what_is_written() -> None:
    scaler = MinMaxScaler(["x"]).fit(lockstep.data.from_items([{"x": 0}, {"x": 30}]))
    assert json.loads(_preprocessors.dump(scaler)) == {
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
        data = _preprocessors.dump(each)
        assert _preprocessors.is_pickled(data)
        loaded = _preprocessors.load(data)
        assert type(loaded).__name__ == type(each).__name__
        assert loaded.transform_batch(TABLE).equals(each.transform_batch(TABLE))
    assert json.loads(_preprocessors.dump(chain))["preprocessors"][0]["class"] == "SimpleImputer"


def test_only_the_function_is_pickled() -> None:
    mapper = json.loads(_preprocessors.dump(BatchMapper(len, "numpy", 4)))
    assert mapper["class"] == "BatchMapper" and "pickle" not in mapper
    assert mapper["arguments"] | {"fn": ...} == {"fn": ..., "batch_format": "numpy", "batch_size": 4}
    own = json.loads(_preprocessors.dump(Own()))
    assert own["class"] == f"{__name__}.Own" and own.keys() == {"format", "version", "class", "pickle"}


class Hostile:
    def __reduce__(self) -> Any:
        return pytest.fail, ("it was unpickled",)


def test_pickles_in_the_place_of_data_are_not_opened() -> None:
    raw = pickle.dumps(Hostile())
    text = _preprocessors.pickled(Hostile(), "it")
    with pytest.raises(pytest.fail.Exception, match="it was unpickled"):
        _preprocessors.unpickled(text)
    document = json.loads(_preprocessors.dump(MinMaxScaler(["x"])))
    function = {"$pickle": text}
    for change in (
        {"pickle": text},
        {"arguments": {"columns": function}},
        {"arguments": function},
        {"arguments": {"columns": [function]}},
        {"statistics": function},
        {"class": "Chain", "preprocessors": [document | {"pickle": text}]},
        {"class": "Tokenizer", "arguments": {"columns": function}},
    ):
        broken = json.dumps(document | change)
        with pytest.raises(StorageError):
            _preprocessors.load(broken)
        with pytest.raises(StorageError):
            _preprocessors.load_plain(broken)
    with pytest.raises(StorageError):
        _preprocessors.load(raw)
    with pytest.raises(StorageError, match="a pickle where the data of a preprocessor of Lockstep should be"):
        _preprocessors.load_plain(json.dumps(document | {"class": "a.B", "pickle": text}))


@pytest.mark.parametrize("preprocessor", BUILT_IN, ids=repr)
def test_dict_checkpoints_hold_them_without_pickle(
    preprocessor: Preprocessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Checkpoint.from_dict({"epoch": 1, "_preprocessor": preprocessor, "all": [preprocessor]}).to_directory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data.json"]
    monkeypatch.setattr(pickle, "loads", None)
    checkpoint = Checkpoint.from_directory(tmp_path)
    for loaded in (checkpoint.get_preprocessor(), checkpoint.to_dict()["all"][0]):
        assert type(loaded) is type(preprocessor) and repr(loaded) == repr(preprocessor)
        assert vars(loaded).get("stats_") == vars(preprocessor).get("stats_")


def test_refuses() -> None:
    own = Own()
    own.lock = (each for each in "ab")  # type: ignore[attr-defined]
    with pytest.raises(SerializationError, match=r"the preprocessor.*lock.*, a generator, cannot be sent"):
        _preprocessors.dump(own)
    with pytest.raises(SerializationError, match=r"fill_value of SimpleImputer cannot be stored: it holds a object"):
        _preprocessors.dump(SimpleImputer(["x"], "constant", object()))
    for data in (b"", b"[]", b"{}", b"\x80\x04N.", b'{"format": "lockstep.preprocessor", "version": 2}'):
        with pytest.raises(StorageError, match=r"\[preprocessor\]"):
            _preprocessors.load(data)
    document = json.loads(_preprocessors.dump(MinMaxScaler(["x"])))
    for change in ({"class": "Preprocessor"}, {"class": "_Scaler"}, {"class": "os.system"}, {"arguments": {"$x": 1}}):
        with pytest.raises(StorageError):
            _preprocessors.load(json.dumps(document | change).encode())
