"""What the training function sees."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    LockstepError,
    Result,
    SerializationError,
    TrainingFailedError,
    session,
    train,
)
from lockstep._core import LOOPBACK
from lockstep.errors import ConfigError

Fit = Callable[..., Result]


class AllRanks(Callback):
    """Keeps what every rank reported."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any] | None]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.rows.append(results)


def test_a_function_can_be_called_on_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    def train_func() -> None:
        assert session.get_checkpoint() is None
        assert (session.get_world_rank(), session.get_world_size(), session.get_local_rank()) == (0, 1, 0)
        assert (train.world_rank(), session.get_local_world_size(), session.get_node_rank()) == (0, 1, 0)
        assert session.get_node_address(0) == LOOPBACK
        with pytest.raises(ConfigError, match="there is no rank 1"):
            session.get_node_address(1)
        assert session.get_attempt() == 0 and session.get_trial_dir() == os.getcwd()
        session.barrier()
        assert train.get_context().get_world_size() == 1
        session.request_stop()
        assert not session.should_stop() and not session.stopping()
        session.report({"loss": session.broadcast_from_rank_zero(0.5), "epoch": 3})
        assert session.should_stop()
        session.report({"loss": 0.25}, checkpoint=Checkpoint.from_dict({"epoch": 3}))
        assert not session.should_stop()
        with pytest.raises(SerializationError, match="loss"):
            session.report({"loss": object()})

    train_func()
    assert capsys.readouterr().out == "report: loss=0.5 epoch=3\nreport: loss=0.25 with a checkpoint\n"


def test_a_function_that_is_called_on_its_own_can_end_early(capsys: pytest.CaptureFixture[str]) -> None:
    def train_func() -> None:
        step = 0
        while not session.should_stop():
            if step == 1:
                session.request_stop()
            session.report({"step": step})
            step += 1
        session.report({"last": step})

    for _ in range(2):
        train_func()
        assert capsys.readouterr().out == "report: step=0\nreport: step=1\nreport: last=2\n"


def test_ranks(fit: Fit) -> None:
    def train_func() -> None:
        session.report(
            {
                "rank": session.get_world_rank(),
                "size": session.get_world_size(),
                "local": session.get_local_rank(),
                "local_size": session.get_local_world_size(),
                "node": session.get_node_rank(),
                "old": [train.world_rank(), train.world_size(), train.local_rank(), train.local_world_size()],
                "addresses": [session.get_node_address(rank) for rank in range(3)],
                "attempt": session.get_attempt(),
                "stopping": session.stopping(),
            }
        )

    rows = AllRanks()
    fit(train_func, workers=3, callbacks=[rows])
    expected = {"size": 3, "local_size": 3, "node": 0, "attempt": 0, "stopping": False, "addresses": [LOOPBACK] * 3}
    (row,) = rows.rows
    for rank, metrics in enumerate(row):
        assert metrics is not None
        assert {key: metrics[key] for key in expected} == expected
        assert metrics["rank"] == rank == metrics["local"]
        assert metrics["old"] == [rank, 3, rank, 3]


def test_the_address_of_a_rank_that_is_not_there(fit: Fit) -> None:
    with pytest.raises(TrainingFailedError, match="there is no rank 2; world_size is 2"):
        fit(lambda: session.get_node_address(2))


def test_names(fit: Fit) -> None:
    def train_func() -> None:
        session.report(
            {
                "experiment": session.get_experiment_name(),
                "trial": session.get_trial_name(),
                "id": session.get_trial_id(),
                "dir": session.get_trial_dir(),
            }
        )

    result = fit(train_func, name="mine")
    assert result.metrics["experiment"] == "mine"
    assert result.metrics["dir"] == str(result.path)
    assert result.metrics["id"] == result.metrics["trial_id"]
    assert result.metrics["id"] in result.metrics["trial"]


def test_the_older_functions(fit: Fit) -> None:
    def train_func() -> None:
        start = (train.load_checkpoint() or {"epoch": -1})["epoch"] + 1
        for epoch in range(start, 3):
            train.save_checkpoint(epoch=epoch)
            train.report(epoch=epoch, rank=train.world_rank())
        found = train.load_checkpoint()
        train.report(found=found and found["epoch"])

    rows = AllRanks()
    result = fit(train_func, callbacks=[rows])
    assert [metrics and metrics["found"] for metrics in rows.rows[-1]] == [2, 2]
    assert result.checkpoint is not None and result.checkpoint.to_dict()["epoch"] == 2


def test_a_saved_checkpoint_is_no_result(fit: Fit) -> None:
    def train_func() -> None:
        for epoch in range(2):
            train.report(epoch=epoch)
            train.save_checkpoint(epoch=epoch)

    rows = AllRanks()
    result = fit(train_func, callbacks=[rows])
    assert result.metrics["epoch"] == 1 and result.metrics["training_iteration"] == 2
    assert len((result.path / "result.json").read_text().splitlines()) == 2
    assert [[metrics and metrics["epoch"] for metrics in row] for row in rows.rows] == [[0, 0], [1, 1]]
    assert result.checkpoint is not None and result.checkpoint.to_dict()["epoch"] == 1
    assert [metrics["epoch"] for _, metrics in result.best_checkpoints] == [0, 1]


