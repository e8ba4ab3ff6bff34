"""Batches, epochs, positions."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import lockstep.data
import numpy
import pyarrow
import pytest
import torch
from lockstep import ConfigError


def ids(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["id"].tolist()]


def test_every_world_size_sees_the_same_sequence() -> None:
    ds = lockstep.data.range(20_011)
    whole = ids(ds.iterator(seed=5, window=3000).iter_batches(64))
    assert sorted(whole) == list(range(20_011)) and whole != sorted(whole)
    for world in (2, 3, 4, 8):
        ranks = [
            [
                batch["id"].tolist()
                for batch in ds.iterator(seed=5, window=3000, rank=rank, world_size=world).iter_batches(64)
            ]
            for rank in range(world)
        ]
        assert len({len(batches) for batches in ranks}) == 1
        dealt = [n for batches in zip(*ranks, strict=True) for batch in batches for n in batch]
        assert dealt[: len(whole)] == whole
        assert len(dealt) - len(whole) < world


def test_equal() -> None:
    ds = lockstep.data.range(10)

    def sizes(**options: Any) -> list[list[int]]:
        return [
            [len(batch["id"]) for batch in ds.iterator(rank=rank, world_size=3, **options).iter_batches(2)]
            for rank in range(3)
        ]

    assert sizes() == [[2, 2], [2, 1], [2, 1]]
    assert sizes(equal="drop") == [[2], [2], [2]]
    assert sizes(equal=False) == [[2, 2], [2, 2], [2]]
    assert sizes(equal=True) == sizes()
    with pytest.raises(ConfigError, match="equal is 'cut'"):
        ds.iterator(equal="cut")


def test_a_state_resumes_at_any_position_with_any_world_size() -> None:
    ds = lockstep.data.range(5000)
    pick = random.Random(2)
    whole = [ids(ds.iterator(seed=1, window=700).iter_batches(50))]
    it = ds.iterator(seed=1, window=700)
    it.set_epoch(1)
    whole.append(ids(it.iter_batches(50)))
    assert whole[0] != whole[1]
    for _ in range(100):
        world, size, epoch = pick.choice([1, 2, 3, 4, 8]), pick.randrange(1, 300), pick.randrange(2)
        given = pick.randrange(5000 // (world * size) + 1)
        it = ds.iterator(seed=1, window=700, world_size=world)
        it.set_epoch(epoch)
        batches = it.iter_batches(size)
        for _ in range(given):
            next(batches)
        state = json.loads(json.dumps(it.state_dict()))
        assert len(json.dumps(state)) < 300
        it = ds.iterator(seed=1, window=700)
        it.load_state_dict(state)
        assert it.epoch == epoch
        assert ids(it.iter_batches(pick.randrange(1, 300))) == whole[epoch][given * world * size :]
        assert it.epoch == epoch + 1


def test_the_state_between_epochs_and_after_a_break() -> None:
    it = lockstep.data.range(100).iterator()
    assert (it.epoch, it.state_dict()["position"]) == (0, 0)
    for _ in it.iter_batches(10):
        break
    assert (it.epoch, it.state_dict()["position"]) == (0, 10)
    second = ids(it.iter_batches(10))
    assert (it.epoch, it.state_dict()["position"]) == (2, 0)
    other = lockstep.data.range(100).iterator()
    other.set_epoch(1)
    assert ids(other.iter_batches(7)) == second


def test_states_of_other_data_are_refused() -> None:
    state = lockstep.data.range(100).iterator().state_dict()
    for other in (
        lockstep.data.range(101).iterator(),
        lockstep.data.range(100).iterator(seed=1),
        lockstep.data.range(100).iterator(window=10),
        lockstep.data.range(100).iterator(shuffle=False),
    ):
        with pytest.raises(ConfigError, match="load_state_dict"):
            other.load_state_dict(state)
    with pytest.raises(ConfigError, match="load_state_dict"):
        lockstep.data.range(100).iterator().load_state_dict({"epoch": 1})


def test_a_state_fits_a_copy_of_the_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("a\nb\nc\n")
    it = lockstep.data.read_text(tmp_path / "one").iterator()
    next(it.iter_batches(2))
    other = lockstep.data.read_text(tmp_path / "two").iterator()
    other.load_state_dict(it.state_dict())
    assert sum(len(batch["text"]) for batch in other.iter_batches(2)) == 1


def test_threads_stop_when_a_loop_is_left() -> None:
    def native_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    ds = lockstep.data.range(10_000_000)
    next(ds.iter_batches(10))
    time.sleep(0.2)  # the kernel lists a thread for a moment after it was joined
    before = native_threads()
    for _ in range(5):
        batches = ds.iterator().iter_batches(10)
        next(batches)
        assert native_threads() > before
        del batches
        deadline = time.monotonic() + 10
        while native_threads() > before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert native_threads() == before


def test_an_iterator_may_be_shared_between_threads() -> None:
    it = lockstep.data.range(10_000).iterator()
    found: list[int] = []
    batches = it._batches(10, False)
    lock = threading.Lock()

    def take() -> None:
        while True:
            with lock:
                batch = next(batches, None)
            if batch is None:
                return
            found.extend(pyarrow.record_batch(batch)["id"].to_pylist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(10_000))


def test_formats() -> None:
    ds = lockstep.data.from_items([{"x": 1.5, "s": "a"}, {"x": None, "s": "b"}, {"x": 2.5, "s": None}])
    (arrays,) = ds.iter_batches(10)
    assert arrays["x"].dtype == numpy.float64 and numpy.isnan(arrays["x"][1])
    assert arrays["s"].tolist() == ["a", "b", None]
    (frame,) = ds.iter_batches(10, "pandas")
    assert frame["s"].isna().tolist() == [False, False, True]
    (table,) = ds.iter_batches(10, "pyarrow")
    assert isinstance(table, pyarrow.Table)
    assert [len(batch["s"]) for batch in ds.iter_batches(2, drop_last=True)] == [2]
    with pytest.raises(ConfigError, match="batch_format"):
        ds.iter_batches(10, "list")
    with pytest.raises(ConfigError, match="batch_size"):
        next(ds.iter_batches(0))


def test_columns_as_arrays() -> None:
    columns: dict[str, tuple[Any, Any]] = {
        "int8": (pyarrow.array([1, 2], pyarrow.int8()), numpy.array([1, 2], numpy.int8)),
        "nulls": (pyarrow.array([1, None], pyarrow.int64()), numpy.array([1.0, numpy.nan])),
        "bool": (pyarrow.array([True, False]), numpy.array([True, False])),
        "half": (pyarrow.array([1.5, 2], pyarrow.float16()), numpy.array([1.5, 2], numpy.float16)),
        "lists": (pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.int32(), 2)), numpy.array([[1, 2], [3, 4]])),
        "dictionary": (pyarrow.array(["a", "b"]).dictionary_encode(), numpy.array(["a", "b"], object)),
        "time": (pyarrow.array([1, 2], pyarrow.timestamp("ms")), numpy.array([1, 2], "datetime64[ms]")),
    }
    table = pyarrow.table({name: column for name, (column, _) in columns.items()})
    ds = lockstep.data.from_arrow(pyarrow.concat_tables([table] * 3))
    for batch in ds.iter_batches(2):  # later batches lie within the memory of the first
        for name, (_, expected) in columns.items():
            assert batch[name].dtype == expected.dtype or name == "lists", name
            numpy.testing.assert_array_equal(batch[name], expected, err_msg=name)


@pytest.mark.filterwarnings("error")
def test_tensors(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "f": numpy.arange(100.0),
            "i": numpy.arange(100, dtype=numpy.int32),
            "b": numpy.arange(100) % 2 == 0,
            "l": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numpy.arange(200.0)), 2),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    for ds in (lockstep.data.from_arrow(table), lockstep.data.read_parquet(tmp_path / "x.parquet")):
        batches = list(ds.iter_torch_batches(30))
        assert [len(batch["f"]) for batch in batches] == [30, 30, 30, 10]
        assert {name: tensor.dtype for name, tensor in batches[0].items()} == {
            "f": torch.float64,
            "i": torch.int32,
            "b": torch.bool,
            "l": torch.float64,
        }
        assert torch.equal(torch.cat([batch["l"] for batch in batches]), torch.arange(200.0).double().reshape(100, 2))
        for batch in batches:
            batch["f"] += 1  # tensors may be changed
    assert table["f"].to_pylist() == list(range(100))  # the user's table may not
    (batch,) = lockstep.data.from_arrow(table).iter_torch_batches(100, dtypes={"i": torch.float32}, device="cpu")
    assert batch["i"].dtype == torch.float32 and batch["f"].dtype == torch.float64
    (batch,) = lockstep.data.from_arrow(table).iterator().iter_torch_batches(100, dtypes=torch.float16)
    assert batch["l"].dtype == torch.float16
    with pytest.raises(ConfigError, match=r"'s' is string.*select_columns"):
        next(lockstep.data.from_items([{"s": "a"}]).iter_torch_batches(1))


def test_show_and_repr(capsys: pytest.CaptureFixture[str]) -> None:
    ds = lockstep.data.range(50).select_columns("id").limit(2)
    ds.show()
    assert capsys.readouterr().out == "{'id': 0}\n{'id': 1}\n"
    assert repr(ds).splitlines() == [
        "Dataset: 2 rows, id: int64",
        "  range: 50",
        "  select_columns: id (others are not read)",
        "  limit: 2 (blocks after it are not read)",
    ]
