"""Steps that make data sets from data sets, compared with pyarrow and pandas."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from lockstep import ConfigError

ROWS = 40_000  # three blocks in memory


@pytest.fixture(scope="module")
def table() -> pyarrow.Table:
    random = numpy.random.default_rng(1)
    return pyarrow.table(
        {
            "n": numpy.arange(ROWS),
            "x": random.normal(size=ROWS),
            "k": pyarrow.array([None if n % 11 == 0 else n % 7 for n in range(ROWS)], pyarrow.int64()),
            "s": pyarrow.array([None if n % 5 == 0 else f"s{n % 13}" for n in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module", params=["memory", "parquet", "json"])
def ds(request: Any, table: pyarrow.Table, tmp_path_factory: Any) -> lockstep.data.Dataset:
    if request.param == "memory":
        return lockstep.data.from_arrow(table)
    folder = tmp_path_factory.mktemp(request.param)
    for number in range(4):
        part = table.slice(number * ROWS // 4, ROWS // 4)
        if request.param == "parquet":
            pyarrow.parquet.write_table(part, folder / f"{number}.parquet", row_group_size=3000)
        else:
            (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in part.to_pylist()))
    if request.param == "parquet":
        return lockstep.data.read_parquet(folder)
    return lockstep.data.read_json(folder, block_bytes=100_000)


def rows_of(ds: lockstep.data.Dataset) -> pyarrow.Table:
    batches = [pyarrow.record_batch(batch) for batch in ds._batches(None)]
    return pyarrow.Table.from_batches(batches, ds.schema()) if batches else ds.schema().empty_table()


def double(batch: dict[str, Any]) -> dict[str, Any]:
    batch["x"] *= 2  # arrays may be changed
    batch["y"] = batch["n"] + 1
    return batch


def test_map_batches(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    found = rows_of(ds.map_batches(double))
    assert found.drop(["x"]).to_pylist() == table.append_column("y", pc.add(table["n"], 1)).drop(["x"]).to_pylist()
    assert numpy.allclose(found["x"], numpy.asarray(table["x"]) * 2)
    assert numpy.allclose(rows_of(ds)["x"], table["x"])  # the source is as it was


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow", "default", None])
def test_identity_in_every_format(ds: lockstep.data.Dataset, table: pyarrow.Table, batch_format: Any) -> None:
    found = ds.map_batches(lambda batch: batch, batch_format=batch_format, batch_size=700)
    assert found.schema().names == table.schema.names
    assert found.schema().types == table.schema.types or batch_format == "numpy"
    assert rows_of(found).drop(["x"]).to_pylist() == table.drop(["x"]).to_pylist()
    assert numpy.allclose(rows_of(found)["x"], table["x"])


def test_batches_have_the_size_that_was_asked_for() -> None:
    sizes: list[int] = []

    def note(batch: Any) -> Any:
        sizes.append(len(batch["id"]))
        return batch

    assert lockstep.data.range(1000).map_batches(note, batch_size=300).count() == 1000
    assert sizes == [300, 300, 300, 100]
    sizes.clear()
    assert lockstep.data.range(1000).map_batches(note, batch_size=None).count() == 1000
    assert sizes == [1000]
    sizes.clear()
    assert len(lockstep.data.range(9000).map_batches(note).take_all()) == 9000
    assert sizes == [4096, 4096, 808]


def test_arguments_reach_functions_and_classes() -> None:
    class Adder:
        made: list[int] = []  # noqa: RUF012

        def __init__(self, first: int, *, second: int) -> None:
            self.made.append(os.getpid())
            self.sum = first + second

        def __call__(self, batch: Any, third: int, fourth: int = 0) -> Any:
            return {"id": batch["id"] + self.sum + third + fourth}

    added = lockstep.data.range(40_000).map_batches(
        Adder,
        fn_constructor_args=(1,),
        fn_constructor_kwargs={"second": 10},
        fn_args=(100,),
        fn_kwargs={"fourth": 1000},
        batch_size=1000,
    )
    assert [row["id"] for row in added.take_all()] == list(range(1111, 41_111))
    assert added.count() == 40_000
    assert Adder.made == [os.getpid()]


def test_columns_are_changed_in_place_renamed_and_dropped(tmp_path: Path) -> None:
    fields = [pyarrow.field("a", pyarrow.int64(), nullable=False), pyarrow.field("b", pyarrow.float32())]
    table = pyarrow.table({"a": range(3000), "b": range(3000)}, schema=pyarrow.schema(fields))
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=1300)

    def second_time(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["a"][0] >= 1300:
            batch["a"] *= 2
        return batch

    def swapped(batch: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(["b", "a"], batch.values(), strict=True))

    def reordered(batch: dict[str, Any]) -> dict[str, Any]:
        return {"b": batch["b"], "a": batch["a"]}

    def replaced(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["a"][0] >= 1300:
            batch["a"] = batch["a"] + 1
        return batch

    a = numpy.arange(3000)
    for ds in (lockstep.data.read_parquet(tmp_path), lockstep.data.from_arrow(table)):
        same = ds.map_batches(lambda batch: batch)
        assert same.to_arrow() == pyarrow.table({"a": a, "b": a.astype("float32")})
        assert same.schema().field("a").nullable  # a new column, as that of any function
        assert ds.map_batches(lambda batch: batch, zero_copy_batch=True).to_arrow() == same.to_arrow()
        numbers = ds.map_batches(second_time, batch_size=100).to_arrow()["a"].to_numpy()
        assert numbers[:1300].tolist() == a[:1300].tolist()
        assert numbers[1300:].tolist() == (2 * a[1300:]).tolist()
        assert ds.map_batches(swapped).schema().names == ["b", "a"]
        assert ds.map_batches(swapped).to_arrow()["b"].to_pylist() == a.tolist()
        assert ds.map_batches(reordered).to_arrow().equals(pyarrow.table({"b": a.astype("float32"), "a": a}))
        assert ds.map_batches(lambda batch: {"a": batch["a"]}).to_arrow() == pyarrow.table({"a": a})
        found = ds.map_batches(replaced, batch_size=100).to_arrow()["a"].to_numpy()
        assert found.tolist() == numpy.where(a >= 1300, a + 1, a).tolist()
        assert ds.to_arrow() == table  # neither the file nor the memory of the user
        with pytest.raises(ValueError, match="read-only"):
            ds.map_batches(second_time, batch_size=100, zero_copy_batch=True).to_arrow()


def test_generators_give_several_batches_or_none() -> None:
    def halves(batch: Any) -> Iterator[Any]:
        middle = len(batch["id"]) // 2
        if batch["id"][0] >= 100:
            yield {"id": batch["id"][:middle]}
            yield {"id": batch["id"][middle:]}

    ds = lockstep.data.range(300).map_batches(halves, batch_size=100)
    assert [row["id"] for row in ds.take_all()] == list(range(100, 300))
    assert ds.count() == 200


def test_exceptions_keep_type_and_traceback_and_name_the_step() -> None:
    def broken(batch: Any) -> Any:
        if batch["id"][0] >= 30_000:
            raise LookupError("row 30000")
        return batch

    ds = lockstep.data.range(100_000).map_batches(broken)
    for run in (ds.take_all, ds.count, ds.materialize, lambda: list(ds.iterator())):
        with pytest.raises(LookupError, match="row 30000") as caught:
            run()
        assert any(frame.name == "broken" for frame in caught.traceback)
        if hasattr(caught.value, "__notes__"):
            assert caught.value.__notes__ == ["in the step map_batches(broken) of a data set"]
    assert len(ds.take(100)) == 100  # what does not need the broken rows works


def test_rows(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    few = ds.limit(20_000)
    expected = table.slice(0, 20_000).to_pylist()
    mapped = few.map(lambda row: {"n": row["n"], "t": f"{row['s']}!"})
    assert mapped.take_all() == [{"n": row["n"], "t": f"{row['s']}!"} for row in expected]
    filtered = few.filter(lambda row: row["k"] == 3)
    assert [row["n"] for row in filtered.take_all()] == [row["n"] for row in expected if row["k"] == 3]
    flat = few.flat_map(lambda row: [{"n": row["n"]}] * (row["n"] % 3))
    assert [row["n"] for row in flat.take_all()] == [row["n"] for row in expected for _ in range(row["n"] % 3)]
    assert few.flat_map(lambda row: []).take_all() == []
    frame = few.add_column("sum", lambda frame: frame["n"] + frame["x"]).to_pandas()
    assert numpy.allclose(frame["sum"], frame["n"] + frame["x"])


CONDITIONS: list[tuple[Any, Any]] = [
    ("n > 39_990", pc.field("n") > 39_990),
    ("n >= 5 and n < 20", (pc.field("n") >= 5) & (pc.field("n") < 20)),
    ("5 <= n < 20", (pc.field("n") >= 5) & (pc.field("n") < 20)),
    ("s == 's3' or not (x < 1.5)", (pc.field("s") == "s3") | ~(pc.field("x") < 1.5)),
    ("s in ['s1', 's2']", pc.field("s").isin(["s1", "s2"])),
    ("s not in ('s1', 's2')", ~pc.field("s").isin(["s1", "s2"])),
    ("k is None", pc.field("k").is_null()),
    ("k is not None and k + 2 * n == 10", pc.field("k").is_valid() & (pc.field("k") + pc.field("n") * 2 == 10)),
    ("`n` == -3", pc.field("n") == -3),
    ("(n > 10) & (n < 12)", (pc.field("n") > 10) & (pc.field("n") < 12)),
    ("true", pc.scalar(True)),
    ("false", pc.scalar(False)),
]


@pytest.mark.parametrize(("text", "expression"), CONDITIONS, ids=[text for text, _ in CONDITIONS])
def test_filters(ds: lockstep.data.Dataset, table: pyarrow.Table, text: str, expression: Any) -> None:
    expected = table.filter(expression)
    for filtered in (ds.filter(expr=text), ds.filter(expr=expression), ds.filter(expression)):
        assert rows_of(filtered)["n"].to_pylist() == expected["n"].to_pylist()
        assert filtered.count() == expected.num_rows
    narrow = ds.select_columns(["s", "n", "k", "x"]).filter(expr=text).select_columns("s")
    assert rows_of(narrow)["s"].to_pylist() == expected["s"].to_pylist()


def test_columns(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    few = ds.limit(100)
    expected = table.slice(0, 100)
    assert few.drop_columns(["x", "s"]).take_all() == expected.select(["n", "k"]).to_pylist()
    assert few.drop_columns("x").select_columns(["s", "n"]).take_all() == expected.select(["s", "n"]).to_pylist()
    renamed = few.rename_columns({"n": "number", "s": "n"}).drop_columns("x")
    assert renamed.take_all() == expected.drop(["x"]).rename_columns(["number", "k", "n"]).to_pylist()
    assert few.rename_columns(["a", "b", "c", "d"]).columns() == ["a", "b", "c", "d"]
    assert renamed.filter(expr="number < 3").count() == 3


def test_limits_read_no_more_than_they_need() -> None:
    seen: list[int] = []

    def note(batch: Any) -> Any:
        seen.append(int(batch["id"][0]))
        return {"id": batch["id"][batch["id"] % 2 == 0]}

    ds = lockstep.data.range(10 * 16_384).map_batches(note, batch_size=None)
    assert [row["id"] for row in ds.take(3)] == [0, 2, 4]
    assert set(seen) <= {0}
    assert ds.limit(10_000).count() == 10_000
    assert set(seen) <= {0, 16_384}
    assert len(ds.limit(10_000).take_all()) == 10_000
    assert ds.limit(0).take_all() == []


def test_unions(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    other = pyarrow.table({"k": [1.5], "x": [2.0], "n": [7], "s": ["a"]})
    both = ds.union(lockstep.data.from_arrow(other), ds.limit(2))
    assert both.count() == ROWS + 3
    last = rows_of(both).slice(ROWS)
    assert last.column_names == table.column_names
    assert last["k"].to_pylist() == [1.5, *table.slice(0, 2)["k"].to_pylist()]
    assert ds.limit(3).repeat(2).select_columns("n").take_all() == [{"n": n} for n in [0, 1, 2] * 2]
    with pytest.raises(ConfigError, match=r"union\(\) got data sets with other columns"):
        ds.union(lockstep.data.range(3))


def test_zips(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    other = lockstep.data.range(ROWS).map_batches(lambda batch: {"n": -batch["id"], "m": batch["id"]})
    zipped = rows_of(ds.zip(other))
    assert zipped.column_names == ["n", "x", "k", "s", "n_1", "m"]
    assert zipped["n"].to_pylist() == zipped["m"].to_pylist() == table["n"].to_pylist()
    assert rows_of(other.zip(ds).select_columns(["s", "m"]))["s"].to_pylist() == table["s"].to_pylist()
    with pytest.raises(ConfigError, match="40000 and 3 rows"):
        ds.zip(lockstep.data.range(3))


def test_shuffles(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    shuffled = rows_of(ds.random_shuffle(seed=3))
    assert shuffled["n"].to_pylist() != table["n"].to_pylist()
    assert shuffled.sort_by("n").drop(["x"]).to_pylist() == table.drop(["x"]).to_pylist()
    assert rows_of(ds.random_shuffle(seed=3)) == shuffled
    assert rows_of(ds.random_shuffle(seed=4)) != shuffled
    assert sorted(rows_of(ds.randomize_block_order(seed=1))["n"].to_pylist()) == table["n"].to_pylist()
    sample = rows_of(ds.random_sample(0.25, seed=5))["n"].to_pylist()
    assert 9_000 < len(sample) < 11_000 and sample == sorted(sample)
    assert rows_of(ds.random_sample(0.25, seed=5))["n"].to_pylist() == sample
    assert ds.random_sample(0.0).count() == 0 and ds.random_sample(1.0).count() == ROWS


def test_sorts(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    assert rows_of(ds.sort("x"))["n"].to_pylist() == table.sort_by("x")["n"].to_pylist()
    order = [("s", "descending"), ("x", "ascending")]
    assert rows_of(ds.sort(["s", "x"], [True, False]))["n"].to_pylist() == table.sort_by(order)["n"].to_pylist()
    assert [row["n"] for row in ds.sort("n", descending=True).take(2)] == [ROWS - 1, ROWS - 2]


def test_partitions(ds: lockstep.data.Dataset, table: pyarrow.Table) -> None:
    for blocks in (1, 7, 100):
        made = ds.repartition(blocks)
        assert made.num_blocks() == blocks
        assert rows_of(made)["n"].to_pylist() == table["n"].to_pylist()
    assert lockstep.data.range(3).repartition(5).num_blocks() == 5
    assert lockstep.data.range(3).repartition(5).count() == 3


def test_no_rows_at_all() -> None:
    empty = lockstep.data.range(10).filter(expr="id < 0")
    assert empty.count() == 0 and empty.take_all() == [] and list(empty.iter_batches()) == []
    assert empty.schema() == lockstep.data.range(10).schema()
    mapped = empty.map_batches(lambda batch: {"x": batch["id"] * 0.5})
    assert mapped.take_all() == [] and mapped.columns() == ["x"]
    for ds in (
        empty.map(lambda row: {"y": row["id"] + 1}),
        empty.filter(lambda row: True),
        empty.sort("id"),
        empty.random_shuffle(seed=1),
        empty.repartition(3),
        empty.union(empty),
        empty.zip(empty),
        empty.materialize(),
        empty.limit(3),
    ):
        assert ds.count() == 0 and ds.take_all() == []
        assert list(ds.iterator().iter_batches()) == []


def test_plans_are_printed() -> None:
    ds = lockstep.data.range(10).map_batches(double).select_columns("y").filter(expr="y > 2").limit(2)
    assert str(ds) == (
        "Dataset: rows not counted yet, columns not known yet\n"
        "  range: 10\n"
        "  map_batches(double)\n"
        "  select_columns: y (others are not read)\n"
        "  filter: (y > 2)\n"
        "  limit: 2 (blocks after it are not read)"
    )


def test_tensors_pass_through() -> None:
    images = numpy.arange(60, dtype=numpy.float32).reshape(10, 2, 3)
    ds = lockstep.data.from_numpy({"image": images, "n": numpy.arange(10)})
    (batch,) = ds.map_batches(lambda batch: {**batch, "image": batch["image"] + 1}, batch_size=3).iter_batches(10)
    assert numpy.array_equal(batch["image"], images + 1)
    (batch,) = ds.map(lambda row: {"image": row["image"].T}).iter_batches(10)
    assert numpy.array_equal(batch["image"], images.transpose(0, 2, 1))
    (batch,) = ds.map_batches(lambda frame: frame, batch_format="pandas").iter_batches(10)
    assert numpy.array_equal(batch["image"], images)


def test_types_are_widened_or_refused() -> None:
    def text(batch: Any, first: int) -> Any:
        return ["a"] * len(batch["id"]) if first % 2 == 0 else numpy.array(["a"] * len(batch["id"]))

    blocks = lockstep.data.range(40_000)
    nulls = blocks.map_batches(lambda batch: {"x": [None if batch["id"][0] < 20_000 else 1.5] * len(batch["id"])})
    assert nulls.schema().field("x").type == pyarrow.float64()
    assert nulls.count() == 40_000 and nulls.take(1) == [{"x": None}]
    for first, message in (
        (16_384, r'map_batches\(<lambda>\) gave the column "x" as string, .* as int64'),
        (20_000, "columns of different types.*int64 vs string"),
        (20_001, "columns of different types.*int64 vs string"),
    ):
        mixed = blocks.limit(32_768).map_batches(
            lambda batch, first=first: {"x": batch["id"] if batch["id"][0] < first else text(batch, first)}
        )
        with pytest.raises(ConfigError, match=message):
            mixed.take_all()
    other = blocks.map_batches(lambda batch: {"x" if batch["id"][0] < 20_000 else "y": batch["id"]})
    with pytest.raises(ConfigError, match="must always give the same ones"):
        other.take_all()


@pytest.mark.parametrize("batch_format", ["numpy", "pandas"])
def test_integers_with_nulls(batch_format: str) -> None:
    numbers = [*range(16_384), *(None if n % 3 == 0 else n for n in range(10_000))]
    ds = lockstep.data.from_arrow(pyarrow.table({"n": pyarrow.array(numbers, pyarrow.int64())}))
    same = ds.map_batches(lambda batch: {"n": batch["n"]}, batch_format=batch_format)
    assert same.to_arrow()["n"].to_pylist() == numbers
    fewer = ds.map_batches(lambda batch: {"n": batch["n"][1:]}, batch_format=batch_format, batch_size=None)
    assert fewer.to_arrow()["n"].to_pylist() == numbers[1:16_384] + numbers[16_385:]
    halves = ds.map_batches(lambda batch: {"n": batch["n"] / 2}, batch_format=batch_format)
    assert halves.schema().field("n").type == pyarrow.float64()
    assert halves.to_arrow()["n"].to_pylist()[:3] == [0, 0.5, 1]


def test_functions_run_while_others_hold_the_gil() -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        ds = lockstep.data.range(100_000).map_batches(lambda batch: batch)
        batches = ds.iterator().iter_batches(1000)
        next(batches)
        del batches  # while functions run
        assert ds.count() == 100_000
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ds: ds.map_batches(3), "must be a function"),
        (lambda ds: ds.map_batches(len, batch_size=0), "batch_size is 0"),
        (lambda ds: ds.map_batches(len, batch_size="large"), "batch_size is 'large'"),
        (lambda ds: ds.map_batches(len, batch_format="list"), "batch_format is 'list'"),
        (lambda ds: ds.map_batches(len, fn_constructor_args=(1,)), "fn_constructor_args"),
        (lambda ds: ds.map(None), "must be a function"),
        (lambda ds: ds.filter(), "either a function or expr"),
        (lambda ds: ds.filter(expr="id >"), "not understood"),
        (lambda ds: ds.filter(expr="open('x')"), "not supported"),
        (lambda ds: ds.filter(expr="idd > 3"), "the columns are id"),
        (lambda ds: ds.filter(expr="id + 1"), "must be true or false"),
        (lambda ds: ds.filter(expr=3), "must be text or"),
        (lambda ds: ds.select_columns("x"), "the columns are id"),
        (lambda ds: ds.select_columns([]), "no columns"),
        (lambda ds: ds.drop_columns("x"), "the columns are id"),
        (lambda ds: ds.drop_columns("id"), "leave at least one"),
        (lambda ds: ds.rename_columns({"x": "y"}), "the columns are id"),
        (lambda ds: ds.limit(-1), "limit is -1"),
        (lambda ds: ds.limit(1.5), "limit is 1.5"),
        (lambda ds: ds.union(3), "must be a data set"),
        (lambda ds: ds.zip([ds]), "must be a data set"),
        (lambda ds: ds.random_shuffle(seed=-1), "seed is -1"),
        (lambda ds: ds.random_sample(1.5), "from 0 to 1"),
        (lambda ds: ds.sort("x"), "the columns are id"),
        (lambda ds: ds.sort(), "no columns"),
        (lambda ds: ds.sort("id", [True, False]), "descending for 2"),
        (lambda ds: ds.repartition(0), "num_blocks is 0"),
        (lambda ds: ds.repeat(), "needs a number"),
        (lambda ds: ds.take_batch(0), "batch_size is 0"),
        (lambda ds: ds.take_all(limit=3), "more rows"),
        (lambda ds: ds.limit(0).take_batch(), "empty"),
        (lambda ds: ds.map_batches(lambda batch: 3).take(1), "gave a int"),
        (lambda ds: ds.map_batches(lambda batch: {"a": [1], "b": [1, 2]}).take(1), "equally long"),
        (lambda ds: ds.map(lambda row: 3).take(1), "a row is a dict"),
        (lambda ds: ds.map_batches(lambda batch: {"a": [1]}, keeps_rows=True).take(1), "as many as it gets"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call(lockstep.data.range(10))


def test_columns_that_a_function_hands_on_are_not_copied() -> None:
    """Also in several batches; what it changes in place is changed."""
    places: list[dict[str, int]] = []

    def function(batch: dict[str, Any]) -> dict[str, Any]:
        places.append({name: array.__array_interface__["data"][0] for name, array in batch.items()})
        batch["y"] *= 2
        batch["z"] = batch["x"] + 1
        return batch

    ds = lockstep.data.from_numpy({"x": numpy.arange(10.0), "y": numpy.ones(10)}).map_batches(function, batch_size=3)
    table = ds.to_arrow()
    assert table.column("x").to_pylist() == list(range(10)) and table.column("y").to_pylist() == [2.0] * 10
    assert table.column("z").to_pylist() == list(range(1, 11))
    for name in ("x", "y"):
        (column,) = table.column(name).chunks
        assert column.buffers()[1].address in [place[name] for place in places]


@pytest.mark.parametrize("late", [False, True])
def test_a_column_that_is_handed_on_only_sometimes(late: bool) -> None:
    def function(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] + 100} if (batch["id"][0] >= 6) == late else batch

    rows = lockstep.data.range(10).map_batches(function, batch_size=3).take_all()
    assert [row["id"] for row in rows] == [n + 100 if (n >= 6) == late else n for n in range(10)]
