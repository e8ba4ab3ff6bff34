"""Models in torch.compile and DistributedDataParallel, in both orders: how they are saved, and how a run continues."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import Checkpoint, FailureConfig, Result, session
from lockstep._encoding import encode
from lockstep.torch import TorchCheckpoint, prepare_model
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel

Fit = Callable[..., Result]
NAMES = [
    "encoder.0.weight",
    "encoder.0.bias",
    "encoder.1.weight",
    "encoder.1.bias",
    "encoder.1.running_mean",
    "encoder.1.running_var",
    "encoder.1.num_batches_tracked",
    "head.weight",
    "tied.weight",
]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        self.head = torch.nn.Linear(3, 3, bias=False)
        self.tied = torch.nn.Linear(3, 3, bias=False)
        self.tied.weight = self.head.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.tied(self.head(self.encoder(x)))


def compiled(model: torch.nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def with_compiled_part(model: Any) -> Any:
    model.encoder = compiled(model.encoder)
    return model


ORDERS: dict[str, Callable[[Net], Any]] = {
    "compiled last": lambda model: compiled(prepare_model(model)),
    "compiled first": lambda model: prepare_model(compiled(model)),
    "a compiled part": lambda model: prepare_model(with_compiled_part(model)),
    "compiled twice": lambda model: compiled(prepare_model(with_compiled_part(model))),
}


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


def train_one(order: str, saved: Any, load: str) -> tuple[int, Any]:
    """Continues from the checkpoint; returns the number of steps so far, and the model after one more."""
    net = Net()
    norm = net.encoder[1]
    if saved and load == "before":
        net.load_state_dict(saved)
    model = ORDERS[order](net)
    if saved and load == "after":
        model.load_state_dict(saved)
    steps = int(norm.num_batches_tracked)
    if order == "compiled last":  # one is enough: compiling takes its time
        model(torch.randn(4, 3)).square().mean().backward()
    else:
        norm(torch.randn(4, 3))
    return steps, model


def train() -> None:
    """Fails once; then continues from its checkpoint."""
    checkpoint = session.get_checkpoint()
    saved = checkpoint.to_dict() if checkpoint else {}
    steps, states = {}, {}
    for order in ORDERS:
        for load in ("before", "after"):
            key = f"{order}, loaded {load}"
            steps[key], model = train_one(order, saved.get(key), load)
            states[key] = model.state_dict()
    states |= {"model": model.state_dict(), "whole": model, "list": [dict(model.state_dict())]}
    session.report({"steps": steps}, checkpoint=Checkpoint.from_dict(states))
    if not checkpoint:
        session.get_checkpoint()  # waits until it is committed
        session.barrier()
        raise RuntimeError("once more")


def test_a_compiled_model_is_saved_under_its_own_names_and_goes_on(torch_fit: Fit) -> None:
    result = torch_fit(train, 2, failure_config=FailureConfig(max_failures=1))
    assert set(result.metrics["steps"].values()) == {1}, "the second attempt had what the first one saved"
    assert isinstance(result.checkpoint, TorchCheckpoint) and result.checkpoint.path is not None
    data = result.checkpoint.to_dict()
    for key in result.metrics["steps"]:
        assert list(data[key]) == NAMES, key
        assert data[key]._metadata.keys() == Net().state_dict()._metadata.keys()
        assert data[key]["head.weight"].data_ptr() == data[key]["tied.weight"].data_ptr()
    assert list(data["list"][0]) == NAMES
    assert type(data["whole"]).__name__ == "Net"
    # C++ and other programs see the same names.
    files = load_file(Path(result.checkpoint.path, "tensors.safetensors"))
    assert {name.partition(".")[2] for name in files} >= set(NAMES) - {"tied.weight"}
    assert not any("_orig_mod" in name or "module" in name for name in files if not name.startswith("whole."))

    for target in (Net(), compiled(Net()), with_compiled_part(Net()), compiled(with_compiled_part(Net()))):
        assert result.checkpoint.get_model(target) is target
        assert torch.equal(target.head.weight, data["model"]["head.weight"])
        assert [int(buffer) for name, buffer in target.named_buffers() if name.endswith("tracked")] == [2]


def names_of(value: Any) -> list[str]:
    return list(json.loads(encode({"v": value}, unwrap=True).data)["v"])


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (["_orig_mod.module.a", "_orig_mod.module.b.c"], ["a", "b.c"]),
        (["module._orig_mod.a"], ["a"]),
        (["_orig_mod.module._orig_mod.a"], ["a"]),
        (["_orig_mod._orig_mod.a"], ["a"]),
        (["encoder._orig_mod.a", "head.a"], ["encoder.a", "head.a"]),
        (["module.encoder._orig_mod.a", "module.head.a"], ["encoder.a", "head.a"]),
        (["encoder.module.a", "head.a"], ["encoder.module.a", "head.a"]),
        (["module.module.a"], ["module.a"]),
        (["a._orig_mod.b", "a.b"], ["a._orig_mod.b", "a.b"]),
        (["my_orig_mod.a"], ["my_orig_mod.a"]),
    ],
)
def test_names_of_wrappers_are_taken_off(saved: list[str], expected: list[str]) -> None:
    assert names_of({name: torch.ones(1) for name in saved}) == expected


def test_other_dicts_keep_such_names() -> None:
    for value in ({"_orig_mod.a": torch.ones(1), "lr": 0.1}, {"_orig_mod.a": 1}):
        assert names_of(value) == list(value)


def test_a_compiled_model_is_a_checkpoint_of_itself() -> None:
    model = Net()
    checkpoint = TorchCheckpoint.from_bytes(TorchCheckpoint.from_model(compiled(model)).to_bytes())
    assert type(checkpoint.get_model()) is Net and equal(checkpoint.get_model(), model)
    saved = TorchCheckpoint.from_state_dict(compiled(model).state_dict())  # as it is: nothing was reported
    assert equal(saved.get_model(Net()), model)


# ---------------------------------------------------------------------- model.module


def test_one_worker_has_a_module_too(torch_fit: Fit) -> None:
    def train_func() -> None:
        net = Net()
        names, parameters, modules = list(net.state_dict()), len(list(net.parameters())), len(list(net.modules()))
        model = prepare_model(net)
        assert model is model.module is net and type(model) is Net
        assert list(model.state_dict()) == list(model.module.state_dict()) == names
        assert (len(list(net.parameters())), len(list(net.modules()))) == (parameters, modules)
        assert repr(model).count("encoder") == 1
        with model.no_sync():
            model(torch.randn(4, 3)).sum().backward()
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert copied.module is copied and equal(copied, model)
        fast = compiled(prepare_model(model))
        assert fast.module is model and fast(torch.randn(4, 3)).shape == (4, 3)
        fresh = compiled(Net())
        assert prepare_model(fresh).module is fresh
        session.report({}, checkpoint=Checkpoint.from_dict({"model": fast.state_dict(), "whole": fast}))

    result = torch_fit(train_func, 1)
    assert result.checkpoint is not None
    data = result.checkpoint.to_dict()
    assert list(data["model"]) == NAMES and equal(data["whole"], result.checkpoint.get_model(Net()))  # type: ignore[attr-defined]


def test_a_module_of_the_models_own_stays() -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = torch.nn.Linear(1, 1)

    model = Holder()
    inner = model.module
    assert prepare_model(model).module is inner
    assert list(model.state_dict()) == ["module.weight", "module.bias"]


def test_fsdp_and_fully_shard_take_a_prepared_model(torch_fit: Fit) -> None:
    def train_func() -> None:
        from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

        model = FullyShardedDataParallel(prepare_model(torch.nn.Linear(4, 2)), device_id=torch.device("cpu"))
        model(torch.ones(2, 4)).sum().backward()
        sharded: Any = fully_shard(prepare_model(torch.nn.Linear(4, 2)))
        sharded(torch.ones(2, 4)).sum().backward()
        session.report({"names": list(sharded.state_dict()), "module": type(model.module).__name__})

    metrics = torch_fit(train_func, 1).metrics
    assert metrics["names"] == ["weight", "bias"] and metrics["module"] == "Linear"


def test_a_wrapped_model_loads_the_plain_names(torch_fit: Fit) -> None:
    def train_func() -> None:
        model = prepare_model(torch.nn.Linear(2, 1))
        assert isinstance(model, DistributedDataParallel)
        plain = OrderedDict((name, torch.zeros_like(value)) for name, value in model.module.state_dict().items())
        model.load_state_dict(plain)
        assert not model.module.weight.any() and list(plain) == ["weight", "bias"]
        model.load_state_dict({f"module.{name}": torch.ones_like(value) for name, value in plain.items()})
        assert model.module.weight.all()
        try:
            model.load_state_dict({"other": torch.ones(1)})
        except RuntimeError as error:
            assert "Missing key" in str(error) and "Unexpected key" in str(error)
            session.report({"refused": True})

    assert torch_fit(train_func, 2).metrics["refused"]
