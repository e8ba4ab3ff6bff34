"""Tensors in checkpoints: equal when they come back, with their strides and with the memory that they shared."""

from __future__ import annotations

import json
import pickle
import random
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import safetensors.torch
import torch
from lockstep import Checkpoint, StorageError
from lockstep._arrays import PARTS, WORDS
from lockstep._encoding import decode, encode

TYPES = [*WORDS, *PARTS]


def through_memory(value: Any) -> Any:
    encoded = encode(value)
    tensors = [(name, word, shape, memoryview(bytes(buffer))) for name, word, shape, buffer in encoded.tensors]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return decode(encoded.data, lambda: tensors, lambda: encoded.objects or b"")


def through_files(value: Any, path: Path) -> Any:
    return Checkpoint.from_directory(Checkpoint.from_dict(value).to_directory(path)).to_dict()


def bits(tensor: torch.Tensor) -> list[int]:
    """Its elements' bytes, in C order, also of types that cannot be compared."""
    physical = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    bytes_: list[int] = physical.reshape(-1).view(torch.uint8).tolist()
    return bytes_


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (type(a), a.dtype, a.shape, a.requires_grad, bits(a)) == (
        type(b),
        b.dtype,
        b.shape,
        b.requires_grad,
        bits(b),
    )


def stored(value: Any) -> int:
    """How many bytes tensors.safetensors holds, without its header."""
    return sum(len(memoryview(buffer)) for _, _, _, buffer in encode(value).tensors)


