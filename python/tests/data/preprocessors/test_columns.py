"""Imputer, concatenator, discretizers, and functions of the user's."""

from __future__ import annotations

from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
import sklearn.impute
from lockstep import ConfigError
from lockstep.data.preprocessors import (
    BatchMapper,
    Concatenator,
    CustomKBinsDiscretizer,
    SimpleImputer,
    TorchVisionPreprocessor,
    UniformKBinsDiscretizer,
)


@pytest.mark.parametrize("strategy", ["mean", "most_frequent"])
def test_imputer_does_what_scikit_learn_does(strategy: str, frame: pandas.DataFrame) -> None:
    frame = frame.assign(b=frame["b"].round())
    expected = sklearn.impute.SimpleImputer(strategy=strategy).fit_transform(frame[["a", "b"]].to_numpy())
    imputer = SimpleImputer(["a", "b"], strategy).fit(lockstep.data.from_pandas(frame))
    result = imputer.transform_batch(frame)[["a", "b"]].to_numpy()
    numpy.testing.assert_allclose(result, expected, rtol=1e-14)
    assert set(imputer.stats_) == {f"{strategy}(a)", f"{strategy}(b)"}
    assert numpy.isnan(frame["a"]).any()  # the batch itself is not changed


def test_imputer_of_other_values(frame: pandas.DataFrame) -> None:
    imputer = SimpleImputer(["kind"], "most_frequent").fit(lockstep.data.from_pandas(frame))
    assert imputer.stats_ == {"most_frequent(kind)": "red"}
    pandas.testing.assert_series_equal(imputer.transform_batch(frame)["kind"], frame["kind"].fillna("red"))
    constant = SimpleImputer(["c", "new"], "constant", fill_value="?")
    assert constant.fit_status() is SimpleImputer.FitStatus.NOT_FITTABLE
    expected = [{"c": "a", "new": "?"}, {"c": "?", "new": "?"}]
    assert constant.transform_batch(pyarrow.table({"c": ["a", None]})).to_pylist() == expected
    categories = pandas.DataFrame({"c": pandas.Categorical(["a", None])})
    assert SimpleImputer(["c"], "constant", "?").transform_batch(categories)["c"].tolist() == ["a", "?"]


@pytest.mark.parametrize(
    ("given", "fill_value", "expected"),
    [
        (pyarrow.array([1, None]), 7, pyarrow.array([1, 7])),
        (pyarrow.array([1, None]), 0.5, pyarrow.array([1, 0.5])),
        (pyarrow.array([1.5, None, float("nan")]), 2, pyarrow.array([1.5, 2.0, 2.0])),
        (pyarrow.array([True, None]), False, pyarrow.array([True, False])),
        (pyarrow.array([None, None]), "x", pyarrow.array(["x", "x"])),
    ],
)
def test_imputed_types(given: Any, fill_value: Any, expected: Any) -> None:
    result = SimpleImputer(["x"], "constant", fill_value).transform_batch(pyarrow.table({"x": given}))
    assert result.column("x").combine_chunks().equals(expected)


def test_imputer_refuses() -> None:
    with pytest.raises(ValueError, match="strategy is 'median', which is not supported"):
        SimpleImputer(["x"], "median")
    with pytest.raises(ValueError, match="`fill_value` must be set"):
        SimpleImputer(["x"], "constant")
    nothing = lockstep.data.from_arrow(pyarrow.table({"x": pyarrow.nulls(2, pyarrow.float64())}))
    with pytest.raises(ConfigError, match="the column 'x' had no values when it was fitted"):
        SimpleImputer(["x"]).fit(nothing).transform_batch({"x": numpy.array([1.0])})
    with pytest.raises(ConfigError, match="cannot be filled with '-'"):
        SimpleImputer(["x"], "constant", "-").transform_batch({"x": numpy.array([1.0, numpy.nan])})


