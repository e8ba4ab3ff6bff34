"""Elastic Horovod jobs that continue with fewer ranks until a new one is ready."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import (
    Checkpoint,
    ConfigError,
    FailureConfig,
    Result,
    ScalingConfig,
    TrainingFailedError,
    session,
)
from lockstep.horovod import HorovodConfig, HorovodTrainer
from rows import Rows

Trainer = Callable[..., HorovodTrainer]


def wait_for_word(gate: Path) -> None:
    """Waits until the others let this rank in. A named pipe: opening it blocks until the other end is opened."""
    os.close(os.open(gate, os.O_RDONLY))


def let_in(gate: Path) -> None:
    """Lets the waiting rank continue, if it already waits."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        assert error.errno == errno.ENXIO  # nobody waits


def train(config: dict[str, Any]) -> None:
    """Ranks die at certain sizes of the world and steps; the new ones wait until the others have gone on for a while.

    What is counted is right only when no committed step is lost and none is done twice.
    """
    import horovod.torch as hvd

    me, whole = session.get_world_rank(), session.get_world_size()
    marks = Path(config["marks"])
    gate = marks / f"gate-{me}"
    if gate.exists():
        wait_for_word(gate)
        if config["stillborn"] and not (marks / "stillborn").exists():
            (marks / "stillborn").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    hvd.init()
    torch.manual_seed(me)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    (marks / f"pid-{me}").write_text(str(os.getpid()))

    def die_if_it_is_time(steps: int) -> None:
        for victims, world, step in config["deaths"]:
            if me == victims[-1] and hvd.size() == world and steps >= step and not gate.exists():
                for victim in victims:
                    os.mkfifo(marks / f"gate-{victim}")
                    os.kill(int((marks / f"pid-{victim}").read_text()), signal.SIGKILL)

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.sizes[-10:] != [whole] * 10 or min(state.sizes) > config["smallest"]:
            die_if_it_is_time(sum(1 for size in state.sizes if size == hvd.size()))
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            state.total += hvd.allreduce(torch.tensor([float(len(state.sizes))]), op=hvd.Sum).item()
            state.sizes = [*state.sizes, hvd.size()]
            weights = hvd.allgather(model.weight.detach()).tolist()
            session.report(
                {
                    "step": len(state.sizes),
                    "sizes": state.sizes,
                    "total": state.total,
                    "pid": os.getpid(),
                    "rank": hvd.rank(),
                    "local": (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()),
                    "size": hvd.size(),
                    "equal": all(row == weights[0] for row in weights),
                },
                checkpoint=Checkpoint.from_dict({"step": len(state.sizes)}),
            )
            if config["reads"]:
                session.get_checkpoint()
            state.commit()
            if hvd.rank() == 0 and state.sizes[-5:] == [config["smallest"]] * 5:
                for victims, _, _ in config["deaths"]:
                    for victim in victims:
                        let_in(marks / f"gate-{victim}")

    loop(hvd.elastic.TorchState(model=model, optimizer=optimizer, sizes=[], total=0.0))


def fit(
    horovod_trainer: Trainer,
    tmp_path: Path,
    workers: int,
    deaths: list[tuple[list[int], int, int]],
    min_workers: int,
    **more: Any,
) -> tuple[Result, Rows]:
    """`deaths`: which ranks die, in a world of which size, after how many steps of that size; the last one kills
    all."""
    marks = tmp_path / "marks"
    marks.mkdir()
    config = {
        "deaths": deaths,
        "smallest": workers - sum(len(victims) for victims, _, _ in deaths),
        "marks": str(marks),
        "reads": more.pop("reads", False),
        "stillborn": more.pop("stillborn", False),
    }
    failures = workers - config["smallest"] + config["stillborn"]
    trainer = horovod_trainer(
        train, workers, config, max_failures=failures, elastic=True, min_workers=min_workers, **more
    )
    rows = Rows()
    trainer.run_config.callbacks = [rows]
    trainer.run_config.verbose = 1
    return trainer.fit(), rows


