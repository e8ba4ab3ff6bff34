"""HorovodTrainer on real Horovod, without deaths."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import Callback, Checkpoint, Result, RunConfig, ScalingConfig, TrainingFailedError, session
from lockstep.errors import ConfigError
from lockstep.horovod import HorovodConfig, HorovodTrainer, losses
from lockstep.torch import TorchCheckpoint

Fit = Callable[..., Result]


class Rows(Callback):
    """What every rank reported."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = []

    def wants_all_ranks(self) -> bool:
        return True

    def on_report(self, metrics: list[dict[str, Any]]) -> None:
        self.rows.append(metrics)


def fit_rows(trainer: HorovodTrainer) -> list[list[dict[str, Any]]]:
    rows = Rows()
    trainer.run_config.callbacks = [rows]
    trainer.fit()
    return rows.rows


def say_where() -> None:
    import horovod.torch as hvd

    hvd.init()
    total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum).item()
    names = hvd.allgather_object(f"{session.get_world_rank()}")
    session.report(
        {
            "place": [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()],
            "total": total,
            "names": names,
            "host": os.environ["HOROVOD_HOSTNAME"],
            "gloo": [hvd.gloo_enabled(), os.environ["HOROVOD_CONTROLLER"], os.environ["HOROVOD_CPU_OPERATIONS"]],
        }
    )


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_ranks_and_an_allreduce(horovod_trainer: Callable[..., HorovodTrainer], workers: int) -> None:
    (row,) = fit_rows(horovod_trainer(say_where, workers))
    for rank, said in enumerate(row):
        assert said["place"] == [rank, workers, rank, workers, 0, 1]
        assert said["total"] == workers * (workers + 1) / 2
        assert said["names"] == [str(each) for each in range(workers)]
        assert said["gloo"] == [True, "gloo", "gloo"]


def test_hosts_that_are_pretended(horovod_trainer: Callable[..., HorovodTrainer]) -> None:
    (row,) = fit_rows(horovod_trainer(say_where, 3, hosts=["one", "one", "two"]))
    assert [said["place"] for said in row] == [[0, 3, 0, 2, 0, 2], [1, 3, 1, 2, 0, 1], [2, 3, 0, 1, 1, 2]]
    assert [said["host"] for said in row] == ["one", "one", "two"]
    assert {said["total"] for said in row} == {6.0}


def train(config: dict[str, Any]) -> None:
    """Trains on its part of a fixed batch; a single rank has all of it."""
    import horovod.torch as hvd

    hvd.init()
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(64, 8, generator=generator), torch.randn(64, 1, generator=generator)
    torch.manual_seed(hvd.rank())  # the broadcast makes models equal
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    if hvd.rank() == 0:
        torch.manual_seed(1)
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                layer.reset_parameters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    mine = slice(hvd.rank(), None, hvd.size())
    for step in range(config["steps"]):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])
        loss.backward()
        optimizer.step()
        mean = hvd.allreduce(loss.detach()).item()
        session.report({"step": step, "loss": mean}, checkpoint=Checkpoint.from_dict({"model": model.state_dict()}))


def test_training_equals_that_of_one_process(horovod_fit: Fit) -> None:
    results = {workers: horovod_fit(train, workers, {"steps": 20}) for workers in (1, 2, 4)}
    weights = {}
    for workers, result in results.items():
        assert result.checkpoint is not None
        weights[workers] = result.checkpoint.to_dict()["model"]
    assert results[1].metrics["step"] == 19
    for workers in (2, 4):
        assert results[workers].metrics["loss"] == pytest.approx(results[1].metrics["loss"], rel=1e-5)
        for name, tensor in weights[1].items():
            torch.testing.assert_close(weights[workers][name], tensor, rtol=1e-5, atol=1e-6)
    assert isinstance(results[1].checkpoint, TorchCheckpoint)