def test_concatenator() -> None:
    frame = pandas.DataFrame({"X0": [0, 3, 1], "X1": [0.5, 0.2, 0.9], "Y": ["blue", "orange", "blue"]})
    result = Concatenator(exclude=["Y"]).transform_batch(frame)
    assert list(result.columns) == ["Y", "concat_out"]
    assert [row.tolist() for row in result["concat_out"]] == [[0.0, 0.5], [3.0, 0.2], [1.0, 0.9]]
    for preprocessor in (
        Concatenator("X", include=["X1", "X0"]),  # in the order of the data
        Concatenator("X", include=["X0", "X1", "Y", "Z"], exclude="Y"),
    ):
        arrays = preprocessor.transform_batch({name: frame[name].to_numpy() for name in frame})
        numpy.testing.assert_array_equal(arrays["X"], [[0.0, 0.5], [3.0, 0.2], [1.0, 0.9]])
    table = Concatenator(include=["X0", "X1"], dtype=numpy.float32).transform_batch(pyarrow.Table.from_pandas(frame))
    assert table.schema.field("concat_out").type == pyarrow.list_(pyarrow.float32(), 2)
    whole = Concatenator(include=["X0"]).transform_batch({"X0": numpy.array([1, 2], numpy.int16)})["concat_out"]
    assert whole.dtype == numpy.int16


def test_concatenator_joins_vectors() -> None:
    batch = {"m": numpy.arange(6.0).reshape(2, 3), "t": numpy.arange(8).reshape(2, 2, 2), "x": numpy.array([7, 8])}
    expected = [[0, 1, 2, 0, 1, 2, 3, 7], [3, 4, 5, 4, 5, 6, 7, 8]]
    assert Concatenator().transform_batch(batch)["concat_out"].tolist() == expected
    lists = pyarrow.table({"v": [[1, 2], [3, 4]], "x": [0.5, None]})
    numpy.testing.assert_array_equal(
        Concatenator().transform_batch(lists)["concat_out"].to_pylist(), [[1, 2, 0.5], [3, 4, numpy.nan]]
    )
    with pytest.raises(ConfigError, match="the column 'v' has lists of different lengths"):
        Concatenator().transform_batch(pyarrow.table({"v": [[1, 2], [3]]}))


def test_concatenator_refuses() -> None:
    batch = {"x": numpy.array([1])}
    with pytest.raises(ValueError, match=r"Missing columns specified in 'include': \['z'\]"):
        Concatenator(include=["x", "z"], raise_if_missing=True).transform_batch(batch)
    with pytest.raises(ValueError, match=r"Missing columns specified in 'exclude': \['z'\]"):
        Concatenator(exclude=["z"], raise_if_missing=True).transform_batch(batch)
    with pytest.raises(ConfigError, match="the column 's' is string; it must be numbers"):
        Concatenator().transform_batch(pyarrow.table({"s": ["a"]}))
    with pytest.raises(ConfigError, match="no column to join"):
        Concatenator(include=["z"]).transform_batch(batch)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("include_lowest", [True, False])
def test_discretizers_do_what_pandas_does(right: bool, include_lowest: bool, frame: pandas.DataFrame) -> None:
    frame = frame.assign(b=frame["b"].round())
    options: dict[str, Any] = {"right": right, "include_lowest": include_lowest}
    edges = [0, 1, 4, 5.5, 9]
    expected = pandas.cut(frame["b"], edges, labels=False, **options)
    result = CustomKBinsDiscretizer(["b"], edges, **options).transform_batch(frame)["b"]
    numpy.testing.assert_array_equal(result.to_numpy(), expected.to_numpy())
    uniform = UniformKBinsDiscretizer(["b", "n"], {"b": 4, "n": 7}, **options).fit(lockstep.data.from_pandas(frame))
    result = uniform.transform_batch(frame)
    for column, count in (("b", 4), ("n", 7)):
        expected = pandas.cut(frame[column], count, labels=False, **options)
        numpy.testing.assert_array_equal(result[column].to_numpy(), expected.to_numpy())


