"""Steps that need all rows at once: sorts, shuffles and groups, under a trainer."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import lockstep.data
import numpy
import pytest
from lockstep import DataConfig, Result, TrainingFailedError, session

Fit = Callable[..., Result]
WORKERS = 3


def test_one_worker_of_a_node_does_them_for_all(fit: Fit, tmp_path: Path) -> None:
    def traced(frame: Any) -> Any:
        with open(tmp_path / "calls", "a") as calls:
            calls.write(f"{os.getpid()}\n")
        return frame["id"] % 10

    def size(group: dict[str, Any]) -> dict[str, Any]:
        return {"key": group["key"][:1], "size": numpy.array([len(group["id"])])}

    def train_func() -> None:
        sizes = {str(row["key"]): row["size"] for row in session.get_dataset_shard("groups").iter_rows()}
        for name in ("sorted", "shuffled"):
            rows = [row["id"] for row in session.get_dataset_shard(name).iter_rows()]
            (tmp_path / f"{name}_{session.get_world_rank()}").write_text(repr(rows))
        session.report({"sizes": sizes, "pid": os.getpid()})

    ds = lockstep.data.range(1000).add_column("key", traced)
    shuffled = ds.random_shuffle(seed=3)
    datasets = {
        "sorted": ds.sort("id", descending=True),
        "shuffled": shuffled.train_test_split(0.5)[0],
        "groups": shuffled.groupby("key").map_groups(size),  # uses the same shuffle
    }
    config = DataConfig(datasets_to_split=[])
    (tmp_path / "calls").write_text("")
    result = fit(train_func, WORKERS, datasets=datasets, dataset_config=config)

    assert result.metrics["sizes"] == {str(key): 100 for key in range(10)}
    calls = Counter(map(int, (tmp_path / "calls").read_text().split()))
    del calls[os.getpid()]  # fit() counts the groups
    # The one block is read for the sort and for the shuffle. Each rank asks for the types of the column.
    assert sum(calls.values()) <= 2 + WORKERS
    for name, wanted in (("sorted", list(range(999, -1, -1))), ("shuffled", None)):
        seen = {(tmp_path / f"{name}_{rank}").read_text() for rank in range(WORKERS)}
        assert len(seen) == 1
        assert wanted is None or seen == {repr(wanted)}


def test_their_errors_arrive(fit: Fit) -> None:
    driver = os.getpid()

    def broken(batch: dict[str, Any]) -> dict[str, Any]:
        if os.getpid() != driver:
            raise KeyError("in a worker")
        return batch

    def train_func() -> None:
        list(session.get_dataset_shard("train").iter_batches())

    ds = lockstep.data.range(10).map_batches(broken, keeps_rows=True).sort("id")
    with pytest.raises(TrainingFailedError, match="in a worker"):
        fit(train_func, WORKERS, datasets={"train": ds})


def test_a_stratified_split_is_decided_once(tmp_path: Path) -> None:
    def traced(batch: dict[str, Any]) -> dict[str, Any]:
        with open(tmp_path / "calls", "a") as calls:
            calls.write("x")
        return {"id": batch["id"], "even": batch["id"] % 2}

    for seed in (None, 5):
        ds = lockstep.data.range(1000).map_batches(traced, batch_size=None)
        parts = ds.train_test_split(0.3, shuffle=seed is not None, seed=seed, stratify="even")
        sent = cloudpickle.dumps(parts)
        (tmp_path / "calls").write_text("")
        there = pickle.loads(sent)
        assert (tmp_path / "calls").read_text() == ""
        assert [part.take_all() for part in there] == [part.take_all() for part in parts]
        assert there[1].sum("even") == 150
