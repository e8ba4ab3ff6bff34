"""Reading data sets: 2 M rows of 10 doubles from Parquet and CSV, against Arrow alone and a torch DataLoader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import torch
from lockstep import DataConfig, DataParallelTrainer, ScalingConfig, session
from measure import Row, median_row, quiet, scratch

ROWS, COLUMNS, BATCH, TIMES = 2_000_000, 10, 4096, 3


def measure() -> list[Row]:
    with scratch() as place:
        table = pyarrow.table({f"c{n}": numpy.random.default_rng(n).random(ROWS) for n in range(COLUMNS)})
        parquet, csv = str(place / "rows.parquet"), str(place / "rows.csv")
        pyarrow.parquet.write_table(table, parquet, row_group_size=100_000)
        pyarrow.csv.write_csv(table, csv)
        return [*of_parquet(place, parquet), *of_csv(place, csv), *of_places(parquet), of_loader(table)]


def of_parquet(place: Path, path: str) -> list[Row]:
    ds = lockstep.data.read_parquet(path)
    raw = rate(lambda: pyarrow.parquet.read_table(path, use_threads=True).num_rows)
    one = in_workers(place, ds, 1)
    two, shuffled, four = in_workers(place, ds, 2), in_workers(place, ds, 2, shuffle=True), in_workers(place, ds, 4)
    plain = rate(lambda: counted(ds.iter_batches(batch_size=BATCH)))
    mapped = rate(lambda: counted(ds.map_batches(lambda batch: batch, keeps_rows=True).iter_batches(batch_size=BATCH)))
    return [
        Row("Parquet, Arrow alone", raw / 1e6, "M rows/s"),
        Row("Parquet, two workers, tensors", two / 1e6, "M rows/s"),
        Row("... of Arrow alone", two / raw, "x", 0.8, at_least=True),
        Row("... shuffled, of unshuffled", shuffled / two, "x", 0.5, at_least=True),
        Row("... four workers, of one", four / one, "x", 0.95, at_least=True),
        Row("map_batches of an identity, of none", mapped / plain, "x", 0.9, at_least=True),
    ]


def of_csv(place: Path, path: str) -> list[Row]:
    raw = rate(lambda: pyarrow.csv.read_csv(path).num_rows)
    two = in_workers(place, lockstep.data.read_csv(path), 2)
    return [
        Row("CSV, Arrow alone", raw / 1e6, "M rows/s"),
        Row("CSV, two workers, of Arrow alone", two / raw, "x", 0.8, at_least=True),
    ]


def of_places(path: str) -> list[Row]:
    ds = lockstep.data.read_parquet(path)
    state = ds.iterator().state_dict()

    def first(position: int) -> float:
        it = ds.iterator()
        it.load_state_dict({**state, "position": position})
        begin = time.perf_counter()
        next(it.iter_torch_batches(batch_size=BATCH))
        return time.perf_counter() - begin

    return [
        median_row("first batch, shuffled", [first(0) for _ in range(7)], "s", 0.1),
        median_row("resume at row 1.9 M, shuffled", [first(1_900_000) for _ in range(7)], "s", 0.05),
    ]


def of_loader(table: pyarrow.Table) -> Row:
    """Of rows, as users write them: each sample is a tensor."""
    rows = torch.from_numpy(numpy.stack([column.to_numpy() for column in table.columns], axis=1)[:200_000])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=BATCH, num_workers=2)
    return Row(
        "torch DataLoader over rows in memory, 2 workers",
        rate(lambda: sum(len(b[0]) for b in loader)) / 1e6,
        "M rows/s",
    )


def in_workers(place: Path, ds: lockstep.data.Dataset, workers: int, shuffle: bool = False) -> float:
    """Rows per second of all workers together, the median of some epochs after the first."""

    def function() -> None:
        torch.set_num_threads(1)
        shard = session.get_dataset_shard("train")
        for _ in range(TIMES + 1):
            session.barrier()
            begin = time.perf_counter()
            for _ in shard.iter_torch_batches(batch_size=BATCH):
                pass
            session.barrier()
            session.report({"seconds": time.perf_counter() - begin})

    result = DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=quiet(place / "runs"),
        datasets={"train": ds},
        dataset_config=DataConfig(datasets_to_shuffle="all" if shuffle else []),
    ).fit()
    frame = result.metrics_dataframe
    assert frame is not None
    return float(ROWS / frame["seconds"].iloc[1:].median())


def counted(batches: Iterator[dict[str, Any]]) -> int:
    return sum(len(batch["c0"]) for batch in batches)


def rate(read: Callable[[], int]) -> float:
    """Rows per second, the best of some."""
    rates = []
    for _ in range(TIMES + 1):
        begin = time.perf_counter()
        rows = read()
        rates.append(rows / (time.perf_counter() - begin))
    return max(rates)
