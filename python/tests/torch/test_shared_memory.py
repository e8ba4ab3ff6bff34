"""Tensors in dict checkpoints that are views of one memory share it again."""

from __future__ import annotations

import random
from pathlib import Path

import numpy
import pytest
import torch
from lockstep._encoding import encode
from round_trips import same, stored, through_files, through_memory


def test_views_share_memory_again(tmp_path: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    value = {
        "x": x,
        "row": x[1],
        "cell": x[2, 3],
        "t": x.t(),
        "flat": x.view(-1),
        "columns": x[:, 1:3],
        "wide": x[0].expand(5, 4),
    }
    assert [tensor[0] for tensor in encode(value).tensors] == ["x"]
    result = through_files(value, tmp_path / "c")
    result["x"].mul_(10)
    x.mul_(10)
    for name, tensor in value.items():
        assert same(result[name], tensor), name
        assert result[name].stride() == tensor.stride()
    result["cell"].fill_(-1)
    assert result["x"][2, 3] == result["flat"][11] == result["t"][3, 2] == -1


def test_views_that_are_parts_share_what_they_have_in_common() -> None:
    x = torch.arange(20.0).reshape(4, 5)
    result = through_memory({"top": x[:3], "bottom": x[2:], "left": x[:, :3], "right": x[:, 2:]})
    result["top"][2, 2] = 99
    assert [float(result[k][i]) for k, i in [("bottom", (0, 2)), ("left", (2, 2)), ("right", (2, 0))]] == [99] * 3


def test_views_that_have_nothing_in_common_have_names_and_memory_of_their_own() -> None:
    flat = torch.arange(10.0)
    value = {"a": flat[:4].view(2, 2), "b": flat[4:10].view(2, 3)}
    assert [tensor[:3] for tensor in encode(value).tensors] == [("a", "F32", (2, 2)), ("b", "F32", (2, 3))]
    result = through_memory(value)
    assert result["a"].untyped_storage().nbytes() == 16


def test_columns_far_apart_do_not_bring_what_lies_between() -> None:
    x = torch.arange(100_000.0).reshape(100, 1000)
    value = {"a": x[:, 0:2], "b": x[:, 1:3], "far": x[:, 999]}
    assert stored(value) == 4 * 100 * 4
    result = through_memory(value)
    result["a"][7, 1] = -1
    assert result["b"][7, 0] == -1
    assert torch.equal(result["far"], x[:, 999])


def test_one_memory_as_several_types() -> None:
    x = torch.arange(8.0)
    z = torch.arange(4).to(torch.complex128)
    value = {
        "x": x,
        "bits": x.view(torch.int32),
        "half": x[1:3].view(torch.float16),
        "z": z,
        "zr": torch.view_as_real(z),
    }
    result = through_memory(value)
    for name, tensor in value.items():
        assert same(result[name], tensor), name
    result["x"][1] = -0.0
    assert result["bits"][1] == -(2**31)
    result["zr"][2, 1] = 5
    assert result["z"][2] == 2 + 5j


def test_one_memory_as_several_types_that_are_parts() -> None:
    x = torch.arange(8.0)
    value = {"part": x[1:5], "wide": x.view(torch.float64)[1:3]}
    result = through_memory(value)
    assert same(result["part"], value["part"]) and same(result["wide"], value["wide"])
    result["part"][1] = 77
    x[2] = 77
    assert same(result["wide"], value["wide"])


def test_memory_that_several_storages_share() -> None:
    array = numpy.arange(6.0)
    value = {"part": torch.from_numpy(array[:4]), "all": torch.from_numpy(array), "steps": torch.from_numpy(array)[::5]}
    result = through_memory(value)
    for name, tensor in value.items():
        assert same(result[name], tensor), name
    result["all"][0] = 9
    assert result["part"][0] == result["steps"][0] == 9


def test_tied_weights_and_a_parameter_and_its_data() -> None:
    a, b = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
    b.weight = a.weight
    state = torch.nn.Sequential(a, b).state_dict()
    value = {"state": state, "parameter": a.weight, "data": a.weight.data}
    assert [tensor[0] for tensor in encode(value).tensors] == ["state.0.weight"]
    result = through_memory(value)
    assert type(result["parameter"]) is torch.nn.Parameter
    with torch.no_grad():
        result["parameter"].fill_(4)
    assert float(result["data"][0, 0]) == float(result["state"]["1.weight"][2, 2]) == 4


def test_empty_tensors_are_themselves() -> None:
    empty = torch.empty(0, 3)
    result = through_memory({"a": empty, "b": [empty], "c": torch.empty(2, 0), "none": torch.empty(3, 0).t()})
    assert result["a"] is result["b"][0]
    assert result["c"].shape == (2, 0) and result["none"].shape == (0, 3)


def random_view(base: torch.Tensor, source: random.Random) -> torch.Tensor:
    view = base
    for _ in range(source.randint(0, 4)):
        if view.dim() == 0 or view.numel() > 2000:
            break
        view = random_step(view, source)
    return view


def random_step(view: torch.Tensor, source: random.Random) -> torch.Tensor:
    axis = source.randrange(view.dim())
    size = view.shape[axis]
    start, step = source.randrange(size), source.choice([1, 1, 2, 3])
    part = (slice(None),) * axis + (slice(start, source.randint(start + 1, size), step),)
    kinds = ["turn", "slice", "slice", "pick", "new axis", "expand", "windows"]
    match source.choice(kinds):
        case "turn":
            return view.transpose(axis, source.randrange(view.dim()))
        case "slice":
            return view[part]
        case "pick":
            return view.select(axis, start)
        case "new axis":
            return view.unsqueeze(axis)
        case "expand":
            return view.unsqueeze(axis).expand(*view.shape[:axis], 2, *view.shape[axis:])
        case _:
            return view.unfold(axis, source.randint(1, size), source.choice([1, 2]))


def random_views(seed: int) -> tuple[dict[str, torch.Tensor], random.Random]:
    source = random.Random(seed)
    shape = [source.randint(1, 7) for _ in range(source.randint(1, 4))]
    dtype = getattr(torch, source.choice(["float32", "int16", "complex64", "complex128", "float64"]))
    padded = torch.arange(torch.Size(shape).numel() + 5).to(dtype)
    base = padded[source.randint(0, 5) :][: torch.Size(shape).numel()].view(shape)
    return {str(i): random_view(base, source) for i in range(source.randint(1, 5))}, source


@pytest.mark.parametrize("seed", [*range(400), 6947])
def test_random_views_come_back_and_share_what_they_shared(seed: int) -> None:
    value, source = random_views(seed)
    result = through_memory(value)
    for _ in range(6):
        for name, tensor in value.items():
            assert same(result[name], tensor), (name, tensor.shape, tensor.stride(), tensor.storage_offset())
        name = source.choice(list(value))
        place = tuple(source.randrange(size) for size in value[name].shape)
        value[name][place] = result[name][place] = source.randint(-100, -1)
    for name, tensor in value.items():
        assert result[name].untyped_storage().nbytes() <= tensor.untyped_storage().nbytes()
