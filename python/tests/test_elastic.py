"""Elastic runs: attempts of different sizes, and what every sample sees of them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    ConfigError,
    DataConfig,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    data,
    session,
    tune,
)
from lockstep.backend import Backend, BackendConfig
from lockstep.worker_group import WorkerGroup

SLOT = {"slot": 1}


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many workers have room."""
    return lambda count: monkeypatch.setenv("LOCKSTEP_RESOURCES", json.dumps({"slot": count}))


class Preloaded(DataParallelTrainer):
    """Workers need not import PyTorch each for themselves."""

    _preload = (*DataParallelTrainer._preload, "lockstep.torch")


def trainer(
    function: Callable[..., Any],
    workers: int | tuple[int, int],
    tmp_path: Path,
    *,
    interval: float = 0.001,
    datasets: dict[str, Any] | None = None,
    kind: type[DataParallelTrainer] = DataParallelTrainer,
    **run: Any,
) -> DataParallelTrainer:
    return kind(
        function,
        scaling_config=ScalingConfig(workers, resources_per_worker=SLOT, resize_interval=interval),
        run_config=RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **run}),
        datasets=datasets,
        dataset_config=DataConfig(equal="uneven") if datasets else None,
    )


class Room(Callback):
    """Attempt number n runs in as many slots as the n-th number says; each is announced while the one before runs."""

    def __init__(self, slots: Callable[[int], None], sizes: list[int]) -> None:
        self.slots, self.sizes = slots, sizes
        self.rows: list[tuple[int, int, list[dict[str, Any] | None]]] = []
        self.attempt = 0
        slots(sizes[0])

    def on_attempt_started(self, attempt: int) -> None:
        self.attempt = attempt
        if attempt + 1 < len(self.sizes):
            self.slots(self.sizes[attempt + 1])

    def on_report(self, metrics: list[dict[str, Any] | None]) -> None:
        number = sum(attempt == self.attempt for attempt, _, _ in self.rows)
        self.rows.append((self.attempt, number, metrics))

    def samples(self, kept: dict[int, int]) -> Counter[int]:
        """How often each was reported, without the reports of an attempt after the one that its successor resumed."""
        return Counter(
            sample
            for attempt, number, metrics in self.rows
            if number < kept.get(attempt, sys.maxsize)
            for each in metrics
            for sample in (each or {}).get("samples", ())
        )


def count_until(steps: int) -> None:
    """Reports a checkpoint at every step, until there were so many."""
    checkpoint = session.get_checkpoint()
    step = checkpoint.to_dict()["step"] if checkpoint else 0
    while step < steps:
        step += 1
        time.sleep(0.01)
        session.report(
            {"step": step, "size": session.get_world_size()}, checkpoint=Checkpoint.from_dict({"step": step})
        )


def steps_of(result: Result) -> list[int]:
    return [int(json.loads(line)["step"]) for line in (result.path / "result.json").read_text().splitlines()]


def test_a_run_starts_with_what_there_is_and_grows(tmp_path: Path, slots: Callable[[int], None]) -> None:
    slots(4)
    gone = tmp_path / "gone"

    def other() -> None:
        session.report({"running": True})
        while not gone.exists():
            time.sleep(0.01)

    holding = trainer(other, 3, tmp_path, name="other").start()
    assert next(iter(holding))["running"]

    class EndOther(Callback):
        def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
            if metrics["step"] == 3 and not gone.exists():
                gone.touch()
                holding.wait(60)

    result = trainer(lambda: count_until(300), (1, 3), tmp_path, callbacks=[EndOther()], name="elastic").fit()
    assert result.world_sizes == [1, 3]
    assert result.metrics["size"] == 3 and result.failures == []
    assert steps_of(result) == list(range(1, 301)), "no step was lost, and none was made twice"
    record = json.loads((result.path / "run.json").read_text())
    assert [(each["world_size"], each["outcome"]) for each in record["attempts"]] == [(1, "resized"), (3, "finished")]
    assert record["config_run"]["num_workers"] == [1, 3]
    assert Result.from_path(result.path).world_sizes == [1, 3]


def test_a_lost_slot_leads_to_an_attempt_with_the_rest(tmp_path: Path, slots: Callable[[int], None]) -> None:
    def train_func() -> None:
        if session.get_attempt() == 0:
            session.report({"step": 1}, checkpoint=Checkpoint.from_dict({"step": 1}))
            session.get_checkpoint()
            if session.get_world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            session.barrier()
        count_until(10)

    room = Room(slots, [3, 2])
    result = trainer(train_func, (1, 4), tmp_path, callbacks=[room], failure_config=FailureConfig(max_failures=1)).fit()
    assert result.world_sizes == [3, 2]
    assert [failure.kind for failure in result.failures] == ["signal"]
    assert result.metrics["step"] == 10 and result.metrics["size"] == 2


def test_growing_waits_for_the_interval(tmp_path: Path, slots: Callable[[int], None]) -> None:
    room = Room(slots, [1, 2, 3])
    run = trainer(lambda: count_until(200), (1, 4), tmp_path, interval=3600, callbacks=[room])
    assert run.fit().world_sizes == [1, 2], "the start is no change of the size"


def test_should_stop_stays_false_when_a_run_grows(tmp_path: Path, slots: Callable[[int], None]) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        step = checkpoint.to_dict()["step"] if checkpoint else 0
        while step < 300 and not session.should_stop():
            step += 1
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            time.sleep(0.01)
        session.report({"step": step, "at_end": True})

    result = trainer(train_func, (1, 4), tmp_path, callbacks=[Room(slots, [1, 2, 4])]).fit()
    assert result.world_sizes == [1, 2, 4]
    assert steps_of(result) == [*range(1, 301), 300]


