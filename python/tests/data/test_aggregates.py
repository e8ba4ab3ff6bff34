"""Aggregates, groups and splits, compared with pyarrow and pandas."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from lockstep import ConfigError
from lockstep.data.aggregate import AbsMax, AggregateFn, Count, Max, Mean, Min, Quantile, Std, Sum

ROWS = 40_000


@pytest.fixture(scope="module")
def frame() -> pandas.DataFrame:
    random = numpy.random.default_rng(2)
    return pandas.DataFrame(
        {
            "k": random.integers(0, 20, ROWS),
            "g": [f"g{n % 3}" for n in range(ROWS)],
            "x": random.normal(1e6, 1, ROWS),  # large, with small differences
            "n": pandas.array([None if n % 7 == 0 else n for n in range(ROWS)], "Int64"),
        }
    )


@pytest.fixture(scope="module", params=["memory", "parquet", "mapped"])
def ds(request: Any, frame: pandas.DataFrame, tmp_path_factory: Any) -> lockstep.data.Dataset:
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    if request.param == "parquet":
        path = tmp_path_factory.mktemp("data") / "x.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=7000)
        return lockstep.data.read_parquet(path)
    ds = lockstep.data.from_arrow(table)
    return ds if request.param == "memory" else ds.map_batches(lambda batch: batch, batch_format="pyarrow")


def test_columns(ds: lockstep.data.Dataset, frame: pandas.DataFrame) -> None:
    assert ds.sum("n") == frame["n"].sum()
    assert ds.min("n") == frame["n"].min() and ds.max("n") == frame["n"].max()
    assert ds.min("g") == "g0" and ds.max("g") == "g2"
    assert math.isclose(ds.mean("x"), frame["x"].mean(), rel_tol=1e-12)
    assert math.isclose(ds.std("x"), frame["x"].std(), rel_tol=1e-9)
    assert math.isclose(ds.std("x", ddof=0), frame["x"].std(ddof=0), rel_tol=1e-9)
    assert math.isclose(ds.mean("n"), frame["n"].mean(), rel_tol=1e-12)
    assert ds.mean(["k", "n"]) == {"mean(k)": frame["k"].mean(), "mean(n)": pytest.approx(frame["n"].mean())}
    assert set(ds.max()) == {"max(k)", "max(x)", "max(n)"}
    assert ds.sum("n", ignore_nulls=False) is None
    assert ds.sum("k", ignore_nulls=False) == frame["k"].sum()
    assert ds.unique("k") == sorted(frame["k"].unique())
    assert ds.unique("n")[-1] is None and len(ds.unique("n")) == frame["n"].nunique() + 1
    assert ds.abs_max("k") == 19


def test_aggregates(ds: lockstep.data.Dataset, frame: pandas.DataFrame) -> None:
    results = ds.aggregate(Count(), Sum("k"), Min("x"), Quantile("x", 0.3), AbsMax("k", alias_name="most"))
    assert results == {
        "count()": ROWS,
        "sum(k)": frame["k"].sum(),
        "min(x)": frame["x"].min(),
        "quantile(x)": pytest.approx(frame["x"].quantile(0.3)),
        "most": 19,
    }
    longest = AggregateFn(
        init=lambda key: 0,
        accumulate_row=lambda most, row: max(most, row["k"] * len(row["g"])),
        merge=max,
        finalize=float,
        name="longest",
    )
    assert ds.aggregate(longest) == {"longest": 38.0}
    assert ds.limit(0).aggregate(Count()) is None
    assert ds.limit(0).sum("k") is None and ds.limit(0).unique("k") == []


def test_groups(ds: lockstep.data.Dataset, frame: pandas.DataFrame) -> None:
    grouped, expected = ds.groupby("k"), frame.groupby("k")
    assert grouped.count().take_all() == [{"k": k, "count()": count} for k, count in expected.size().items()]
    for name in ("sum", "min", "max", "mean", "std"):
        found = getattr(grouped, name)(["x", "n"]).to_pandas()
        assert list(found.columns) == ["k", f"{name}(x)", f"{name}(n)"]
        assert list(found["k"]) == list(range(20))
        wanted = getattr(expected[["x", "n"]], name)()
        assert numpy.allclose(found[f"{name}(x)"], wanted["x"].astype(float), rtol=1e-9)
        assert numpy.allclose(found[f"{name}(n)"].astype(float), wanted["n"].astype(float))
    both = ds.groupby(["g", "k"]).aggregate(Count(), Max("n"), Max("n")).to_pandas()
    assert list(both.columns) == ["g", "k", "count()", "max(n)", "max(n)_2"]
    assert list(both["count()"]) == list(frame.groupby(["g", "k"]).size())
    assert ds.groupby("k").agg(Quantile("x")).to_pandas()["quantile(x)"].tolist() == pytest.approx(
        expected["x"].median().tolist()
    )
    assert ds.groupby(None).aggregate(Mean("k")).take_all() == [{"mean(k)": frame["k"].mean()}]


def test_nulls_are_a_group() -> None:
    rows = [{"k": None, "x": 1}, {"k": "b", "x": 2}, {"k": None, "x": 3}, {"k": "a", "x": None}]
    ds = lockstep.data.from_items(rows)
    assert ds.groupby("k").sum("x").take_all() == [
        {"k": "a", "sum(x)": None},
        {"k": "b", "sum(x)": 2},
        {"k": None, "sum(x)": 4},
    ]
    groups = ds.groupby("k").map_groups(lambda table: table.slice(0, 1), batch_format="pyarrow")
    assert groups.take_all() == [rows[3], rows[1], rows[0]]


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
def test_map_groups(ds: lockstep.data.Dataset, frame: pandas.DataFrame, batch_format: str) -> None:
    def most(group: Any) -> Any:
        if batch_format == "pyarrow":
            return pyarrow.table({"k": group["k"][:1], "most": [pc.max(group["x"])]})
        return {"k": group["k"][:1], "most": [group["x"].max()]}

    found = ds.groupby("k").map_groups(most, batch_format=batch_format).to_pandas()
    assert found["most"].tolist() == frame.groupby("k")["x"].max().tolist()


def test_groups_of_nothing() -> None:
    empty = lockstep.data.range(5).filter(expr="id < 0")
    assert empty.groupby("id").count().take_all() == []
    assert empty.groupby("id").map_groups(lambda group: group).take_all() == []


def test_splits(ds: lockstep.data.Dataset, frame: pandas.DataFrame) -> None:
    values = frame["n"].tolist()

    def of(part: lockstep.data.Dataset) -> list[Any]:
        return [pandas.NA if value is None else value for value in part.to_arrow()["n"].to_pylist()]

    def check(parts: Any, sizes: list[int]) -> None:
        assert [part.count() for part in parts] == sizes
        joined = [value for part in parts for value in of(part)]
        assert str(joined) == str(values[: len(joined)])

    check(ds.split(3), [13_334, 13_333, 13_333])
    check(ds.split(3, equal=True), [13_333] * 3)
    check(ds.split_at_indices([0, 5, 5, 20_000, 50_000]), [0, 5, 0, 19_995, 20_000, 0])
    check(ds.split_proportionately([0.1, 0.7]), [4000, 28_000, 8000])
    check(ds.train_test_split(0.3), [28_000, 12_000])
    check(ds.train_test_split(10), [39_990, 10])
    assert lockstep.data.range(2).split(4)[3].count() == 0


def test_shuffled_splits(ds: lockstep.data.Dataset) -> None:
    train, test = ds.select_columns("n").train_test_split(0.2, shuffle=True, seed=4)
    first, second = train.to_arrow()["n"].to_pylist(), test.to_arrow()["n"].to_pylist()
    assert (len(first), len(second)) == (32_000, 8000)
    everything = ds.to_arrow()["n"].to_pylist()
    assert sorted(map(str, first + second)) == sorted(map(str, everything)) and first != everything[:32_000]
    again, _ = ds.select_columns("n").train_test_split(0.2, shuffle=True, seed=4)
    assert again.to_arrow()["n"].to_pylist() == first
    other, _ = ds.train_test_split(0.2, shuffle=True, seed=5)
    assert other.to_arrow()["n"].to_pylist() != first


@pytest.mark.parametrize("shuffle", [False, True])
def test_stratified_splits(shuffle: bool) -> None:
    rows = [{"n": n, "label": None if n % 10 == 9 else "rare" if n % 10 == 3 else "usual"} for n in range(1000)]
    ds = lockstep.data.from_items(rows)
    train, test = ds.train_test_split(0.25, shuffle=shuffle, seed=1, stratify="label")
    assert (train.count(), test.count()) == (750, 250)
    assert sorted(row["n"] for row in train.take_all() + test.take_all()) == list(range(1000))
    labels = [row["label"] for row in test.take_all()]
    assert {label: labels.count(label) for label in set(labels)} == {None: 25, "rare": 25, "usual": 200}
    ordered = [row["n"] for row in test.take_all()]
    assert (ordered == sorted(ordered)) != shuffle


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files(ds: lockstep.data.Dataset, tmp_path: Path, kind: str) -> None:
    write, read = f"write_{kind}", getattr(lockstep.data, f"read_{kind}")
    getattr(ds, write)(str(tmp_path / "new" / "out"))
    found = read(tmp_path / "new" / "out")
    assert found.sort("n").to_arrow().drop(["x"]).to_pylist() == ds.sort("n").to_arrow().drop(["x"]).to_pylist()
    assert numpy.allclose(found.to_arrow()["x"], ds.to_arrow()["x"])
    before = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    getattr(ds.limit(10).repartition(3), write)(tmp_path / "new" / "out")
    after = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    assert set(before) < set(after) and len(after) == len(before) + 3
    assert read(tmp_path / "new" / "out").count() == ROWS + 10


def test_an_error_leaves_no_files(tmp_path: Path) -> None:
    def broken(batch: Any) -> Any:
        if batch["id"][0] > 30_000:
            raise RuntimeError("late")
        return batch

    (tmp_path / "mine.txt").write_text("stays")
    ds = lockstep.data.range(40_000).map_batches(broken)
    for write in (ds.write_parquet, ds.write_csv, ds.write_json):
        with pytest.raises(RuntimeError, match="late"):
            write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(OSError, match="is a file"):
        ds.write_csv(tmp_path / "mine.txt")
    with pytest.raises(OSError, match="try_create_dir is False"):
        ds.write_csv(tmp_path / "none", try_create_dir=False)


def test_options_of_writers(tmp_path: Path) -> None:
    ds = lockstep.data.from_items([{"n": 1, "t": None}, {"n": None, "t": "ü"}])
    ds.write_json(tmp_path / "json")
    (path,) = (tmp_path / "json").iterdir()
    assert [eval(line, {"null": None}) for line in path.read_text().splitlines()] == ds.take_all()
    ds.write_json(tmp_path / "pandas", orient="split", lines=False)
    ds.write_parquet(tmp_path / "parquet", compression="zstd")
    (path,) = (tmp_path / "parquet").iterdir()
    assert pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_in_memory() -> None:
    calls: list[int] = []

    def note(batch: Any) -> Any:
        calls.append(1)
        return batch

    ds = lockstep.data.range(1000).map_batches(note, batch_size=None).materialize()
    assert calls == [1]
    assert ds.to_pandas()["id"].tolist() == ds.to_arrow()["id"].to_pylist() == list(range(1000))
    assert calls == [1] and ds.size_bytes() == 8000 and ds.num_blocks() == 1
    assert lockstep.data.range(100_000).size_bytes() == 800_000
    with pytest.raises(ConfigError, match="more rows"):
        ds.to_pandas(limit=10)
    assert len(ds.to_pandas(limit=1000)) == 1000
    assert ds.take_batch(3)["id"].tolist() == [0, 1, 2]
    assert ds.take_batch(3, batch_format="pandas")["id"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("step", ["materialize", "write_parquet", "write_json", "to_arrow", "sum", "count"])
def test_long_work_shows_progress_on_a_terminal_only(
    step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(seconds: float = 0) -> None:
        def wait(batch: dict[str, Any]) -> dict[str, Any]:
            time.sleep(seconds)
            return batch

        ds = lockstep.data.range(60).repartition(6).map_batches(wait)
        arguments = {"sum": ("id",), "write_parquet": (str(tmp_path),), "write_json": (str(tmp_path),)}
        getattr(ds, step)(*arguments.get(step, ()))

    work()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    work()
    assert capsys.readouterr().err == ""  # it was quick
    monkeypatch.setattr("lockstep.data._watch._FIRST_SECONDS", 0)
    work(0.15)
    shown = capsys.readouterr().err
    assert re.search(r": \[#+\.*\] \d of 6 blocks, 0 s", shown) and shown.endswith("\r\033[K")


def test_stats() -> None:
    ds = lockstep.data.range(40_000).map_batches(lambda batch: {"x": batch["id"][::2] * 0.5})
    assert [step.rows for step in ds.stats().steps] == [0, 0]
    assert ds.count() == 20_000
    first, second = ds.stats().steps
    assert (first.step, second.step) == ("range: 40000", "map_batches(<lambda>)")
    assert first.rows == 40_000 and first.bytes == 320_000 and first.blocks == 3
    assert second.seconds > 0
    ds.to_arrow()
    assert ds.stats().steps[0].rows == 40_000  # results were kept
    assert ds.stats().steps[1].rows == 20_000 and ds.stats().steps[1].rows_per_second > 0
    assert "map_batches(<lambda>)" in str(ds.stats()) and ds.stats().skipped == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ds: ds.sum("x"), "the columns are id, t"),
        (lambda ds: ds.sum("t"), "not possible"),
        (lambda ds: ds.groupby("x"), "the columns are id, t"),
        (lambda ds: ds.groupby("t").mean("x"), "the columns are"),
        (lambda ds: ds.aggregate(), "no aggregates"),
        (lambda ds: ds.aggregate("sum"), "such as Sum"),
        (lambda ds: ds.aggregate(Std(3)), "name of a column"),
        (lambda ds: ds.groupby("id").map_groups(3), "must be a function"),
        (lambda ds: ds.groupby("id").map_groups(len, batch_format="x"), "batch_format"),
        (lambda ds: ds.select_columns("t").mean(), "needs columns with numbers"),
        (lambda ds: ds.split(0), "n is 0"),
        (lambda ds: ds.split_at_indices([3, 1]), "sorted"),
        (lambda ds: ds.split_at_indices([-1]), "-1"),
        (lambda ds: ds.split_at_indices([]), "no indices"),
        (lambda ds: ds.split_proportionately([0.5, 0.5]), "below 1"),
        (lambda ds: ds.split_proportionately([]), "no proportions"),
        (lambda ds: ds.train_test_split(1.5), "test_size is 1.5"),
        (lambda ds: ds.train_test_split(0), "test_size is 0"),
        (lambda ds: ds.train_test_split(11), "only 10 rows"),
        (lambda ds: ds.train_test_split(0.5, stratify="x"), "the columns are"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    rows = [{"id": n, "t": str(n)} for n in range(10)]
    with pytest.raises(ConfigError, match=message):
        call(lockstep.data.from_items(rows))
