"""The ranks of a machine share the memory of what they read, also of what functions make of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from lockstep import DataConfig, Result, session

Fit = Callable[..., Result]
IN_ORDER = DataConfig(datasets_to_shuffle=[])


def rows_of(folder: Path, count: int, group: int) -> lockstep.data.Dataset:
    pyarrow.parquet.write_table(pyarrow.table({"x": numpy.arange(float(count))}), folder / "x.parquet", group)
    return lockstep.data.read_parquet(str(folder / "x.parquet"))


def handed_on(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def made_anew(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": batch["x"] + 0}


def kept(batch: dict[str, Any]) -> dict[str, Any]:
    sys.__dict__.setdefault("kept_batches", []).append((batch, batch["x"].tolist()))
    return batch


@pytest.mark.parametrize("function", [None, handed_on, made_anew, kept])
def test_rows_may_be_changed_in_place(fit: Fit, tmp_path: Path, function: Any) -> None:
    """Ranks share the memory of what they read, but each row belongs to one of them."""

    def train_func() -> None:
        shard = session.get_dataset_shard("train")
        for again in range(3):
            shard.set_epoch(again % 2)  # epoch 0 twice
            seen: list[float] = []
            for batch in shard.iter_torch_batches(batch_size=7):
                seen += batch["x"].tolist()
                batch["x"].fill_(-1)
            unchanged = [batch["x"].tolist() == values for batch, values in getattr(sys, "kept_batches", [])]
            (tmp_path / f"{again} {session.get_world_rank()}").write_text(json.dumps([seen, all(unchanged)]))
            session.barrier()

    ds = rows_of(tmp_path, 100, 30)
    if function is not None:
        ds = ds.map_batches(function)
    fit(train_func, 3, datasets={"train": ds}, dataset_config=IN_ORDER)
    for again in range(3):
        ranks = [json.loads((tmp_path / f"{again} {rank}").read_text()) for rank in range(3)]
        rows = [row for seen, _ in ranks for row in seen]
        assert set(rows) == set(range(100)) and len(rows) < 103, "no row is lost or changed by another rank"
        assert all(unchanged for _, unchanged in ranks), "what a function keeps is its own"


def test_tensors_of_a_mapped_data_set_lie_in_the_memory_of_all_ranks(fit: Fit, tmp_path: Path) -> None:
    def train_func() -> None:
        shared = []
        for batch in session.get_dataset_shard("train").iter_torch_batches(batch_size=10):
            lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:lockstep-data" in line]
            ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in lines]
            shared.append(any(begin <= batch["x"].data_ptr() < end for begin, end in ranges))
        (tmp_path / str(session.get_world_rank())).write_text(json.dumps(shared))

    fit(train_func, 2, datasets={"train": rows_of(tmp_path, 120, 60).map_batches(handed_on)}, dataset_config=IN_ORDER)
    for rank in range(2):
        shared = json.loads((tmp_path / str(rank)).read_text())
        assert shared == [True] * 5 + [False], "a rank may have to copy the row that fills its last batch"
