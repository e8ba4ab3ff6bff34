"""Every source: all rows, once per epoch, in an order that depends neither on the number of ranks nor on restarts."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import lockstep.data
import numpy
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from lockstep.data import Dataset
from PIL import Image

ROWS = 203
NUMBERS = list(range(ROWS))
TEXTS = [f'"{n}",\n☃' if n % 3 else None for n in NUMBERS]
FRAME = pandas.DataFrame({"n": NUMBERS, "s": TEXTS})
PARTS = [FRAME[:100], FRAME[100:100], FRAME[100:]]  # one is empty


def csv(folder: Path) -> Dataset:
    for number, part in enumerate(PARTS):
        part.to_csv(folder / f"{number}.csv", index=False)
    return lockstep.data.read_csv(folder, block_bytes=200, column_types={"n": pyarrow.int64(), "s": pyarrow.string()})


def parquet(folder: Path) -> Dataset:
    for number, part in enumerate(PARTS):
        table = pyarrow.Table.from_pandas(part, pyarrow.schema({"n": pyarrow.int64(), "s": pyarrow.string()}), False)
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=30)
    return lockstep.data.read_parquet(folder)


def json_lines(folder: Path) -> Dataset:
    for number, part in enumerate(PARTS):
        part.to_json(folder / f"{number}.jsonl", orient="records", lines=True)
    return lockstep.data.read_json(folder, block_bytes=200)


def text(folder: Path) -> Dataset:
    for number in range(3):
        (folder / f"{number}.txt").write_text("".join(f"ü{n}\n" for n in NUMBERS[number::3]))
    return lockstep.data.read_text(folder, block_bytes=200).map(lambda row: {"n": int(row["text"][1:])})


def binary(folder: Path) -> Dataset:
    for n in NUMBERS:
        (folder / f"{n}.bin").write_bytes(bytes([n]) * n)
    return lockstep.data.read_binary_files(folder).map(lambda row: {"n": len(row["bytes"])})


def images(folder: Path) -> Dataset:
    for n in NUMBERS:
        Image.fromarray(numpy.full((2, 3), n, numpy.uint8)).save(folder / f"{n}.png")
    return lockstep.data.read_images(folder).map_batches(lambda batch: {"n": batch["image"][:, 0, 0].astype(int)})


def npy(folder: Path) -> Dataset:
    for number in range(3):
        numpy.save(folder / f"{number}.npy", numpy.array(NUMBERS[number::3]))
    return lockstep.data.read_numpy(folder).rename_columns({"data": "n"})


SOURCES: dict[str, Callable[[Path], Dataset]] = {
    "csv": csv,
    "parquet": parquet,
    "json": json_lines,
    "text": text,
    "binary": binary,
    "images": images,
    "npy": npy,
    "pandas": lambda folder: lockstep.data.from_pandas(FRAME),
    "arrow": lambda folder: lockstep.data.from_arrow([pyarrow.Table.from_pandas(part) for part in PARTS[::2]]),
    "items": lambda folder: lockstep.data.from_items([{"n": n, "s": TEXTS[n]} for n in NUMBERS]),
    "numpy": lambda folder: lockstep.data.from_numpy({"n": numpy.array(NUMBERS)}),
    "torch": lambda folder: lockstep.data.from_torch([{"n": n} for n in NUMBERS]),  # type: ignore[arg-type]
    "huggingface": lambda folder: lockstep.data.from_huggingface(datasets.Dataset.from_dict({"n": NUMBERS})),
    "range": lambda folder: lockstep.data.range(ROWS).rename_columns({"id": "n"}),
    "mapped": lambda folder: parquet(folder).filter(expr="n >= 0").map(lambda row: row),
    "shuffled": lambda folder: lockstep.data.from_pandas(FRAME).random_shuffle(seed=4).repartition(5),
}


def rows_of(batches: Any) -> list[tuple[int, str | None]]:
    """With the text, if there is one, to see that rows stay whole."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["n"], row.get("s", TEXTS[row["n"]]) or None) for row in rows]  # CSV has no nulls among texts


@pytest.mark.parametrize("source", SOURCES)
def test_every_world_size_sees_all_rows_in_one_order_from_any_position(source: str, tmp_path: Path) -> None:
    ds = SOURCES[source](tmp_path)
    options: dict[str, Any] = {"seed": 3, "window": 64, "equal": False}
    all_rows = Counter(zip(NUMBERS, TEXTS, strict=True))
    whole = []
    it = ds.iterator(**options)
    for epoch in range(2):
        whole.append(rows_of(it.iter_batches(7, "pyarrow")))
        assert it.epoch == epoch + 1 and Counter(whole[epoch]) == all_rows
    assert whole[0] != whole[1] and whole[0] != sorted(whole[0])
    for world in (2, 3, 4, 8):
        ranks = [ds.iterator(rank=rank, world_size=world, **options) for rank in range(world)]
        for epoch in range(2):
            dealt = [[rows_of([batch]) for batch in rank.iter_batches(7, "pyarrow")] for rank in ranks]
            turns = range(max(map(len, dealt)))
            assert [row for turn in turns for rank in dealt if turn < len(rank) for row in rank[turn]] == whole[epoch]

    pick = random.Random(5)
    for _ in range(100):
        world, size, epoch = pick.choice([1, 2, 3, 4, 8]), pick.randrange(1, 30), pick.randrange(2)
        given = pick.randrange(ROWS // (world * size) + 1)
        it = ds.iterator(world_size=world, **options)
        it.set_epoch(epoch)
        batches = it.iter_batches(size, "pyarrow")
        for _ in range(given):
            next(batches)
        state = json.loads(json.dumps(it.state_dict()))
        it = ds.iterator(**options)
        it.load_state_dict(state)
        assert rows_of(it.iter_batches(pick.randrange(1, 30), "pyarrow")) == whole[epoch][given * world * size :]


ODD = [
    {"s": 'say "hi"', "l": [[1, None], []], "o": {"p": 4, "q": "ü\n"}, "f": 0.5, "d": "x"},
    {"s": None, "l": None, "o": None, "f": None, "d": None},
    {"s": "", "l": [None, [3]], "o": {"p": None, "q": "☃ \u2028"}, "f": -1e300, "d": "y"},
    {"s": "\\ , \t'", "l": [], "o": {"p": -2, "q": ""}, "f": 3.0, "d": "x"},
]


@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_odd_json_agrees_with_pyarrow(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=n % 2 == 0) + "\n" for n, row in enumerate(ODD * 20)))
    (tmp_path / "y.jsonl").write_text("")
    ds = lockstep.data.read_json(tmp_path, block_bytes=block_bytes)
    oracle = pyarrow.json.read_json(path)
    assert ds.schema() == oracle.schema and ds.take_all() == oracle.to_pylist() == ODD * 20


@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_dictionaries_in_csv_agree_with_pyarrow(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "x.csv"
    pandas.DataFrame(ODD * 20)[["s", "d", "f"]].to_csv(path, index=False)
    types = {"s": pyarrow.string(), "d": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), "f": pyarrow.float64()}
    oracle = pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
    ds = lockstep.data.read_csv(path, block_bytes=block_bytes, column_types=types)
    assert ds.schema() == oracle.schema and ds.take_all() == oracle.to_pylist()
    shuffled = ds.iterator(window=20).iter_batches(9, "pyarrow")
    expected = Counter(map(str, oracle.to_pylist()))
    assert Counter(str(row) for batch in shuffled for row in batch.to_pylist()) == expected