def initialise_twice() -> None:
    import horovod.torch as hvd

    totals = []
    for _ in range(3):
        hvd.init()
        totals.append(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
        hvd.shutdown()
    session.report({"totals": totals})


def test_a_function_may_initialise_horovod_again(horovod_fit: Fit) -> None:
    assert horovod_fit(initialise_twice, 3).metrics["totals"] == [3.0, 3.0, 3.0]


def end_at_different_times() -> None:
    import horovod.torch as hvd

    hvd.init()
    hvd.allreduce(torch.ones(1))
    if hvd.rank() == 1:
        session.report({"rank": 1})
        return
    for step in range(200):
        session.report({"step": step})


def test_the_end_of_one_rank_is_no_failure(horovod_fit: Fit) -> None:
    assert horovod_fit(end_at_different_times, 2).metrics["step"] == 199


def raise_on_one_rank() -> None:
    import horovod.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("too bad")
    hvd.allreduce(torch.ones(1))


def test_the_rank_that_raised_is_named(horovod_fit: Fit) -> None:
    with pytest.raises(TrainingFailedError) as error:
        horovod_fit(raise_on_one_rank)
    assert "rank 1" in str(error.value) and "too bad" in str(error.value)


def test_verbose_and_nics_reach_the_workers(horovod_trainer: Callable[..., HorovodTrainer]) -> None:
    def show() -> None:
        names = ("HOROVOD_LOG_LEVEL", "HOROVOD_GLOO_IFACE", "HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_ELASTIC")
        session.report({name: os.environ[name] for name in names})

    said = horovod_trainer(show, verbose=2, nics={"lo"}, timeout_s=77).fit().metrics
    assert said["HOROVOD_LOG_LEVEL"] == "info"
    assert said["HOROVOD_GLOO_IFACE"] == "lo"
    assert said["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "77"
    assert said["HOROVOD_ELASTIC"] == "0"


@pytest.mark.parametrize(
    ("addresses", "nics", "interface"),
    [
        (["127.0.0.1", "127.0.0.1"], None, "lo"),
        (["10.0.0.1", "10.0.0.2"], None, None),
        (["10.0.0.1", "10.0.0.2"], ["eth1", "eth0"], "eth1"),
    ],
)
def test_the_interface_follows_the_addresses_of_the_nodes(
    on_nodes: Callable[..., None], addresses: list[str], nics: list[str] | None, interface: str | None
) -> None:
    on_nodes(*addresses)
    place: dict[str, Any] = dict.fromkeys(
        ("host", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "address", "port"), 0
    )
    variables = HorovodConfig(nics=nics)._variables(place)
    assert variables.get("HOROVOD_GLOO_IFACE") == interface
    assert variables.get("NCCL_SOCKET_IFNAME") == (",".join(nics) if nics else interface)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nics": "lo"}, "nics is 'lo'; it must be a set of names"),
        ({"nics": 3}, "nics is 3; it must be a set of names"),
        ({"nics": []}, "nics is []; it must be a set of names"),
        ({"nics": {3}}, "nics is {3}; it must be a set of names"),
        ({"nics": {"lo": 1}}, "nics is {'lo': 1}; it must be a set of names"),
        ({"timeout_s": 0}, "timeout_s is 0; it must be a whole number of seconds, from 1 to 2147483647"),
        ({"timeout_s": 1.5}, "timeout_s is 1.5; it must be a whole number"),
        ({"timeout_s": True}, "timeout_s is True; it must be a whole number"),
        ({"timeout_s": 2**31}, "timeout_s is 2147483648; it must be a whole number"),
        ({"timeout_s": 10**12}, "timeout_s is 1000000000000; it must be a whole number"),
        ({"verbose": "yes"}, "verbose is 'yes'; it must be 0, 1 or 2"),
        ({"verbose": -1}, "verbose is -1; it must be 0, 1 or 2"),
        ({"verbose": 99}, "verbose is 99; it must be 0, 1 or 2"),
        ({"verbose": True}, "verbose is True; it must be 0, 1 or 2"),
        ({"elastic": 1}, "elastic is 1; it must be True or False"),
        ({"ssh_port": "x"}, "ssh_port is 'x'; it must be from 1 to 65535"),
        ({"ssh_port": 0}, "ssh_port is 0; it must be from 1 to 65535"),
        ({"ssh_str": 3}, "ssh_str is 3; it must be a string"),
        ({"hosts": "ab"}, "hosts is 'ab'; it must be a list of names"),
        ({"hosts": 3}, "hosts is 3; it must be a list of names"),
        ({"hosts": []}, "hosts is []; it must be a list of names"),
        ({"hosts": {"a": 1}}, "hosts is {'a': 1}; it must be a list of names"),
        ({"hosts": ["a#", "a#"]}, 'hosts has "a#", which cannot be the name of a host; use letters'),
        ({"hosts": ["\udcff"]}, "which cannot be the name of a host; use letters"),
        ({"hosts": ["a", "b", "a"]}, 'in hosts, the ranks of "a" are not adjacent'),
    ],
)
def test_a_wrong_field_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        HorovodConfig(**options)


