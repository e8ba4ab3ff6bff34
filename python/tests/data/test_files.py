"""What goes wrong with files, and files of many kinds, against pyarrow."""

from __future__ import annotations

import gzip
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pyarrow
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs
import pyarrow.json
import pyarrow.parquet
import pytest
from lockstep import ConfigError, StorageError
from lockstep.data import Dataset

from .test_sources import odd_table, table_of


def skipped(ds: Dataset) -> int:
    stats = ds.stats()
    assert len(stats.skipped_places) == min(stats.skipped, 20)
    return stats.skipped


def csv_text(rows: int, seed: int = 0) -> bytes:
    """Two columns, with line breaks in quotes."""
    pick = random.Random(seed)
    return b"n,s\n" + b"".join(
        f'{n},"{pick.choice(["plain", "two{}lines", "a,b", ""]).format(chr(10))}"\n'.encode() for n in range(rows)
    )


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "lz4", "br"])
def test_compressed_text(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(csv_text(2000))
    packed = tmp_path / f"x.csv.{suffix}"
    codec = {"gz": "gzip", "zst": "zstd", "bz2": "bz2", "lz4": "lz4", "br": "brotli"}[suffix]
    with pyarrow.CompressedOutputStream(packed, codec) as stream:
        stream.write(path.read_bytes())
    plain = table_of(lockstep.data.read_csv(path))
    ds = lockstep.data.read_csv(packed)
    assert table_of(ds) == plain
    assert table_of(ds.select_columns(["s"])) == plain.select(["s"])
    assert sorted(r for b in ds.iterator(seed=1).iter_batches(100) for r in b["n"].tolist()) == list(range(2000))
    empty = tmp_path / f"empty.txt.{suffix}"
    with pyarrow.CompressedOutputStream(empty, codec) as stream:
        stream.write(b"")
    assert lockstep.data.read_text([empty, packed]).count() == lockstep.data.read_text(path).count()


def test_gzip_of_several_members_and_of_large_text(tmp_path: Path) -> None:
    path = tmp_path / "x.txt.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\nthree"))
    assert [row["text"] for row in lockstep.data.read_text(path).take_all()] == ["one", "two", "three"]
    line = b"x" * 1023 + b"\n"
    large = tmp_path / "large.txt.gz"
    large.write_bytes(gzip.compress(line * (70 << 10), 1))  # 70 MiB, in blocks of 64
    ds = lockstep.data.read_text(large)
    assert "2 blocks" in str(ds)
    assert sum(batch.num_rows for batch in ds.iter_batches(10_000, "pyarrow")) == 70 << 10


def test_broken_compression_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(csv_text(5000))[:-200])
    with pytest.raises(StorageError, match=r"x\.csv\.gz"):
        lockstep.data.read_csv(path)
    with pytest.raises(ConfigError, match=r"x\.csv\.xz is compressed"):
        (tmp_path / "x.csv.xz").write_bytes(b"x")
        lockstep.data.read_csv(tmp_path / "x.csv.xz")


def test_empty_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_bytes(b"")
    (tmp_path / "c.csv").write_text("x,y\n")
    (tmp_path / "d.csv").write_text("x,y\n1,2\n")
    ds = lockstep.data.read_csv(tmp_path)
    assert ds.take_all() == [{"x": 1, "y": 2}]
    assert lockstep.data.read_csv(tmp_path / "a.csv").take_all() == []
    assert lockstep.data.read_csv(tmp_path / "c.csv").columns() == ["x", "y"]
    for read in (lockstep.data.read_json, lockstep.data.read_text, lockstep.data.read_csv):
        assert read(tmp_path / "[ab].csv").count() == 0
    assert lockstep.data.read_binary_files(tmp_path / "a.csv").take_all() == [{"bytes": b""}]


def test_large_files_are_scanned_in_parts(tmp_path: Path) -> None:
    """Rows that lie across parts of 16 MiB, some within quotes, are found like those of a small file."""
    pick = random.Random(3)
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        file.write("n,s\n")
        n = 0
        while file.tell() < 50 << 20:
            text = pick.choice(
                ["a" * 500, '"' + "line\n" * pick.randrange(300_000) + '"', '"x""y"', "\u00fcn\u00ef" * 99]
            )
            file.write(f"{n},{text}\r\n")
            n += 1
            file.writelines(f"{m},{'b' * 200}\n" for m in range(n, n + 3000))
            n += 3000
    oracle = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=64 << 20),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
    )
    ds = lockstep.data.read_csv(path)
    assert ds.count() == n == oracle.num_rows
    assert pyarrow.concat_tables(ds.iter_batches(100_000, "pyarrow")) == oracle
    assert ds._native.fingerprint() == lockstep.data.read_csv(path)._native.fingerprint()


