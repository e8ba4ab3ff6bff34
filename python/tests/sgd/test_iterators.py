"""RaySGD's Trainer: iterators over a run's reports, and instances on the workers."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from lockstep import LockstepError, TrainingFailedError, session, sgd
from lockstep.errors import SerializationError
from lockstep.sgd import Trainer
from recorded import MakeTrainer


def count(config: dict[str, Any]) -> int:
    for i in range(config["n"]):
        sgd.report(i=i, rank=sgd.world_rank())
    return sgd.world_rank()


def test_iterators_give_all_ranks_results(trainer: Trainer) -> None:
    iterator = trainer.run_iterator(count, config={"n": 3})
    assert not iterator.is_finished()
    rows = [[(row["i"], row["rank"]) for row in results if row] for results in iterator]
    assert rows == [[(i, 0), (i, 1)] for i in range(3)]
    assert iterator.is_finished()
    assert iterator.get_final_results() == [0, 1]
    with pytest.raises(StopIteration):
        next(iterator)
    assert trainer.run(lambda: 1) == [1, 1]


def test_final_results_before_the_end(trainer: Trainer) -> None:
    iterator = trainer.run_iterator(count, config={"n": 3})
    with pytest.raises(RuntimeError, match="force=True"):
        iterator.get_final_results()
    assert not iterator.is_finished()
    assert iterator.get_final_results(force=True) == [0, 1]
    assert iterator.is_finished()


def test_an_iterators_error_is_the_functions(trainer: Trainer) -> None:
    def fail() -> None:
        sgd.report(i=0)
        raise NotImplementedError("later")

    iterator = trainer.run_iterator(fail)
    with pytest.raises(NotImplementedError, match="later"):
        list(iterator)
    assert iterator.is_finished()
    with pytest.raises(NotImplementedError):
        iterator.get_final_results()
    assert trainer.run(lambda: 1) == [1, 1]


def test_one_run_at_a_time(trainer: Trainer, tmp_path: Path) -> None:
    def wait() -> None:
        while not (tmp_path / "go").exists():
            time.sleep(0.001)

    iterator = trainer.run_iterator(wait)
    for call in (lambda: trainer.run(wait), lambda: trainer.to_worker_group(Counter)):
        with pytest.raises(RuntimeError, match="not finished"):
            call()
    (tmp_path / "go").touch()
    assert iterator.get_final_results(force=True) == [None, None]


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, number: int, *, times: int = 1) -> tuple[int, int]:
        self.value += number * times
        return sgd.world_rank(), self.value

    def fail(self) -> None:
        if sgd.world_rank() == 1:
            raise KeyError("missing")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_instances_keep_their_state(make: MakeTrainer) -> None:
    trainer = make()
    group = trainer.to_worker_group(Counter, 10)
    assert len(group) == 2
    assert group.call("add", 1) == [(0, 11), (1, 11)]
    assert group.call("add", 2, times=3) == [(0, 17), (1, 17)]
    other = trainer.to_worker_group(Counter)
    assert other.call("add", 1) == [(0, 1), (1, 1)]
    assert group.call("add", 0) == [(0, 17), (1, 17)]
    assert trainer.run(lambda: 1) == [1, 1]
    assert group.call("add", 0) == [(0, 17), (1, 17)]
    group.shutdown()
    with pytest.raises(RuntimeError, match="start"):
        group.call("add", 1)


def test_a_method_that_raises_leaves_the_instances(make: MakeTrainer) -> None:
    with make() as trainer:
        group = trainer.to_worker_group(Counter, 10)
        group.call("add", 1)
        with pytest.raises(KeyError, match="missing") as caught:
            group.call("fail")
        assert "Traceback of rank 1" in "".join(caught.value.__notes__)
        with pytest.raises(AttributeError, match="nothing"):
            group.call("nothing")
        assert group.call("add", 1) == [(0, 12), (1, 12)]


def test_instances_that_died_between_calls_are_an_error_and_then_new(make: MakeTrainer) -> None:
    with make() as trainer:
        group = trainer.to_worker_group(Counter, 10)
        group.call("add", 1)
        with pytest.raises(ZeroDivisionError):
            trainer.run(lambda: 1 / 0)
        with pytest.raises(LockstepError, match="the instances of Counter are gone"):
            group.call("add", 1)
        assert group.call("add", 1) == [(0, 11), (1, 11)]


def test_dead_instances_are_an_error_and_then_new(make: MakeTrainer) -> None:
    with make() as trainer:
        group = trainer.to_worker_group(Counter, 10)
        group.call("add", 1)
        with pytest.raises(TrainingFailedError, match="SIGKILL"):
            group.call("die")
        assert group.call("add", 1) == [(0, 11), (1, 11)]


def test_a_group_is_a_sequence_of_its_workers(make: MakeTrainer) -> None:
    with make() as trainer:
        group = trainer.to_worker_group(Counter, 10)
        assert [repr(worker) for worker in group] == ["<Counter on rank 0>", "<Counter on rank 1>"]
        calls = [worker.add.remote(1) for worker in group]
        assert [call.result() for call in calls] == [(0, 11), (1, 11)]
        first, second = group[1].add.remote(1), group[-1].add.remote(2, times=2)
        assert second.result() == (1, 16)
        assert first.result() == (1, 12)
        assert group[:1][0].add.remote(0).result() == (0, 11)
        with pytest.raises(KeyError, match="missing"):
            group[1].fail.remote().result()
        with pytest.raises(AttributeError, match="nothing"):
            group[0].nothing.remote()
        with pytest.raises(TypeError, match=r"add\.remote"):
            group[0].add(1)
        with pytest.raises(TrainingFailedError, match="SIGKILL"):
            group[1].die.remote().result()
        assert group.call("add", 1) == [(0, 11), (1, 11)]


class Meeting:
    def meet(self) -> int:
        session.barrier(timeout=30)
        return sgd.world_rank()

    def write(self, path: Path) -> None:
        (path / str(sgd.world_rank())).touch()


def test_methods_of_several_workers_run_at_the_same_time(make: MakeTrainer, tmp_path: Path) -> None:
    with make() as trainer:
        group = trainer.to_worker_group(Meeting)
        calls = [worker.meet.remote() for worker in group for _ in range(2)]
        assert [call.result() for call in calls] == [0, 0, 1, 1]
        for worker in group:
            worker.write.remote(tmp_path)
        assert trainer.run(lambda: sorted(path.name for path in tmp_path.glob("?"))) == [["0", "1"], ["0", "1"]]


def test_reports_before_an_error_are_complete(trainer: Trainer) -> None:
    def fail() -> None:
        sgd.report(i=0)
        sgd.report(i=1)
        raise NotImplementedError("later")

    iterator = trainer.run_iterator(fail)
    rows = []
    with pytest.raises(NotImplementedError, match="later"):
        for results in iterator:
            rows.append([row["i"] for row in results if row])
    assert rows == [[0, 0], [1, 1]]


class Anything:
    def __init__(self, value: int) -> None:
        self.value = value


def test_metrics_of_any_type_reach_iterators(trainer: Trainer) -> None:
    def report() -> None:
        sgd.report(plain=1, made=Anything(sgd.world_rank()))

    (results,) = trainer.run_iterator(report)
    assert [(row["plain"], row["made"].value) for row in results if row] == [(1, 0), (1, 1)]
    with pytest.raises(SerializationError, match=r"metrics\['lock'\]"):
        trainer.run(lambda: sgd.report(lock=threading.Lock()))