def test_what_has_no_effect_is_accepted() -> None:
    HorovodConfig(key="k", ssh_port=22, ssh_identity_file="id", ssh_str="s", placement_group_timeout_s=100)


def test_the_longest_timeout_is_one(horovod_trainer: Callable[..., HorovodTrainer]) -> None:
    (row,) = fit_rows(horovod_trainer(say_where, timeout_s=2**31 - 1))
    assert [said["total"] for said in row] == [3.0, 3.0]


def test_interfaces_are_looked_for_where_the_job_runs() -> None:
    config = HorovodConfig(nics={"no-such-nic"})
    with pytest.raises(ConfigError, match="'no-such-nic'"):
        config.validate()
    with pytest.raises(ConfigError, match="'no-such-nic'"):
        HorovodTrainer(say_where, horovod_config=config)


@pytest.mark.parametrize("hosts", [["a"], ["a", "b", "a"], ["a/b", "c"], ["a", "a", "a"]])
def test_hosts_that_do_not_fit_are_refused_when_the_trainer_is_made(
    horovod_trainer: Callable[..., HorovodTrainer], hosts: list[str]
) -> None:
    with pytest.raises(ConfigError, match="hosts"):
        horovod_trainer(say_where, 2, hosts=hosts)


def test_a_range_of_workers_is_refused_and_what_horovod_has_is_named() -> None:
    with pytest.raises(ConfigError, match=re.escape("HorovodConfig(elastic=True, min_workers=2)")):
        HorovodTrainer(say_where, scaling_config=ScalingConfig(num_workers=(2, 8)))


def test_hosts_that_are_changed_later_are_refused_before_anything_starts(
    horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path
) -> None:
    trainer = horovod_trainer(say_where, 2, hosts=["a", "a"])
    trainer.scaling_config.num_workers = 3
    with pytest.raises(ConfigError, match=r"of length 2, but num_workers is 3"):
        trainer.fit()
    assert not list(tmp_path.glob("runs/*"))


def test_either_spelling_of_the_configuration() -> None:
    config = HorovodConfig(verbose=2)
    for spelling in ("horovod_config", "horovod_backend", "tensorflow_backend"):
        assert HorovodTrainer(say_where, **{spelling: config}).backend_config is config
    with pytest.raises(ConfigError, match="two spellings"):
        HorovodTrainer(say_where, horovod_config=config, horovod_backend=config)
    with pytest.raises(ConfigError, match="must be a HorovodConfig"):
        HorovodTrainer(say_where, horovod_config="gloo")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="datasets"):
        HorovodTrainer(say_where, datasets={"train": []})


def run_script(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    script = directory / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, script], cwd=directory, capture_output=True, text=True, timeout=110)


def test_a_missing_horovod_is_told_before_anything_starts(tmp_path: Path) -> None:
    text = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda cls, name, *rest: None if name == "horovod" else find(name, *rest))
from lockstep.horovod import HorovodTrainer
HorovodTrainer(print)
"""
    ended = run_script(text, tmp_path)
    assert "ConfigError: [HorovodTrainer] Horovod is not installed; pip install horovod" in ended.stderr


def test_a_script_written_for_ray(tmp_path: Path) -> None:
    text = """
import lockstep.as_ray
from ray.air import RunConfig, ScalingConfig, session
from ray.train.horovod import HorovodConfig, HorovodTrainer

def train_func():
    import horovod.torch as hvd
    import torch
    hvd.init()
    session.report({"total": hvd.allreduce(torch.ones(1), op=hvd.Sum).item()})