def test_indexing_can_be_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with path.open("wb") as file:
        file.truncate(30 << 30)  # no line break at all, and nothing on the disk
    code = f"import lockstep.data; print('begun', flush=True); lockstep.data.read_text({str(path)!r})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begun < 10
    assert "KeyboardInterrupt" in errors


def test_skipped_lines_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    bad = {7: "seven", 500: "5,6,7", 999: "x"}
    path.write_text("n\n" + "".join(f"{bad.get(n, n)}\n" for n in range(1000)))
    with pytest.raises(StorageError, match=r"x\.csv, line (9|502)"):
        lockstep.data.read_csv(path, column_types={"n": pyarrow.int64()}).take_all()
    for block_bytes in (10, 700, 1 << 20):
        ds = lockstep.data.read_csv(path, on_error="skip", column_types={"n": pyarrow.int64()}, block_bytes=block_bytes)
        assert ds.count() == 997
        assert [row["n"] for row in ds.take_all()] == [n for n in range(1000) if n not in bad]
        assert sorted(n for b in ds.iterator(window=50).iter_batches(64) for n in b["n"].tolist()) == [
            n for n in range(1000) if n not in bad
        ]
        assert skipped(ds) == 3
        assert {place.split(":")[0].split("line ")[1] for place in ds._native.skipped()[1]} == {"9", "502", "1001"}


def test_skipped_lines_of_other_text(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1, "b": "x"}\n{"a": \n{"a": 2, "b": "y"}\n[]\n{"a": 3}\n')
    ds = lockstep.data.read_json(path, on_error="skip")
    assert ds.take_all() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": None}]
    assert ds.select_columns(["a"]).count() == 3
    assert skipped(ds) == 2
    (tmp_path / "x.txt").write_bytes(b"one\n\xff\xfe\ntwo\n")
    ds = lockstep.data.read_text(tmp_path / "x.txt", on_error="skip")
    assert [row["text"] for row in ds.take_all()] == ["one", "two"]
    assert skipped(ds) == 1
    (tmp_path / "y.txt.gz").write_bytes(b"no gzip")
    ds = lockstep.data.read_text(tmp_path / "*.txt*", on_error="skip")
    assert ds.count() == 2
    assert skipped(ds) == 2


def test_skipped_row_groups(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"n": range(100)}), tmp_path / "a.parquet", row_group_size=10)
    pyarrow.parquet.write_table(
        pyarrow.table({"n": range(100, 200)}), tmp_path / "b.parquet", row_group_size=10, compression="none"
    )
    (tmp_path / "c.parquet").write_bytes(b"PAR1 is not all PAR1")
    with (tmp_path / "b.parquet").open("r+b") as file:
        file.write(b"PAR1" + b"\xff" * 40)  # the first pages
    with pytest.raises(StorageError, match=r"c\.parquet"):
        lockstep.data.read_parquet(tmp_path)
    with pytest.raises(StorageError, match=r"b\.parquet, row group 0"):
        lockstep.data.read_parquet(tmp_path / "[ab].parquet").take_all()
    ds = lockstep.data.read_parquet(tmp_path, on_error="skip")
    expected = [*range(100), *range(110, 200)]
    assert ds.count() == 190
    assert [row["n"] for row in ds.take_all()] == expected
    assert sorted(n for b in ds.iterator(seed=2, window=30).iter_batches(7) for n in b["n"].tolist()) == expected
    assert skipped(ds) == 2


def test_huge_row_groups_are_read_in_pieces(tmp_path: Path) -> None:
    table = odd_table(8000).append_column("i", pyarrow.array(numpy.arange(8000)))
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=6000)
    ds = lockstep.data.read_parquet(tmp_path / "x.parquet", piece_bytes=20_000)
    whole = lockstep.data.read_parquet(tmp_path / "x.parquet")
    assert ds.count() == 8000
    assert table_of(ds).to_pylist() == table_of(whole).to_pylist() == table.to_pylist()
    for columns in (["i"], ["s", "n"]):
        assert table_of(ds.select_columns(columns)).to_pylist() == table.select(columns).to_pylist()
    rows = [row for b in ds.iterator(seed=4, window=3000).iter_batches(500, "pyarrow") for row in b.to_pylist()]
    assert sorted(rows, key=lambda row: row["i"]) == table.to_pylist()
    assert ds._native.fingerprint() != whole._native.fingerprint()


