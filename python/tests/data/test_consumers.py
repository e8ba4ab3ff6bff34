"""What loops give: torch pairs, rows, collated batches; what they hold back; what they say."""

from __future__ import annotations

import random
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pytest
import torch
from lockstep import ConfigError
from lockstep.data import _waits


def numbers(count: int = 20) -> lockstep.data.Dataset:
    rows = numpy.arange(count, dtype=numpy.float32)
    return lockstep.data.from_numpy({"a": rows, "b": rows * 2, "y": numpy.arange(count)})


def test_to_torch_gives_pairs() -> None:
    pairs = numbers().to_torch(label_column="y", batch_size=8)
    assert isinstance(pairs, torch.utils.data.IterableDataset)
    x, y = next(iter(pairs))
    assert x.shape == (8, 2) and y.shape == (8, 1) and x.dtype == torch.float32 and y.dtype == torch.int64
    assert torch.equal(x[:, 1], 2 * x[:, 0]) and torch.equal(y[:, 0].float(), x[:, 0])
    loader = torch.utils.data.DataLoader(pairs, batch_size=None)
    assert [len(y) for _, y in loader] == [len(y) for _, y in loader] == [8, 8, 4]
    x, none = next(iter(numbers().to_torch(batch_size=2)))
    assert x.shape == (2, 3) and none is None
    with pytest.raises(ConfigError, match="num_workers=0"):
        next(iter(torch.utils.data.DataLoader(pairs, batch_size=None, num_workers=1)))


def test_to_torch_with_groups_of_columns_and_types() -> None:
    lists = numbers().to_torch(
        label_column="y",
        feature_columns=[["a"], ["b", "a"]],
        feature_column_dtypes=[torch.float64, torch.float16],
        label_column_dtype=torch.float32,
        unsqueeze_label_tensor=False,
        batch_size=20,
    )
    ((a, ba), y) = next(iter(lists))
    assert a.shape == (20, 1) and ba.shape == (20, 2) and y.shape == (20,)
    assert (a.dtype, ba.dtype, y.dtype) == (torch.float64, torch.float16, torch.float32)
    named = numbers().to_torch(
        feature_columns={"one": ["a"], "two": ["b"]},
        feature_column_dtypes={"two": torch.int64},
        unsqueeze_feature_tensors=False,
        batch_size=4,
    )
    features, _ = next(iter(named))
    assert features["one"].shape == (4,) and features["two"].dtype == torch.int64
    (x, _) = next(iter(numbers().to_torch(feature_columns="b", drop_last=True, batch_size=16)))
    assert x.shape == (16, 1)
    for options, words in (
        ({"label_column": "z"}, "label_column has 'z', but the columns are a, b, y"),
        ({"feature_columns": ["z"]}, "feature_columns has 'z'"),
        ({"feature_columns": [[]]}, "at least one column"),
        ({"feature_columns": ["a"], "feature_column_dtypes": {"a": torch.int8}}, "feature_column_dtypes is"),
    ):
        with pytest.raises(ConfigError, match=words):
            numbers().to_torch(**options)


@pytest.mark.filterwarnings("error")
def test_collate_fn() -> None:
    def collate(batch: dict[str, Any]) -> tuple[torch.Tensor, list[Any]]:
        return torch.as_tensor(batch["a"]), [torch.as_tensor(batch["y"]), "text"]

    for prefetch in (0, 1, 5):
        it = numbers().iterator(seed=3)
        batches = it.iter_torch_batches(6, collate_fn=collate, device="cpu", prefetch_batches=prefetch)
        collated = list(batches)
        assert [len(a) for a, _ in collated] == [6, 6, 6, 2]
        assert all(torch.equal(a, y.float()) and text == "text" for a, (y, text) in collated)
        for a, _ in collated:
            a += 1  # a batch may be changed
    assert numbers().take(1) == [{"a": 0.0, "b": 0.0, "y": 0}]
    for options, words in (
        ({"collate_fn": 5}, "collate_fn is 5"),
        ({"collate_fn": collate, "dtypes": torch.int8}, "together"),
        ({"prefetch_batches": -1}, "prefetch_batches is -1"),
    ):
        with pytest.raises(ConfigError, match=words):
            numbers().iter_torch_batches(6, **options)
    (batch,) = numbers().iter_torch_batches(20, pin_memory=True)
    assert batch["a"].is_pinned() == torch.cuda.is_available()


def test_what_is_made_ahead_does_not_count() -> None:
    it = numbers(100).iterator(shuffle=False)
    made = []

    def collate(batch: dict[str, Any]) -> Any:
        made.append(int(batch["y"][0]))
        return batch["y"].tolist()

    batches = it.iter_torch_batches(10, collate_fn=collate, prefetch_batches=4)
    assert next(batches) == [*range(10)] and next(batches) == [*range(10, 20)]
    deadline = time.monotonic() + 10
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(made) in (5, 6) and it.state_dict()["position"] == 20
    state = it.state_dict()
    other = numbers(100).iterator(shuffle=False)
    other.load_state_dict(state)
    assert next(other.iter_batches(1))["y"].tolist() == [20]
    batches.close()  # type: ignore[attr-defined]
    assert "lockstep-batches" not in {thread.name for thread in threading.enumerate()}
    assert len(made) <= 7


def test_an_error_of_collate_fn_comes_in_its_turn() -> None:
    def collate(batch: dict[str, Any]) -> Any:
        if 10 in batch["y"]:
            raise KeyError("no such thing")
        return batch["y"]

    batches = numbers(100).iter_torch_batches(5, collate_fn=collate, prefetch_batches=3)
    assert len(next(batches)) == len(next(batches)) == 5
    with pytest.raises(KeyError, match="no such thing"):
        next(batches)


