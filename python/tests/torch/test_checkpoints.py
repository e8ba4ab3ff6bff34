"""Checkpoints of models: TorchCheckpoint, DistributedDataParallel taken off, and how much memory they need."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from lockstep import Checkpoint, ConfigError, Result, session
from lockstep._encoding import encode
from lockstep.torch.checkpoint import TorchCheckpoint
from torch.nn.parallel import DistributedDataParallel

Fit = Callable[..., Result]


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


@pytest.fixture
def wrapped() -> Iterator[DistributedDataParallel]:
    """Not on Gloo: PyTorch can deadlock when a model outlives its Gloo group (the model's end holds the GIL and waits
    for a thread that wants it)."""
    torch.distributed.init_process_group("lockstep", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield DistributedDataParallel(net())
    finally:
        torch.distributed.destroy_process_group()


# ---------------------------------------------------------------------- TorchCheckpoint


def test_a_state_dict_becomes_a_model(tmp_path: Path) -> None:
    model = net()
    path = TorchCheckpoint.from_state_dict(model.state_dict()).to_directory(tmp_path / "c")
    assert not Path(path, "objects.pkl").exists()
    target = net()
    assert not equal(target, model)
    assert TorchCheckpoint.from_directory(path).get_model(target) is target
    assert equal(target, model)


def test_a_whole_model_comes_back(tmp_path: Path) -> None:
    model = net()
    path = TorchCheckpoint.from_model(model).to_directory(tmp_path / "c")
    loaded = TorchCheckpoint.from_directory(path).get_model()
    assert loaded is not model and equal(loaded, model)
    assert isinstance(loaded[0].weight, torch.nn.Parameter) and loaded[0].weight.requires_grad
    assert Path(path, "objects.pkl").stat().st_size < 10_000, "the values are not in the pickle"


def test_a_checkpoint_becomes_one_of_another_class(tmp_path: Path) -> None:
    model = net()
    plain = Checkpoint.from_dict({"model": model.state_dict(), "epoch": 3})
    for checkpoint in (plain, Checkpoint.from_directory(plain.to_directory(tmp_path / "c"))):
        torch_checkpoint = TorchCheckpoint.from_checkpoint(checkpoint)
        assert type(torch_checkpoint) is TorchCheckpoint and torch_checkpoint.path == checkpoint.path
        assert equal(torch_checkpoint.get_model(net()), model)
        assert torch_checkpoint.to_dict()["epoch"] == 3
    assert type(Checkpoint.from_checkpoint(TorchCheckpoint.from_model(model))) is Checkpoint
    with pytest.raises(ConfigError, match="from_checkpoint got a dict"):
        Checkpoint.from_checkpoint({"model": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make", [TorchCheckpoint.from_dict, lambda data: TorchCheckpoint.from_state_dict(data["model"])]
)
def test_its_class_stays(make: Any, tmp_path: Path) -> None:
    checkpoint = make({"model": net().state_dict()})
    saved = TorchCheckpoint.from_uri(checkpoint.to_uri(str(tmp_path / "c")))
    for one in (checkpoint, saved, TorchCheckpoint.from_bytes(checkpoint.to_bytes())):
        assert type(one) is TorchCheckpoint and repr(one).startswith("TorchCheckpoint(")
        assert type(pickle.loads(pickle.dumps(one))) is TorchCheckpoint


def test_the_prefix_is_accepted_both_ways(wrapped: DistributedDataParallel) -> None:
    bare = net()
    assert equal(TorchCheckpoint.from_state_dict(wrapped.state_dict()).get_model(bare), wrapped.module)
    other = net()
    assert TorchCheckpoint.from_state_dict(other.state_dict()).get_model(wrapped) is wrapped
    assert equal(wrapped.module, other)
    assert TorchCheckpoint.from_state_dict(wrapped.state_dict()).get_model(wrapped) is wrapped


def test_a_model_whose_own_names_begin_with_module() -> None:
    model = torch.nn.ModuleDict({"module": net()})
    target = torch.nn.ModuleDict({"module": net()})
    assert equal(TorchCheckpoint.from_state_dict(model.state_dict()).get_model(target), model)


def test_a_wrapped_model_is_stored_without_its_wrapper(wrapped: DistributedDataParallel) -> None:
    checkpoint = TorchCheckpoint.from_model(wrapped)
    loaded = TorchCheckpoint.from_bytes(checkpoint.to_bytes()).get_model()
    assert type(loaded) is torch.nn.Sequential and equal(loaded, wrapped.module)


def test_what_does_not_fit_is_said() -> None:
    saved = TorchCheckpoint.from_state_dict(net().state_dict())
    with pytest.raises(ConfigError, match=r"holds a state_dict and not a whole model; call get_model\(model\)"):
        saved.get_model()
    with pytest.raises(ConfigError, match=r'does not fit: .*Missing key\(s\) in state_dict: "2.weight", "2.bias"'):
        saved.get_model(net().append(torch.nn.Linear(2, 2)))  # type: ignore[operator]
    with pytest.raises(ConfigError, match=r"size mismatch for 0\.weight"):
        saved.get_model(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2)))
    with pytest.raises(ConfigError, match="get_model got a type"):
        saved.get_model(torch.nn.Linear)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no 'model' but 'weights', 'epoch'"):
        TorchCheckpoint.from_dict({"weights": 1, "epoch": 2}).get_model(net())
    with pytest.raises(ConfigError, match=r"'model' in .* is a int"):
        TorchCheckpoint.from_dict({"model": 1}).get_model(net())


def test_what_it_cannot_be_made_from_is_said() -> None:
    with pytest.raises(ConfigError, match=r"from_state_dict got a Sequential; give it model\.state_dict\(\)"):
        TorchCheckpoint.from_state_dict(net())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="from_model got a OrderedDict"):
        TorchCheckpoint.from_model(net().state_dict())  # type: ignore[arg-type]
    for make, thing in ((TorchCheckpoint.from_model, net()), (TorchCheckpoint.from_state_dict, net().state_dict())):
        assert make(thing, preprocessor={"mean": 3}).get_preprocessor() == {"mean": 3}  # type: ignore[operator]


# ---------------------------------------------------------------------- unwrapping


def names(value: Any, unwrap: bool) -> set[str]:
    return {tensor[0] for tensor in encode(value, unwrap).tensors}


def test_wrapped_models_are_unwrapped_at_any_depth(wrapped: DistributedDataParallel) -> None:
    state = wrapped.state_dict()
    value = {"state": state, "list": [{"inner": (dict(state),)}], "model": wrapped, "models": [wrapped]}
    checkpoint = Checkpoint(_data=value)
    handle = type(checkpoint._as_handle()).from_parts(checkpoint._as_parts(unwrap=True))
    result = Checkpoint._from_handle(handle).to_dict()
    bare = list(wrapped.module.state_dict())
    assert list(result["state"]) == list(result["list"][0]["inner"][0]) == bare
    assert type(result["state"]) is OrderedDict and type(result["list"][0]["inner"][0]) is dict
    assert result["state"]._metadata == wrapped.module.state_dict()._metadata
    assert type(result["model"]) is torch.nn.Sequential and equal(result["model"], wrapped.module)
    assert result["models"][0] is result["model"]
    assert next(iter(state)).startswith("module."), "what the user holds is not changed"


def test_nothing_is_unwrapped_unasked(wrapped: DistributedDataParallel) -> None:
    state = {"s": wrapped.state_dict()}
    assert all(name.startswith("s.module.") for name in names(state, unwrap=False))
    assert not any("module" in name for name in names(state, unwrap=True))


@pytest.mark.parametrize(
    "value",
    [
        {"module.a": torch.ones(1), "b": torch.ones(1)},
        {"module.a": torch.ones(1), "module.lr": 0.1},
        {"module.a": torch.ones(1), 3: torch.ones(1)},
        {"module.lr": 0.1},
        {"module": torch.ones(1)},
        {},
    ],
)
def test_other_mappings_keep_their_names(value: Any) -> None:
    assert json.loads(encode({"v": value}, unwrap=True).data) == json.loads(encode({"v": value}).data)


def test_extra_state_loses_the_prefix_too() -> None:
    value = {"module.w": torch.ones(1), "module._extra_state": {"a": 1}}
    assert set(json.loads(encode({"v": value}, unwrap=True).data)["v"]) == {"w", "_extra_state"}


def test_a_session_unwraps_when_it_is_told_to(fit: Fit) -> None:
    def train() -> None:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        model = DistributedDataParallel(torch.nn.Linear(2, 2))
        for unwraps in (False, True):
            assert session._session is not None
            session._session.unwraps_models = unwraps
            session.report({}, checkpoint=Checkpoint.from_dict({"weights": model.state_dict()}))
            checkpoint = session.get_checkpoint()
            assert checkpoint is not None
            prefix = "" if unwraps else "module."
            assert list(checkpoint.to_dict()["weights"]) == [prefix + "weight", prefix + "bias"]

    fit(train, workers=1)


# ---------------------------------------------------------------------- memory

SIZE = 200 << 20
SLACK = 30 << 20
"""What Python, torch and the C library take besides; far less than another copy."""


class Memory:
    """The most memory that this process has had since this was made, beyond what it had then."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to VmRSS
        self.start = self.read("VmRSS")

    @property
    def peak(self) -> int:
        return self.read("VmHWM") - self.start

    @staticmethod
    def read(key: str) -> int:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields[key].split()[0]) * 1024


