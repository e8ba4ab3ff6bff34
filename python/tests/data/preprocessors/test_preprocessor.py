"""What all preprocessors have in common; classes of the user's own."""

from __future__ import annotations

import doctest
import importlib
import pickle
import pkgutil
from typing import Any

import cloudpickle
import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
from lockstep import ConfigError
from lockstep.data import _batches, _progress, preprocessor, preprocessors
from lockstep.data.preprocessor import Preprocessor
from lockstep.data.preprocessors import (
    Chain,
    LabelEncoder,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PreprocessorNotFittedException,
    StandardScaler,
)

Status = Preprocessor.FitStatus


class Centred(Preprocessor):
    """With state, and for pandas only."""

    def _fit(self, ds: Any) -> Preprocessor:
        values = [row["x"] for row in ds.iter_rows()]
        self.stats_ = {"mean": sum(values) / len(values)}
        return self

    def _transform_pandas(self, df: pandas.DataFrame) -> pandas.DataFrame:
        df["x"] = df["x"] - self.stats_["mean"]
        return df


class Doubled(Preprocessor):
    """Without state, and for numpy only."""

    _is_fittable = False

    def _transform_numpy(self, np_data: dict[str, Any]) -> dict[str, Any]:
        np_data["x"] = np_data["x"] * 2
        return np_data


class Both(Doubled):
    def _transform_pandas(self, df: pandas.DataFrame) -> pandas.DataFrame:
        return df.assign(by="pandas")


class PrefersNumpy(Both):
    @classmethod
    def preferred_batch_format(cls) -> str:
        return "numpy"


def batches() -> list[Any]:
    table = pyarrow.table({"x": [2, 4], "s": ["a", "b"]})
    arrays = {"x": numpy.array([2, 4]), "s": numpy.array(["a", "b"], object)}
    return [pandas.DataFrame({"x": [2, 4], "s": ["a", "b"]}), arrays, table, table.to_batches()[0]]


@pytest.mark.parametrize(
    "preprocessor", [MinMaxScaler(["x"]), Centred(), Doubled()], ids=lambda each: type(each).__name__
)
def test_a_batch_stays_of_its_kind(preprocessor: Preprocessor) -> None:
    preprocessor.fit(lockstep.data.from_items([{"x": 0}, {"x": 4}]))
    expected = {"MinMaxScaler": [0.5, 1.0], "Centred": [0, 2], "Doubled": [4, 8]}[type(preprocessor).__name__]
    for batch in batches():
        result = preprocessor.transform_batch(batch)
        assert isinstance(result, type(batch))
        table = pyarrow.table(result)
        assert table.column_names == ["x", "s"]
        assert table.to_pydict() == {"x": expected, "s": ["a", "b"]}
        assert numpy.asarray(batch["x"]).tolist() == [2, 4]  # what was given is not changed


def test_a_frame_keeps_its_index_and_other_columns() -> None:
    frame = pandas.DataFrame({"x": [1.0, 3.0], "o": [object(), {"any": 1}]}, index=["p", "q"])
    scaler = MinMaxScaler(["x"]).fit(lockstep.data.from_pandas(frame[["x"]]))
    result = scaler.transform_batch(frame)
    assert result.index.tolist() == ["p", "q"] and result["o"].tolist() == frame["o"].tolist()
    assert result["x"].tolist() == [0.0, 1.0]


def test_status() -> None:
    ds = lockstep.data.from_items([{"x": 1}, {"x": 3}])
    scaler = StandardScaler(["x"])
    assert scaler.fit_status() is Status.NOT_FITTED == "NOT_FITTED"
    assert scaler.transform_stats() is None
    with pytest.raises(
        PreprocessorNotFittedException, match="`fit` must be called before `transform`, or use fit_trans"
    ):
        scaler.transform(ds)
    with pytest.raises(RuntimeError, match="`fit` must be called before `transform_batch`"):
        scaler.transform_batch({"x": numpy.array([1])})
    assert scaler.fit(ds) is scaler
    assert scaler.fit_status() is Status.FITTED
    with pytest.warns(UserWarning, match="fit.. was called before"):
        scaler.fit(lockstep.data.from_items([{"x": 1}]))
    assert scaler.stats_ == {"mean(x)": 1.0, "std(x)": 0.0}
    stateless = Normalizer(["x"])
    assert stateless.fit_status() is Status.NOT_FITTABLE
    assert stateless.fit(ds) is stateless


def test_a_custom_class_is_fitted_once_it_has_state() -> None:
    centred = Centred()
    assert centred.fit_status() is Status.NOT_FITTED
    centred.stats_ = {"mean": 1}
    assert centred.fit_status() is Status.FITTED
    assert centred.transform_batch({"x": numpy.array([5])})["x"].tolist() == [4]


