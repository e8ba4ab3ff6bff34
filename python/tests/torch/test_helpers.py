"""Mixed precision, reproducibility, metrics of all workers."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from lockstep import Checkpoint, Result, session
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import (
    _context,
    accelerate,
    all_reduce_mean,
    amp,
    backward,
    enable_reproducibility,
    prepare_model,
    prepare_optimizer,
)

Fit = Callable[..., Result]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the start of a training function."""
    for name, value in (("_wanted", False), ("_scaler", None), ("_locked_by", None)):
        monkeypatch.setattr(amp, name, value)


class Outputs(NamedTuple):
    tensor: torch.Tensor
    rest: dict[str, Any]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.seen: list[torch.dtype] = []

    def forward(self, inputs: torch.Tensor) -> Outputs:
        out = self.layer(inputs)
        self.seen.append(out.dtype)
        return Outputs(out, {"list": [out], "tuple": (out, 1), "text": "x"})


@pytest.mark.usefixtures("fresh")
def test_forward_is_in_bfloat16_and_its_outputs_are_not() -> None:
    accelerate(amp=True)
    model = prepare_model(Net())
    assert isinstance(model, Net) and type(model).__name__ == "Net"
    out = model(torch.ones(3, 4))
    assert model.seen == [torch.bfloat16]
    for tensor in (out.tensor, out.rest["list"][0], out.rest["tuple"][0]):
        assert tensor.dtype is torch.float32
    assert out.rest["tuple"][1] == 1 and out.rest["text"] == "x"
    backward(out.tensor.sum())
    assert model.layer.weight.grad is not None and model.layer.weight.grad.dtype is torch.float32


@pytest.mark.usefixtures("fresh")
def test_a_model_with_mixed_precision_still_pickles() -> None:
    accelerate(amp=True)
    model = prepare_model(Net())
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert type(twin) is Net
        assert twin.layer.weight.equal(model.layer.weight)
    assert prepare_model(model) is model


@pytest.mark.usefixtures("fresh")
def test_without_amp_nothing_changes() -> None:
    accelerate()
    model = prepare_model(Net())
    assert type(model) is Net
    model(torch.ones(1, 4))
    assert model.seen == [torch.float32]
    optimizer = torch.optim.SGD(model.parameters())
    assert prepare_optimizer(optimizer) is optimizer


@pytest.mark.usefixtures("fresh")
def test_twice_is_an_error() -> None:
    accelerate(amp=True)
    with pytest.raises(LockstepError, match="already called"):
        accelerate(amp=True)


@pytest.mark.parametrize("function", ["prepare_model", "prepare_optimizer", "backward"])
@pytest.mark.usefixtures("fresh")
def test_too_late_is_an_error(function: str) -> None:
    model = Net()
    if function == "prepare_model":
        prepare_model(model)
    elif function == "prepare_optimizer":
        prepare_optimizer(torch.optim.SGD(model.parameters()))
    else:
        backward(model(torch.ones(1, 4)).tensor.sum())
    with pytest.raises(LockstepError, match=f"too late, after {function}"):
        accelerate(amp=True)