def state_of(kind: str) -> Any:
    tensors = {f"w{i}": torch.ones(SIZE // 4 // 10).view(10, 4, 8, -1) for i in range(10)}
    if kind == "channels_last":
        return {name: tensor.to(memory_format=torch.channels_last) for name, tensor in tensors.items()}
    if kind == "model":
        return torch.nn.ParameterDict(tensors)
    return tensors | {f"flat of {name}": tensor.view(-1) for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", ["state_dict", "channels_last", "model"])
def test_a_report_needs_one_copy_and_loading_none_but_the_result(kind: str, fit: Fit) -> None:
    def train(config: dict[str, Any]) -> None:
        state = state_of(config["kind"])
        memory = Memory()
        session.report({}, checkpoint=Checkpoint.from_dict({"state": state}))
        checkpoint = session.get_checkpoint()
        reporting = memory.peak
        assert checkpoint is not None
        memory = Memory()
        loaded = checkpoint.to_dict()
        session.report({"reporting": reporting, "loading": memory.peak, "held": len(loaded["state"])})

    metrics = fit(train, workers=1, config={"kind": kind}).metrics
    assert metrics is not None
    assert SIZE <= metrics["reporting"] <= SIZE + SLACK
    # The result, and the file's pages, which are mapped and no memory of the process's own.
    assert SIZE <= metrics["loading"] <= 2 * SIZE + SLACK


def test_importing_lockstep_does_not_import_torch() -> None:
    code = """
import sys
from lockstep import Checkpoint
assert Checkpoint.from_bytes(Checkpoint.from_dict({"a": (1, 2)}).to_bytes()).to_dict() == {"a": (1, 2)}
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
