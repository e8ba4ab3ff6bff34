"""Training on many workers gives the same numbers as one process on the whole batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import Checkpoint, FailureConfig, Result, session
from lockstep.torch import enable_reproducibility, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset

Fit = Callable[..., Result]
STEPS = 20
BATCH = 16  # of all workers together


def net(norm: bool = False) -> torch.nn.Module:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32) if norm else torch.nn.Identity()]
    return torch.nn.Sequential(*layers, torch.nn.Tanh(), torch.nn.Linear(32, 1))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(STEPS * BATCH, 6, generator=generator)
    return inputs, inputs.sum(1, keepdim=True).sin()


def optimizer_of(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return torch.optim.Adam(model.parameters(), lr=0.01)


def alone(name: str) -> dict[str, torch.Tensor]:
    """What one process comes to."""
    model = net()
    optimizer = optimizer_of(name, model)
    for inputs, targets in DataLoader(TensorDataset(*data()), batch_size=BATCH):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    return model.state_dict()


def assert_equal_states(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], tolerance: float) -> None:
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_equal_to_one_process(torch_fit: Fit, workers: int, name: str) -> None:
    def train_func() -> None:
        model = net()
        if session.get_world_rank() != 0:  # rank 0's parameters must win
            torch.nn.init.zeros_(model[0].weight)  # type: ignore[index, arg-type]
        model = prepare_model(model)
        optimizer = optimizer_of(name, model)
        loader = prepare_data_loader(DataLoader(TensorDataset(*data()), batch_size=BATCH // workers))
        steps = 0
        for inputs, targets in loader:
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
            steps += 1
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        session.report({"steps": steps}, checkpoint=Checkpoint.from_dict(state))

    result = torch_fit(train_func, workers)
    assert result.metrics["steps"] == STEPS
    assert result.checkpoint is not None
    saved = result.checkpoint.to_dict()
    assert_equal_states(saved["model"], alone(name), 1e-6)
    assert "objects.pkl" not in os.listdir(result.checkpoint.path or "")


def test_accumulated_gradients_are_averaged_once(torch_fit: Fit) -> None:
    def train_func() -> None:
        model = prepare_model(net())
        optimizer = optimizer_of("sgd", model)
        loader = prepare_data_loader(DataLoader(TensorDataset(*data()), batch_size=BATCH // 4))
        batches = iter(loader)
        for _ in range(STEPS):
            optimizer.zero_grad()
            with model.no_sync():
                inputs, targets = next(batches)
                ((model(inputs) - targets).square().mean() / 2).backward()
            inputs, targets = next(batches)
            ((model(inputs) - targets).square().mean() / 2).backward()
            optimizer.step()
        session.report({}, checkpoint=Checkpoint.from_dict({"model": model.state_dict()}))

    result = torch_fit(train_func, 2)
    assert result.checkpoint is not None
    assert_equal_states(result.checkpoint.to_dict()["model"], alone("sgd"), 1e-6)


def test_buffers_are_those_of_rank_0(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        model = prepare_model(net(norm=True))
        inputs = torch.randn(8, 6) + session.get_world_rank()
        for _ in range(3):
            model(inputs).sum().backward()
        before = model.module[1].running_mean.clone()
        model(inputs)  # the buffers travel at the start of a forward pass
        every = [torch.empty_like(before) for _ in range(2)]
        dist.all_gather(every, before)
        session.report({"counted": int(model.module[1].num_batches_tracked), "own": not every[0].equal(every[1])})

    metrics = torch_fit(train_func, 2).metrics
    assert metrics["counted"] == 4 and metrics["own"]


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = torch.nn.Linear(2, 1)
        self.unused = torch.nn.Linear(2, 1)
        self.frozen = torch.nn.Linear(2, 1).requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.used(inputs) + self.frozen(inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("spelling", ["parallel_strategy_kwargs", "ddp_kwargs"])
def test_unused_and_frozen_parameters(torch_fit: Fit, spelling: str) -> None:
    def train_func() -> None:
        torch.manual_seed(session.get_world_rank())
        model = prepare_model(Branches(), **{spelling: {"find_unused_parameters": True}})
        frozen = model.module.frozen.weight.clone()
        optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 2)).square().mean().backward()
            optimizer.step()
        session.report(
            {
                "frozen": model.module.frozen.weight.equal(frozen),
                "unused": model.module.unused.weight.grad is None,
            }
        )

    metrics = torch_fit(train_func, 2).metrics
    assert metrics["frozen"] and metrics["unused"]


def test_a_model_with_nothing_to_train_is_not_wrapped(torch_fit: Fit) -> None:
    def train_func() -> None:
        model = prepare_model(torch.nn.Linear(2, 1).requires_grad_(False))
        session.report({"type": type(model).__name__})

    assert torch_fit(train_func, 2).metrics["type"] == "Linear"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "DistributedDataParallel"),
        ({"wrap_ddp": False}, "Linear"),
        ({"parallel_strategy": None}, "Linear"),
        ({"wrap_ddp": True, "ddp_kwargs": {"broadcast_buffers": False}}, "DistributedDataParallel"),
        ({"parallel_strategy": "fsdp"}, "FullyShardedDataParallel"),
    ],
)
def test_strategies(torch_fit: Fit, arguments: dict[str, Any], expected: str) -> None:
    def train_func() -> None:
        model = prepare_model(torch.nn.Linear(4, 2), **arguments)
        model(torch.ones(2, 4)).sum().backward()
        session.report({"type": type(model).__name__})

    assert torch_fit(train_func, 2).metrics["type"] == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parallel_strategy": "luck"}, "parallel_strategy is 'luck'"),
        ({"wrap_ddp": 1}, "wrap_ddp is 1"),
        ({"ddp_kwargs": {}, "parallel_strategy_kwargs": {}}, "two spellings"),
        ({"ddp_kwargs": [1]}, "must be a dict"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prepare_model(torch.nn.Linear(1, 1), **arguments)


def test_only_modules_are_prepared() -> None:
    with pytest.raises(ValueError, match="model is a dict"):
        prepare_model({})  # type: ignore[arg-type]


def test_alone_outside_of_a_worker_the_model_is_as_it_was() -> None:
    model = torch.nn.Linear(1, 1)
    assert prepare_model(model) is model


def reproducible(config: dict[str, Any]) -> None:
    """Two epochs a checkpoint; rank 1 may die in the middle of a backward pass."""
    enable_reproducibility(seed=11)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = prepare_data_loader(
        DataLoader(TensorDataset(*data()), batch_size=8, shuffle=True, num_workers=config["loader_workers"])
    )
    start, losses = 0, []
    checkpoint = session.get_checkpoint()
    if checkpoint:
        state = checkpoint.to_dict()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        start, losses = state["epoch"] + 1, state["losses"]
    model = prepare_model(model)
    for epoch in range(start, 4):
        for index, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            dies = epoch == 2 and index == 7 and session.get_world_rank() == 1 and config["flag"]
            if dies and not Path(config["flag"]).exists():
                Path(config["flag"]).touch()
                # While rank 0 is in the all-reduce that wants this rank.
                model.register_comm_hook(None, lambda _, bucket: os.kill(os.getpid(), signal.SIGKILL))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
            "epoch": epoch,
            "losses": losses,
        }
        session.report({"epoch": epoch, "loss": losses[-1]}, checkpoint=Checkpoint.from_dict(state))


def losses_of(result: Result) -> list[float]:
    assert result.checkpoint is not None
    losses: list[float] = result.checkpoint.to_dict()["losses"]
    assert len(losses) == 4 * STEPS
    return losses


def test_two_reproducible_runs_are_bit_equal(torch_fit: Fit) -> None:
    config = {"flag": "", "loader_workers": 2}
    assert losses_of(torch_fit(reproducible, 2, config)) == losses_of(torch_fit(reproducible, 2, config))


def test_a_rank_killed_in_an_all_reduce_changes_nothing(torch_fit: Fit, tmp_path: Path) -> None:
    whole = torch_fit(reproducible, 2, {"flag": "", "loader_workers": 0})
    broken = torch_fit(
        reproducible,
        2,
        {"flag": str(tmp_path / "flag"), "loader_workers": 0},
        failure_config=FailureConfig(max_failures=1),
    )
    assert [failure.rank for failure in broken.failures] == [1]
    assert losses_of(broken) == losses_of(whole)
    assert whole.checkpoint is not None and broken.checkpoint is not None
    assert_equal_states(whole.checkpoint.to_dict()["model"], broken.checkpoint.to_dict()["model"], 0)