def check(result: Result, rows: Rows, workers: int, expected: list[int]) -> None:
    """`expected`: the successive sizes of the world."""
    last = rows.rows[-1]
    sizes = last[-1]["sizes"]
    assert [size for size, _ in itertools.groupby(sizes)] == expected
    assert all(last[rank]["sizes"] == sizes for rank in range(workers))
    assert last[0]["total"] == sum(size * step for step, size in enumerate(sizes))
    assert rows.started == 1
    assert sorted(said["rank"] for said in last) == list(range(workers))
    for row in rows.rows:
        said = [each for each in row if each]
        assert len({each["step"] for each in said}) == 1, "reports of one step stand in one row"
        assert all(each["equal"] for each in said)
    in_small = [row for row in rows.rows if min(each["size"] for each in row if each) < workers]
    assert in_small, "the small world's rows are there"
    assert all(len([each for each in row if each]) <= each["size"] for row in in_small for each in row if each)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_survivors_go_on_and_the_new_rank_joins_them(
    horovod_trainer: Trainer, victim: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result, rows = fit(horovod_trainer, tmp_path, 3, [([victim], 3, 5)], 2)
    check(result, rows, 3, [3, 2, 3])
    assert [failure.rank for failure in result.failures] == [victim]
    first, last = rows.rows[0], rows.rows[-1]
    for rank in range(3):
        assert (first[rank]["pid"] == last[rank]["pid"]) == (rank != victim), rank
    assert result.metrics["step"] == last[0]["step"]
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == last[0]["step"]
    told = capfd.readouterr().err
    assert told.count("warning") == 1, told
    assert f"the other ranks continue until rank {victim} is back" in told
    assert f"rank {victim} takes part again" in told


def test_losses_while_it_is_smaller(horovod_trainer: Trainer, tmp_path: Path) -> None:
    result, rows = fit(horovod_trainer, tmp_path, 4, [([1], 4, 5), ([0], 3, 5)], 2)
    check(result, rows, 4, [4, 3, 2, 4])
    assert [failure.rank for failure in result.failures] == [1, 0]
    for rank in (2, 3):
        assert rows.rows[0][rank]["pid"] == rows.rows[-1][rank]["pid"]


def test_pretended_hosts(horovod_trainer: Trainer, tmp_path: Path) -> None:
    result, rows = fit(horovod_trainer, tmp_path, 3, [([1], 3, 5)], 1, hosts=["one", "one", "two"])
    check(result, rows, 3, [3, 2, 3])
    small = [row for row in rows.rows if row[0] and row[0]["size"] == 2]
    assert {tuple(row[0]["local"]) for row in small} == {(0, 1, 0, 2)}
    assert {tuple(row[2]["local"]) for row in small} == {(0, 1, 1, 2)}


def test_two_ranks_that_die_at_once(horovod_trainer: Trainer, tmp_path: Path) -> None:
    result, rows = fit(horovod_trainer, tmp_path, 4, [([2, 0], 4, 5)], 2)
    check(result, rows, 4, [4, 2, 4])
    assert sorted(failure.rank for failure in result.failures) == [0, 2]


@pytest.mark.parametrize("victim", [0, 1])
def test_nobody_waits_for_checkpoints_of_a_rank_that_is_away(
    horovod_trainer: Trainer, victim: int, tmp_path: Path
) -> None:
    result, rows = fit(horovod_trainer, tmp_path, 3, [([victim], 3, 5)], 2, reads=True)
    check(result, rows, 3, [3, 2, 3])


def test_a_new_rank_that_dies_before_it_is_there_disturbs_nobody(horovod_trainer: Trainer, tmp_path: Path) -> None:
    result, rows = fit(horovod_trainer, tmp_path, 3, [([1], 3, 5)], 2, stillborn=True)
    check(result, rows, 3, [3, 2, 3])
    assert [failure.rank for failure in result.failures] == [1, 1]


def finish_without_the_new_rank(config: dict[str, Any]) -> None:
    import horovod.torch as hvd

    gate = Path(config["gate"])
    if gate.exists() and session.get_world_rank() == 1:
        wait_for_word(gate)
    hvd.init()

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < 12:
            if state.step == 5 and session.get_world_rank() == 1 and hvd.size() == 3:
                os.mkfifo(gate)
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1))
            state.step += 1
            session.report({"step": state.step, "size": hvd.size()})
            state.commit()

    loop(hvd.elastic.TorchState(step=0))


