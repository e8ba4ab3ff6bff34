"""A dict checkpoint as three files, and back.

``data.json`` holds plain values as they are and the rest as objects with a reserved key::

    {"$tensor": NAME, "kind": "numpy" | "torch" | "bytes"}    in tensors.safetensors; kind defaults to numpy
    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}
    {"$dict": [[key, value], ...]}                            a dict with a key that is no str or begins with "$"
    {"$ordered_dict": [[key, value], ...]}
    {"$bytes": base64}  {"$complex": [real, imag]}
    {"$float": "nan" | "inf" | "-inf"}  {"$int": "..."}       beyond what JSON, or 64 bits, hold
    {"$numpy": dtype, "value": ...}                           a numpy scalar
    {"$object": i}                                            the i-th of the list that is pickled in objects.pkl

C++ reads and writes the same. numpy and torch are touched only where the values or the file need them.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lockstep.errors import SerializationError, StorageError

MAX_DEPTH = 100
"""Levels of nesting. JSON readers are recursive; real states are far from it."""
LARGE_BYTES = 64 * 1024
"""Longer bytes are stored as they are beside the arrays, not as base64."""

_SAFETENSORS_WORDS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_DTYPE_NAMES = {word: name for name, word in _SAFETENSORS_WORDS.items()}
_NOT_PLAIN = object()

Tensor = tuple[str, str, tuple[int, ...], Any]
"""Name, safetensors' word for the type, shape, and a buffer of the bytes."""


class Encoded(NamedTuple):
    """What the three files hold; `objects` is None when there is nothing to pickle."""

    data: str
    tensors: list[Tensor]
    objects: bytes | None


def encode(value: Any) -> Encoded:
    """Takes a checkpoint's dict apart. Arrays are borrowed, not copied, where their memory can be used as it is.

    >>> encode({"epoch": 3, "range": (1, 2)}).data
    '{"epoch": 3, "range": {"$tuple": [1, 2]}}'
    """
    encoder = _Encoder()
    tree = encoder.value(value, ())
    return Encoded(json.dumps(tree, allow_nan=False), encoder.tensors, encoder.pickled())


def decode(data: str | bytes, tensors: Callable[[], Iterable[Tensor]], objects: Callable[[], bytes]) -> Any:
    """Puts the dict together again. `tensors` and `objects` are called only when something refers to them.

    >>> decode('{"range": {"$tuple": [1, 2]}}', lambda: [], lambda: b"")
    {'range': (1, 2)}
    """
    decoder = _Decoder(tensors, objects)
    try:
        return json.loads(data, object_hook=decoder.object)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"[checkpoint] data.json is broken: {error}") from error