def test_barrier_waits_for_all(fit: Fit) -> None:
    def train_func() -> None:
        import time

        for step in range(3):
            if session.get_world_rank() == step:
                time.sleep(0.2)
            start = time.monotonic()
            session.barrier()
            session.report({"left": time.monotonic(), "waited": time.monotonic() - start})

    rows = AllRanks()
    fit(train_func, workers=3, callbacks=[rows])
    for row in rows.rows:
        left = [metrics["left"] for metrics in row if metrics]
        assert max(left) - min(left) < 0.15, "the late rank releases all at once"
        assert sum(metrics["waited"] > 0.1 for metrics in row if metrics) == 2


def test_broadcast_gives_all_what_rank_zero_has(fit: Fit) -> None:
    def train_func() -> None:
        values = [
            session.broadcast_from_rank_zero({"rank": session.get_world_rank(), "set": {1, 2}}),
            session.broadcast_from_rank_zero(b"x" * 1_000_000 if session.get_world_rank() == 0 else None),
            session.broadcast_from_rank_zero(None),
        ]
        assert values[0]["set"] == {1, 2}
        session.report({"rank": values[0]["rank"], "size": len(values[1]), "none": values[2]})

    rows = AllRanks()
    fit(train_func, workers=3, callbacks=[rows])
    for metrics in rows.rows[0]:
        assert metrics is not None
        assert (metrics["rank"], metrics["size"], metrics["none"]) == (0, 1_000_000, None)


def test_one_worker_meets_itself(fit: Fit) -> None:
    def train_func() -> None:
        session.barrier()
        session.report({"value": session.broadcast_from_rank_zero(5)})

    assert fit(train_func, workers=1).metrics["value"] == 5


def test_a_barrier_that_is_not_reached_names_the_missing_ranks(fit: Fit) -> None:
    def train_func() -> None:
        import time

        if session.get_world_rank() in (1, 3):
            time.sleep(30)
        try:
            session.barrier(timeout=0.5)
        except TimeoutError as error:
            raise RuntimeError(f"caught {error}") from error

    with pytest.raises(TrainingFailedError, match="caught") as caught:
        fit(train_func, workers=4)
    assert "1 and 3" in caught.value.failures[0].message


def test_a_rank_that_comes_too_late_is_told_and_meets_the_others_next_time(fit: Fit) -> None:
    def train_func() -> None:
        import time

        rank = session.get_world_rank()
        time.sleep(0.6 * rank)
        start = time.monotonic()
        try:
            session.barrier(timeout=0.2)
        except LockstepError as error:
            session.report({"error": str(error), "waited": time.monotonic() - start})
        session.report({"met": session.broadcast_from_rank_zero("hello", timeout=20)})

    rows = AllRanks()
    fit(train_func, callbacks=[rows], hang_timeout=20)
    (first, second), met = rows.rows
    assert first and "missing: rank 1" in first["error"]
    assert second and "rank 1 came too late" in second["error"] and second["waited"] < 0.2
    assert [metrics and metrics["met"] for metrics in met] == ["hello", "hello"]


def test_broadcast_that_meets_a_barrier_is_told(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_world_rank() == 0:
            session.barrier()
        else:
            session.broadcast_from_rank_zero(1)

    with pytest.raises(TrainingFailedError, match="same calls"):
        fit(train_func)


def test_broadcast_of_what_cannot_be_pickled(fit: Fit) -> None:
    def train_func() -> None:
        import threading

        session.broadcast_from_rank_zero(threading.Lock())

    with pytest.raises(TrainingFailedError, match="a lock that cannot be pickled"):
        fit(train_func)


def test_report_from_another_thread(fit: Fit) -> None:
    def train_func() -> None:
        import threading

        thread = threading.Thread(target=lambda: session.report({"x": 1}))
        thread.start()
        thread.join()

    assert fit(train_func).metrics["x"] == 1


def test_threads_and_exit_functions_end_before_the_worker_does(fit: Fit) -> None:
    def train_func() -> None:
        import atexit
        import threading
        import time

        def late() -> None:
            time.sleep(0.2)
            session.report({"late": True})

        atexit.register(lambda: print("at exit", flush=False))
        threading.Thread(target=late).start()

    result = fit(train_func, workers=1)
    assert result.metrics["late"] is True
    assert "at exit" in (result.path / "logs" / "rank_0.log").read_text()


def test_children_of_a_worker_may_fork(fit: Fit) -> None:
    def train_func() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        session.report({"x": 1})

    assert fit(train_func).metrics["x"] == 1


def test_multiprocessing_works_inside_a_worker(fit: Fit) -> None:
    def train_func() -> None:
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            session.report({"sum": sum(pool.map(abs, [-1, -2, 3]))})

    assert fit(train_func, workers=1).metrics["sum"] == 6