# ---------------------------------------------------------------------- single tensors


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (4,), (2, 3)])
def test_every_type_comes_back(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    dtype = getattr(torch, name)
    count = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.arange(count, dtype=torch.uint8)
    tensor = (raw % 2 if dtype is torch.bool else raw).view(dtype).reshape(shape)
    assert encode({"t": tensor}).objects is None
    assert same(through_memory({"t": tensor})["t"], tensor)
    assert same(through_files({"t": tensor}, tmp_path / "c")["t"], tensor)


def test_ordinary_tensors_have_plain_entries() -> None:
    model = torch.nn.Sequential(OrderedDict(conv=torch.nn.Conv2d(3, 4, 2), norm=torch.nn.BatchNorm2d(4)))
    entries = dict(json.loads(encode({"m": model.state_dict()}).data)["m"]["$ordered_dict"])
    assert entries["conv.weight"] == {"$tensor": "m.conv.weight", "kind": "torch"}
    assert entries["norm.num_batches_tracked"] == {"$tensor": "m.norm.num_batches_tracked", "kind": "torch"}
    parameter = json.loads(encode({"p": model.conv.bias}).data)["p"]
    assert parameter == {"$tensor": "p", "kind": "torch", "parameter": True, "requires_grad": True}


def layouts() -> dict[str, torch.Tensor]:
    x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    return {
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "transposed": x[0, 0].t(),
        "permuted": x.permute(3, 1, 0, 2),
        "scalar expanded": torch.tensor(7.0).expand(3, 4),
        "row expanded": torch.arange(3.0).expand(4, 3),
        "column expanded": torch.arange(3.0).reshape(3, 1).expand(3, 5),
        "expanded in between": torch.arange(6.0).reshape(2, 1, 3).expand(2, 5, 3),
        "sliced rows": x[:, 1:],
        "sliced columns": x[..., :3],
        "steps": x[:, :, ::2, ::2],
        "middle": x[1, 1:, 1:3, 1:4],
        "sliced and transposed": x[0, 0, :, 1:4].t(),
        "sliced and expanded": x[0, :, :, :3].unsqueeze(1).expand(3, 6, 4, 3),
        "windows": torch.arange(9.0).unfold(0, 4, 2),
        "windows of one": torch.arange(9.0).unfold(0, 1, 3),
        "one element": x[1, 2, 3, 4],
        "odd strides of one": torch.arange(4.0).as_strided((1, 4, 1), (9, 1, 7)),
        "diagonal": torch.arange(9.0).reshape(3, 3).diagonal(),
        "complex128": torch.arange(24).to(torch.complex128).reshape(4, 6)[:, 1:4],
        "complex128 transposed": torch.arange(6).to(torch.complex128).reshape(2, 3).t(),
        "imaginary": torch.arange(6).to(torch.complex64).mul(1j).imag,
        "real": torch.arange(6).to(torch.complex128).real,
    }


@pytest.mark.parametrize("name", list(layouts()))
def test_strides_come_back(name: str, tmp_path: Path) -> None:
    tensor = layouts()[name]
    for result in (through_memory({"t": tensor})["t"], through_files({"t": tensor}, tmp_path / "c")["t"]):
        assert same(result, tensor)
        assert result.stride() == tensor.stride()


@pytest.mark.parametrize("name", list(layouts()))
def test_only_what_is_used_is_stored(name: str) -> None:
    tensor = layouts()[name]
    addresses = torch.arange(10_000).as_strided(tensor.shape, tensor.stride())
    assert stored({"t": tensor}) == addresses.unique().numel() * tensor.element_size()


def test_strides_come_back_in_numpy_where_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {name: tensor.numpy().copy() for name, tensor in layouts().items()}
    encoded = encode(layouts())
    tensors = [(name, word, shape, memoryview(bytes(buffer))) for name, word, shape, buffer in encoded.tensors]
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    result = decode(encoded.data, lambda: tensors, lambda: b"")
    for name, array in expected.items():
        assert type(result[name]) is numpy.ndarray and result[name].dtype == array.dtype
        assert numpy.array_equal(result[name], array), name


def test_a_column_of_a_large_matrix_comes_back_without_the_matrix() -> None:
    matrix = torch.arange(1_000_000.0).reshape(1000, 1000)
    value = {"column": matrix[:, 3], "block": matrix[:, 5:7], "turned": matrix[:, 10:12].t()}
    assert stored(value) == 5 * 1000 * 4
    result = through_memory(value)
    for name, tensor in value.items():
        assert same(result[name], tensor)
        assert result[name].untyped_storage().nbytes() == tensor.numel() * 4
    assert result["turned"].stride() == (1, 2) or result["turned"].is_contiguous()


def test_conjugation_and_negation(tmp_path: Path) -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    value = {"x": x, "conj": x.conj(), "neg": x.conj().imag, "again": x.conj().imag}
    result = through_files(value, tmp_path / "c")
    for name, tensor in value.items():
        assert same(result[name], tensor), name
    assert result["conj"].is_conj()
    result["x"][0] = 5 + 6j
    assert result["conj"][0] == 5 - 6j


def test_numpy_complex_arrays(tmp_path: Path) -> None:
    value = {name: numpy.arange(6).astype(name).reshape(2, 3) * (1 + 2j) for name in ("complex64", "complex128")}
    assert encode(value).objects is None
    result = through_files(value, tmp_path / "c")
    for name, array in value.items():
        assert result[name].dtype == array.dtype and result[name].tolist() == array.tolist()


def test_kinds_of_tensors() -> None:
    value = {
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "integers": torch.nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
        "inner": torch.ones(2, requires_grad=True) * 2,
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "transient": torch.nn.Buffer(torch.ones(2), persistent=False),
    }
    assert encode(value).objects is None
    result = through_memory(value)
    for name, tensor in value.items():
        assert same(result[name], tensor), name
        assert isinstance(result[name], torch.nn.Buffer) == isinstance(tensor, torch.nn.Buffer)
    assert result["buffer"].persistent and not result["transient"].persistent
    assert result["inner"].is_leaf


def test_inference_tensors() -> None:
    with torch.inference_mode():
        x = torch.arange(6.0).reshape(2, 3)
    result = through_memory({"x": x, "t": x.t(), "c": x[:, :2]})
    assert torch.equal(result["x"], x) and torch.equal(result["t"], x.t()) and torch.equal(result["c"], x[:, :2])


def test_what_is_not_strided_is_pickled_with_its_tensors_outside(tmp_path: Path) -> None:
    value = {
        "sparse": torch.eye(3).to_sparse(),
        "rows": torch.eye(3).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8),
        "meta": torch.ones(3, device="meta"),
    }
    result = through_files(value, tmp_path / "c")
    assert torch.equal(result["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(result["rows"].to_dense(), torch.eye(3))
    assert result["quantized"].dtype == torch.qint8 and torch.equal(result["quantized"].dequantize(), torch.ones(3))
    assert result["meta"].is_meta and result["meta"].shape == (3,)


def test_sizes_types_and_devices_are_not_pickled() -> None:
    value = {
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "mps": torch.device("mps"),
    }
    assert json.loads(encode(value).data) == {
        "size": {"$torch_size": [2, 3]},
        "dtype": {"$torch_dtype": "bfloat16"},
        "device": {"$torch_device": "cuda:1"},
        "mps": {"$torch_device": "mps"},
    }
    result = through_memory(value)
    assert result == value and type(result["size"]) is torch.Size


# ---------------------------------------------------------------------- shared memory


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


# ---------------------------------------------------------------------- inside of objects


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


# ---------------------------------------------------------------------- what trainers save


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


# ---------------------------------------------------------------------- broken files


def load(entry: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    raw = numpy.arange(torch.Size(shape).numel(), dtype="f4").tobytes()
    data = f'{{"t": {{"$tensor": "w", {entry}}}}}'
    return decode(data, lambda: [("w", "F32", shape, memoryview(raw))], lambda: b"")["t"]


BROKEN = [
    '"shape": [7]',
    '"shape": [2, 3], "offset": 1',
    '"shape": [1], "offset": 6',
    '"shape": [2, 2], "stride": [5, 1]',
    '"stride": [4, 1]',
    '"stride": [1]',
    '"stride": [3, -1]',
    '"offset": -1',
    '"offset": 1.5',
    '"offset": "0"',
    '"offset": null',
    '"offset": true',
    '"offset": [0]',
    '"shape": [-1]',
    '"shape": [2, true]',
    '"shape": 6',
    '"shape": {"a": 1}',
    '"shape": [18446744073709551616]',
    '"shape": [9223372036854775807, 9223372036854775807], "stride": [0, 0]',
    '"shape": [4294967296, 4294967296, 4294967296], "stride": [0, 0, 0]',
    '"shape": [2], "stride": [9223372036854775807]',
    '"shape": [1], "offset": 9223372036854775807',
    '"dtype": "float64"',
    '"dtype": "float64", "shape": [4]',
    '"dtype": "complex128", "shape": [2]',
    '"dtype": "nonsense", "shape": [1]',
    '"dtype": "load", "shape": [1]',
    '"dtype": ["float64"], "shape": [1]',
    '"layout": [3]',
    '"layout": [1000000000000, 1]',
    '"layout": [-3, 1]',
    '"layout": "x"',
    '"layout": [4, 1], "stride": [5, 1]',
    '"layout": [4, 1], "shape": [8]',
]


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("entry", BROKEN)
def test_entries_that_do_not_fit_are_refused(entry: str, kind: str) -> None:
    with pytest.raises(StorageError, match="'w'"):
        load(f'"kind": "{kind}", {entry}')


@pytest.mark.parametrize(
    "entry", ['"requires_grad": true, "dtype": "int32", "shape": [1]', '"shape": [0], "stride": []']
)
def test_entries_that_torch_refuses_are_storage_errors(entry: str) -> None:
    with pytest.raises(StorageError, match="'w'"):
        load(f'"kind": "torch", {entry}')


def test_an_entry_whose_elements_overlap_stays_inside() -> None:
    for kind in ("torch", "numpy"):
        assert load(f'"kind": "{kind}", "layout": [0, 0]').shape == (2, 3)
        assert load(f'"kind": "{kind}", "shape": [4, 3], "stride": [1, 1]').tolist() == [
            [0, 1, 2],
            [1, 2, 3],
            [2, 3, 4],
            [3, 4, 5],
        ]


@pytest.mark.parametrize(
    "form",
    [
        '{"$torch_dtype": "load"}',
        '{"$torch_dtype": 3}',
        '{"$torch_device": "moon"}',
        '{"$torch_size": "x"}',
        '{"$counter": 1}',
        '{"$tuple": 1}',
        '{"$numpy": "x", "value": 1}',
        '{"$numpy": "f4"}',
        '{"$dict": [[[], 1]]}',
        '{"$bytes": 1}',
        '{"$tensor": [1]}',
    ],
)
def test_broken_forms_are_storage_errors(form: str) -> None:
    with pytest.raises(StorageError):
        decode(f'{{"a": {form}}}', lambda: [], lambda: b"")