class _Encoder:
    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._names: set[str] = {"__metadata__"}  # safetensors' own
        self._known: dict[Any, str] = {}
        self._alive: list[Any] = []  # ids are only good while their objects live
        self._objects: list[Any] = []
        self._object_paths: list[Sequence[str]] = []
        self._open: set[int] = set()

    def value(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        plain = _plain_scalar(kind, value)
        if plain is not _NOT_PLAIN:
            return plain
        if kind in (dict, OrderedDict, list, tuple, set, frozenset):
            return self._container(kind, value, path)
        if kind is bytes:
            return self._bytes(value, path)
        if kind is complex:
            return {"$complex": [_float(value.real), _float(value.imag)]}
        array = self._array(kind, value, path)
        return array if array is not None else self._object(value, path)

    def pickled(self) -> bytes | None:
        if not self._objects:
            return None
        import cloudpickle

        try:
            return bytes(cloudpickle.dumps(self._objects))
        except Exception as error:
            raise self._unpicklable(error) from error

    def _container(self, kind: type, value: Any, path: tuple[str, ...]) -> Any:
        if id(value) in self._open:
            raise SerializationError(f"[checkpoint] {_spelled(path)} contains itself; a checkpoint must be a tree")
        if len(path) > MAX_DEPTH:
            raise SerializationError(
                f"[checkpoint] {_spelled(path[:3])}... is nested deeper than {MAX_DEPTH} levels; flatten it"
            )
        self._open.add(id(value))
        try:
            if kind is dict and all(type(key) is str and not key.startswith("$") and _is_text(key) for key in value):
                return {key: self.value(item, (*path, key)) for key, item in value.items()}
            if kind is dict or kind is OrderedDict:
                word = "$dict" if kind is dict else "$ordered_dict"
                return {word: [[self.value(k, path), self.value(v, (*path, str(k)))] for k, v in value.items()]}
            items = value if kind is list and _all_plain(value) else self._items(value, path)
            return items if kind is list else {f"${kind.__name__}": items}
        finally:
            self._open.discard(id(value))

    def _items(self, value: Iterable[Any], path: tuple[str, ...]) -> list[Any]:
        return [self.value(item, (*path, str(index))) for index, item in enumerate(value)]

    def _bytes(self, value: bytes, path: tuple[str, ...]) -> Any:
        if len(value) < LARGE_BYTES:
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        name = self._known.get(id(value)) or self._add(id(value), value, path, "U8", (len(value),), value)
        return {"$tensor": name, "kind": "bytes"}

    def _array(self, kind: type, value: Any, path: tuple[str, ...]) -> Any:
        """The entry for an array or numpy scalar; None when it must be pickled.

        A package that is not imported cannot have made `value`.
        """
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if kind is numpy.ndarray:
                return self._numpy_array(numpy, value, path)
            if isinstance(value, numpy.generic):
                word = _SAFETENSORS_WORDS.get(value.dtype.name)
                return None if word is None else {"$numpy": value.dtype.name, "value": self.value(value.item(), path)}
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "nn") and kind in (torch.Tensor, torch.nn.Parameter):
            return self._torch_tensor(torch, value, path)
        return None

    def _numpy_array(self, numpy: Any, array: Any, path: tuple[str, ...]) -> Any:
        word = _SAFETENSORS_WORDS.get(array.dtype.name)
        if word is None or not array.dtype.isnative:
            return None
        name = self._known.get(id(array))
        if name is None:
            contiguous = numpy.asarray(array, order="C")
            name = self._add(id(array), array, path, word, array.shape, contiguous.reshape(-1).view(numpy.uint8))
        return {"$tensor": name, "kind": "numpy"}

    def _torch_tensor(self, torch: Any, tensor: Any, path: tuple[str, ...]) -> Any:
        word = _SAFETENSORS_WORDS.get(str(tensor.dtype).removeprefix("torch."))
        if word is None or tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            return None
        # state_dict() makes new tensors of the same memory: tied weights are known by where they lie.
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        key = place if tensor.numel() > 0 else id(tensor)
        name = self._known.get(key)
        if name is None:
            flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
            name = self._add(key, tensor, path, word, tuple(tensor.shape), flat.view(torch.uint8).numpy())
        entry: dict[str, Any] = {"$tensor": name, "kind": "torch"}
        if isinstance(tensor, torch.nn.Parameter):
            entry["parameter"] = True
        if tensor.requires_grad:
            entry["requires_grad"] = True
        return entry

    def _add(self, key: Any, owner: Any, path: tuple[str, ...], word: str, shape: tuple[int, ...], buffer: Any) -> str:
        base = ".".join(path).encode("utf-8", "backslashreplace").decode() or "value"
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}~{count}"
        self._names.add(name)
        self._known[key] = name
        self._alive.append(owner)
        self.tensors.append((name, word, tuple(shape), buffer))
        return name

    def _object(self, value: Any, path: tuple[str, ...]) -> Any:
        self._objects.append(value)
        self._object_paths.append(path)
        return {"$object": len(self._objects) - 1}

    def _unpicklable(self, error: Exception) -> SerializationError:
        import cloudpickle

        for value, path in zip(self._objects, self._object_paths, strict=True):
            try:
                cloudpickle.dumps(value)
            except Exception as cause:
                return SerializationError(
                    f"[checkpoint] {_spelled(path)}, a {_type_name(value)}, cannot be saved: {cause}; "
                    "save its state (plain values, arrays, tensors) instead"
                )
        return SerializationError(f"[checkpoint] the values cannot be saved together: {error}")


