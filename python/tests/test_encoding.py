"""The encoding of dict checkpoints: values survive a round trip through the three files."""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
import threading
import types
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy
import pytest
from lockstep import Checkpoint, SerializationError, StorageError
from lockstep._encoding import LARGE_BYTES, MAX_DEPTH, Encoded, decode, encode

Point = namedtuple("Point", ["x", "y"])


def through_memory(value: Any) -> Any:
    encoded = encode(value)
    tensors = [(name, word, shape, memoryview(bytes(buffer))) for name, word, shape, buffer in encoded.tensors]
    return decode(encoded.data, lambda: tensors, lambda: encoded.objects or b"")


def same(a: Any, b: Any) -> bool:
    """Equal, with the same types at every level; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (float, numpy.floating)):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a.items(), b.items(), strict=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a, b, strict=True))
    return bool(a == b)


class RandomValues:
    """Random values of all the kinds that a checkpoint may hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numpy = numpy.random.default_rng(seed)

    def value(self, depth: int = 0) -> Any:
        makers = [self.scalar, self.scalar, self.array, self.numpy_scalar, self.object]
        if depth < 4:
            makers += [self.list, self.tuple, self.dict, self.dict, self.ordered, self.set]
        return self.random.choice(makers)(depth)

    def scalar(self, depth: int = 0) -> Any:
        r = self.random
        return r.choice(
            [
                None,
                r.random() < 0.5,
                r.randint(-(2**80), 2**80),
                r.randint(-5, 5),
                r.uniform(-1e9, 1e9),
                r.choice([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]),
                self.text(),
                bytes(r.randbytes(r.randint(0, 9))),
                complex(r.random(), math.inf),
            ]
        )

    def text(self) -> str:
        alphabet = ["a", "$", "é", "\u2028", "😀", "\0", '"', ".", "\ud800"]
        return "".join(
            self.random.choices(alphabet, weights=[9, 2, 1, 1, 1, 1, 1, 2, 0.3], k=self.random.randint(0, 4))
        )

    def key(self) -> Any:
        r = self.random
        return r.choice([self.text, lambda: r.randint(0, 9), lambda: (r.randint(0, 9), "k"), lambda: None, self.text])()

    def array(self, depth: int) -> Any:
        dtype = self.random.choice(
            ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", ">f4", "U3", "M8[s]"]
        )
        shape = tuple(self.random.choices([0, 1, 2, 3], weights=[1, 4, 4, 4], k=self.random.randint(0, 3)))
        array = numpy.asarray(self.numpy.integers(0, 100, size=shape)).astype(dtype)
        return numpy.asfortranarray(array) if self.random.random() < 0.3 else array.T

    def numpy_scalar(self, depth: int) -> Any:
        dtype = self.random.choice(["f8", "f4", "f2", "i8", "i1", "u8", "?", "c8", "U3"])
        return numpy.asarray(self.random.choice([0, 1, 100])).astype(dtype)[()]

    def object(self, depth: int) -> Any:
        return self.random.choice(
            [Point(1, self.scalar()), defaultdict(list, a=[1]), range(3), Path("/a"), {1: 2}.__class__]
        )

    def items(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self.random.randint(0, 4))]

    def list(self, depth: int) -> Any:
        return self.items(depth) if self.random.random() < 0.7 else [self.random.random() for _ in range(5)]

    def tuple(self, depth: int) -> Any:
        return tuple(self.items(depth))

    def dict(self, depth: int) -> Any:
        return {self.key(): self.value(depth + 1) for _ in range(self.random.randint(0, 4))}

    def ordered(self, depth: int) -> Any:
        return OrderedDict(self.dict(depth))

    def set(self, depth: int) -> Any:
        kind = self.random.choice([set, frozenset])
        return kind(self.random.choices([1, "a", (1, 2), 2.5, None, b"x"], k=3))


@pytest.mark.parametrize("seed", range(300))
def test_random_dicts_come_back(seed: int) -> None:
    value = RandomValues(seed).dict(0)
    assert same(through_memory(value), value)


@pytest.mark.parametrize("seed", range(40))
def test_random_dicts_come_back_through_files(seed: int, tmp_path: Path) -> None:
    value = RandomValues(1000 + seed).dict(0)
    assert same(Checkpoint.from_directory(Checkpoint.from_dict(value).to_directory(tmp_path / "c")).to_dict(), value)


def test_plain_values_are_plain_json() -> None:
    value = {"epoch": 3, "lr": 0.1, "names": ["a", "b"], "nested": {"on": True, "none": None}, "many": [1.0] * 9}
    encoded = encode(value)
    assert json.loads(encoded.data) == value
    assert encoded == Encoded(encoded.data, [], None)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ((1, 2), {"$tuple": [1, 2]}),
        ({1: "a"}, {"$dict": [[1, "a"]]}),
        ({"$x": 1}, {"$dict": [["$x", 1]]}),
        (OrderedDict(a=1), {"$ordered_dict": [["a", 1]]}),
        ({3}, {"$set": [3]}),
        (frozenset([3]), {"$frozenset": [3]}),
        (b"\0\1", {"$bytes": "AAE="}),
        (math.nan, {"$float": "nan"}),
        (-math.inf, {"$float": "-inf"}),
        ([1.0, math.inf], [1.0, {"$float": "inf"}]),
        (2**64, {"$int": str(2**64)}),
        (2**64 - 1, 2**64 - 1),
        (numpy.float32(0.5), {"$numpy": "float32", "value": 0.5}),
        (1 + 2j, {"$complex": [1.0, 2.0]}),
        (Counter({3: 1}), {"$counter": [[3, 1]]}),
    ],
)
def test_forms(value: Any, form: Any) -> None:
    assert json.loads(encode({"v": value}).data) == {"v": form}
    assert same(through_memory({"v": value}), {"v": value})


