"""Python reads checkpoints of C++ and the reverse; training continues with the same numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import Checkpoint
from safetensors.torch import load_file

TOOL = Path(__file__).parents[3] / "build" / "tests" / "torch" / "torch_checkpoint_tool"

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


class Net(torch.nn.Module):
    """The model of tests/torch/checkpoint_tool.cpp, with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.norm(self.first(x).tanh()))


def step(net: Net, optimizer: torch.optim.Optimizer, number: int) -> None:
    optimizer.zero_grad()
    x = (torch.arange(15, dtype=torch.float32) + number).reshape(5, 3).sin()
    net(x).square().mean().backward()
    optimizer.step()


def tool(*arguments: object) -> str:
    """What it printed. A missing tool is a failure: the development build makes it."""
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_close(state: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(state) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(state[name], value, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_python_goes_on_with_a_checkpoint_of_cpp(kind: str, tmp_path: Path) -> None:
    tool("write", kind, tmp_path / "cpp")
    saved = Checkpoint.from_directory(tmp_path / "cpp").to_dict()
    assert saved["done"] == 2
    net, expected = Net(), Net()
    optimizer, reference = OPTIMIZERS[kind](net.parameters()), OPTIMIZERS[kind](expected.parameters())
    for group in optimizer.param_groups:
        group["lr"] = 55.0  # what was saved wins
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step(net, optimizer, 2)
    for number in range(3):
        step(expected, reference, number)
    assert_close(net.state_dict(), expected.state_dict())


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("named", [False, True], ids=["numbered", "named"])
def test_cpp_goes_on_with_a_checkpoint_of_python(kind: str, named: bool, tmp_path: Path) -> None:
    net = Net()
    # Named parameters may stand in another order than C++'s.
    parameters = list(reversed(list(net.named_parameters()))) if named else net.parameters()
    optimizer = OPTIMIZERS[kind](parameters)
    for number in range(2):
        step(net, optimizer, number)
    state = {"done": 2, "model": net.state_dict(), "optimizer": optimizer.state_dict()}
    Checkpoint.from_dict(state).to_directory(tmp_path / "python")
    tool("step", kind, tmp_path / "python", tmp_path / "cpp")
    step(net, optimizer, 2)
    saved = Checkpoint.from_directory(tmp_path / "cpp").to_dict()
    assert saved["done"] == 3
    assert_close(saved["model"], net.state_dict())


@pytest.mark.parametrize("key", ["model_state_dict", "state_dict"])
def test_cpp_reads_the_keys_that_python_programs_use(key: str, tmp_path: Path) -> None:
    net = Net()
    optimizer = OPTIMIZERS["Adam"](net.parameters())
    step(net, optimizer, 0)
    state = {"done": 1, key: net.state_dict(), "optimizer_state_dict": optimizer.state_dict(), "mean": torch.ones(3)}
    Checkpoint.from_dict(state).to_directory(tmp_path / "python")
    tool("step", "Adam", tmp_path / "python", tmp_path / "cpp")
    step(net, optimizer, 1)
    assert_close(Checkpoint.from_directory(tmp_path / "cpp").to_dict()["model"], net.state_dict())
    assert float(tool("sum", "mean", tmp_path / "python")) == 3


def test_safetensors_reads_the_file_of_cpp(tmp_path: Path) -> None:
    tool("write", "Adam", tmp_path / "cpp")
    arrays = load_file(tmp_path / "cpp" / "tensors.safetensors")
    assert arrays["model.first.weight"].shape == (4, 3)
    assert arrays["optimizer.state.last.bias.exp_avg"].shape == (2,)


def test_cpp_reads_views_of_python(tmp_path: Path) -> None:
    """A transposed weight is stored as it lies in memory; C++ sees the same numbers."""
    net = Net()
    optimizer = OPTIMIZERS["SGD"](net.parameters())
    state = dict(net.state_dict())
    state["first.weight"] = state["first.weight"].t().contiguous().t()
    state["norm.weight"] = torch.arange(8, dtype=torch.float32)[::2]
    net.load_state_dict(state)
    Checkpoint.from_dict({"done": 0, "model": state, "optimizer": optimizer.state_dict()}).to_directory(tmp_path / "p")
    tool("step", "SGD", tmp_path / "p", tmp_path / "cpp")
    step(net, optimizer, 0)
    assert_close(Checkpoint.from_directory(tmp_path / "cpp").to_dict()["model"], net.state_dict())


def test_cpp_says_what_it_cannot_read(tmp_path: Path) -> None:
    net = Net()
    Checkpoint.from_dict({"done": 0, "model": net, "optimizer": {}}).to_directory(tmp_path / "python")
    done = subprocess.run(
        [TOOL, "step", "SGD", tmp_path / "python", tmp_path / "cpp"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "save model.state_dict()" in done.stderr
