"""Objects with tensors in dict checkpoints: modules, optimizers, schedulers, generators."""

from __future__ import annotations

import json
import pickle
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from lockstep import Checkpoint, StorageError
from lockstep._encoding import decode, encode
from round_trips import bits, same, through_files, through_memory


def test_a_module_s_tensors_are_stored_outside_of_its_pickle(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.BatchNorm1d(100))
    value = {"net": model, "state": model.state_dict(), "first": model[0]}
    encoded = encode(value)
    assert encoded.objects is not None and len(encoded.objects) < 10_000
    assert "state.0.weight" in {tensor[0] for tensor in encoded.tensors}
    assert {tensor[0] for tensor in encode({"net": model}).tensors} == {f"net.{name}" for name in model.state_dict()}
    result = through_files(value, tmp_path / "c")
    assert all(torch.equal(a, b) for a, b in zip(result["net"].parameters(), model.parameters(), strict=True))
    assert result["first"] is result["net"][0]
    with torch.no_grad():
        result["net"][0].weight.zero_()
    assert not result["state"]["0.weight"].any()
    result["net"](torch.ones(2, 100)).sum().backward()
    assert result["net"][0].bias.grad is not None


class Holder:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_tensors_with_attributes_of_the_user_s_own_keep_them_in_a_pickle() -> None:
    marked = torch.nn.Parameter(torch.ones(3))
    marked.mark = "mine"  # type: ignore[attr-defined]
    plain = torch.ones(2)
    result = through_memory({"h": Holder(marked=marked, plain=plain, again=plain)})["h"]
    assert result.marked.mark == "mine" and torch.equal(result.marked, marked)
    assert result.plain is result.again and torch.equal(result.plain, plain)


def test_a_pickled_tensor_comes_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Any] = []
    load = torch.load

    def watched(*arguments: Any, **options: Any) -> Any:
        places.append(options.get("map_location"))
        return load(*arguments, **options)

    marked = torch.ones(3)
    marked.mark = "mine"  # type: ignore[attr-defined]
    monkeypatch.setattr(torch, "load", watched)
    assert torch.equal(through_memory({"h": Holder(marked=marked)})["h"].marked, torch.ones(3))
    assert places == ["cpu"]


def test_a_pickle_that_refers_to_a_tensor_that_is_not_there() -> None:
    encoded = encode({"h": Holder(t=torch.ones(2))})
    data = json.loads(encoded.data)
    del data["h"]["tensors"]
    with pytest.raises(StorageError, match=r"objects\.pkl refers to the tensor 0; data\.json lists 0"):
        decode(json.dumps(data), lambda: [], lambda: encoded.objects or b"")
    with pytest.raises(StorageError, match=r"data\.json refers to the object 5; objects\.pkl holds 1"):
        decode('{"a": {"$object": 5}}', lambda: [], lambda: pickle.dumps([1]))


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
        lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
        lambda p: torch.optim.Adagrad(p, lr=0.1),
        lambda p: torch.optim.LBFGS(p, max_iter=2),
    ],
)
def test_optimizers_go_on_as_if_nothing_had_happened(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 2) for _ in range(2)]
    first, second = (make(list(model.parameters())) for model in models)

    def advance(model: torch.nn.Module, optimizer: Any) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(torch.ones(3, 4)).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    advance(models[0], first)
    value = {"model": models[0].state_dict(), "optimizer": first.state_dict()}
    assert encode(value).objects is None
    result = through_files(value, tmp_path / "c")
    models[1].load_state_dict(result["model"])
    second.load_state_dict(result["optimizer"])
    for _ in range(3):
        advance(models[0], first)
        advance(models[1], second)
    assert bits(models[0].weight) == bits(models[1].weight)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
        lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 3]),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
        lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.LinearLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
        ),
    ],
)
def test_schedulers_need_no_pickle(make: Any) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
    for _ in range(3):
        step(model, optimizer)
        scheduler.step(*([1.0] if plateau else []))
    state = scheduler.state_dict()
    assert encode({"scheduler": state}).objects is None
    assert through_memory({"scheduler": state})["scheduler"] == state


def test_the_scaler_and_the_generators_need_no_pickle() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(1))
    value = {
        "scaler": scaler.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": numpy.random.get_state(),
        "python": random.getstate(),
    }
    assert encode(value).objects is None
    result = through_memory(value)
    assert result["scaler"] == value["scaler"] and result["python"] == value["python"]
    torch.set_rng_state(result["torch"])
    numpy.random.set_state(result["numpy"])
    random.setstate(result["python"])


def test_the_versions_of_a_state_dict_s_modules_come_back() -> None:
    state = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict()
    result = through_memory({"s": state})["s"]
    assert type(result) is OrderedDict
    assert result._metadata == state._metadata == OrderedDict([("", {"version": 1}), ("0", {"version": 2})])


def test_the_safetensors_package_reads_a_state_dict(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)).to(torch.bfloat16)
    state = model.state_dict() | {
        "f8": torch.ones(3).to(torch.float8_e5m2fnuz),
        "c": torch.ones(2, dtype=torch.complex64),
    }
    path = Checkpoint.from_dict({"model": state, "column": torch.arange(6.0).reshape(2, 3)[:, 1:]}).to_directory(
        tmp_path / "c"
    )
    read = safetensors.torch.load_file(Path(path) / "tensors.safetensors")
    assert read.keys() == {f"model.{name}" for name in state} | {"column"}
    assert all(same(read[f"model.{name}"], tensor) for name, tensor in state.items())
    assert read["column"].tolist() == [[1, 2], [4, 5]]
