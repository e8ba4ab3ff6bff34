"""Reading data sets: 2 M rows of 10 doubles from Parquet and CSV, against Arrow alone, a torch DataLoader and Ray Data;
and the memory of workers that read a directory of 4 GB."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
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
from lockstep import DataConfig, DataParallelTrainer, Result, ScalingConfig, session
from measure import Row, median_row, quiet, scratch
from peers import ray_data_seconds

ROWS, COLUMNS, BATCH, TIMES, ROUNDS = 2_000_000, 10, 4096, 5, 3
DIRECTORY_BYTES = 4_000_000_000


def measure() -> list[Row]:
    with scratch() as place:
        table = pyarrow.table({f"c{n}": numpy.random.default_rng(n).random(ROWS) for n in range(COLUMNS)})
        parquet, csv = str(place / "rows.parquet"), str(place / "rows.csv")
        pyarrow.parquet.write_table(table, parquet, row_group_size=100_000)
        pyarrow.csv.write_csv(table, csv)
        rows = [*of_parquet(place, parquet), *of_csv(place, csv), *of_places(parquet), *of_memory(place, parquet)]
        loader = of_loader(table)
        two = next(row.value for row in rows if row.what == "Parquet, two workers, tensors")
        rows += [loader, Row("  ours, times the DataLoader", two / loader.value, "x", 10, at_least=True)]
        return [*rows, *of_ray(place, parquet)]


def of_parquet(place: Path, path: str) -> list[Row]:
    ds = lockstep.data.read_parquet(path)
    # In turns: the machine may do other work for a while.
    raw, one, two, shuffled, four = (
        statistics.median(rates)
        for rates in zip(
            *(
                (
                    rate(lambda: pyarrow.parquet.read_table(path, use_threads=True).num_rows),
                    in_workers(place, ds, 1),
                    in_workers(place, ds, 2),
                    in_workers(place, ds, 2, shuffle=True),
                    in_workers(place, ds, 4),
                )
                for _ in range(ROUNDS)
            ),
            strict=True,
        )
    )
    identity = ds.map_batches(lambda batch: batch, keeps_rows=True)
    plain, mapped = rates(
        lambda: counted(ds.iter_batches(batch_size=BATCH)), lambda: counted(identity.iter_batches(batch_size=BATCH))
    )
    return [
        Row("Parquet, Arrow alone", raw / 1e6, "M rows/s"),
        Row("Parquet, two workers, tensors", two / 1e6, "M rows/s"),
        Row("... of Arrow alone", two / raw, "x", 0.8, at_least=True),
        Row("... shuffled, of unshuffled", shuffled / two, "x", 0.5, at_least=True),
        Row("... four workers, of one", four / one, "x", 0.95, at_least=True),
        Row("map_batches of an identity, of none", mapped / plain, "x", 0.9, at_least=True),
    ]


def of_csv(place: Path, path: str) -> list[Row]:
    ds = lockstep.data.read_csv(path)
    raw, two = (
        statistics.median(rates)
        for rates in zip(
            *((rate(lambda: pyarrow.csv.read_csv(path).num_rows), in_workers(place, ds, 2)) for _ in range(ROUNDS)),
            strict=True,
        )
    )
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


def of_memory(place: Path, path: str) -> list[Row]:
    """The largest memory that a worker ever had, with the memory that it shares with others."""
    folder = place / "large"
    folder.mkdir()
    for number in range(-(-DIRECTORY_BYTES // Path(path).stat().st_size)):
        os.link(path, folder / f"{number}.parquet")
    ds = lockstep.data.read_parquet(str(folder))

    def function() -> None:
        for _ in range(3):
            for _ in session.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH):
                pass
            session.report({"most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000})

    rows = []
    for workers, shuffle in ((2, False), (2, True), (4, True)):
        frame = run(place, ds, workers, shuffle, function).metrics_dataframe
        assert frame is not None
        most = frame["most"].tolist()
        how = ", shuffled" if shuffle else ""
        rows.append(Row(f"memory of a worker of {workers}, 4 GB directory{how}", most[-1], "MB", 500, samples=most))
        rows.append(Row("... its growth from the second epoch to the third", most[2] - most[1], "MB", 10))
    shutil.rmtree(folder)
    return rows


def of_ray(place: Path, path: str) -> list[Row]:
    print("measuring Ray Data ...", flush=True)
    ds = lockstep.data.read_parquet(path)
    before = in_workers(place, ds, 2)
    try:
        seconds = ray_data_seconds(path, 2, BATCH, TIMES)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"  {error}")
        return []
    if seconds is None:
        print("  not installed: see benchmarks/peers.py")
        return []
    theirs, ours = ROWS / statistics.median(seconds), statistics.mean([before, in_workers(place, ds, 2)])
    return [
        Row("Ray Data, the same Parquet, two workers, tensors", theirs / 1e6, "M rows/s"),
        Row("  ours before and after it, times theirs", ours / theirs, "x", 50, at_least=True),
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

    frame = run(place, ds, workers, shuffle, function).metrics_dataframe
    assert frame is not None
    return float(ROWS / frame["seconds"].iloc[1:].median())


def run(place: Path, ds: lockstep.data.Dataset, workers: int, shuffle: bool, function: Callable[[], None]) -> Result:
    return DataParallelTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=quiet(place / "runs"),
        datasets={"train": ds},
        dataset_config=DataConfig(datasets_to_shuffle="all" if shuffle else []),
    ).fit()


def counted(batches: Iterator[dict[str, Any]]) -> int:
    return sum(len(batch["c0"]) for batch in batches)


def rate(read: Callable[[], int]) -> float:
    """Rows per second, the median of some after the first."""
    return rates(read)[0]


def rates(*reads: Callable[[], int]) -> list[float]:
    """The same of several, which take turns."""
    found: list[list[float]] = [[] for _ in reads]
    for _ in range(TIMES + 1):
        for read, seen in zip(reads, found, strict=True):
            begin = time.perf_counter()
            rows = read()
            seen.append(rows / (time.perf_counter() - begin))
    return [statistics.median(seen[1:]) for seen in found]