def test_arrays_are_named_by_their_path() -> None:
    weights = OrderedDict([("fc1.weight", numpy.zeros((2, 3), "f4")), ("fc1.bias", numpy.zeros(2, "f4"))])
    encoded = encode({"model": weights, "list": [numpy.arange(3)], "m.o": 1})
    assert [(name, word, shape) for name, word, shape, _ in encoded.tensors] == [
        ("model.fc1.weight", "F32", (2, 3)),
        ("model.fc1.bias", "F32", (2,)),
        ("list.0", "I64", (3,)),
    ]
    assert encoded.objects is None


def test_names_of_arrays_are_unique() -> None:
    value = {"a.b": numpy.zeros(1), "a": {"b": numpy.ones(1)}, "__metadata__": numpy.full(1, 2.0)}
    assert len({tensor[0] for tensor in encode(value).tensors} | {"__metadata__"}) == 4
    assert same(through_memory(value), value)


def test_one_array_in_two_places_stays_one() -> None:
    array = numpy.arange(4)
    value = through_memory({"a": array, "b": [array]})
    assert len(encode({"a": array, "b": [array]}).tensors) == 1
    assert value["a"] is value["b"][0]


def test_arrays_are_borrowed_where_they_can_be() -> None:
    array = numpy.zeros(1000)
    buffer = encode({"a": array}).tensors[0][3]
    array[0] = 1
    assert bytes(memoryview(buffer))[:8] == array[:1].tobytes()


def test_arrays_come_back_writable() -> None:
    array = through_memory({"a": numpy.zeros(3)})["a"]
    array[0] = 1
    assert array[0] == 1