def test_fewer_than_the_least_number_is_an_error(tmp_path: Path, slots: Callable[[int], None]) -> None:
    slots(1)
    with pytest.raises(ConfigError, match="2 workers with 1 slot each need 2 slot, but this machine has 1"):
        trainer(lambda: None, (2, 4), tmp_path).fit()


@pytest.mark.parametrize("workers", [(0, 2), (4, 2), (2,), (1, 2, 3), ("1", "2"), (1.0, 2), (True, 2)])
def test_wrong_ranges_are_refused(workers: Any) -> None:
    with pytest.raises(ConfigError, match=r"num_workers is .*; it must be") as caught:
        ScalingConfig(num_workers=workers)
    assert "such as (2, 8)" in str(caught.value)


def test_ranges_are_kept() -> None:
    assert ScalingConfig((1, 3)).total_resources == {"CPU": 4}
    assert ScalingConfig(num_workers=(2, 8)).num_workers == (2, 8)
    with pytest.raises(ConfigError, match="resize_interval is 0; it must be a positive number of seconds"):
        ScalingConfig(num_workers=(2, 8), resize_interval=0)


# ---------------------------------------------------------------------- every sample once

SIZES = [1, 2, 3, 4, 1, 4, 2, 3, 1, 2, 4, 3, 4, 1, 3, 2, 4, 2, 3, 4, 1]
SAMPLES = 480


def read_all(batches: Iterator[tuple[list[int], dict[str, Any]]], sizes: list[int]) -> None:
    """Reports every batch of an epoch; with a checkpoint, except in the last attempt. Before a smaller attempt the last
    rank dies."""
    attempt = session.get_attempt()
    is_last = attempt + 1 == len(sizes)
    dies = not is_last and sizes[attempt + 1] < sizes[attempt]
    checkpoint = session.get_checkpoint()
    before = checkpoint.to_dict()["made"] if checkpoint else {}
    for number, (samples, state) in enumerate(batches, 1):
        made = {**before, str(attempt): number}
        if is_last:
            session.report({"samples": samples, "made": made})
            continue
        session.barrier()  # as gradients are summed
        session.report({"samples": samples, "made": made}, checkpoint=Checkpoint.from_dict({"made": made, **state}))
        session.get_checkpoint()  # when it is committed: so that few samples are read before the size changes
        if dies and number == 2 and session.get_world_rank() == session.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)


def check_samples(run: DataParallelTrainer, room: Room) -> None:
    result = run.fit()
    assert result.world_sizes == room.sizes
    kept = {int(attempt): made for attempt, made in result.metrics["made"].items()}
    counts = room.samples(kept)
    assert len(counts) == SAMPLES and set(counts.values()) == {1}


def test_every_sample_of_a_data_set_is_seen_once(tmp_path: Path, slots: Callable[[int], None]) -> None:
    def train_func() -> None:
        shard = session.get_dataset_shard("train")
        read_all(((batch["id"].tolist(), {}) for batch in shard.iter_batches(batch_size=1)), SIZES)

    room = Room(slots, SIZES)
    rows = data.range(SAMPLES)
    check_samples(
        trainer(
            train_func,
            (1, 4),
            tmp_path,
            datasets={"train": rows},
            callbacks=[room],
            failure_config=FailureConfig(max_failures=-1),
        ),
        room,
    )


def test_every_sample_of_a_prepared_loader_is_seen_once(tmp_path: Path, slots: Callable[[int], None]) -> None:
    pytest.importorskip("torch")

    def train_func() -> None:
        from lockstep.torch import prepare_data_loader
        from torch.utils.data import DataLoader

        samples: Any = range(SAMPLES)
        loader = prepare_data_loader(DataLoader(samples, batch_size=1, shuffle=True))
        checkpoint = session.get_checkpoint()
        if checkpoint:
            loader.load_state_dict(checkpoint.to_dict()["loader"])
        if loader.epoch == 0:
            read_all(((batch.tolist(), {"loader": loader.state_dict()}) for batch in loader), SIZES)

    room = Room(slots, SIZES)
    check_samples(
        trainer(
            train_func,
            (1, 4),
            tmp_path,
            kind=Preloaded,
            callbacks=[room],
            failure_config=FailureConfig(max_failures=-1),
        ),
        room,
    )


class Counting(Backend):
    seen: ClassVar[list[tuple[str, int, list[int]]]] = []

    def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        self.seen.append(("start", len(worker_group), worker_group.execute(session.get_world_rank)))

    def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
        self.seen.append(("end", len(worker_group), worker_group.execute(session.get_world_rank)))


class WithCounting(BackendConfig):
    @property
    def backend_cls(self) -> type[Counting]:
        return Counting


def test_hooks_see_the_workers_of_the_attempt(tmp_path: Path, slots: Callable[[int], None]) -> None:
    run = trainer(lambda: count_until(100), (1, 2), tmp_path, callbacks=[Room(slots, [1, 2])])
    run.backend_config = WithCounting()
    assert run.fit().world_sizes == [1, 2]
    assert Counting.seen == [("start", 1, [0]), ("end", 1, [0]), ("start", 2, [0, 1]), ("end", 2, [0, 1])]


def test_what_is_not_elastic_says_so(tmp_path: Path, slots: Callable[[int], None]) -> None:
    slots(2)
    with pytest.raises(ConfigError, match=r"\[WorkerGroup\] num_workers is \(1, 2\); it must be an int"):
        WorkerGroup(ScalingConfig(num_workers=(1, 2)))
    with pytest.raises(ConfigError, match=r"\[tune\] num_workers is \(1, 2\); it must be an int"):
        tune.Tuner(trainer(lambda: None, (1, 2), tmp_path), run_config=RunConfig(storage_path=tmp_path)).fit()