def test_unified_schemas_of_parquet(tmp_path: Path) -> None:
    tables = [
        pyarrow.table({"a": pyarrow.array([1, 2], pyarrow.int32()), "b": ["x", None]}),
        pyarrow.table({"b": ["y"], "a": [2**40], "c": [0.5]}),
        pyarrow.table({"a": [0.25]}),
        pyarrow.table({"a": pyarrow.array([None, None], pyarrow.null())}),
    ]
    for number, table in enumerate(tables):
        pyarrow.parquet.write_table(table, tmp_path / f"{number}.parquet")
    with pytest.raises(StorageError, match=r"1\.parquet: column 0 .*unify_schemas=True"):
        lockstep.data.read_parquet(tmp_path)
    ds = lockstep.data.read_parquet(tmp_path, unify_schemas=True)
    expected = pyarrow.concat_tables(tables, promote_options="permissive")
    assert table_of(ds).to_pylist() == expected.to_pylist()
    assert ds.schema().names == ["a", "b", "c"]
    assert ds.schema().field("a").type == pyarrow.float64()
    assert ds.select_columns(["c", "a"]).take_all() == expected.select(["c", "a"]).to_pylist()
    pyarrow.parquet.write_table(pyarrow.table({"a": ["text"]}), tmp_path / "9.parquet")
    with pytest.raises(StorageError, match=r"9\.parquet: the column a is string.*no type holds both"):
        lockstep.data.read_parquet(tmp_path, unify_schemas=True)


