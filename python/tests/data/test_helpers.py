"""Functions of data sets in helper processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import cloudpickle
import lockstep.data
import pytest
from lockstep import ConfigError
from lockstep.errors import EngineError, SerializationError


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def test_results_come_in_order_from_several_processes() -> None:
    class Tagged:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def __call__(self, batch: Any) -> Any:
            time.sleep(0.05)  # so that one process cannot do all of it
            return {"id": batch["id"][::2] * self.factor, "pid": [os.getpid()] * len(batch["id"][::2])}

    before = children()
    ds = lockstep.data.range(8 * 16_384).map_batches(Tagged, batch_size=None, fn_constructor_args=(10,), num_workers=2)
    assert children() == before  # nothing starts before rows are read
    table = ds.to_arrow()
    assert table["id"].to_pylist() == list(range(0, 80 * 16_384, 20))
    pids = set(table["pid"].to_pylist())
    assert len(pids) == 2 and os.getpid() not in pids
    assert pids <= children()
    shuffled = [n for batch in ds.iterator(seed=1).iter_batches(10_000) for n in batch["id"].tolist()]
    assert sorted(shuffled) == table["id"].to_pylist()
    assert set(ds.limit(3).to_arrow()["pid"].to_pylist()) <= pids  # the same processes
    del ds
    assert not pids & children()


class OwnError(Exception):
    def __init__(self, first: int, second: int) -> None:  # which a plain pickle could not make again
        super().__init__(f"{first} and {second}")


def test_errors_of_helpers() -> None:
    def broken(batch: Any) -> Any:
        if batch["id"][0] == 0:
            raise KeyError("first")
        if batch["id"][0] == 1024:
            raise OwnError(1, 2)
        return batch

    def lost(batch: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    ds = lockstep.data.range(10).map_batches(broken, num_workers=1)
    with pytest.raises(KeyError, match="first") as caught:
        ds.take_all()
    if hasattr(caught.value, "__notes__"):
        notes = "\n".join(caught.value.__notes__)
        assert "in the step map_batches(broken)" in notes and "in broken" in notes
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    with pytest.raises(EngineError, match=r"(?s)map_batches\(broken\) failed in a helper process.*OwnError: 1 and 2"):
        lockstep.data.range(2000).filter(expr="id >= 1024").map_batches(broken, num_workers=1).take_all()
    with pytest.raises(EngineError, match=r"map_batches\(lost\) ended with code -9"):
        lockstep.data.range(10).map_batches(lost, num_workers=2).take_all()


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=r"map_batches\(<lambda>\) cannot be sent"):
        lockstep.data.range(3).map_batches(lambda batch: {"x": [lock.locked()]}, num_workers=1).take_all()
    for number in (-1, 1.5, "two"):
        with pytest.raises(ConfigError, match="num_workers is"):
            lockstep.data.range(3).map_batches(lambda batch: batch, num_workers=number)
