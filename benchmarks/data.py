"""Reading data sets: 2 M rows of 10 doubles from Parquet and CSV, against Arrow alone, a torch DataLoader and Ray Data;
and the memory of workers that read a directory of 4 GB.

    .venv/bin/python benchmarks/run.py data
    .venv/bin/python benchmarks/data.py --memory-gb 4      # the memory alone, of so much Parquet and so much CSV
"""

from __future__ import annotations

import argparse
import math
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
from lockstep import DataConfig, DataParallelTrainer, ScalingConfig, session
from measure import Row, median_row, quiet, scratch
from peers import ray_data_seconds

ROWS, COLUMNS, BATCH, TIMES, ROUNDS = 2_000_000, 10, 4096, 5, 15
DIRECTORY_GB = 4.0


def measure() -> list[Row]:
    with scratch() as place:
        parquet, csv = write_files(place)
        rows = [*of_two(place, parquet, csv), *of_four(place, parquet), of_identity(parquet), *of_places(parquet)]
        rows += of_memory(place, parquet, csv, DIRECTORY_GB)
        loader = of_loader(pyarrow.parquet.read_table(parquet))
        two = next(row.value for row in rows if row.what == "Parquet, two workers, tensors")
        rows += [loader, Row("  ours, times the DataLoader", two / loader.value, "x", 10, at_least=True)]
        return [*rows, *of_ray(place, parquet)]


def write_files(place: Path) -> tuple[str, str]:
    table = pyarrow.table({f"c{n}": numpy.random.default_rng(n).random(ROWS) for n in range(COLUMNS)})
    parquet, csv = str(place / "rows.parquet"), str(place / "rows.csv")
    pyarrow.parquet.write_table(table, parquet, row_group_size=100_000)
    pyarrow.csv.write_csv(table, csv)
    return parquet, csv


def of_two(place: Path, parquet: str, csv: str) -> list[Row]:
    """Arrow alone is measured in rank 0, in turns with all ranks, because the machine may do other work for a while."""
    rows, text = lockstep.data.read_parquet(parquet), lockstep.data.read_csv(csv)

    def function() -> None:
        torch.set_num_threads(1)
        pyarrow.set_cpu_count(os.cpu_count())
        for _ in range(ROUNDS + 1):
            session.report(
                {
                    "arrow": alone(lambda: pyarrow.parquet.read_table(parquet)),
                    "two": together("rows"),
                    "shuffled": together("shuffled"),
                    "arrow csv": alone(lambda: pyarrow.csv.read_csv(csv)),
                    "csv": together("csv"),
                }
            )

    seconds = medians(place, {"rows": rows, "shuffled": rows, "csv": text}, 2, function, datasets_to_split="all")
    two, shuffled = ROWS / seconds["two"], ROWS / seconds["shuffled"]
    return [
        Row("Parquet, Arrow alone", ROWS / seconds["arrow"] / 1e6, "M rows/s"),
        Row("Parquet, two workers, tensors", two / 1e6, "M rows/s"),
        Row("... of Arrow alone", seconds["arrow"] / seconds["two"], "x", 0.8, at_least=True),
        Row("... shuffled, of unshuffled", shuffled / two, "x", 0.5, at_least=True),
        Row("CSV, Arrow alone", ROWS / seconds["arrow csv"] / 1e6, "M rows/s"),
        Row("CSV, two workers, tensors", ROWS / seconds["csv"] / 1e6, "M rows/s"),
        Row("... of Arrow alone", seconds["arrow csv"] / seconds["csv"], "x", 0.8, at_least=True),
    ]


def of_four(place: Path, path: str) -> list[Row]:
    ds = lockstep.data.read_parquet(path)

    def function() -> None:
        torch.set_num_threads(1)
        for _ in range(ROUNDS + 1):
            session.report({"one": alone(lambda: all_batches("one")), "four": together("four")})

    seconds = medians(place, {"one": ds, "four": ds}, 4, function, datasets_to_split=["four"])
    return [Row("Parquet, four workers, of one", seconds["one"] / seconds["four"], "x", 0.95, at_least=True)]


def of_identity(path: str) -> Row:
    ds = lockstep.data.read_parquet(path)
    identity = ds.map_batches(lambda batch: batch, keeps_rows=True)
    plain, mapped = rates(
        lambda: counted(ds.iter_batches(batch_size=BATCH)),
        lambda: counted(identity.iter_batches(batch_size=BATCH)),
        times=ROUNDS,
    )
    return Row("map_batches of an identity, of none", mapped / plain, "x", 0.9, at_least=True)


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


