"""Tensors in dict checkpoints: types, layouts and kinds come back, bit by bit."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path

import numpy
import pytest
import torch
from lockstep._arrays import PARTS, WORDS
from lockstep._encoding import decode, encode
from round_trips import same, stored, through_files, through_memory

TYPES = [*WORDS, *PARTS]


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
