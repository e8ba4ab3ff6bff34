"""Iterators over transformed data: the same sequence for every number of processes, from every position. And functions
in threads: what happens when the interpreter ends, forks or collects garbage."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from lockstep import ConfigError

Dataset = lockstep.data.Dataset


def odd(batch: dict[str, Any]) -> dict[str, Any]:
    keep = batch["id"] % 2 == 1
    return {"id": batch["id"][keep], "square": batch["id"][keep] ** 2}


PLANS: dict[str, Callable[[Dataset], Dataset]] = {
    "map_batches": lambda ds: ds.map_batches(odd),
    "keeps_rows": lambda ds: ds.map_batches(lambda batch: {"id": batch["id"] * 3}, keeps_rows=True),
    "map": lambda ds: ds.limit(5000).map(lambda row: {"id": row["id"] + 1}),
    "expression": lambda ds: ds.filter(expr="id > 1000 and id < 30000"),
    "function": lambda ds: ds.limit(20_000).filter(lambda row: row["id"] % 7 == 0),
    "flat_map": lambda ds: ds.limit(3000).flat_map(lambda row: [row] * (row["id"] % 3)),
    "limit": lambda ds: ds.map_batches(odd).limit(9000),
    "union": lambda ds: ds.limit(500).union(ds.filter(expr="id > 39_000"), ds.map_batches(odd).select_columns("id")),
    "zip": lambda ds: ds.zip(ds.rename_columns({"id": "other"})),
    "sample": lambda ds: ds.random_sample(0.3, seed=2),
    "sort": lambda ds: ds.sort("id", descending=True),
    "shuffle": lambda ds: ds.random_shuffle(seed=8),
    "blocks": lambda ds: ds.randomize_block_order(seed=8),
    "repartition": lambda ds: ds.repartition(11),
    "groups": lambda ds: ds.map_batches(lambda batch: {"id": batch["id"] // 3}).groupby("id").count(),
    "split": lambda ds: ds.filter(expr="id != 100").split(3)[1],
    "train": lambda ds: ds.train_test_split(0.2, shuffle=True, seed=1)[0],
    "long": lambda ds: ds.filter(expr="id > 7").map_batches(odd).drop_columns("square").repeat(2).sort("id").limit(777),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Dataset:
    folder = tmp_path_factory.mktemp("numbers")
    for number in range(3):
        part = pyarrow.table({"id": range(number * 12_000, (number + 1) * 12_000)})
        pyarrow.parquet.write_table(part, folder / f"{number}.parquet", row_group_size=2500)
    return lockstep.data.read_parquet(folder).union(lockstep.data.from_numpy({"id": numpy.arange(36_000, 40_000)}))


def ids(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["id"].tolist()]


@pytest.mark.parametrize("plan", PLANS)
def test_every_world_size_and_position_sees_the_same_sequence(source: Dataset, plan: str) -> None:
    ds = PLANS[plan](source)
    in_order = ids(ds.iter_batches(batch_size=999))
    assert len(in_order) == ds.count()
    options: dict[str, Any] = {"seed": 5, "window": 3000}
    whole = ids(ds.iterator(**options).iter_batches(64))
    assert sorted(whole) == sorted(in_order) and whole != in_order
    assert ids(ds.iterator(shuffle=False).iter_batches(100)) == in_order
    for world in (2, 3, 4, 8):
        ranks = [
            [batch["id"].tolist() for batch in ds.iterator(rank=rank, world_size=world, **options).iter_batches(64)]
            for rank in range(world)
        ]
        assert len({len(batches) for batches in ranks}) == 1
        dealt = [n for batches in zip(*ranks, strict=True) for batch in batches for n in batch]
        assert dealt[: len(whole)] == whole and len(dealt) - len(whole) < world
    pick = random.Random(plan)
    for _ in range(6):
        world, size = pick.choice([1, 2, 3, 4, 8]), pick.randrange(1, 300)
        given = pick.randrange(len(whole) // (world * size) + 1)
        it = ds.iterator(world_size=world, **options)
        batches = it.iter_batches(size)
        for _ in range(given):
            next(batches)
        state = json.loads(json.dumps(it.state_dict()))
        again = PLANS[plan](source).iterator(**options)  # as after a restart
        again.load_state_dict(state)
        assert ids(again.iter_batches(pick.randrange(1, 300))) == whole[given * world * size :]


def test_states_of_other_plans_are_refused(source: Dataset) -> None:
    state = source.filter(expr="id > 100").iterator().state_dict()
    for other in (source, source.filter(expr="id > 101"), source.filter(expr="id >= 100"), source.map_batches(odd)):
        with pytest.raises(ConfigError, match="load_state_dict"):
            other.iterator().load_state_dict(state)


def run(program: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    text = "import lockstep.data\n" + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout)


def test_the_interpreter_ends_while_functions_run() -> None:
    for rest in ("", "batches = None", "import sys; sys.exit(0)", "keep = [batches]; keep.append(keep); del batches"):
        done = run(f"""
            import time
            def slow(batch):
                time.sleep(0.01)
                return batch
            ds = lockstep.data.range(10_000_000).map_batches(slow, batch_size=None, keeps_rows=True)
            batches = ds.iterator(prefetch=4, window=1000).iter_batches(10)
            stream = ds.iter_batches(batch_size=10)
            print(len(next(batches)["id"]), len(next(stream)["id"]))
            {rest}
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "10 10\n", ""), rest


