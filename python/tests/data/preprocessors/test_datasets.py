"""Preprocessors over data sets; chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
import sklearn.preprocessing
from lockstep import ConfigError
from lockstep.data.preprocessor import Preprocessor
from lockstep.data.preprocessors import (
    BatchMapper,
    Chain,
    Concatenator,
    LabelEncoder,
    MinMaxScaler,
    MultiHotEncoder,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PreprocessorNotFittedException,
    SimpleImputer,
    StandardScaler,
    _statistics,
)

Status = Preprocessor.FitStatus


class Shifted(Preprocessor):
    def _fit(self, ds: Any) -> Preprocessor:
        self.low_ = min(row["x"] for row in ds.iter_rows())
        return self

    def _transform_numpy(self, np_data: dict[str, Any]) -> dict[str, Any]:
        return {**np_data, "x": np_data["x"] - self.low_}


def column(ds: Any, name: str) -> list[Any]:
    return [row[name] for row in ds.take_all()]


def test_transform_of_a_data_set(frame: pandas.DataFrame) -> None:
    ds = lockstep.data.from_pandas(frame)
    scaler = StandardScaler(["a", "b"])
    scaled = scaler.fit_transform(ds)
    assert scaled.count() == len(frame)
    expected = sklearn.preprocessing.StandardScaler().fit_transform(frame[["a", "b"]].to_numpy())
    parts = [batch[["a", "b"]].to_numpy() for batch in scaled.iter_batches(batch_size=1000, batch_format="pandas")]
    numpy.testing.assert_allclose(numpy.concatenate(parts), expected, rtol=1e-7, atol=1e-7)
    assert isinstance(scaler.transform_stats(), str | None)


def test_another_fit_does_not_change_what_was_transformed() -> None:
    first, second = lockstep.data.from_items([{"x": 0}, {"x": 4}]), lockstep.data.from_items([{"x": 2}, {"x": 3}])
    scaler = MinMaxScaler(["x"])
    scaled = scaler.fit_transform(first)
    with pytest.warns(UserWarning, match="was called before"):
        scaler.fit(second)
    assert column(scaled, "x") == [0.0, 1.0]
    assert column(scaler.transform(first), "x") == [-2.0, 2.0]


def test_blocks_with_and_without_nulls_have_the_same_types() -> None:
    """Also if the results of a block with nulls happen to be whole numbers."""
    some = pyarrow.table({"x": pyarrow.array([0, 4, None] * 6000)})
    whole = pyarrow.table({"x": pyarrow.array([1, 2, 3] * 6000)})
    scaled = MinMaxScaler(["x"]).fit_transform(lockstep.data.from_arrow([some, whole]))
    assert scaled.schema().field("x").type == pyarrow.float64()
    rows = column(scaled, "x")
    assert rows[:3] == [0.0, 1.0, None] and rows[-3:] == [0.25, 0.5, 0.75]


def test_own_classes_and_functions_over_data_sets() -> None:
    ds = lockstep.data.from_items([{"x": 5}, {"x": 3}])
    assert column(Shifted().fit_transform(ds), "x") == [2, 0]
    assert column(BatchMapper(lambda df: df * 2, batch_format="pandas").transform(ds), "x") == [10, 6]
    sizes: list[int] = []

    def record(batch: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(batch["x"]))
        return batch

    mapper = BatchMapper(record, batch_format="numpy", batch_size=2)
    many = lockstep.data.from_numpy({"x": numpy.arange(5)})
    assert column(mapper.transform(many), "x") == list(range(5))
    assert max(sizes) == 2


def test_labels_go_back() -> None:
    ds = lockstep.data.from_items([{"y": "b"}, {"y": "a"}])
    encoder = LabelEncoder("y")
    encoded = encoder.fit_transform(ds)
    assert column(encoded, "y") == [1, 0]
    assert column(encoder.inverse_transform(encoded), "y") == ["b", "a"]


def test_vectors_become_tensors() -> None:
    ds = lockstep.data.from_items([{"x": 1.0, "g": ["a", "b"]}, {"x": 2.0, "g": ["b"]}])
    vectors = Chain(MultiHotEncoder(["g"]), Concatenator("v", dtype="float32")).fit_transform(ds)
    (batch,) = vectors.iter_torch_batches(batch_size=2)
    assert batch["v"].tolist() == [[1.0, 1.0, 1.0], [2.0, 0.0, 1.0]]


def test_a_chain_fits_each_to_what_the_one_before_gives() -> None:
    ds = lockstep.data.from_items([{"x": 0}, {"x": 1}, {"x": 2}, {"x": 3}, {"x": None}])
    chain = Chain(SimpleImputer(["x"]), MinMaxScaler(["x"]))
    assert chain.fit_status() is Status.NOT_FITTED
    with pytest.raises(PreprocessorNotFittedException, match=r"\[Chain\]"):
        chain.transform(ds)
    assert column(chain.fit_transform(ds), "x") == pytest.approx([0, 1 / 3, 2 / 3, 1, 0.5])
    assert chain.fit_status() is Status.FITTED
    assert [each.fit_status() for each in chain.preprocessors] == [Status.FITTED, Status.FITTED]
    assert chain.transform_batch({"x": numpy.array([6.0, numpy.nan])})["x"].tolist() == [2.0, 0.5]
    assert repr(chain).startswith("Chain(SimpleImputer(columns=['x'], strategy='mean', fill_value=None), MinMaxScaler(")


def test_a_chain_of_all_kinds() -> None:
    ds = lockstep.data.from_pandas(
        pandas.DataFrame({"x": [0, 1, 2], "z": [3, 4, 5], "y": ["orange", "blue", "orange"]})
    )
    chain = Chain(
        Shifted(),
        StandardScaler(["x", "z"]),
        BatchMapper(lambda df: df.assign(twice=df["x"] * 2), batch_format="pandas"),
        Chain(MinMaxScaler(["twice"]), Concatenator("v", include=["x", "z", "twice"])),
        LabelEncoder("y"),
    )
    rows = chain.fit_transform(ds).take_all()
    assert [row["y"] for row in rows] == [1, 0, 1]
    high = 1.5**0.5
    numpy.testing.assert_allclose([row["v"] for row in rows], [[-high, -high, 0], [0, 0, 0.5], [high, high, 1]])
    batch = chain.transform_batch(pandas.DataFrame({"x": [1], "z": [4], "y": ["blue"]}))
    assert batch["v"][0].tolist() == [0, 0, 0.5] and batch["y"].tolist() == [0]


def test_partially_fitted() -> None:
    ds = lockstep.data.from_items([{"x": 1, "y": 2}])
    chain = Chain(StandardScaler(["x"]).fit(ds), MinMaxScaler(["y"]), Normalizer(["x"]))
    assert chain.fit_status() is Status.PARTIALLY_FITTED
    with pytest.raises(PreprocessorNotFittedException):
        chain.transform_batch({"x": numpy.array([1]), "y": numpy.array([1])})
    assert Chain(Normalizer(["x"])).fit_status() is Status.NOT_FITTABLE
    assert Chain(Normalizer(["x"])).transform_batch({"x": numpy.array([4])})["x"].tolist() == [1.0]
    with pytest.raises(ConfigError, match="5 is no Preprocessor"):
        Chain(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "passes"),
    [
        ([StandardScaler(["x"]), OneHotEncoder(["c"]), MinMaxScaler(["y"])], 1),
        ([Normalizer(["x"]), Chain(MinMaxScaler(["y"]))], 1),
        ([StandardScaler(["x"]), MinMaxScaler(["x"])], 2),
        ([OneHotEncoder(["c"]), StandardScaler(["y"]), StandardScaler(["c_a"])], 2),
        ([Concatenator("v", include=["x"]), StandardScaler(["y"])], 1),
        ([BatchMapper(lambda df: df + 1, "pandas"), OrdinalEncoder(["x"]), MinMaxScaler(["y"])], 1),
    ],
    ids=str,
)
def test_a_chain_reads_the_data_once_if_it_can(steps: list[Any], passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    gather = _statistics.gather

    def counting(ds: Any, statistics: Any, owner: str) -> None:
        wanted = list(statistics)
        seen.extend([owner] if wanted else [])
        gather(ds, wanted, owner)

    monkeypatch.setattr("lockstep.data.preprocessors._column_preprocessor.gather", counting)
    frame = pandas.DataFrame({"x": [1.0, 2.0], "y": [3.0, 5.0], "c": ["a", "b"]})
    frame = frame.drop(columns="c") if isinstance(steps[0], BatchMapper) else frame
    chain = Chain(*steps).fit(lockstep.data.from_pandas(frame))
    assert len(seen) == passes and chain.fit_status() is Status.FITTED


def test_transformed_data_sets_are_shuffled_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("x,c\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(1000)))
    ds = lockstep.data.read_csv(tmp_path / "train.csv")
    ready = Chain(MinMaxScaler(["x"]), OneHotEncoder(["c"])).fit_transform(ds)
    it = ready.iterator(seed=1)
    batches = it.iter_batches(batch_size=100)
    next(batches)
    state = it.state_dict()
    rest = [batch["x"].tolist() for batch in batches]
    again = ready.iterator(seed=1)
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again.iter_batches(batch_size=100)] == rest