def test_unified_schemas_of_text(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("a,b\n1,x\n")
    (tmp_path / "1.csv").write_text("c,a\n7,1.5\n")
    with pytest.raises(StorageError, match=r"1\.csv.*unify_schemas=True"):
        lockstep.data.read_csv(tmp_path)
    ds = lockstep.data.read_csv(tmp_path, unify_schemas=True)
    assert ds.take_all() == [{"a": 1.0, "b": "x", "c": None}, {"a": 1.5, "b": None, "c": 7}]
    assert ds.select_columns(["c"]).take_all() == [{"c": None}, {"c": 7}]
    (tmp_path / "0.jsonl").write_text('{"a": 1, "b": [1]}\n')
    (tmp_path / "1.jsonl").write_text('{"a": 1.5, "d": {"x": 1}}\n')
    with pytest.raises(StorageError, match=r"1\.jsonl, line 1"):
        lockstep.data.read_json(tmp_path / "*.jsonl").take_all()
    assert lockstep.data.read_json(tmp_path / "*.jsonl", unify_schemas=True).take_all() == [
        {"a": 1.0, "b": [1], "d": None},
        {"a": 1.5, "b": None, "d": {"x": 1}},
    ]


def test_types_of_columns_that_begin_with_nulls(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,\n" * 50 + "2,text\n" * 50)
    assert lockstep.data.read_csv(path, block_bytes=30).take_all()[-1] == {"a": 2, "b": "text"}


@pytest.mark.parametrize("seed", range(6))
def test_numbers_here_and_there_written_in_odd_ways(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    odd = ["", "NaN", "nan", "NULL", "inf", "-inf", '"1.5"', " 2", "2 ", "1e3", "-.5", "7.", "1e-320", "0" * 30 + "1"]

    def number(n: int) -> str:
        if n >= 20 and pick.random() < [0, 0.0002, 0.002, 0.05, 0.3, 1][seed]:
            return pick.choice(odd)
        return repr(pick.choice([pick.random(), pick.uniform(-1e9, 1e9), 10.0 ** pick.randint(-40, 40)]))

    end = "\r\n" if seed % 2 else "\n"
    rows = [f"{number(n)},{number(n)},{n}" for n in range(3000)]
    path = tmp_path / "x.csv"
    path.write_bytes(("a,b,n" + end + end.join(rows) + (end if seed % 3 else "")).encode())
    types = {"a": pyarrow.float64(), "b": pyarrow.float32() if seed == 2 else pyarrow.float64()}
    oracle = pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
    ds = lockstep.data.read_csv(path, block_bytes=2000, column_types=types)

    def exact(table: pyarrow.Table) -> list[Any]:
        return [[None if v is None else repr(v) for v in column.to_pylist()] for column in table.columns]

    assert ds.schema().equals(oracle.schema)
    assert exact(table_of(ds)) == exact(oracle)
    assert exact(table_of(ds.select_columns(["n", "a"]))) == exact(oracle.select(["n", "a"]))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (b"a;b\n1;'x;\ny'\n", {"parse_options": pyarrow.csv.ParseOptions(delimiter=";", quote_char="'")}),
        (b'a,b\n1,x\\,y\n2,"a\\"\nb"\n', {"parse_options": pyarrow.csv.ParseOptions(escape_char="\\")}),
        (b'a,b\n1,"x""\n2,y"\n', {"parse_options": pyarrow.csv.ParseOptions(quote_char=False)}),
        (b'a,b\n1,"x"\n2,"y"z\n', {"parse_options": pyarrow.csv.ParseOptions(double_quote=False)}),
        (b"a\r\n1\r\n\r\n2\r\n", {"parse_options": pyarrow.csv.ParseOptions(ignore_empty_lines=False)}),
        (b"# one\n# two\na,b\n1,2\n", {"read_options": pyarrow.csv.ReadOptions(skip_rows=2)}),
        (b"a,b\nunits,x\n1,2\n3,4\n", {"read_options": pyarrow.csv.ReadOptions(skip_rows_after_names=1)}),
        (b"1,2\n3,4\n", {"read_options": pyarrow.csv.ReadOptions(autogenerate_column_names=True)}),
        (b"1,2\n3,4\n", {"read_options": pyarrow.csv.ReadOptions(column_names=["p", "q"])}),
        (
            b"a,b,c\n1,-,1.5\n2,yes,2.5\n",
            {
                "convert_options": pyarrow.csv.ConvertOptions(
                    null_values=["-"],
                    true_values=["yes"],
                    strings_can_be_null=True,
                    column_types={"a": pyarrow.float32()},
                    include_columns=["c", "b", "a"],
                )
            },
        ),
        (
            b"t,d\n01.02.2020,x\n03.04.2021,y\n",
            {"convert_options": pyarrow.csv.ConvertOptions(timestamp_parsers=["%d.%m.%Y"], auto_dict_encode=True)},
        ),
        (b"a,b\n1;5\n", {"convert_options": pyarrow.csv.ConvertOptions(decimal_point=";"), "names": True}),
        (b"a,b\n1.5,-9\n-9,2\n", {"convert_options": pyarrow.csv.ConvertOptions(null_values=["-9"])}),
        (b"a\n1.5\n\n2.5\n", {"parse_options": pyarrow.csv.ParseOptions(ignore_empty_lines=False)}),
        (b"a.b\n1.5\n2.5\n", {"parse_options": pyarrow.csv.ParseOptions(delimiter=".")}),
    ],
)
def test_options_of_pyarrow(tmp_path: Path, text: bytes, options: dict[str, Any]) -> None:
    path = tmp_path / "x.csv"
    if options.pop("names", False):
        text = b"a\n1;5\n2;5\n"
    path.write_bytes(text)
    parse = options.get("parse_options", pyarrow.csv.ParseOptions())
    oracle_parse = pyarrow.csv.ParseOptions(
        delimiter=parse.delimiter,
        quote_char=parse.quote_char,
        double_quote=parse.double_quote,
        escape_char=parse.escape_char,
        ignore_empty_lines=parse.ignore_empty_lines,
        newlines_in_values=True,
    )
    oracle = pyarrow.csv.read_csv(path, **{**options, "parse_options": oracle_parse})
    ds = lockstep.data.read_csv(path, **options)
    assert table_of(ds).to_pylist() == oracle.to_pylist()
    assert ds.schema() == oracle.schema


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lockstep.data.read_csv("x", on_error="ignore"), "on_error"),
        (lambda: lockstep.data.read_parquet("x", piece_bytes=0), "piece_bytes"),
        (
            lambda: lockstep.data.read_csv("x", read_options=pyarrow.csv.ReadOptions(encoding="latin1")),
            "only UTF-8",
        ),
        (
            lambda: lockstep.data.read_csv(
                "x", parse_options=pyarrow.csv.ParseOptions(invalid_row_handler=lambda row: "skip")
            ),
            "on_error='skip'",
        ),
    ],
)
def test_wrong_options(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


def test_escapes_and_other_quotes_of_random_text_agree_with_pyarrow(tmp_path: Path) -> None:
    pick = random.Random(5)
    path = tmp_path / "x.csv"
    types = {"x": pyarrow.string(), "y": pyarrow.string()}
    agreed = 0
    for _ in range(300):
        parse = pyarrow.csv.ParseOptions(
            quote_char=pick.choice(['"', "'", False]),
            double_quote=pick.random() < 0.5,
            escape_char=pick.choice(["\\", False]),
            ignore_empty_lines=pick.random() < 0.7,
            newlines_in_values=True,
        )
        tokens = ["a", "b", "", '"', "'", '""', "''", "\\", "\\\n", "\n", '"\n"', "'x\r\ny'"]

        def field(tokens: list[str] = tokens) -> str:
            return "".join(pick.choice(tokens) for _ in range(pick.randrange(3)))

        body = "".join(f"{field()}a,{field()}{pick.choice([chr(10), chr(13) + chr(10)])}" for _ in range(8))
        path.write_bytes(b"x,y\n" + body.encode())
        convert = pyarrow.csv.ConvertOptions(column_types=types)
        try:
            oracle = pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)
        except pyarrow.ArrowInvalid:
            continue
        for block_bytes in (1, 10, 1000):
            ds = lockstep.data.read_csv(path, parse_options=parse, column_types=types, block_bytes=block_bytes)
            assert table_of(ds) == oracle, (body, parse)
        agreed += 1
    assert agreed > 10


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("n") < 250,
        (pc.field("n") >= 995) | (pc.field("s") == "s3"),
        pc.field("f") > 2.0,
        ~(pc.field("f") <= 2.0),
        pc.field("m").is_null(),
        pc.field("m").isin([3, 5000]),
        pc.field("n") == pc.field("n"),
        pc.field("t") > pyarrow.scalar(900 * 10**9, pyarrow.timestamp("ns")),
        [("n", ">", 100), ("n", "<", 200)],
        pc.field("nothing") > 3,
    ],
)
@pytest.mark.parametrize("piece_bytes", [500, 1 << 20])
def test_filters_of_parquet(tmp_path: Path, expression: Any, piece_bytes: int) -> None:
    """Rows are those that pyarrow gives, whatever the statistics leave out."""
    numbers = numpy.arange(1000)
    floats = numpy.where(numbers % 3 == 0, numpy.nan, numbers / 100.0)
    table = pyarrow.table(
        {
            "n": numbers,
            "f": floats,
            "m": pyarrow.array([None if n % 100 < 50 else n for n in range(1000)], pyarrow.int32()),
            "s": [f"s{n // 100}" for n in range(1000)],
            "t": pyarrow.array(numbers * 10**9, pyarrow.timestamp("ns")),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=50)
    if "nothing" in str(expression):
        with pytest.raises(ConfigError, match="nothing"):
            lockstep.data.read_parquet(tmp_path, filter=expression).count()
        return
    is_list = isinstance(expression, list)
    expected = table.filter(pyarrow.parquet.filters_to_expression(expression) if is_list else expression)
    ds = lockstep.data.read_parquet(tmp_path, filter=expression, columns=["s", "n"], piece_bytes=piece_bytes)
    assert ds.count() == expected.num_rows
    assert [row["n"] for row in ds.take_all()] == expected["n"].to_pylist()


def test_row_groups_that_a_filter_excludes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": range(100)}), path, row_group_size=10, compression="none")
    with path.open("r+b") as file:
        file.write(b"PAR1" + b"\xff" * 40)  # the first pages
    ds = lockstep.data.read_parquet(path, filter=pc.field("n") >= 75)
    assert "7 of 10 blocks not read" in str(ds)
    assert [row["n"] for row in ds.take_all()] == list(range(75, 100))
    with pytest.raises(StorageError, match="row group 0"):
        lockstep.data.read_parquet(path, filter=pc.field("n") >= 5).count()


def test_sources_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"n": range(100)}), tmp_path / "x.parquet", row_group_size=10)
    (tmp_path / "x.csv").write_text("a;b\n1;2\n")
    for ds in (
        lockstep.data.read_parquet(tmp_path / "x.parquet", filter=pc.field("n") > 50, unify_schemas=True),
        lockstep.data.read_csv(tmp_path / "x.csv", parse_options=pyarrow.csv.ParseOptions(delimiter=";")),
        lockstep.data.read_csv(
            "x.csv", filesystem=pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
        ),
        lockstep.data.from_torch([1, 2, 3]),
    ):
        assert pickle.loads(pickle.dumps(ds)).take_all() == ds.take_all()


def test_filters_of_files_that_differ(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "b": [1, 2]}), tmp_path / "0.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"b": [2.5], "c": ["x"]}), tmp_path / "1.parquet")
    ds = lockstep.data.read_parquet(tmp_path, unify_schemas=True, filter=pc.field("b") > 1.5)
    assert ds.take_all() == [{"a": 2, "b": 2.0, "c": None}, {"a": None, "b": 2.5, "c": "x"}]
    assert lockstep.data.read_parquet(tmp_path, unify_schemas=True, filter=pc.field("a").is_null()).count() == 1