def test_names_of_bins() -> None:
    sizes = pandas.CategoricalDtype(["small", "large"], ordered=True)
    batch = pandas.DataFrame({"x": [0.5, 5, 50], "y": [1, 1, 1]})
    bins = {"x": [0, 1, 10], "y": [0, 2]}
    result = CustomKBinsDiscretizer(["x", "y"], bins, dtypes={"x": sizes, "y": numpy.int8}).transform_batch(batch)
    assert result["x"].tolist()[:2] == ["small", "large"] and pandas.isna(result["x"][2])
    assert result["x"].cat.ordered and result["y"].dtype == numpy.int8
    with pytest.raises(ValueError, match="equal edges"):
        CustomKBinsDiscretizer(["x"], [0, 1, 1, 2]).transform_batch(batch)
    dropped = CustomKBinsDiscretizer(["y"], [0, 0, 1, 2], duplicates="drop").transform_batch(batch)
    assert dropped["y"].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="grow"):
        CustomKBinsDiscretizer(["x"], [1, 0]).transform_batch(batch)
    with pytest.raises(ValueError, match=r"bins has nothing for the columns \['y'\]"):
        CustomKBinsDiscretizer(["x", "y"], {"x": [1, 0]})
    with pytest.raises(ValueError, match="shall have 0 bins"):
        UniformKBinsDiscretizer(["x"], 0)


def test_batch_mapper_gets_the_format_it_asks_for() -> None:
    kinds = {"pandas": pandas.DataFrame, "numpy": dict, "pyarrow": pyarrow.Table}
    given = {
        "pandas": pandas.DataFrame({"x": [1, 2]}),
        "numpy": {"x": numpy.array([1, 2])},
        "pyarrow": pyarrow.table({"x": [1, 2]}),
    }
    for wanted, kind in kinds.items():
        for own, batch in given.items():

            def check(batch: Any, kind: type = kind) -> Any:
                assert isinstance(batch, kind)
                return batch

            result = BatchMapper(check, batch_format=wanted).transform_batch(batch)
            assert isinstance(result, kinds[own]) and list(result["x"]) == list(batch["x"])
    assert BatchMapper(lambda df: df * 2).transform_batch(given["pandas"])["x"].tolist() == [2, 4]

    def spoil(batch: Any) -> Any:
        batch["x"] = batch["x"] * 0
        return batch

    for name in ("pandas", "numpy"):
        BatchMapper(spoil, name).transform_batch(given[name])
        assert list(given[name]["x"]) == [1, 2]
    with pytest.raises(ConfigError, match="batch_format is 'torch'"):
        BatchMapper(check, "torch")
    with pytest.raises(ConfigError, match="fn is 5"):
        BatchMapper(5)  # type: ignore[arg-type]


def test_torch_vision_preprocessor() -> None:
    import torch

    images = numpy.arange(24, dtype=numpy.uint8).reshape(2, 2, 2, 3)

    def to_tensor(image: Any) -> torch.Tensor:
        """Like torchvision's ToTensor: takes no tensors."""
        if not isinstance(image, numpy.ndarray):
            raise TypeError
        return torch.from_numpy(image.copy()).permute(2, 0, 1) / 255

    result = TorchVisionPreprocessor(["image"], to_tensor, output_columns=["tensor"]).transform_batch({"image": images})
    assert list(result) == ["image", "tensor"]
    numpy.testing.assert_allclose(result["tensor"], images.transpose(0, 3, 1, 2) / 255, rtol=1e-6)
    batched = TorchVisionPreprocessor(["image"], lambda batch: batch.float().mean(dim=(1, 2, 3)), batched=True)
    assert batched.transform_batch({"image": images})["image"].tolist() == [5.5, 17.5]
    with pytest.raises(ConfigError, match="transform gives a str"):
        TorchVisionPreprocessor(["image"], lambda image: "no").transform_batch({"image": images})