use_gpu = False
trainer = HorovodTrainer(train_func, scaling_config=ScalingConfig(use_gpu=use_gpu, num_workers=2))
print("total", trainer.fit().metrics["total"])
trainer = HorovodTrainer(
    train_func,
    tensorflow_backend=HorovodConfig(timeout_s=60),
    scaling_config=ScalingConfig(num_workers=2),
)
print("total", trainer.fit().metrics["total"])
"""
    ended = run_script(text, tmp_path)
    assert ended.stdout.count("total 2.0") == 2, ended.stderr


def test_the_older_trainer(tmp_path: Path) -> None:
    text = """
from lockstep.sgd import Trainer

def train_func(config):
    import horovod.torch as hvd
    import torch
    hvd.init()
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
    hvd.shutdown()
    return [hvd.is_initialized(), total]

trainer = Trainer(backend="horovod", num_workers=2)
trainer.start()
print("first", trainer.run(train_func, config={}))
print("second", trainer.run(train_func, config={}))
trainer.shutdown()
"""
    ended = run_script(text, tmp_path)
    assert "first [[False, 2.0], [False, 2.0]]" in ended.stdout, ended.stderr
    assert "second [[False, 2.0], [False, 2.0]]" in ended.stdout, ended.stderr


def test_restored_runs_have_their_rendezvous(horovod_trainer: Callable[..., HorovodTrainer]) -> None:
    result = horovod_trainer(train, 2, {"steps": 1}).fit()
    more = HorovodTrainer.restore(result.path, train_loop_config={"steps": 3})
    more.run_config.verbose = 0
    assert more.fit().metrics["step"] == 2
    assert json.loads(Path(result.path, "run.json").read_text())["config_run"]["rendezvous"]["hosts"] == []


def test_restored_runs_may_have_another_size(horovod_trainer: Callable[..., HorovodTrainer]) -> None:
    def train_func() -> None:
        import horovod.torch as hvd

        hvd.init()
        session.report({"size": hvd.size()}, checkpoint=Checkpoint.from_dict({"size": hvd.size()}))

    result = horovod_trainer(train_func).fit()
    for spelling in ({}, {"tensorflow_backend": HorovodConfig(verbose=0)}):
        more = HorovodTrainer.restore(
            result.path, train_loop_config={}, scaling_config=ScalingConfig(num_workers=3), **spelling
        )
        more.run_config.verbose = 0
        assert more.fit().metrics["size"] == 3
    given = horovod_trainer(train_func, hosts=["a", "b"]).fit()
    more = HorovodTrainer.restore(given.path, train_loop_config={}, scaling_config=ScalingConfig(num_workers=3))
    with pytest.raises(ConfigError, match="hosts for 2 ranks, but there are 3 workers"):
        more.fit()


def test_results_that_are_read_again_hold_checkpoints_of_pytorch(
    horovod_trainer: Callable[..., HorovodTrainer],
) -> None:
    result = horovod_trainer(
        lambda: session.report({}, checkpoint=Checkpoint.from_dict({"model": {}})), workers=1
    ).fit()
    kinds = {type(each.checkpoint).__name__ for each in (result, Result.from_path(result.path))}
    assert kinds == {"TorchCheckpoint"}


def test_connections_of_other_ports_are_left_alone() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as other:
        port = listener.getsockname()[1]
        ends = []
        for server in (listener, other):
            client = socket.create_connection(server.getsockname())
            ends.append((client, server.accept()[0]))
        assert losses.break_connections({port}) == 2  # both ends are in this process
        (broken, _), (client, accepted) = ends
        assert broken.recv(1) == b""
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        for pair in ends:
            for end in pair:
                end.close()


def test_a_run_needs_no_more_than_its_own(tmp_path: Path) -> None:
    trainer = HorovodTrainer(
        say_where,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=tmp_path, verbose=0),
    )
    trainer.fit()
    with open("/proc/net/tcp") as table:
        listening = [line for line in table if line.split()[3] == "0A" and line.split()[9] in _sockets()]
    assert listening == []


def _sockets() -> set[str]:
    """The inodes of this process's sockets."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found
