"""Turns the files of a dict checkpoint into values again; ``_encoding`` describes them."""

from __future__ import annotations

import base64
import io
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from lockstep import _arrays, _preprocessors
from lockstep._arrays import Tensor
from lockstep.errors import StorageError


class Decoder:
    """For one checkpoint. `tensors` and `objects` are called only if something refers to them."""

    def __init__(self, tensors: Callable[[], Iterable[Tensor]], objects: Callable[[], bytes]) -> None:
        self._read_tensors = tensors
        self._read_objects = objects
        self._tensors: dict[str, Tensor] | None = None
        self._arrays: dict[str, Any] = {}
        self._memories: dict[Any, Any] = {}
        self._outside: list[Any] = []
        self._objects: list[Any] | None = None

    def object(self, found: dict[str, Any]) -> Any:
        """json's object_hook: the values inside `found` are already decoded."""
        for key in found:
            if key.startswith("$"):
                return self._special(key, found)
        return found

    def _special(self, key: str, found: dict[str, Any]) -> Any:
        value = found[key]
        if key == "$tensor":
            return self._tensor(value, found)
        if key == "$object":
            return self._object(value, found)
        make = _SPECIAL.get(key)
        if make is None:
            raise StorageError(
                f"[checkpoint] data.json holds the unknown form {key!r}; a newer Lockstep may have written it"
            )
        try:
            return make(value, found)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise StorageError(f"[checkpoint] data.json is broken: {_short(found)} has no meaning: {error}") from error

    def _object(self, index: Any, found: dict[str, Any]) -> Any:
        if self._objects is None:
            self._outside = found.get("tensors", [])
            self._objects = _unpickle(self._read_objects(), self._outside)
        if type(index) is not int or not 0 <= index < len(self._objects):
            raise StorageError(
                f"[checkpoint] data.json refers to the object {index!r}; objects.pkl holds {len(self._objects)}"
            )
        return self._objects[index]

    def _tensor(self, name: Any, found: dict[str, Any]) -> Any:
        if self._tensors is None:
            self._tensors = {tensor[0]: tensor for tensor in self._read_tensors()}
        tensor = self._tensors.get(name) if type(name) is str else None
        if tensor is None:
            raise StorageError(
                f"[checkpoint] data.json refers to the array {name!r}, which tensors.safetensors does not hold"
            )
        key = repr(found)  # an array that occurred twice is one object again
        if key not in self._arrays:
            self._arrays[key] = self._array(tensor, found)
        return self._arrays[key]

    def _array(self, tensor: Tensor, found: dict[str, Any]) -> Any:
        kind = found.get("kind", "numpy")
        if kind == "bytes":
            return bytes(tensor[3])
        if kind == "torch" and _import_torch() is not None:
            from lockstep._tensors import restore

            return restore(tensor, found, self._memories)
        array = _arrays.numpy_array(tensor, found, self._memories)
        if "jax" in found and (jax := sys.modules.get("jax")) is not None:
            return jax.numpy.asarray(array, dtype=found["jax"])
        return array


def _unpickle(data: bytes, outside: list[Any]) -> list[Any]:
    """The list in objects.pkl; `outside` are the tensors that it refers to. Tensors from a GPU are loaded to the
    CPU."""
    import pickle

    def from_bytes(saved: bytes) -> Any:
        import torch

        return torch.load(io.BytesIO(saved), map_location="cpu", weights_only=False)

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: Any) -> Any:
            if type(number) is not int or not 0 <= number < len(outside):
                raise StorageError(
                    f"[checkpoint] objects.pkl refers to the tensor {number!r}; data.json lists {len(outside)}"
                )
            return outside[number]

        def find_class(self, module: str, name: str) -> Any:
            if (module, name) == ("torch.storage", "_load_from_bytes"):
                return from_bytes
            return super().find_class(module, name)

    objects = Unpickler(io.BytesIO(data)).load()
    if type(objects) is not list:
        raise StorageError(f"[checkpoint] objects.pkl holds a {type(objects).__qualname__}, not a list")
    return objects


def _ordered_dict(pairs: Any, found: dict[str, Any]) -> OrderedDict[Any, Any]:
    made = OrderedDict(pairs)
    if "metadata" in found:
        made._metadata = found["metadata"]  # type: ignore[attr-defined]
    return made


def _numpy_scalar(name: Any, found: dict[str, Any]) -> Any:
    import numpy

    return numpy.dtype(name).type(found["value"])


def _torch_size(sizes: Any, found: dict[str, Any]) -> Any:
    torch = _import_torch()
    return tuple(sizes) if torch is None else torch.Size(sizes)


def _torch_dtype(name: Any, found: dict[str, Any]) -> Any:
    torch = _import_torch()
    dtype = name if torch is None else getattr(torch, name, None)
    if torch is not None and not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no type {name!r}")
    return dtype


def _torch_device(name: Any, found: dict[str, Any]) -> Any:
    torch = _import_torch()
    try:
        return name if torch is None else torch.device(name)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


_SPECIAL: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "$tuple": lambda items, _: tuple(items),
    "$set": lambda items, _: set(items),
    "$frozenset": lambda items, _: frozenset(items),
    "$dict": lambda pairs, _: dict(pairs),
    "$ordered_dict": _ordered_dict,
    "$counter": lambda pairs, _: Counter(dict(pairs)),
    "$bytes": lambda text, _: base64.b64decode(text),
    "$float": lambda text, _: float(text),
    "$int": lambda digits, _: int(digits, 0),
    "$complex": lambda parts, _: complex(*parts),
    "$numpy": _numpy_scalar,
    "$torch_size": _torch_size,
    "$torch_dtype": _torch_dtype,
    "$torch_device": _torch_device,
    "$preprocessor": lambda value, found: _preprocessors.load_plain(value),
}


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) < 100 else text[:100] + "..."