def test_which_transform_is_used() -> None:
    batch = {"x": numpy.array([1])}
    assert Both().transform_batch(batch)["by"].tolist() == ["pandas"]
    assert PrefersNumpy().transform_batch(batch)["x"].tolist() == [2]

    class Nothing(Preprocessor):
        pass

    with pytest.raises(NotImplementedError, match="Nothing has no _fit"):
        Nothing().fit(lockstep.data.range(1))
    Nothing._is_fittable = False
    with pytest.raises(NotImplementedError, match=r"must have _transform_pandas\(\) or _transform_numpy"):
        Nothing().transform_batch(batch)


def test_a_built_in_class_can_be_extended() -> None:
    class Percent(MinMaxScaler):
        def _transform_pandas(self, df: pandas.DataFrame) -> pandas.DataFrame:
            return super()._transform_pandas(df) * 100

    percent = Percent(["x"]).fit(lockstep.data.from_items([{"x": 0}, {"x": 4}]))
    assert percent.transform_batch({"x": numpy.array([1, 2])})["x"].tolist() == [25.0, 50.0]
    assert Chain(percent).transform_batch({"x": numpy.array([1])})["x"].tolist() == [25.0]


def test_errors_name_the_column() -> None:
    scaler = MinMaxScaler(["x"]).fit(lockstep.data.from_items([{"x": 1}]))
    with pytest.raises(ConfigError, match=r"\[MinMaxScaler\] there is no column 'x' in the batch; its columns: y, z"):
        scaler.transform_batch({"y": numpy.array([1]), "z": numpy.array([1])})
    with pytest.raises(ConfigError, match="a batch is a list"):
        scaler.transform_batch([1, 2])
    with pytest.raises(ConfigError, match="nosuch"):
        MinMaxScaler(["nosuch"]).fit(lockstep.data.from_items([{"x": 1}]))
    mixed = pandas.DataFrame({"x": [1, "a"]}, dtype=object)
    with pytest.raises(ConfigError, match="the column 'x' has values of several types"):
        scaler.transform_batch(mixed)


def test_pickles_hold_arguments_and_statistics_only() -> None:
    ds = lockstep.data.from_numpy({"x": numpy.arange(100_000.0)})
    scaler = StandardScaler(["x"]).fit(ds)
    scaler._transformed = ds  # as transform() keeps it
    data = pickle.dumps(scaler)
    assert len(data) < 300
    again = pickle.loads(data)
    assert again.stats_ == scaler.stats_ and again.fit_status() is Status.FITTED


@pytest.mark.parametrize("preprocessor", [StandardScaler(["x"]), Centred(), Chain(StandardScaler(["x"]))], ids=repr)
def test_what_plans_hold_is_small_and_can_be_pickled(preprocessor: Preprocessor) -> None:
    class Plan:
        def map_batches(self, function: Any, **options: Any) -> Plan:
            self.function = function
            return self

    preprocessor.fit(lockstep.data.from_numpy({"x": numpy.arange(1001.0)}))
    plan = Plan()
    preprocessor.transform(plan)  # type: ignore[arg-type]
    assert plan.function.__name__ in ("StandardScaler", "Centred")
    data = cloudpickle.dumps(plan.function)
    assert len(data) < (10_000 if isinstance(preprocessor, Centred) else 2000)  # with the code of a class of this file
    assert pickle.loads(data)(pandas.DataFrame({"x": [500.0]}))["x"].tolist() == [0.0]


def test_repr_is_the_call() -> None:
    assert repr(StandardScaler(columns=["x"])) == "StandardScaler(columns=['x'])"
    assert (
        repr(OneHotEncoder(["c"], max_categories={"c": 2})) == "OneHotEncoder(columns=['c'], max_categories={'c': 2})"
    )
    assert repr(LabelEncoder("y")) == "LabelEncoder(label_column='y')"


def test_fit_shows_progress_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = lockstep.data.range(200_000)
    StandardScaler(["id"]).fit(ds)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("lockstep.data._progress._FIRST_SECONDS", 0)
    monkeypatch.setattr("lockstep.data._progress._SECONDS_BETWEEN", 0)
    StandardScaler(["id"]).fit(ds)
    shown = capsys.readouterr().err
    assert "fit StandardScaler: 100% [" in shown and "200,000 rows" in shown
    assert shown.endswith("\r\033[K")


def test_examples_in_docstrings() -> None:
    names = {"numpy": numpy, "pandas": pandas, "pyarrow": pyarrow, "lockstep": lockstep, **vars(preprocessors)}
    modules = [preprocessor, _batches, _progress]
    folder = pkgutil.iter_modules(preprocessors.__path__, "lockstep.data.preprocessors.")
    modules += [importlib.import_module(module.name) for module in folder]
    results = [doctest.testmod(module, extraglobs={**names, **vars(module)}) for module in modules]
    assert sum(result.attempted for result in results) > 50
    assert sum(result.failed for result in results) == 0
