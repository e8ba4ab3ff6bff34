"""Functions of data sets in helper processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import lockstep.data
import pytest
from lockstep import ConfigError, Result, TrainingFailedError, session
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


# ---------------------------------------------------------------------- in the workers of a run

Fit = Callable[..., Result]


def described(batch: Any) -> Any:
    """What a helper is: a column each."""
    said = {
        "pid": os.getpid(),
        "program": Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode(),
        "place": f"{os.environ.get('SET_LATER')} {'GONE_LATER' in os.environ} {os.getcwd()} {sys.path[-1]}",
        "descriptors": len(os.listdir("/proc/self/fd")),
    }
    time.sleep(0.05)  # so that one process cannot do all of it
    return {name: [value] * len(batch["id"]) for name, value in said.items()}


def test_helpers_of_a_worker_are_forked(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE_LATER", "1")

    def train_func() -> None:
        os.environ["SET_LATER"] = "now"
        del os.environ["GONE_LATER"]
        os.chdir(tmp_path)
        sys.path.append("/somewhere")
        rows = list(session.get_dataset_shard("train").iter_batches(batch_size=16_384))
        found = {name: sorted({row for batch in rows for row in batch[name].tolist()}) for name in rows[0]}
        session.report({"rank": session.get_world_rank(), "worker": os.getpid(), **found})

    ds = lockstep.data.range(16 * 16_384).map_batches(described, batch_size=None, num_workers=2, keeps_rows=True)
    metrics = fit(train_func, 1, datasets={"train": ds}).metrics
    assert len(metrics["pid"]) == 2 and metrics["worker"] not in metrics["pid"]
    (program,) = metrics["program"]
    assert "lockstep._fork_server" in program  # so nothing was imported again
    assert metrics["place"] == [f"now False {tmp_path} /somewhere"]
    assert max(metrics["descriptors"]) <= 5  # three streams, the connection, and the directory that was listed
    assert not any(Path(f"/proc/{pid}").exists() for pid in metrics["pid"])


def test_a_lost_helper_of_a_worker_is_an_error(fit: Fit) -> None:
    def lost(batch: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def train_func() -> None:
        for _ in session.get_dataset_shard("train").iter_batches():
            pass

    ds = lockstep.data.range(10).map_batches(lost, num_workers=2, keeps_rows=True)
    with pytest.raises(TrainingFailedError, match=r"map_batches\(lost\) ended with code -9"):
        fit(train_func, 1, datasets={"train": ds})


def test_helpers_do_not_outlive_their_worker(fit: Fit, tmp_path: Path) -> None:
    def deadly(batch: Any) -> Any:
        (tmp_path / "helper").write_text(str(os.getpid()))
        os.kill(int(os.environ["WORKER"]), signal.SIGKILL)
        time.sleep(60)

    def train_func() -> None:
        os.environ["WORKER"] = str(os.getpid())
        for _ in session.get_dataset_shard("train").iter_batches():
            pass

    ds = lockstep.data.range(10).map_batches(deadly, num_workers=1, keeps_rows=True)
    with pytest.raises(TrainingFailedError):
        fit(train_func, 1, datasets={"train": ds})
    helper = Path("/proc") / (tmp_path / "helper").read_text()
    deadline = time.monotonic() + 5
    while helper.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not helper.exists()


def test_a_process_with_threads_is_not_forked() -> None:
    from lockstep.data import _helper_server, _helpers

    waits = threading.Event()
    thread = threading.Thread(target=waits.wait)
    thread.start()
    try:
        _helpers.prepare()
        assert _helper_server._server is None
    finally:
        waits.set()
        thread.join()