def test_large_bytes_are_not_base64() -> None:
    blob = bytes(range(256)) * (LARGE_BYTES // 256)
    encoded = encode({"blob": blob})
    assert len(encoded.data) < 100
    assert through_memory({"blob": blob}) == {"blob": blob}


def test_only_what_is_neither_plain_nor_array_is_pickled() -> None:
    encoded = encode({"a": numpy.zeros(3), "p": Point(1, 2), "q": Path("/x")})
    assert json.loads(encoded.data)["q"] == {"$object": 1}
    assert encoded.objects is not None
    assert b"zeros" not in encoded.objects


def test_objects_are_not_opened_unless_something_refers_to_them() -> None:
    def refuse() -> Any:
        raise AssertionError("opened")

    assert decode('{"a": {"$tuple": [1]}}', refuse, refuse) == {"a": (1,)}


def test_a_dict_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["a"] = [loop]
    with pytest.raises(SerializationError, match=r"\['a'\]\['0'\] contains itself"):
        encode(loop)


def test_one_list_in_two_places_is_no_cycle() -> None:
    shared = [1, (2,)]
    assert through_memory({"a": shared, "b": shared}) == {"a": shared, "b": shared}


def test_deep_nesting_is_refused_and_less_deep_works() -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return {"v": value}

    assert through_memory(nested(MAX_DEPTH - 1)) == nested(MAX_DEPTH - 1)
    with pytest.raises(SerializationError, match="nested deeper"):
        encode(nested(MAX_DEPTH + 5))


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(SerializationError, match=r"\['state'\]\['lock'\], a _thread.lock, cannot be saved"):
        encode({"fine": Point(1, 2), "state": {"lock": threading.Lock()}})


@pytest.mark.parametrize("data", ["{", '{"a": {"$what": 1}}', '{"a": {"$tensor": "gone"}}', b"\xff"])
def test_broken_data_is_a_storage_error(data: str | bytes) -> None:
    with pytest.raises(StorageError):
        decode(data, lambda: [], lambda: b"")


def test_bfloat16_without_torch_is_float32() -> None:
    bits = numpy.asarray([0x3FC0, 0xC000], "u2")  # 1.5, -2.0
    tensors = [("w", "BF16", (2,), memoryview(bits.tobytes()))]
    value = decode('{"w": {"$tensor": "w"}}', lambda: tensors, lambda: b"")["w"]
    assert value.dtype == numpy.float32
    assert value.tolist() == [1.5, -2.0]


def other_package(monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> type:
    """An array class that plays the part of a package that is not installed."""

    class Array:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            if self.value is None:
                raise TypeError("it has no value yet")
            return numpy.asarray(self.value, dtype)

    module = types.ModuleType(package)
    setattr(module, name, Array)
    monkeypatch.setitem(sys.modules, package, module)
    return Array


OTHERS = [("tensorflow", "Tensor"), ("tensorflow", "Variable"), ("jax", "Array")]


@pytest.mark.parametrize(("package", "name"), OTHERS)
def test_arrays_of_other_packages_are_stored_as_numpys(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str
) -> None:
    array_type = other_package(monkeypatch, package, name)
    array, scalar = array_type(numpy.arange(6.0).reshape(2, 3)), array_type(numpy.float32(2))
    encoded = encode({"a": array, "b": [array], "scalar": scalar})
    assert encoded.objects is None
    assert [(name, word, shape) for name, word, shape, _ in encoded.tensors] == [
        ("a", "F64", (2, 3)),
        ("scalar", "F32", ()),
    ]
    monkeypatch.delitem(sys.modules, package)
    back = decode(encoded.data, lambda: encoded.tensors, lambda: b"")
    assert same(back["a"], array.value) and back["a"] is back["b"][0]
    assert same(back["scalar"], numpy.asarray(2, "f4"))


@pytest.mark.parametrize("value", [None, numpy.asarray(["a"], object)])
def test_what_numpy_cannot_hold_of_them_is_pickled(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    encoded = encode({"a": other_package(monkeypatch, "jax", "Array")(value)})
    assert encoded.tensors == [] and encoded.objects is not None


def test_torch_tensors_without_torch_are_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    tensors = [("w", "F32", (1,), memoryview(numpy.ones(1, "f4").tobytes()))]
    value = decode('{"w": {"$tensor": "w", "kind": "torch"}}', lambda: tensors, lambda: b"")["w"]
    assert value.tolist() == [1.0]


def test_the_safetensors_package_reads_the_arrays(tmp_path: Path) -> None:
    safetensors = importlib.import_module("safetensors.numpy")
    arrays = {
        "a": numpy.arange(6, dtype="f4").reshape(2, 3),
        "b": numpy.asarray(7, "i8"),
        "e": numpy.zeros((0, 2), "u1"),
    }
    path = Checkpoint.from_dict({"model": arrays}).to_directory(tmp_path / "c")
    read = safetensors.load_file(Path(path) / "tensors.safetensors")
    assert {name: (value.tolist(), value.dtype) for name, value in read.items()} == {
        f"model.{name}": (value.tolist(), value.dtype) for name, value in arrays.items()
    }


class TestTorch:
    """Needs torch."""

    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return importlib.import_module("torch")

    def test_every_type_comes_back(self, torch: Any) -> None:
        names = [
            "float64",
            "float32",
            "float16",
            "bfloat16",
            "int64",
            "int32",
            "int16",
            "int8",
            "uint64",
            "uint32",
            "uint16",
            "uint8",
            "bool",
            "complex64",
        ]
        value = {name: torch.tensor([[0, 1, 2], [1, 0, 1]]).to(getattr(torch, name)) for name in names}
        value |= {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 3), "turned": torch.arange(6).reshape(2, 3).t()}
        result = through_memory(value)
        for name, tensor in value.items():
            assert result[name].dtype == tensor.dtype
            assert torch.equal(result[name], tensor)
        assert encode({"b": value["bfloat16"]}).objects is None

    def test_module_state_comes_back(self, torch: Any) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        value = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        encoded = encode(value)
        assert encoded.objects is None
        result = through_memory(value)
        assert type(result["model"]) is OrderedDict
        model.load_state_dict(result["model"])
        optimizer.load_state_dict(result["optimizer"])
        assert "model.0.weight" in {tensor[0] for tensor in encoded.tensors}

    def test_tied_weights_stay_tied(self, torch: Any) -> None:
        first, second = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
        second.weight = first.weight
        state = torch.nn.Sequential(first, second).state_dict()
        assert state["0.weight"] is not state["1.weight"]
        assert len(encode(state).tensors) == 1
        result = through_memory(state)
        assert result["0.weight"] is result["1.weight"]

    def test_parameters_and_gradients(self, torch: Any) -> None:
        parameter = torch.nn.Parameter(torch.ones(2))
        frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        wanting = torch.ones(3, requires_grad=True)
        result = through_memory({"p": parameter, "data": parameter.data, "f": frozen, "w": wanting, "d": wanting * 2})
        assert type(result["p"]) is torch.nn.Parameter and result["p"].requires_grad
        assert type(result["f"]) is torch.nn.Parameter and not result["f"].requires_grad
        assert type(result["w"]) is torch.Tensor and result["w"].requires_grad
        assert result["p"].data_ptr() == result["data"].data_ptr()
        assert result["d"].tolist() == [2, 2, 2]

    def test_modules_and_sparse_tensors_are_pickled_and_their_arrays_are_not(self, torch: Any) -> None:
        value = {"m": torch.nn.Linear(2, 2), "s": torch.eye(3).to_sparse()}
        assert [tensor[0] for tensor in encode(value).tensors][:2] == ["m.weight", "m.bias"]
        result = through_memory(value)
        assert torch.equal(result["m"].weight, value["m"].weight)
        assert torch.equal(result["s"].to_dense(), torch.eye(3))