class _Decoder:
    def __init__(self, tensors: Callable[[], Iterable[Tensor]], objects: Callable[[], bytes]) -> None:
        self._read_tensors = tensors
        self._read_objects = objects
        self._tensors: dict[str, Tensor] | None = None
        self._arrays: dict[Any, Any] = {}
        self._objects: list[Any] | None = None

    def object(self, found: dict[str, Any]) -> Any:
        """json's object_hook: what is inside `found` has been through here already."""
        for key in found:
            if key.startswith("$"):
                return self._special(key, found)
        return found

    def _special(self, key: str, found: dict[str, Any]) -> Any:
        value = found[key]
        simple = _SPECIAL.get(key)
        if simple is not None:
            return simple(value)
        if key == "$tensor":
            return self._tensor(value, found)
        if key == "$numpy":
            import numpy

            return numpy.dtype(value).type(found["value"])
        if key == "$object":
            return self._object(value)
        raise StorageError(
            f"[checkpoint] data.json holds the unknown form {key!r}; a newer Lockstep may have written it"
        )

    def _object(self, index: int) -> Any:
        if self._objects is None:
            import pickle

            self._objects = pickle.loads(self._read_objects())
        return self._objects[index]

    def _tensor(self, name: str, found: dict[str, Any]) -> Any:
        if self._tensors is None:
            self._tensors = {tensor[0]: tensor for tensor in self._read_tensors()}
        if name not in self._tensors:
            raise StorageError(
                f"[checkpoint] data.json refers to the array {name!r}, which tensors.safetensors does not hold"
            )
        kind = found.get("kind", "numpy")
        key = (name, kind, bool(found.get("parameter")), bool(found.get("requires_grad")))
        if key not in self._arrays:
            self._arrays[key] = self._array(*key)
        return self._arrays[key]

    def _array(self, name: str, kind: str, parameter: bool, requires_grad: bool) -> Any:
        assert self._tensors is not None
        tensor = self._tensors[name]
        if kind == "bytes":
            return bytes(tensor[3])
        torch = _import_torch() if kind == "torch" else None
        if torch is None:
            return _to_numpy(tensor)
        # A tensor and a parameter of one name share their memory, as they did when they were saved.
        if (name, "memory") not in self._arrays:
            self._arrays[name, "memory"] = _to_torch(torch, tensor)
        memory = self._arrays[name, "memory"]
        if parameter:
            return torch.nn.Parameter(memory, requires_grad=requires_grad)
        return memory.detach().requires_grad_() if requires_grad else memory


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
    "$ordered_dict": OrderedDict,
    "$bytes": base64.b64decode,
    "$float": float,
    "$int": lambda digits: int(digits, 0),
    "$complex": lambda parts: complex(*parts),
}


def _plain_scalar(kind: type, value: Any) -> Any:
    if kind is str:
        return value if _is_text(value) else _NOT_PLAIN
    if kind is int:
        if -(2**63) <= value < 2**64:
            return value
        return {"$int": str(value) if value.bit_length() < 10000 else hex(value)}
    if kind is float:
        return _float(value)
    return _NOT_PLAIN


def _float(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": str(value)}


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it; lone surrogates cannot."""
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _all_plain(items: list[Any]) -> bool:
    """Whether a list can go into JSON as it is; without a Python step for each item, since such lists can be long."""
    kinds = set(map(type, items))
    if kinds == {float}:
        return all(map(math.isfinite, items))
    if kinds == {int}:
        return bool(min(items) >= -(2**63) and max(items) < 2**64)
    if kinds == {str}:
        return all(map(str.isascii, items))
    return kinds == {bool}


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _to_numpy(tensor: Tensor) -> Any:
    import numpy

    _, word, shape, buffer = tensor
    if word == "BF16":  # numpy has no such type; float32 holds every bfloat16 exactly
        halves = numpy.frombuffer(buffer, dtype=numpy.uint16).astype(numpy.uint32)
        return (halves << 16).view(numpy.float32).reshape(shape)
    return numpy.frombuffer(buffer, dtype=_dtype_name(word)).reshape(shape).copy()


def _to_torch(torch: Any, tensor: Tensor) -> Any:
    _, word, shape, buffer = tensor
    dtype = getattr(torch, _dtype_name(word))
    if not len(buffer):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(buffer), dtype=dtype).reshape(shape)


def _dtype_name(word: str) -> str:
    if word not in _DTYPE_NAMES:
        raise StorageError(
            f"[checkpoint] tensors.safetensors holds an array of type {word}; known are {', '.join(_DTYPE_NAMES)}"
        )
    return _DTYPE_NAMES[word]


def _spelled(path: Sequence[str]) -> str:
    return "the checkpoint's dict" + "".join(f"[{key!r}]" for key in path)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
