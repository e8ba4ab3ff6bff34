"""TorchTrainer: the process group, its variables, what listens where, failures, restoring."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lockstep
import pytest
import torch
from lockstep import (
    Callback,
    Checkpoint,
    DataParallelTrainer,
    FailureConfig,
    Result,
    ScalingConfig,
    TrainingFailedError,
    session,
)
from lockstep.backend import BackendConfig
from lockstep.errors import ConfigError
from lockstep.torch import TorchCheckpoint, TorchConfig, TorchTrainer, get_device
from lockstep.torch import config as torch_config

Fit = Callable[..., Result]
MakeTrainer = Callable[..., TorchTrainer]


class AllRanks(Callback):
    """The first report of every rank."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.reports = self.reports or [result for result in results if result is not None]


def reports_of(torch_fit: Fit, function: Callable[..., Any], workers: int = 2, **options: Any) -> list[dict[str, Any]]:
    callback = AllRanks()
    torch_fit(function, workers, callbacks=[callback], **options)
    assert len(callback.reports) == workers
    return callback.reports


VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "ACCELERATE_TORCH_DEVICE",
)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_group_is_up_and_the_variables_of_torchrun_are_set(torch_fit: Fit, workers: int) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        ones = torch.ones(3)
        dist.all_reduce(ones)
        session.report(
            {
                "rank": dist.get_rank(),
                "size": dist.get_world_size(),
                "backend": dist.get_backend(),
                "sum": ones.tolist(),
                "threads": torch.get_num_threads(),
                "env": {name: os.environ[name] for name in VARIABLES},
            }
        )

    ports = set()
    for rank, report in enumerate(reports_of(torch_fit, train_func, workers)):
        assert (report["rank"], report["size"], report["backend"]) == (rank, workers, "lockstep")
        assert report["sum"] == [workers] * 3
        assert report["threads"] == max(1, len(os.sched_getaffinity(0)) // workers)
        ports.add(report["env"].pop("MASTER_PORT"))
        assert report["env"] == {
            "MASTER_ADDR": "127.0.0.1",
            "RANK": str(rank),
            "WORLD_SIZE": str(workers),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(workers),
            "NODE_RANK": "0",
            "ACCELERATE_TORCH_DEVICE": "cpu",
        }
    assert len(ports) == 1 and int(ports.pop()) > 0


@pytest.mark.parametrize("backend", ["gloo", "lockstep"])
def test_nothing_listens_beyond_this_machine(torch_fit: Fit, backend: str) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        dist.barrier()
        mine = set()
        for fd in os.listdir("/proc/self/fd"):
            try:
                mine.add(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError:
                continue
        places = []
        for table in ("tcp", "tcp6"):
            with open(f"/proc/self/net/{table}") as lines:
                for line in list(lines)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:  # 0A: it listens
                        places.append(fields[1].split(":")[0])
        dist.barrier()
        session.report({"places": places})

    store, other = reports_of(torch_fit, train_func, torch_config=TorchConfig(backend=backend))
    assert set(store["places"]) == {"0100007F"}  # 127.0.0.1
    assert set(other["places"]) == ({"0100007F"} if backend == "gloo" else set())


def test_the_store_listens_on_the_address_of_rank_zeros_node(
    on_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "")
    monkeypatch.setenv("MASTER_PORT", "")
    on_nodes("127.0.0.2", "10.0.0.2")
    store = torch_config._store(timedelta(seconds=10))
    port = int(os.environ["MASTER_PORT"])
    assert (os.environ["MASTER_ADDR"], store.port) == ("127.0.0.2", port)
    socket.create_connection(("127.0.0.2", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("addresses", "interface"),
    [(["127.0.0.1", "127.0.0.1"], "lo"), (["127.0.0.1", "10.0.0.2"], None), (["10.0.0.1", "10.0.0.1"], None)],
)
def test_gloo_stays_on_the_loopback_if_all_workers_are_there(
    on_nodes: Callable[..., None], monkeypatch: pytest.MonkeyPatch, addresses: list[str], interface: str | None
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    on_nodes(*addresses)
    torch_config._keep_gloo_inside()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == interface


def test_ranks_draw_different_random_numbers(torch_fit: Fit) -> None:
    first = [report["x"] for report in reports_of(torch_fit, lambda: session.report({"x": torch.rand(1).item()}))]
    again = [report["x"] for report in reports_of(torch_fit, lambda: session.report({"x": torch.rand(1).item()}))]
    assert len({*first, *again}) == 4


def test_a_rank_that_ends_early_waits_for_the_others(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        if session.get_world_rank() != 0:
            # Needs the store that rank 0 hosts.
            store = dist.distributed_c10d._get_default_store()
            for i in range(200):
                store.set(f"key{session.get_world_rank()}", str(i))
        session.report({"done": True})

    assert torch_fit(train_func, 3).metrics["done"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "carrier pigeon"}, "backend is 'carrier pigeon'"),
        ({"backend": 3}, "backend is 3"),
        ({"init_method": "file"}, "init_method is 'file'"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": timedelta(0)}, "timeout_s is datetime"),
        ({"timeout_s": "long"}, "timeout_s is 'long'"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TorchConfig(**options)


def test_a_configuration_changed_later_is_checked_before_start(torch_trainer: MakeTrainer) -> None:
    trainer = torch_trainer(lambda: None)
    trainer.backend_config.init_method = "smoke"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="smoke"):
        trainer.fit()


def test_a_backend_that_torch_lacks_is_a_clear_error(torch_fit: Fit) -> None:
    with pytest.raises(TrainingFailedError, match="has no backend 'nccl'"):
        torch_fit(lambda: None, torch_config=TorchConfig(backend="nccl"))


def test_spellings_of_the_configuration() -> None:
    config = TorchConfig(timeout_s=5)
    assert TorchTrainer(lambda: None, torch_backend=config).backend_config is config
    assert TorchTrainer(lambda: None, torch_config=config).backend_config is config
    with pytest.raises(ConfigError, match="two spellings"):
        TorchTrainer(lambda: None, torch_config=config, torch_backend=config)
    with pytest.raises(ConfigError, match="must be a TorchConfig"):
        TorchTrainer(lambda: None, torch_config={"backend": "gloo"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="datasets"):
        TorchTrainer(lambda: None, datasets={"train": []})


@pytest.mark.parametrize("backend", ["gloo", "lockstep"])
def test_the_timeout_reaches_the_collectives(torch_fit: Fit, backend: str) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        if session.get_world_rank() == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                session.report({"error": str(error)})
        session.barrier()

    config = TorchConfig(backend=backend, timeout_s=timedelta(seconds=0.5))
    assert "imed out" in torch_fit(train_func, torch_config=config).metrics["error"]


def test_lockstep_train_torch_is_lockstep_torch() -> None:
    import lockstep.train.torch
    from lockstep import train

    assert train.torch is lockstep.torch
    assert sys.modules["lockstep.train.torch"] is lockstep.torch


def test_importing_lockstep_imports_no_framework() -> None:
    code = "import lockstep, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_the_error_says_what_to_install() -> None:
    code = textwrap.dedent(
        """
        import sys
        sys.modules["torch"] = None
        try:
            import lockstep.torch
        except ImportError as error:
            assert "pip install torch" in str(error), error
        else:
            raise SystemExit("imported")
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_backends_run_their_hooks(tmp_path: Path) -> None:
    class Greeting(BackendConfig):
        def __init__(self, word: str) -> None:
            self.word = word

        def on_worker_start(self) -> None:
            os.environ["GREETING"] = f"{self.word} {session.get_world_rank()}"

        def on_worker_end(self) -> None:
            (tmp_path / f"end_{session.get_world_rank()}").write_text(os.environ["GREETING"])

    DataParallelTrainer(
        lambda: session.report({"greeting": os.environ["GREETING"]}),
        backend_config=Greeting("hello"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=lockstep.RunConfig(storage_path=tmp_path, verbose=0),
    ).fit()
    assert [(tmp_path / f"end_{rank}").read_text() for rank in range(2)] == ["hello 0", "hello 1"]


def test_restore_goes_on_with_the_same_group(torch_trainer: MakeTrainer, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        import torch.distributed as dist

        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 4):
            if step == 2 and not Path(config["flag"]).exists():
                session.get_checkpoint()  # rank 0's is on disk
                session.barrier()
                raise ValueError("the first time")
            total = torch.ones(1)
            dist.all_reduce(total)
            session.report(
                {"step": step, "start": start, "total": total.item(), "type": type(checkpoint).__name__},
                checkpoint=Checkpoint.from_dict({"step": step}),
            )

    flag = tmp_path / "flag"
    with pytest.raises(TrainingFailedError, match="the first time") as caught:
        torch_trainer(train_func, config={"flag": str(flag)}, torch_config=TorchConfig(timeout_s=77)).fit()
    flag.touch()
    result = TorchTrainer.restore(caught.value.result.path).fit()
    assert (result.metrics["step"], result.metrics["start"], result.metrics["total"]) == (3, 2, 2)
    assert result.metrics["type"] == "TorchCheckpoint" and isinstance(result.checkpoint, TorchCheckpoint)
    # A new function does not lose the process group.
    again = TorchTrainer.restore(result.path, train_func, {"flag": str(flag), "new": 1}).fit()
    assert again.metrics["total"] == 2


def test_a_killed_rank_is_named_and_not_the_rank_that_saw_it(torch_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        checkpoint = session.get_checkpoint()
        if checkpoint is None:
            session.report({}, checkpoint=Checkpoint.from_dict({"x": 1}))
            session.get_checkpoint()
            session.barrier()
            if session.get_world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                dist.all_reduce(torch.ones(1 << 20))
        session.report({"resumed": True})

    result = torch_trainer(train_func, 3, failure_config=FailureConfig(max_failures=1)).fit()
    assert result.metrics["resumed"]
    assert [failure.rank for failure in result.failures] == [1]
    assert result.failures[0].kind == "signal"


def test_an_exception_of_one_rank_ends_the_others_that_wait_for_it(torch_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        if session.get_world_rank() == 1:
            raise ValueError("mine")
        dist.all_reduce(torch.ones(1))

    with pytest.raises(TrainingFailedError) as caught:
        torch_trainer(train_func, 2).fit()
    assert caught.value.failures[0].rank == 1 and isinstance(caught.value.__cause__, ValueError)


def test_the_device_without_a_gpu() -> None:
    assert get_device() == torch.device("cpu")


def test_the_device_of_a_worker_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert get_device() == torch.device("cuda:0")


@pytest.mark.parametrize(("backend", "reason"), [("gloo", "closed by peer"), ("lockstep", r"rank 1 .* left the group")])
def test_a_rank_that_waits_for_one_that_has_finished_fails(
    torch_trainer: MakeTrainer, backend: str, reason: str
) -> None:
    def train_func() -> None:
        import lockstep.torch.config
        import torch.distributed as dist

        lockstep.torch.config.LEAVE_TOGETHER_WITHIN = 0.3
        dist.barrier()
        if session.get_world_rank() == 0:
            dist.all_reduce(torch.ones(1))  # rank 1 makes no such call

    with pytest.raises(TrainingFailedError) as caught:
        torch_trainer(train_func, 2, torch_config=TorchConfig(backend=backend)).fit()
    assert caught.value.failures[0].rank == 0 and re.search(reason, caught.value.failures[0].message)


def test_a_slow_rank_is_waited_for(torch_trainer: MakeTrainer) -> None:
    def train_func() -> None:
        import lockstep.torch.config
        import torch.distributed as dist

        lockstep.torch.config.LEAVE_TOGETHER_WITHIN = 0.1
        store = dist.distributed_c10d._get_default_store()
        if session.get_world_rank() == 1:
            for i in range(100):
                time.sleep(0.005)
                store.set("key", str(i))  # rank 0, which hosts it, has finished long ago
        session.report({"done": True})

    assert torch_trainer(train_func, 2).fit().metrics["done"]


def test_results_and_callbacks_hold_torch_checkpoints(torch_trainer: MakeTrainer) -> None:
    class Kinds(Callback):
        def __init__(self) -> None:
            self.kinds: list[str] = []

        def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
            self.kinds.append(type(checkpoint).__name__)

        def on_end(self, result: Result) -> None:
            self.kinds.append(type(result.checkpoint).__name__)

    def train_func() -> None:
        session.report({}, checkpoint=TorchCheckpoint.from_state_dict({"weight": torch.ones(1, 1)}))

    kinds = Kinds()
    result = torch_trainer(train_func, callbacks=[kinds]).fit()
    assert kinds.kinds == ["TorchCheckpoint"] * 2
    for each in (result, Result.from_path(result.path)):
        assert isinstance(each.checkpoint, TorchCheckpoint) and isinstance(each.best_checkpoints[0][0], TorchCheckpoint)
        assert each.checkpoint.get_model(torch.nn.Linear(1, 1, bias=False)).weight.item() == 1


def test_objects_of_the_scripts_own_classes_pickle_in_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import io, pickle
            import torch
            from lockstep import RunConfig, ScalingConfig, session
            from lockstep.torch import TorchTrainer, prepare_model

            class Net(torch.nn.Linear):
                pass

            def main():
                model = prepare_model(Net(2, 1))
                with model.no_sync():
                    model(torch.ones(1, 2)).sum().backward()
                file = io.BytesIO()
                torch.save(model, file)
                file.seek(0)
                again = torch.load(file, weights_only=False)
                session.report({{"type": type(again).__name__, "same": type(pickle.loads(pickle.dumps(model))) is Net}})

            if __name__ == "__main__":
                config = RunConfig(storage_path={str(tmp_path)!r}, verbose=0)
                result = TorchTrainer(main, scaling_config=ScalingConfig(num_workers=1), run_config=config).fit()
                print(result.metrics["type"], result.metrics["same"])
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["Net", "True"], done.stderr


def test_a_function_that_names_a_module_of_a_class_of_its_own_can_be_sent(torch_fit: Fit) -> None:
    class Model:
        config = 3

    def train_func() -> None:
        torch.distributed.barrier()
        session.report({"config": Model().config})  # cloudpickle takes torch.distributed.config along

    assert torch_fit(train_func).metrics["config"] == 3
