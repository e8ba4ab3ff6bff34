"""Encoders against scikit-learn and pandas."""

from __future__ import annotations

import datetime
from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
import sklearn.preprocessing
from lockstep import ConfigError
from lockstep.data.preprocessors import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
    PreprocessorNotFittedException,
)


@pytest.fixture
def whole(frame: pandas.DataFrame) -> pandas.DataFrame:
    return frame.dropna().reset_index(drop=True)


def test_ordinal_encoder_does_what_scikit_learn_does(whole: pandas.DataFrame) -> None:
    expected = sklearn.preprocessing.OrdinalEncoder().fit_transform(whole[["kind", "n"]])
    encoder = OrdinalEncoder(["kind", "n"]).fit(lockstep.data.from_pandas(whole))
    result = encoder.transform_batch(whole)
    assert result["kind"].dtype == numpy.int64
    numpy.testing.assert_array_equal(result[["kind", "n"]].to_numpy(), expected)
    assert encoder.stats_["unique_values(kind)"] == {"blue": 0, "green": 1, "red": 2, "ä ö": 3}


def test_one_hot_encoder_does_what_scikit_learn_does(whole: pandas.DataFrame) -> None:
    expected = sklearn.preprocessing.OneHotEncoder(sparse_output=False).fit_transform(whole[["kind"]])
    result = OneHotEncoder(["kind"]).fit(lockstep.data.from_pandas(whole)).transform_batch(whole)
    names = ["kind_blue", "kind_green", "kind_red", "kind_ä ö"]
    assert list(result.columns) == ["a", "b", "n", *names]
    numpy.testing.assert_array_equal(result[names].to_numpy(), expected)


def test_max_categories_keeps_the_most_frequent() -> None:
    ds = lockstep.data.from_items([{"c": c} for c in ("red", "green", "red", "red", "blue", "green")])
    encoder = OneHotEncoder(["c"], max_categories={"c": 2}).fit(ds)
    result = encoder.transform_batch(pyarrow.table({"c": ["red", "blue", "green", "black"]}))
    assert result.to_pydict() == {"c_green": [0, 0, 1, 0], "c_red": [1, 0, 0, 0]}
    multi = MultiHotEncoder(["c"], max_categories={"c": 1}).fit(ds)
    assert multi.transform_batch(pyarrow.table({"c": ["red", "blue"]})).to_pydict() == {"c": [[1], [0]]}
    with pytest.raises(ConfigError, match=r"max_categories names \['d'\]"):
        OneHotEncoder(["c"], max_categories={"d": 2})


def test_unknown_categories() -> None:
    ds = lockstep.data.from_items([{"c": "a"}, {"c": "b"}])
    batch = pandas.DataFrame({"c": ["b", "z"]})
    for encoder in (OrdinalEncoder(["c"]), LabelEncoder("c")):
        numpy.testing.assert_array_equal(encoder.fit(ds).transform_batch(batch)["c"].to_numpy(), [1.0, numpy.nan])
    table = OrdinalEncoder(["c"]).fit(ds).transform_batch(pyarrow.table({"c": ["b", "z"]}))
    assert table.schema.field("c").type == pyarrow.int64()  # the same type in every batch
    assert table.to_pydict() == {"c": [1, None]}
    assert OneHotEncoder(["c"]).fit(ds).transform_batch(batch).to_numpy().tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("encoder", [OrdinalEncoder(["c"]), OneHotEncoder(["c"]), LabelEncoder("c")], ids=repr)
def test_missing_values_are_refused(encoder: Any) -> None:
    with pytest.raises(ValueError, match="Unable to fit column 'c' because it contains null values"):
        encoder.fit(lockstep.data.from_items([{"c": "a"}, {"c": None}]))
    encoder.fit(lockstep.data.from_items([{"c": "a"}]))
    for batch in (pandas.DataFrame({"c": ["a", None]}), pyarrow.table({"c": ["a", None]})):
        with pytest.raises(ValueError, match="Unable to transform column 'c' because it contains null values"):
            encoder.transform_batch(batch)


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2**40],
        [0.5, -1.5, 2.0],
        [True, False, True],
        [b"\x00b", b"a", b""],
        [datetime.date(2020, 1, 2), datetime.date(1999, 1, 1), datetime.date(2020, 1, 3)],
        [datetime.datetime(2020, 1, 2, 3), datetime.datetime(1999, 1, 1), datetime.datetime(2020, 1, 3)],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_categories_of_other_types(values: list[Any]) -> None:
    table = pyarrow.table({"c": values})
    encoder = OrdinalEncoder(["c"]).fit(lockstep.data.from_arrow(table))
    order = sorted(set(values))
    assert encoder.transform_batch(table).to_pydict() == {"c": [order.index(value) for value in values]}


