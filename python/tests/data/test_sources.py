"""Where rows come from: every source against pyarrow or pandas."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from lockstep import ConfigError, StorageError
from lockstep.data import Dataset


def table_of(ds: Dataset) -> pyarrow.Table:
    """All rows, in order."""
    batches = list(ds.iter_batches(77, "pyarrow"))
    return pyarrow.concat_tables(batches) if batches else ds.schema().empty_table()


def odd_table(rows: int, seed: int = 0) -> pyarrow.Table:
    """Nulls, quotes, unicode, nested lists, dictionaries."""
    pick = random.Random(seed)
    texts = ["", "plain", 'say "hi"', "two\nlines", "c,d", "ünï ☃", "\t", "'", '"', "\r\n"]

    def some(value: Any) -> Any:
        return None if pick.random() < 0.2 else value

    return pyarrow.table(
        {
            "n": pyarrow.array([some(pick.randrange(-(2**40), 2**40)) for _ in range(rows)], pyarrow.int64()),
            "f": pyarrow.array([some(pick.gauss(0, 1)) for _ in range(rows)], pyarrow.float64()),
            "b": pyarrow.array([some(pick.random() < 0.5) for _ in range(rows)], pyarrow.bool_()),
            "s": pyarrow.array([some(pick.choice(texts)) for _ in range(rows)], pyarrow.string()),
            "l": pyarrow.array(
                [some([some(pick.randrange(9)) for _ in range(pick.randrange(4))]) for _ in range(rows)],
                pyarrow.list_(pyarrow.int32()),
            ),
            "d": pyarrow.array([some(pick.choice("xyz")) for _ in range(rows)], pyarrow.string()).dictionary_encode(),
            "st": pyarrow.array(
                [some({"p": n, "q": str(n)}) for n in range(rows)],
                pyarrow.struct({"p": pyarrow.int64(), "q": pyarrow.string()}),
            ),
            "t": pyarrow.array([some(n * 10**9) for n in range(rows)], pyarrow.timestamp("ns")),
        }
    )


@pytest.mark.parametrize("group", [1, 7, 100, 1000])
def test_parquet(tmp_path: Path, group: int) -> None:
    tables = [odd_table(rows, rows) for rows in (100, 0, 33, 1)]
    for number, table in enumerate(tables):
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=group)
    ds = lockstep.data.read_parquet(tmp_path)
    expected = pyarrow.concat_tables(tables, promote_options="permissive")
    assert ds.count() == 134
    assert ds.schema().names == expected.schema.names
    assert table_of(ds).to_pylist() == expected.to_pylist()
    for names in (["s"], ["st", "n"], ["t", "l", "d"]):
        assert table_of(ds.select_columns(names)).to_pylist() == expected.select(names).to_pylist()
    assert ds.limit(45).take_all() == expected.slice(0, 45).to_pylist()


def test_shuffled_rows_of_every_type_stay_whole(tmp_path: Path) -> None:
    table = odd_table(500)
    table = table.append_column("i", pyarrow.array(range(500)))
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=40)
    it = lockstep.data.read_parquet(tmp_path / "x.parquet").iterator(seed=3, window=90)
    rows = [row for batch in it.iter_batches(17, "pyarrow") for row in batch.to_pylist()]
    assert [row["i"] for row in rows] != list(range(500))
    assert sorted(rows, key=lambda row: row["i"]) == table.to_pylist()


def test_one_huge_row_group(tmp_path: Path) -> None:
    numbers = numpy.arange(300_000)
    pyarrow.parquet.write_table(pyarrow.table({"n": numbers}), tmp_path / "x.parquet", row_group_size=300_000)
    ds = lockstep.data.read_parquet(tmp_path / "x.parquet")
    assert numpy.array_equal(numpy.concatenate([b["n"] for b in ds.iter_batches(1000)]), numbers)
    shuffled = numpy.concatenate([b["n"] for b in ds.iterator(window=10_000).iter_batches(1000)])
    assert numpy.array_equal(numpy.sort(shuffled), numbers)


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_csv_with_quoted_line_breaks(tmp_path: Path, block_bytes: int) -> None:
    table = odd_table(300).select(["n", "f", "s"])
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows([row[name] for name in table.column_names] for row in table.to_pylist())
    oracle = pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))
    types = dict(zip(oracle.schema.names, oracle.schema.types, strict=True))
    ds = lockstep.data.read_csv(path, block_bytes=block_bytes, column_types=types)
    assert ds.count() == 300
    assert table_of(ds) == oracle
    assert ds.select_columns(["s", "n"]).take(50) == oracle.select(["s", "n"]).slice(0, 50).to_pylist()


def test_csv_infers_types_like_pandas(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"i": range(50), "f": numpy.linspace(0, 1, 50), "s": [f"t{n}" for n in range(50)]})
    for number in range(3):
        frame.to_csv(tmp_path / f"{number}.csv", index=False)
    ds = lockstep.data.read_csv(tmp_path / "*.csv")
    (whole,) = ds.iter_batches(1000, "pandas")
    pandas.testing.assert_frame_equal(whole, pandas.concat([frame] * 3, ignore_index=True), check_dtype=False)


def test_csv_of_random_text_agrees_with_pyarrow(tmp_path: Path) -> None:
    """Our search for rows and the parser see the same rows, or both refuse."""
    pick = random.Random(1)
    path = tmp_path / "x.csv"
    agreed = 0
    for _ in range(400):
        body = "".join(pick.choice(["a", "1", ",", ",", '"', '""', "\n", "\n", "\r\n", " "]) for _ in range(40))
        path.write_bytes(b"x,y\n" + body.encode())
        try:
            oracle = pyarrow.csv.read_csv(
                path,
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(column_types={"x": pyarrow.string(), "y": pyarrow.string()}),
            )
        except pyarrow.ArrowInvalid:
            continue
        types = {"x": pyarrow.string(), "y": pyarrow.string()}
        for block_bytes in (1, 10, 1000):
            assert table_of(lockstep.data.read_csv(path, column_types=types, block_bytes=block_bytes)) == oracle
        agreed += 1
    assert agreed > 10


@pytest.mark.parametrize("block_bytes", [300, 1 << 20])
def test_json_lines(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "x.jsonl"
    frame = pandas.DataFrame({"n": range(100), "s": ["ünï\n☃"] * 100, "l": [[1, 2]] * 100})
    frame.to_json(path, orient="records", lines=True)
    ds = lockstep.data.read_json(path, block_bytes=block_bytes)
    assert table_of(ds) == pyarrow.json.read_json(path)
    given = lockstep.data.read_json(
        path, schema=pyarrow.schema({"n": pyarrow.float32()}).append(ds.schema().field("s"))
    )
    with pytest.raises(StorageError, match="unexpected field"):
        given.take_all()


@pytest.mark.parametrize("block_bytes", [1, 40, 1 << 20])
def test_json_types_of_nested_nulls(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "x.jsonl"
    rows: list[dict[str, Any]] = [
        {"s": {"a": None, "b": [None], "c": {"d": None}}, "l": [{"x": None}], "n": None},
        {"s": {"a": 1, "b": [], "c": None}, "l": [], "n": None},
        {"s": {"a": None, "b": [1.5], "c": {"d": "text"}}, "l": [{"x": True}], "n": None},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ds = lockstep.data.read_json(path, block_bytes=block_bytes)
    assert table_of(ds) == pyarrow.json.read_json(path)
    assert ds.take_all() == rows
    path.write_text("".join(json.dumps(row) + "\n" for row in [rows[0]] * 30 + rows[2:]))
    assert lockstep.data.read_json(path, block_bytes=block_bytes).take_all() == [rows[0]] * 30 + rows[2:]


def test_json_types_are_inferred_from_16_mib(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    null = json.dumps({"s": {"a": None}, "text": "x" * 1000}) + "\n"
    path.write_text(null * 17_000 + json.dumps({"s": {"a": 1}, "text": ""}) + "\n")
    late = lockstep.data.read_json(path, block_bytes=1 << 20)
    with pytest.raises(StorageError, match=r"x\.jsonl, line 17001: .*give others with schema="):
        late.take_all()


def test_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\r\n")
    (tmp_path / "b.txt").write_text("ünï ☃")
    assert lockstep.data.read_text(tmp_path).take_all() == [{"text": "one"}, {"text": "two"}, {"text": "ünï ☃"}]
    assert lockstep.data.read_text(tmp_path, drop_empty_lines=False).count() == 4


def test_memory() -> None:
    table = odd_table(50)
    assert table_of(lockstep.data.from_arrow(table)).to_pylist() == table.to_pylist()
    assert lockstep.data.from_arrow([table, table]).count() == 100
    assert lockstep.data.from_arrow(pandas.DataFrame({"x": [1, 2]})).take_all() == [{"x": 1}, {"x": 2}]
    frame = pandas.DataFrame({"x": [1, 2], "s": ["a", None]}, index=[5, 6])
    assert lockstep.data.from_pandas(frame).take_all() == [{"x": 1, "s": "a"}, {"x": 2, "s": None}]
    assert lockstep.data.from_pandas([frame, frame]).count() == 4
    assert lockstep.data.from_items([{"a": 1}, {"b": "x"}]).take_all() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    assert lockstep.data.from_items([3, 4]).take_all() == [{"item": 3}, {"item": 4}]
    assert lockstep.data.range(40_000).count() == 40_000
    assert lockstep.data.range(0).take_all() == []


def test_memory_is_shared_with_pyarrow() -> None:
    table = pyarrow.table({"x": numpy.arange(1000.0)})
    (batch,) = lockstep.data.from_arrow(table).iter_batches(1000)
    assert batch["x"].__array_interface__["data"][0] == table["x"].chunk(0).buffers()[1].address


def test_arrays_with_more_dimensions() -> None:
    images = numpy.arange(5 * 2 * 3, dtype=numpy.float32).reshape(5, 2, 3)
    ds = lockstep.data.from_numpy({"image": images, "label": numpy.arange(5)})
    batches = list(ds.iter_batches(2))
    assert [batch["image"].shape for batch in batches] == [(2, 2, 3), (2, 2, 3), (1, 2, 3)]
    assert numpy.array_equal(numpy.concatenate([batch["image"] for batch in batches]), images)
    (shuffled,) = ds.iterator(seed=1).iter_batches(5)
    assert numpy.array_equal(shuffled["image"], images[shuffled["label"]])


def test_paths(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / f"{name}.txt").write_text(name)
    read = lockstep.data.read_text
    assert [row["text"] for row in read(str(tmp_path / "[ab].txt")).take_all()] == ["a", "b"]
    assert [row["text"] for row in read([tmp_path / "c.txt", str(tmp_path / "a.txt")]).take_all()] == ["c", "a"]
    with pytest.raises(StorageError, match=r"nothing.*no such file"):
        read(tmp_path / "nothing")
    with pytest.raises(StorageError, match="no file matches"):
        read(tmp_path / "*.nothing")
    with pytest.raises(ConfigError, match=r"nothing://bucket/x\.txt.*no file system"):
        read("nothing://bucket/x.txt")
    assert read(f"file://{tmp_path}/a.txt").take_all() == [{"text": "a"}]
    assert read([tmp_path / "a.txt", tmp_path / "nothing"], ignore_missing_paths=True).count() == 1
    with pytest.raises(StorageError, match="nothing"):
        read([tmp_path / "nothing"], ignore_missing_paths=True)


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{n},{n}\n" for n in range(1000)) + "7,seven\n")
    ds = lockstep.data.read_csv(path, block_bytes=1000)
    with pytest.raises(StorageError, match=r"x\.csv, line 1002: .*seven.*column_types="):
        ds.take_all()
    assert len(ds.take(900)) == 900
    (tmp_path / "y.parquet").write_text("no parquet")
    with pytest.raises(StorageError, match=r"y\.parquet"):
        lockstep.data.read_parquet(tmp_path / "y.parquet")


def test_files_that_change_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("one\ntwo\n")
    ds = lockstep.data.read_text(path)
    path.write_text("one\n")
    with pytest.raises(StorageError, match="must not change"):
        ds.take_all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lockstep.data.range(-1), "range"),
        (lambda: lockstep.data.range(5).limit(-1), "limit"),
        (lambda: lockstep.data.range(5).select_columns("x"), "the columns are id"),
        (lambda: lockstep.data.read_csv("x.csv", delimiter="ab"), "delimiter"),
        (lambda: lockstep.data.read_csv("x.csv", block_bytes=0), "block_bytes"),
        (lambda: lockstep.data.range(5).iterator(seed=-1), "seed"),
        (lambda: lockstep.data.range(5).iterator(window=0), "window"),
        (lambda: lockstep.data.range(5).iterator(rank=1), "rank"),
        (lambda: lockstep.data.read_text([]), "no paths"),
        (lambda: lockstep.data.from_arrow(3), "__arrow_c_stream__"),
        (lambda: lockstep.data.from_numpy(numpy.float32(1)), "array"),
    ],
)
def test_wrong_arguments(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