def test_a_fork_does_not_wait_for_threads_that_it_does_not_have() -> None:
    done = run("""
        import os
        ds = lockstep.data.range(10_000_000).map_batches(lambda batch: batch, keeps_rows=True)
        batches = ds.iterator(window=1000).iter_batches(10)
        next(batches)
        child = os.fork()
        if child == 0:
            del batches
            print(lockstep.data.range(3).take_all(), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(status, len(next(batches)["id"]))
    """)
    assert done.stdout == "[{'id': 0}, {'id': 1}, {'id': 2}]\n0 10\n", done.stderr


def test_garbage_is_collected_in_a_reading_thread() -> None:
    done = run("""
        import gc
        def collect(batch):
            gc.collect()
            return batch
        gc.disable()
        ds = lockstep.data.range(1_000_000).map_batches(collect, batch_size=None, keeps_rows=True)
        for _ in range(5):
            cycle = [ds.iterator(prefetch=3, window=1000).iter_batches(10)]
            next(cycle[0])
            cycle.append(cycle)
            del cycle  # a later function finds it, perhaps on one of its own threads
        print(sum(1 for _ in ds.limit(100_000).iter_batches(batch_size=1000)))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "100\n", "")


@pytest.mark.parametrize("call", ["ds.count()", "ds.materialize()", "ds.sort('id').take(1)", "list(ds.iter_batches())"])
def test_ctrl_c(call: str) -> None:
    program = f"""
import lockstep.data, time
def slow(batch):
    time.sleep(0.05)
    return batch
ds = lockstep.data.range(100_000_000).map_batches(slow, batch_size=None)
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout.read() == "interrupted\n"


def test_functions_may_use_data_sets(tmp_path: Path) -> None:
    names = lockstep.data.from_items([{"name": f"n{n}"} for n in range(100)])

    def look_up(batch: dict[str, Any]) -> dict[str, Any]:
        table = names.filter(expr="name != 'n5'").to_pandas()
        return {"name": [table["name"].iloc[n % 99] for n in batch["id"]]}

    ds = lockstep.data.range(20_000).map_batches(look_up)
    assert ds.count() == 20_000
    assert [row["name"] for row in ds.take(7)] == ["n0", "n1", "n2", "n3", "n4", "n6", "n7"]
    assert len(ids(lockstep.data.range(100).map_batches(odd).iterator().iter_batches(7))) == 50


def test_one_object_is_called_by_one_thread_at_a_time() -> None:
    class Counter:
        def __init__(self) -> None:
            self.running = 0
            self.most = 0

        def __call__(self, batch: Any) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            os.sched_yield()
            sum(range(20_000))
            self.running -= 1
            return {"most": [self.most]}

    ds = lockstep.data.range(30 * 16_384).map_batches(Counter, batch_size=None)
    assert [row["most"] for row in ds.materialize().take_all()] == [1] * 30
