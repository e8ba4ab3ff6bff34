"""JaxTrainer: processes joined by jax.distributed on CPUs, and their failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from lockstep import Callback, Checkpoint, FailureConfig, Result, TrainingFailedError, session
from lockstep.errors import ConfigError
from lockstep.jax import JaxConfig, JaxTrainer

Fit = Callable[..., Result]


class AllRanks(Callback):
    """The first report of every rank."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.reports = self.reports or [result for result in results if result is not None]


def summed_over_processes() -> float:
    import jax

    total = jax.pmap(lambda x: jax.lax.psum(x, "workers"), axis_name="workers")
    return float(total(jax.numpy.full((1,), session.get_world_rank() + 1.0))[0])


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_sum_over_all_processes(jax_fit: Fit, workers: int) -> None:
    def train_func() -> None:
        import jax

        session.report({"sum": summed_over_processes(), "index": jax.process_index(), "devices": len(jax.devices())})

    rows = AllRanks()
    result = jax_fit(train_func, workers, callbacks=[rows])
    wanted = workers * (workers + 1) / 2
    assert [(row["sum"], row["index"], row["devices"]) for row in rows.reports] == [
        (wanted, rank, workers) for rank in range(workers)
    ]
    assert result.state == "finished"


def test_training_on_two_processes_equals_training_on_one(jax_fit: Fit) -> None:
    def train_func(config: dict[str, Any]) -> None:
        import jax
        import numpy as np

        rank, world = session.get_world_rank(), session.get_world_size()
        x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
        y = x @ np.array([1.0, -2.0, 0.5], dtype="float32")

        def step(w: Any, x: Any, y: Any) -> Any:
            gradient = jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w)
            return w - 0.1 * jax.lax.pmean(gradient, "workers")

        train = jax.pmap(step, axis_name="workers", in_axes=(0, 0, 0))
        w = jax.numpy.zeros((1, 3))
        for _ in range(20):
            w = train(w, x[rank::world][None], y[rank::world][None])
        session.report({"w": np.asarray(w)[0]})

    one, two = (jax_fit(train_func, workers).metrics["w"] for workers in (1, 2))
    assert two == pytest.approx(one, abs=1e-5)
    assert abs(one[0] - 1) < 0.2, "it learned something"


def test_a_killed_rank_and_the_way_on_from_the_checkpoint(jax_fit: Fit) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 6):
            total = summed_over_processes()
            session.report({"step": step, "sum": total}, checkpoint=Checkpoint.from_dict({"step": step}))
            if step == 2 and session.get_attempt() == 0 and session.get_world_rank() == 1:
                session.get_checkpoint()  # step 2 is kept
                os.kill(os.getpid(), signal.SIGKILL)

    result = jax_fit(train_func, failure_config=FailureConfig(max_failures=1))
    assert result.metrics["step"] == 5 and result.metrics["sum"] == 3
    assert [(failure.attempt, failure.rank) for failure in result.failures] == [(0, 1)]


def test_an_error_of_one_rank_is_the_error_of_the_run(jax_fit: Fit) -> None:
    def train_func() -> None:
        summed_over_processes()
        if session.get_world_rank() == 1:
            raise ValueError("rank 1 is ill")
        summed_over_processes()

    with pytest.raises(TrainingFailedError, match="rank 1 is ill"):
        jax_fit(train_func)


def test_a_rank_that_ends_early_is_no_failure(jax_fit: Fit) -> None:
    def train_func() -> None:
        import threading

        summed_over_processes()
        if session.get_world_rank() == 1:
            threading.Event().wait(1.0)  # rank 0, the coordinator, has nothing left to do meanwhile
        session.report({"done": True})

    assert jax_fit(train_func).metrics["done"] is True


def test_importing_the_trainer_imports_no_jax() -> None:
    program = "import sys, lockstep.jax; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ConfigError, match=r"jax_config is 5"):
        JaxTrainer(lambda: None, jax_config=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"cpu_collectives is 'nccl'"):
        JaxTrainer(lambda: None, jax_config=JaxConfig(cpu_collectives="nccl"))
