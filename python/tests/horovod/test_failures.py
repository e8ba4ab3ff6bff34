"""Horovod runs whose ranks are killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import Checkpoint, FailureConfig, Result, TrainingFailedError, session
from lockstep.horovod import HorovodTrainer
from rows import Rows

Fit = Callable[..., Result]


def train_with_checkpoints(config: dict[str, Any]) -> None:
    import horovod.torch as hvd

    hvd.init()
    checkpoint = session.get_checkpoint()
    start, total = 0, 0.0
    if checkpoint is not None:
        start, total = checkpoint.to_dict()["step"] + 1, checkpoint.to_dict()["total"]
    for step in range(start, 10):
        if step == 6 and hvd.rank() == config["victim"] and checkpoint is None:
            os.kill(os.getpid(), signal.SIGKILL)
        total += hvd.allreduce(torch.tensor([float(step)]), op=hvd.Sum).item()
        session.report(
            {"step": step, "total": total, "resumed": start},
            checkpoint=Checkpoint.from_dict({"step": step, "total": total}),
        )


@pytest.mark.parametrize(("workers", "victim"), [(2, 1), (4, 0)])
def test_a_killed_rank_starts_all_again_from_the_checkpoint(horovod_fit: Fit, workers: int, victim: int) -> None:
    result = horovod_fit(train_with_checkpoints, workers, {"victim": victim}, max_failures=1)
    assert result.metrics["step"] == 9
    assert 0 < result.metrics["resumed"] <= 6
    assert result.metrics["total"] == workers * sum(range(10))
    assert result.failures[0].rank == victim


def test_without_failures_left_the_rank_is_named(horovod_fit: Fit) -> None:
    with pytest.raises(TrainingFailedError, match=r"rank 1 failed .* the worker was killed by SIGKILL"):
        horovod_fit(train_with_checkpoints, 2, {"victim": 1})


# ------------------------------------------------------------------ elastic


def train_elastic(config: dict[str, Any]) -> None:
    """Counts: the sum is right only if no committed step is lost or done twice."""
    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    me = session.get_world_rank()
    marks = Path(config["marks"])

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < config["steps"]:
            for step, victim in config["deaths"]:
                mark = marks / f"{step}-{victim}"
                if state.step == step and me == victim and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            state.total += hvd.allreduce(torch.tensor([float(state.step)]), op=hvd.Sum).item()
            state.step += 1
            weights = hvd.allgather(model.weight.detach()).tolist()
            session.report(
                {
                    "step": state.step,
                    "total": state.total,
                    "pid": os.getpid(),
                    "size": hvd.size(),
                    "rank": hvd.rank(),
                    "equal": all(row == weights[0] for row in weights),
                }
            )
            state.commit()

    loop(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, total=0.0))


def fit_elastic(
    horovod_trainer: Callable[..., HorovodTrainer],
    workers: int,
    deaths: list[tuple[int, int]],
    marks: Path,
    **more: Any,
) -> tuple[Result, Rows]:
    marks.mkdir()
    config = {"steps": 30, "deaths": deaths, "marks": str(marks)}
    trainer = horovod_trainer(
        train_elastic, workers, config, max_failures=more.pop("max_failures", len(deaths)), elastic=True, **more
    )
    rows = Rows()
    trainer.run_config.callbacks = [rows]
    return trainer.fit(), rows


@pytest.mark.parametrize(
    ("workers", "deaths"),
    [(2, [(10, 1)]), (2, [(10, 0)]), (3, [(10, 1)]), (4, [(10, 1)]), (4, [(10, 0)]), (3, [(8, 0), (16, 1), (24, 2)])],
)
def test_a_killed_rank_is_replaced_while_the_others_live_on(
    horovod_trainer: Callable[..., HorovodTrainer], workers: int, deaths: list[tuple[int, int]], tmp_path: Path
) -> None:
    result, rows = fit_elastic(horovod_trainer, workers, deaths, tmp_path / "marks")
    assert result.metrics["step"] == 30
    assert result.metrics["total"] == workers * sum(range(30))
    assert result.metrics["size"] == workers
    assert (rows.started, rows.failed) == (1, 0), "it is one attempt"
    assert [(failure.rank, failure.attempt) for failure in result.failures] == [(victim, 0) for _, victim in deaths]
    first, last = rows.rows[0], rows.rows[-1]
    victims = {victim for _, victim in deaths}
    for rank in range(workers):
        assert (first[rank]["pid"] == last[rank]["pid"]) == (rank not in victims), rank
    assert all(said["equal"] for row in rows.rows for said in row if said)
    assert sorted(said["rank"] for said in last) == list(range(workers))


def test_two_ranks_that_die_at_once(horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path) -> None:
    result, rows = fit_elastic(horovod_trainer, 4, [(10, 0), (10, 2)], tmp_path / "marks")
    assert result.metrics["total"] == 4 * sum(range(30))
    assert rows.failed == 0
    assert rows.rows[0][1]["pid"] == rows.rows[-1][1]["pid"]


def test_pretended_hosts(horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path) -> None:
    result, rows = fit_elastic(horovod_trainer, 3, [(10, 0)], tmp_path / "marks", hosts=["one", "one", "two"])
    assert result.metrics["total"] == 3 * sum(range(30))
    assert rows.rows[0][2]["pid"] == rows.rows[-1][2]["pid"]


def test_a_death_too_many_fails_the_run(horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path) -> None:
    with pytest.raises(TrainingFailedError, match="rank 1"):
        fit_elastic(horovod_trainer, 2, [(5, 1), (10, 1)], tmp_path / "marks", max_failures=1)


def die_while_the_others_connect(config: dict[str, Any]) -> None:
    """Rank 1 dies; its replacement dies when all are told to connect to it."""
    import http.client

    import horovod.torch as hvd

    deaths, me = Path(config["deaths"]), session.get_world_rank()

    def die() -> None:
        with deaths.open("a") as file:
            file.write(f"{time.time()}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    if me == 1 and deaths.exists() and len(deaths.read_text().split()) == 1:
        place = [os.environ[f"HOROVOD_GLOO_RENDEZVOUS_{name}"] for name in ("ADDR", "PORT")]
        connection = http.client.HTTPConnection(place[0], int(place[1]))
        connection.request("PUT", f"/global/rank_{os.environ['HOROVOD_RANK']}", b"")
        connection.getresponse().read()
        die()
    hvd.init()
    checkpoint = session.get_checkpoint()

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < 12:
            if state.step == 6 and me == 1 and not deaths.exists():
                die()
            state.step += 1
            hvd.allreduce(torch.ones(1))
            session.report(
                {"step": state.step, "attempt": session.get_attempt(), "time": time.time()},
                checkpoint=Checkpoint.from_dict({"step": state.step}),
            )
            assert session.get_checkpoint() is not None
            state.commit()

    loop(hvd.elastic.TorchState(step=0 if checkpoint is None else checkpoint.to_dict()["step"]))


def test_a_death_while_the_others_connect_starts_all_again_at_once(
    horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path
) -> None:
    config = {"deaths": str(tmp_path / "deaths")}
    trainer = horovod_trainer(die_while_the_others_connect, 3, config, max_failures=2, elastic=True)
    result = trainer.fit()
    assert (result.metrics["step"], result.metrics["attempt"]) == (12, 1)
    assert [(failure.rank, failure.attempt) for failure in result.failures] == [(1, 0), (1, 0)]
    assert "cannot be replaced alone" in result.failures[1].message
    second_death = float((tmp_path / "deaths").read_text().split()[1])
    rows = [json.loads(line) for line in (result.path / "result.json").read_text().splitlines()]
    back = next(row for row in rows if row["attempt"] == 1)
    assert back["step"] >= 6, "from the checkpoint"
    assert back["time"] - second_death < 8, "nobody waits for Gloo's timeout of 10 s"


def test_a_death_without_an_heir_is_one_failure(horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path) -> None:
    result, rows = fit_elastic(horovod_trainer, 2, [(10, 0)], tmp_path / "marks", hosts=["one", "two"])
    assert (result.state, result.metrics["step"]) == ("finished", 30)
    assert [(failure.rank, failure.attempt) for failure in result.failures] == [(0, 0)]
    assert rows.failed == 1


def die_together(config: dict[str, Any]) -> None:
    import horovod.torch as hvd

    hvd.init()
    mark = Path(config["mark"])
    if not mark.exists():
        hvd.allreduce(torch.ones(1))
        if hvd.rank() == 0:
            mark.touch()
        hvd.allreduce(torch.ones(1))
        os.kill(os.getpid(), signal.SIGKILL)
    session.report({"total": hvd.allreduce(torch.ones(1), op=hvd.Sum).item()})


def test_when_all_die_it_is_an_ordinary_failure(horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path) -> None:
    trainer = horovod_trainer(die_together, 2, {"mark": str(tmp_path / "mark")}, elastic=True)
    trainer.run_config.failure_config = FailureConfig(max_failures=3)
    result = trainer.fit()
    assert result.metrics["total"] == 2.0
    assert len(result.failures) >= 2


def keep_checkpoints(config: dict[str, Any]) -> None:
    import horovod.torch as hvd

    hvd.init()
    mark = Path(config["mark"])

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < 12:
            if state.step == 6 and session.get_world_rank() == 0 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            state.step += 1
            hvd.allreduce(torch.ones(1))
            session.report({"step": state.step}, checkpoint=Checkpoint.from_dict({"step": state.step}))
            assert session.get_checkpoint() is not None
            state.commit()

    loop(hvd.elastic.TorchState(step=0))


def test_checkpoints_go_on_with_the_new_rank_zero(
    horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path
) -> None:
    trainer = horovod_trainer(keep_checkpoints, 2, {"mark": str(tmp_path / "mark")}, max_failures=1, elastic=True)
    result = trainer.fit()
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == 12
    steps = [checkpoint.to_dict()["step"] for checkpoint, _ in result.best_checkpoints]
    assert steps == sorted(set(steps)) and len(steps) >= 12


def read_checkpoints_beside_a_dead_rank(config: dict[str, Any]) -> None:
    """Rank 0 dies after it took part in a step, before reporting it. Rank 1 reports it once there is a new rank 0."""
    import horovod.torch as hvd

    pipe, mark = Path(config["pipe"]), Path(config["mark"])
    told = [True] if mark.exists() else []
    if told:
        pipe.write_bytes(b"here")
    hvd.init()

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < 12:
            hvd.allreduce(torch.ones(1))
            if state.step == 6 and not told:
                told.append(True)
                if session.get_world_rank() == 0:
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                assert pipe.read_bytes() == b"here"
            state.step += 1
            session.report({"step": state.step}, checkpoint=Checkpoint.from_dict({"step": state.step}))
            assert session.get_checkpoint() is not None
            state.commit()

    loop(hvd.elastic.TorchState(step=0))


def test_nobody_waits_for_the_checkpoint_of_a_dead_rank(
    horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    config = {"pipe": str(tmp_path / "pipe"), "mark": str(tmp_path / "mark")}
    trainer = horovod_trainer(read_checkpoints_beside_a_dead_rank, 2, config, max_failures=1, elastic=True)
    result = trainer.fit()
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == 12