def test_numbers_of_other_types_are_the_same_categories() -> None:
    encoder = OrdinalEncoder(["c"]).fit(lockstep.data.from_items([{"c": 10}, {"c": 20}]))
    for kind in (numpy.int8, numpy.uint64, numpy.float32):
        assert encoder.transform_batch({"c": numpy.array([20, 10], kind)})["c"].tolist() == [1, 0]
    assert numpy.isnan(encoder.transform_batch({"c": numpy.array([10.5])})["c"]).tolist() == [True]
    with pytest.raises(ConfigError, match="the column 'c' is string, but was fitted to values like 10"):
        encoder.transform_batch(pyarrow.table({"c": ["10"]}))


def test_lists_are_encoded_by_element_or_as_a_whole() -> None:
    rows = [["x", "y"], [], ["z", "x"]]
    ds = lockstep.data.from_items([{"c": row} for row in rows])
    frame = pandas.DataFrame({"c": rows})
    by_element = OrdinalEncoder(["c"]).fit(ds)
    assert by_element.transform_batch(frame)["c"].tolist() == [[0, 1], [], [2, 0]]
    assert by_element.transform_batch(pyarrow.table({"c": [["z"], ["q", "y"]]})).to_pydict() == {"c": [[2], [None, 1]]}
    as_a_whole = OrdinalEncoder(["c"], encode_lists=False).fit(ds)
    assert as_a_whole.stats_ == {"unique_values(c)": {(): 0, ("x", "y"): 1, ("z", "x"): 2}}
    assert as_a_whole.transform_batch(frame)["c"].tolist() == [1, 0, 2]
    one_hot = OneHotEncoder(["c"]).fit(ds).transform_batch(frame)
    assert list(one_hot.columns) == ["c_()", "c_('x', 'y')", "c_('z', 'x')"]


def test_multi_hot_encoder_does_what_scikit_learn_does() -> None:
    random = numpy.random.default_rng(5)
    rows = [random.choice(list("abcdef"), random.integers(0, 5)).tolist() for _ in range(1000)]
    expected = sklearn.preprocessing.MultiLabelBinarizer().fit_transform(rows)
    encoder = MultiHotEncoder(["c"]).fit(lockstep.data.from_items([{"c": row} for row in rows]))
    frame = pandas.DataFrame({"c": rows})
    assert encoder.transform_batch(frame)["c"].tolist() == expected.tolist()
    result = encoder.transform_batch(pyarrow.table({"c": rows}))
    assert result.schema.field("c").type == pyarrow.list_(pyarrow.int64(), 6)
    assert encoder.transform_batch({"c": frame["c"].to_numpy()})["c"].shape == (1000, 6)
    assert encoder.transform_batch(pyarrow.table({"c": [["q", "b"]]})).to_pylist() == [{"c": [0, 1, 0, 0, 0, 0]}]


def test_label_encoder_goes_back() -> None:
    frame = pandas.DataFrame({"y": ["setosa", "virginica", "setosa"], "x": [1, 2, 3]})
    encoder = LabelEncoder("y")
    with pytest.raises(PreprocessorNotFittedException):
        encoder.inverse_transform(lockstep.data.from_pandas(frame))
    encoded = encoder.fit(lockstep.data.from_pandas(frame)).transform_batch(frame)
    expected = sklearn.preprocessing.LabelEncoder().fit_transform(frame["y"])
    assert encoded["y"].tolist() == expected.tolist()
    assert encoder.inverse_transform_batch(encoded)["y"].tolist() == frame["y"].tolist()
    assert encoder.inverse_transform_batch({"y": numpy.array([1.0, numpy.nan, 9])})["y"].tolist() == [
        "virginica",
        None,
        None,
    ]


def test_categorizer() -> None:
    frame = pandas.DataFrame({"sex": ["male", "female", None, "male"], "level": ["L4", "L5", "L3", "L4"]})
    levels = pandas.CategoricalDtype(["L3", "L4", "L5", "L6"], ordered=True)
    categorizer = Categorizer(["sex", "level"], dtypes={"level": levels}).fit(lockstep.data.from_pandas(frame))
    assert categorizer.stats_["level"] == levels
    result = categorizer.transform_batch(frame)
    expected = frame.astype({"sex": pandas.CategoricalDtype(["female", "male"]), "level": levels})
    assert result["sex"].tolist()[:2] == ["male", "female"] and pandas.isna(result["sex"][2])
    assert result["level"].cat.ordered and result["level"].cat.codes.tolist() == expected["level"].cat.codes.tolist()
    assert result["sex"].cat.categories.tolist() == ["female", "male"]
    table = categorizer.transform_batch(pyarrow.table({"sex": ["male", "other"], "level": ["L6", "L3"]}))
    assert pyarrow.types.is_dictionary(table.schema.field("sex").type)
    assert table.to_pylist() == [{"sex": "male", "level": "L6"}, {"sex": None, "level": "L3"}]


def test_categorical_columns_are_categories_too() -> None:
    frame = pandas.DataFrame({"c": pandas.Categorical(["b", "a", "b"])})
    encoder = OrdinalEncoder(["c"]).fit(lockstep.data.from_pandas(frame))
    assert encoder.transform_batch(frame)["c"].tolist() == [1, 0, 1]