def of_memory(place: Path, parquet: str, csv: str, gigabytes: float) -> Iterator[Row]:
    """The largest memory that a worker ever had, with libraries and with the memory that it shares with others."""
    for kind, path, read in (("Parquet", parquet, lockstep.data.read_parquet), ("CSV", csv, lockstep.data.read_csv)):
        folder = place / "large"
        folder.mkdir()
        for number in range(math.ceil(gigabytes * 1e9 / Path(path).stat().st_size)):
            shutil.copyfile(path, folder / str(number))
        ds = read(str(folder))
        for workers, shuffle in ((2, False), (2, True), (4, True)):
            how = f"memory of a worker of {workers}, {gigabytes:g} GB of {kind}{', shuffled' if shuffle else ''}"
            yield from memory_of_worker(place, ds, workers, shuffle, how)
        shutil.rmtree(folder)


def memory_of_worker(place: Path, ds: lockstep.data.Dataset, workers: int, shuffle: bool, how: str) -> list[Row]:
    def function() -> None:
        for _ in range(3):
            all_batches("train")
            session.report({"most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000})

    frame = run(place, {"train": ds}, workers, function, datasets_to_shuffle="all" if shuffle else [])
    most = frame["most"].tolist()
    return [
        Row(how, most[-1], "MB", 500, samples=most),
        Row("... its growth from the second epoch to the third", most[2] - most[1], "MB", 10),
    ]


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


def in_workers(place: Path, ds: lockstep.data.Dataset, workers: int) -> float:
    """Rows per second of all workers together, the median of some epochs after the first."""

    def function() -> None:
        torch.set_num_threads(1)
        for _ in range(TIMES + 1):
            session.report({"seconds": together("train")})

    return ROWS / medians(place, {"train": ds}, workers, function)["seconds"]


def together(name: str) -> float:
    """In a worker: how long all ranks take for an epoch."""
    session.barrier()
    begin = time.perf_counter()
    all_batches(name)
    session.barrier()
    return time.perf_counter() - begin


def alone(work: Callable[[], object]) -> float:
    """In a worker: how long rank 0 takes, while the others wait."""
    session.barrier()
    begin = time.perf_counter()
    if session.get_world_rank() == 0:
        work()
    session.barrier()
    return time.perf_counter() - begin


def all_batches(name: str) -> None:
    for _ in session.get_dataset_shard(name).iter_torch_batches(batch_size=BATCH):
        pass


def medians(
    place: Path,
    datasets: dict[str, lockstep.data.Dataset],
    workers: int,
    function: Callable[[], None],
    datasets_to_split: list[str] | str = "all",
) -> dict[str, float]:
    """Of what rank 0 reports, without the first report."""
    frame = run(
        place,
        datasets,
        workers,
        function,
        datasets_to_split=datasets_to_split,
        datasets_to_shuffle=[name for name in datasets if name == "shuffled"],
    )
    return {name: float(values.iloc[1:].median()) for name, values in frame.items() if values.dtype == float}


def run(
    place: Path,
    datasets: dict[str, lockstep.data.Dataset],
    workers: int,
    function: Callable[[], None],
    **config: Any,
) -> Any:
    """The reports of rank 0."""
    return (
        DataParallelTrainer(
            function,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=quiet(place / "runs"),
            datasets=datasets,
            dataset_config=DataConfig(**config),
        )
        .fit()
        .metrics_dataframe
    )


def counted(batches: Iterator[dict[str, Any]]) -> int:
    return sum(len(batch["c0"]) for batch in batches)


def rate(read: Callable[[], int]) -> float:
    """Rows per second, the median of some after the first."""
    return rates(read)[0]


def rates(*reads: Callable[[], int], times: int = TIMES) -> list[float]:
    """The same of several, which take turns."""
    found: list[list[float]] = [[] for _ in reads]
    for _ in range(times + 1):
        for read, seen in zip(reads, found, strict=True):
            begin = time.perf_counter()
            rows = read()
            seen.append(rows / (time.perf_counter() - begin))
    return [statistics.median(seen[1:]) for seen in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-gb", type=float, default=DIRECTORY_GB, help="of each directory that is read")
    gigabytes = parser.parse_args().memory_gb
    with scratch() as place:
        parquet, csv = write_files(place)
        for row in of_memory(place, parquet, csv, gigabytes):
            print(f"{row.what:70} {row.text():>12}  {row.wanted_text():>12}  {row.verdict()}", flush=True)


if __name__ == "__main__":
    main()