def test_rows_are_dealt_one_by_one_and_counted_one_by_one() -> None:
    ds = lockstep.data.range(1000)
    whole = [row["id"] for row in ds.iterator(seed=1).iter_rows()]
    assert sorted(whole) == list(range(1000))
    for world in (2, 3):
        ranks = [[row["id"] for row in ds.iterator(seed=1, rank=r, world_size=world).iter_rows()] for r in range(world)]
        assert [ids[7] for ids in ranks] == whole[7 * world : 8 * world]
        assert [len(ids) for ids in ranks] == [ds.iterator(rank=r, world_size=world).count() for r in range(world)]
    unshuffled = [row["id"] for row in ds.iterator(shuffle=False, rank=1, world_size=2).iter_rows()]
    assert unshuffled == list(range(1, 1000, 2))
    pick = random.Random(1)
    for _ in range(20):
        given = pick.randrange(1000)
        it = ds.iterator(seed=1)
        rows = it.iter_rows()
        for _ in range(given):
            next(rows)
        assert it.state_dict()["position"] == given
        again = ds.iterator(seed=1)
        again.load_state_dict(it.state_dict())
        assert [row["id"] for row in again.iter_rows()] == whole[given:]


def test_local_shuffle_is_a_window_that_can_be_resumed() -> None:
    ds = lockstep.data.range(500)
    it = ds.iterator(shuffle=False)
    batches = it.iter_batches(10, local_shuffle_buffer_size=50, local_shuffle_seed=9)
    first = [n for _ in range(7) for n in next(batches)["id"].tolist()]
    assert first != sorted(first) and all(abs(n - place) < 50 for place, n in enumerate(first))
    state = it.state_dict()
    rest = [n for batch in batches for n in batch["id"].tolist()]
    assert sorted(first + rest) == list(range(500)) and len(str(state)) < 300
    assert it.epoch == 1
    again = ds.iterator(shuffle=False)
    again.load_state_dict(state)
    loop = again.iter_batches(10, local_shuffle_buffer_size=50, local_shuffle_seed=9)
    assert [n for batch in loop for n in batch["id"].tolist()] == rest
    assert again.epoch == 1 and [batch["id"][0] for batch in again.iter_batches(250)] == [0, 250]
    assert again.epoch == 2
    other = ds.iterator(shuffle=False)
    other.load_state_dict(state)
    with pytest.raises(ConfigError, match="the loaded position does not fit"):
        next(other.iter_batches(10))
    with pytest.raises(ConfigError, match="window is 0 rows"):
        ds.iter_batches(10, local_shuffle_buffer_size=0)


def test_materialize_and_counts() -> None:
    ds = lockstep.data.range(11)
    shards = [ds.iterator(rank=rank, world_size=2, equal=False) for rank in range(2)]
    assert [[row["id"] for row in shard.materialize().take_all()] for shard in shards] == [
        [0, 2, 4, 6, 8, 10],
        [1, 3, 5, 7, 9],
    ]
    assert [shard.count() for shard in shards] == [6, 5]
    assert [ds.iterator(rank=1, world_size=2, equal=equal).count() for equal in ("pad", "drop")] == [6, 5]
    assert shards[0].epoch == 0 and shards[0].columns() == ["id"] and shards[0].schema() == ds.schema()
    assert sum(1 for it in shards[0].iter_epochs(3) for _ in it.iter_batches(1)) == 18 and shards[0].epoch == 3


def test_stats_count_what_was_given() -> None:
    it = lockstep.data.range(1000).iterator()
    assert it.stats().rows == 0 and it.stats().rows_per_second == 0
    for _ in range(2):
        for _batch in it.iter_batches(100):
            time.sleep(0.001)
    stats = it.stats()
    assert (stats.rows, stats.batches, stats.epochs) == (2000, 20, 2)
    assert stats.seconds >= 0.02 and 0 <= stats.waited < stats.seconds and stats.reading > 0
    assert "2000 rows in 20 batches" in str(stats)


@pytest.mark.parametrize("slow", ["collate_fn", "map_batches", "nothing"])
def test_a_loop_that_waits_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    monkeypatch.setattr(_waits, "_warned", False)
    monkeypatch.setattr(_waits, "_SECONDS_AT_LEAST", 0.1)

    def wait(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.05)
        return batch

    ds = numbers(400)
    if slow == "map_batches":
        ds = ds.repartition(20).map_batches(wait, keeps_rows=True)
    order = lockstep.data.iterator.Order(shuffle=False)
    it = lockstep.data.iterator.DataIterator(ds, order, name="train")

    def collate(batch: dict[str, Any]) -> Any:
        time.sleep(0.01 if slow == "collate_fn" else 0)
        return batch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for _batch in it.iter_torch_batches(10, collate_fn=collate):
                time.sleep(0.02 if slow == "nothing" else 0.004)  # long against what a busy machine takes for a batch
    said = [str(warning.message) for warning in caught]
    if slow == "nothing":
        assert said == []
    else:
        step = "collate_fn takes" if slow == "collate_fn" else "the step 'map_batches(wait)' takes"
        assert len(said) == 1 and "waited" in said[0] and f"'train': {step} most of the time" in said[0]


def test_several_loops_at_once_and_no_thread_is_left() -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    ds = lockstep.data.range(1_000_000)
    next(ds.iter_batches(10))
    before = threads()
    loops = [ds.iterator(seed=seed).iter_torch_batches(100, collate_fn=dict) for seed in range(3)]
    firsts = [next(loop)["id"][0] for loop in loops]
    assert len(set(firsts)) == 3 and threads() > before
    del loops
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before