def test_the_run_ends_when_the_others_have_finished(
    horovod_trainer: Trainer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = horovod_trainer(
        finish_without_the_new_rank, 3, {"gate": str(tmp_path / "gate")}, max_failures=1, elastic=True, min_workers=1
    )
    trainer.run_config.verbose = 1
    result = trainer.fit()
    assert (result.state, result.metrics["step"], result.metrics["size"]) == ("finished", 12, 2)
    assert [failure.rank for failure in result.failures] == [1]
    told = capfd.readouterr().err
    assert told.count("warning") == 1, told
    assert "warning: rank 1: the worker was killed by SIGKILL; it is restarted, the other ranks continue" in told
    assert "rank 1 is not needed: the others have finished" in told


def die_and_wait(config: dict[str, Any]) -> None:
    import horovod.torch as hvd

    hvd.init()
    marks = Path(config["marks"])

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < 12:
            mark = marks / str(session.get_world_rank())
            if state.step == 5 and session.get_world_rank() > 0 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1))
            state.step += 1
            state.sizes = [*state.sizes, hvd.size()]
            session.report({"sizes": state.sizes})
            state.commit()

    loop(hvd.elastic.TorchState(step=0, sizes=[]))


def test_fewer_than_the_fewest_wait(horovod_trainer: Trainer, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    trainer = horovod_trainer(die_and_wait, 3, {"marks": str(marks)}, max_failures=2, elastic=True, min_workers=2)
    assert trainer.fit().metrics["sizes"] == [3] * 12


# ------------------------------------------------------------------ the option


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2"])
def test_min_workers_is_a_number(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"min_workers is .*; it must be a whole number from 1 to num_workers"):
        HorovodConfig(elastic=True, min_workers=wrong)


def test_min_workers_is_for_elastic_jobs() -> None:
    with pytest.raises(ConfigError, match="give elastic=True with it"):
        HorovodConfig(min_workers=1)


def test_min_workers_needs_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth9")])
    with pytest.raises(ConfigError, match="needs the loopback"):
        HorovodConfig(elastic=True, min_workers=1, nics=["eth9", "lo"])
    HorovodConfig(elastic=True, min_workers=1, nics=["lo", "eth9"])


def test_no_more_than_there_are(horovod_trainer: Trainer) -> None:
    with pytest.raises(ConfigError, match="min_workers is 3, but num_workers is 2"):
        horovod_trainer(finish_without_the_new_rank, 2, elastic=True, min_workers=3)
    trainer = horovod_trainer(finish_without_the_new_rank, 3, elastic=True, min_workers=3)
    trainer.scaling_config = ScalingConfig(num_workers=2)
    with pytest.raises(ConfigError, match="min_workers is 3, but num_workers is 2"):
        trainer.fit()


def test_a_restored_run_has_it_too(horovod_trainer: Trainer, tmp_path: Path) -> None:
    config = {"gate": str(tmp_path / "gate")}
    with pytest.raises(TrainingFailedError) as failed:
        horovod_trainer(finish_without_the_new_rank, 3, config, elastic=True, min_workers=2).fit()
    (tmp_path / "gate").unlink()
    again = HorovodTrainer.restore(failed.value.result.path)
    again.run_config.failure_config = FailureConfig(max_failures=1)
    result = again.fit()
    assert (result.state, result.metrics["step"], result.metrics["size"]) == ("finished", 12, 2)
