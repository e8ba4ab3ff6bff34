"""JaxTrainer: processes connected by jax.distributed on CPUs, and their failures."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
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


def test_the_coordinator_is_at_rank_zeros_node(on_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    initialize = SimpleNamespace(initialize=lambda place, **options: calls.append((place, options)))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(distributed=initialize))  # this process must not load JAX
    on_nodes("127.0.0.2", "10.0.0.2")
    JaxConfig().on_worker_start()
    ((place, options),) = calls
    address, port = place.split(":")
    assert (address, options["coordinator_bind_address"]) == ("127.0.0.2", place)
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind((address, int(port)))


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


def test_a_function_that_joins_the_processes_itself(jax_fit: Fit) -> None:
    def train_func() -> None:
        import jax

        jax.distributed.initialize()
        total = summed_over_processes()
        jax.distributed.initialize()
        session.report({"sum": total, "processes": jax.process_count()})

    metrics = jax_fit(train_func).metrics
    assert (metrics["sum"], metrics["processes"]) == (3, 2)


def test_a_function_that_joins_others_is_told(jax_fit: Fit) -> None:
    def train_func() -> None:
        import jax

        jax.distributed.initialize("127.0.0.1:1", num_processes=1, process_id=0)

    with pytest.raises(TrainingFailedError, match="should only be called once"):
        jax_fit(train_func, 1)


def test_arrays_in_a_dict_become_those_of_numpy_where_there_is_no_jax(jax_fit: Fit) -> None:
    def train_func() -> None:
        import jax
        import jax.numpy as jnp

        if checkpoint := session.get_checkpoint():
            back = checkpoint.to_dict()
            assert isinstance(back["weights"], jax.Array) and back["weights"] is back["again"][0]
            kinds = [(type(each).__name__, each.dtype.name) for each in (back["scalar"], back["half"])]
            session.report({"kinds": kinds, "half": back["half"].tolist()})
            return
        weights = jnp.arange(6.0).reshape(2, 3)
        data = {"weights": weights, "again": [weights], "scalar": jnp.float32(2), "half": jnp.ones(2, "bfloat16")}
        session.report({}, checkpoint=Checkpoint.from_dict(data))

    checkpoint = jax_fit(train_func).checkpoint
    assert not (Path(checkpoint.path or "") / "objects.pkl").exists()
    again = jax_fit(train_func, resume_from_checkpoint=checkpoint).metrics
    assert again["kinds"] == [["ArrayImpl", "float32"], ["ArrayImpl", "bfloat16"]] and again["half"] == [1, 1]
    data = checkpoint.to_dict()
    assert data["weights"] is data["again"][0]
    found = {
        name: (type(data[name]), data[name].dtype.name, data[name].tolist()) for name in ("weights", "scalar", "half")
    }
    assert found == {
        "weights": (np.ndarray, "float32", [[0, 1, 2], [3, 4, 5]]),
        "scalar": (np.ndarray, "float32", 2.0),
        "half": (np.ndarray, "float32", [1, 1]),
    }


def test_arrays_that_numpy_cannot_hold_stay_as_they_are(tmp_path: Path) -> None:
    program = """
import sys, jax, jax.numpy as jnp, numpy as np
from lockstep import Checkpoint
small = jnp.ones(2, "float8_e4m3fn")
data = {"small": small, "of numpy": np.asarray(small), "key": jax.random.key(3)}
back = Checkpoint.from_directory(Checkpoint.from_dict(data).to_directory(sys.argv[1])).to_dict()
assert [back[name].dtype for name in data] == [value.dtype for value in data.values()]
assert (back["small"] == small).all() and back["key"] == data["key"]
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "c")], check=True, timeout=100)


def test_an_array_of_all_processes_cannot_be_saved_by_one(jax_fit: Fit) -> None:
    def train_func() -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        spread = NamedSharding(jax.make_mesh((2,), ("workers",)), PartitionSpec("workers"))
        everywhere = jax.make_array_from_callback((4,), spread, lambda index: np.arange(4.0)[index])
        session.report({}, checkpoint=Checkpoint.from_dict({"everywhere": everywhere}))

    with pytest.raises(TrainingFailedError, match=r"\['everywhere'\].* cannot be saved: .*process_allgather"):
        jax_fit(train_func)


def test_importing_the_trainer_imports_no_jax() -> None:
    program = "import sys, lockstep.jax; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ConfigError, match=r"jax_config is 5"):
        JaxTrainer(lambda: None, jax_config=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"cpu_collectives is 'nccl'"):
        JaxTrainer(lambda: None, jax_config=JaxConfig(cpu_collectives="nccl"))
    with pytest.raises(ConfigError, match="jax_config and jax_backend are two spellings"):
        JaxTrainer(lambda: None, jax_config=JaxConfig(), jax_backend=JaxConfig())
    for wrong, words in (({"datasets": {"train": []}}, "is a list"), ({"preprocessor": 5}, "preprocessor is 5")):
        with pytest.raises(ConfigError, match=words):
            JaxTrainer(lambda: None, **wrong)


def test_it_takes_what_the_other_trainers_take() -> None:
    import inspect

    from lockstep.horovod import HorovodTrainer

    def shape(trainer: Any, method: str, framework: str) -> list[str]:
        names = inspect.signature(getattr(trainer, method)).parameters
        return [name.replace(framework, "framework") for name in names if name != "tensorflow_backend"]

    for method in ("__init__", "restore"):
        assert shape(JaxTrainer, method, "jax") == shape(HorovodTrainer, method, "horovod")
    assert JaxTrainer(lambda: None, jax_backend=JaxConfig(cpu_collectives="mpi")).backend_config == JaxConfig("mpi")


def test_a_run_goes_on(jax_fit: Fit) -> None:
    def train_func(config: dict[str, Any]) -> None:
        checkpoint = session.get_checkpoint()
        if checkpoint is None:
            session.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
            session.barrier()
            session.get_checkpoint()  # it is kept
            raise ValueError("stop")
        session.report({"step": checkpoint.to_dict()["step"] + 1, "sum": summed_over_processes()})

    with pytest.raises(TrainingFailedError) as failed:
        jax_fit(train_func, config={})
    result = JaxTrainer.restore(failed.value.result.path, jax_backend=JaxConfig()).fit()
    assert (result.metrics["step"], result.metrics["sum"]) == (1, 3)