@pytest.mark.usefixtures("fresh")
def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="amp is 1"):
        accelerate(amp=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Optimizer"):
        prepare_optimizer(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seed is -1"):
        enable_reproducibility(seed=-1)


@pytest.mark.usefixtures("fresh")
def test_a_scaled_optimizer_steps_by_the_true_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scaler of a GPU, on a CPU."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    monkeypatch.setattr(amp, "_scaler", scaler)
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = prepare_optimizer(torch.optim.SGD([weight], lr=0.1))
    assert isinstance(optimizer, torch.optim.Optimizer) and optimizer.param_groups[0]["lr"] == 0.1
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.zero_grad()
    backward((weight * 3).sum())
    assert weight.grad is not None and weight.grad.item() == 3 * 1024
    optimizer.step()
    scheduler.step()
    torch.testing.assert_close(weight.data, torch.tensor([1.7]))
    assert optimizer.param_groups[0]["lr"] == 0.05
    backward((weight * float("inf")).sum())
    before = weight.item()
    optimizer.step()
    assert weight.item() == before and scaler.get_scale() == 512
    state = optimizer.state_dict()
    other = amp.ScaledOptimizer(torch.optim.SGD([weight], lr=9), torch.amp.GradScaler("cpu"))
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.05 and other.scaler.get_scale() == 512
    with pytest.raises(ConfigError, match="closure"):
        optimizer.step(lambda: 1.0)


def test_mixed_precision_on_two_workers_learns(torch_fit: Fit) -> None:
    def train_func() -> None:
        accelerate(amp=True)
        torch.manual_seed(0)
        model = prepare_model(torch.nn.Linear(4, 1))
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        inputs = torch.randn(64, 4)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            backward(loss)
            optimizer.step()
            losses.append(loss.item())
        session.report(
            {"first": losses[0], "last": losses[-1]}, checkpoint=Checkpoint.from_dict({"model": model, "x": 1})
        )

    result = torch_fit(train_func, 2)
    assert result.metrics["last"] < result.metrics["first"] / 20
    assert result.checkpoint is not None
    assert type(result.checkpoint.to_dict()["model"]) is torch.nn.Linear


@pytest.fixture
def seeds() -> Iterator[None]:
    deterministic = torch.are_deterministic_algorithms_enabled()
    yield
    _context.seed = None
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = False
    random.seed()
    numpy.random.seed()
    torch.seed()


@pytest.mark.usefixtures("seeds")
def test_all_generators_are_seeded() -> None:
    def draw() -> list[float]:
        return [random.random(), float(numpy.random.rand()), torch.rand(1).item()]

    enable_reproducibility(seed=5)
    first = draw()
    assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    enable_reproducibility(seed=5)
    assert draw() == first
    enable_reproducibility()
    assert not set(draw()) & set(first)


def test_the_mean_of_all_workers(torch_fit: Fit) -> None:
    def train_func() -> None:
        rank = session.get_world_rank()
        mean = all_reduce_mean({"loss": float(rank), "n": torch.tensor(rank), "b": True, "nested": {"z": 2, "a": rank}})
        session.report(mean)

    metrics = torch_fit(train_func, 3).metrics
    assert (metrics["loss"], metrics["n"], metrics["b"], metrics["nested"]) == (1, 1, 1, {"z": 2, "a": 1})
    assert list(metrics)[:4] == ["loss", "n", "b", "nested"]


def test_the_mean_of_one_is_itself() -> None:
    assert all_reduce_mean({"x": 3, "y": numpy.float32(0.5)}) == {"x": 3.0, "y": 0.5}
    assert all_reduce_mean({}) == {}
    with pytest.raises(ConfigError, match="nested/b is 'text'"):
        all_reduce_mean({"nested": {"b": "text"}})
    with pytest.raises(ConfigError, match="got a list"):
        all_reduce_mean([1])  # type: ignore[arg-type]


def test_the_mean_of_a_number_and_of_lists(torch_fit: Fit) -> None:
    def train_func() -> None:
        rank = session.get_world_rank()
        mean = all_reduce_mean(torch.tensor(rank))
        session.report({"mean": mean, **all_reduce_mean({"losses": [rank, 2 * rank], "deep": {"pair": (rank, [1])}})})

    metrics = torch_fit(train_func, 3).metrics
    assert (metrics["mean"], metrics["losses"], metrics["deep"]) == (1, [1, 2], {"pair": [1, [1]]})


def test_metrics_with_other_keys_are_refused_on_every_rank(torch_fit: Fit) -> None:
    def train_func() -> None:
        rank = session.get_world_rank()
        with pytest.raises(ConfigError, match="only rank 0 has accuracy, only rank 1 has correct;"):
            all_reduce_mean({"loss": 1, "accuracy" if rank == 0 else "correct": 2})
        with pytest.raises(ConfigError, match="only rank 0 has nothing, only rank 1 has losses/1;"):
            all_reduce_mean({"losses": [0] * (rank + 1)})
        session.report(all_reduce_mean({"loss": rank}))

    assert torch_fit(train_func, 2).metrics["loss"] == 0.5


def test_torchmetrics_aggregate_over_workers(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torchmetrics

        rank = session.get_world_rank()
        accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        accuracy(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 2] if rank == 0 else [1, 2, 0, 2]))
        mean = torchmetrics.MeanMetric()
        mean(torch.tensor(float(rank)))
        session.report({"accuracy": accuracy.compute().item(), "mean": mean.compute().item()})

    metrics = torch_fit(train_func, 2).metrics
    assert (metrics["accuracy"], metrics["mean"]) == (0.625, 0.5)
