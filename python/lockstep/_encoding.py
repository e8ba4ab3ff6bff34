"""A dict checkpoint as three files, and back.

``data.json`` holds plain values as they are and the rest as objects with a reserved key::

    {"$tensor": NAME, "kind": "numpy" | "torch" | "bytes"}    in tensors.safetensors; kind defaults to numpy
    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}
    {"$dict": [[key, value], ...]}                            a dict with a key that is no str or begins with "$"
    {"$ordered_dict": [[key, value], ...]}                    with "metadata" too when it is a module's state_dict
    {"$counter": [[key, value], ...]}
    {"$bytes": base64}  {"$complex": [real, imag]}
    {"$float": "nan" | "inf" | "-inf"}  {"$int": "..."}       beyond what JSON, or 64 bits, hold
    {"$numpy": dtype, "value": ...}                           a numpy scalar
    {"$torch_size": [...]}  {"$torch_dtype": "float32"}  {"$torch_device": "cuda:0"}
    {"$object": i}                                            the i-th of the list that is pickled in objects.pkl

``$tensor`` may have "shape", "stride", "offset", "dtype" and "layout", for tensors that share memory or do not lie in C
order: see ``_arrays``. With torch there also are "parameter": true, "requires_grad": true, "conj": true and "buffer":
"persistent" or "transient". Tensors inside of pickled objects are stored like all others; the first ``$object`` lists
them under "tensors", and objects.pkl refers to them by their number there.

TensorFlow's tensors and variables and JAX's arrays are stored as numpy's, and come back as those; JAX's, which "jax"
marks with their type, are JAX's again where JAX is imported.

C++ reads and writes the same. numpy and torch are touched only where the values or the file need them.
"""

from __future__ import annotations

import base64
import io
import json
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from lockstep import _arrays
from lockstep._arrays import Tensor
from lockstep.errors import SerializationError, StorageError

MAX_DEPTH = 100
"""Levels of nesting. JSON readers are recursive; real states are far from it."""
LARGE_BYTES = 64 * 1024
"""Longer bytes are stored as they are beside the arrays, not as base64."""

_NOT_PLAIN = object()


class Encoded(NamedTuple):
    """What the three files hold; `objects` is None when there is nothing to pickle."""

    data: str
    tensors: list[Tensor]
    objects: bytes | None


def encode(value: Any, unwrap: bool = False) -> Encoded:
    """Takes a checkpoint's dict apart. Arrays are borrowed, not copied, where their memory can be used as it is.

    With `unwrap`, a model in DistributedDataParallel or torch.compile is stored without it, and a state_dict of one
    under the model's own names: no ``module.``, no ``_orig_mod.``.

    >>> encode({"epoch": 3, "range": (1, 2)}).data
    '{"epoch": 3, "range": {"$tuple": [1, 2]}}'
    """
    encoder = _Encoder(unwrap)
    tree = encoder.value(value, ())
    objects = encoder.finish()
    return Encoded(json.dumps(tree, allow_nan=False), encoder.tensors, objects)


def decode(data: str | bytes, tensors: Callable[[], Iterable[Tensor]], objects: Callable[[], bytes]) -> Any:
    """Puts the dict together again. `tensors` and `objects` are called only when something refers to them.

    >>> decode('{"range": {"$tuple": [1, 2]}}', lambda: [], lambda: b"")
    {'range': (1, 2)}
    """
    decoder = _Decoder(tensors, objects)
    try:
        return json.loads(data, object_hook=decoder.object)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError(f"[checkpoint] data.json is broken: {error}") from error


class _Encoder:
    def __init__(self, unwrap: bool) -> None:
        self.tensors: list[Tensor] = []
        self._unwrap = unwrap
        self._names: set[str] = {"__metadata__"}  # safetensors' own
        self._known: dict[int, str] = {}
        self._alive: list[Any] = []  # ids are only good while their objects live
        self._views: Any = None
        self._objects: list[tuple[Any, tuple[str, ...], dict[str, Any]]] = []
        self._open: set[int] = set()

    def value(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        plain = _plain_scalar(kind, value)
        if plain is not _NOT_PLAIN:
            return plain
        if self._unwrap and _torch() is not None:
            from lockstep._wrappers import unwrapped

            value = unwrapped(value)
            kind = type(value)
        if kind in (dict, OrderedDict, Counter, list, tuple, set, frozenset):
            return self._container(kind, value, path)
        if kind is bytes:
            return self._bytes(value, path)
        if kind is complex:
            return {"$complex": [_float(value.real), _float(value.imag)]}
        array = self._of_numpy(kind, value, path)
        if array is None:
            array = self._of_torch(kind, value, path)
        if array is None:
            array = self._of_others(value, path)
        return array if array is not None else self._object(value, path)

    def finish(self) -> bytes | None:
        """Pickles what is left, stores the tensors, and returns objects.pkl's contents."""
        pickled = self._pickled() if self._objects else None
        if self._views is not None:
            self._views.store()
        return pickled

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
            if kind in _DICTS:
                pairs = [[self.value(k, path), self.value(v, (*path, str(k)))] for k, v in value.items()]
                notes = getattr(value, "_metadata", None)
                if kind is OrderedDict and notes:  # torch: the versions of the modules that a state_dict is of
                    return {"$ordered_dict": pairs, "metadata": self.value(notes, (*path, "_metadata"))}
                return {_DICTS[kind]: pairs}
            items = value if kind is list and _all_plain(value) else self._items(value, path)
            return items if kind is list else {f"${kind.__name__}": items}
        finally:
            self._open.discard(id(value))

    def _items(self, value: Iterable[Any], path: tuple[str, ...]) -> list[Any]:
        return [self.value(item, (*path, str(index))) for index, item in enumerate(value)]

    def _bytes(self, value: bytes, path: tuple[str, ...]) -> Any:
        if len(value) < LARGE_BYTES:
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        name = self._known.get(id(value))
        if name is None:
            name = self._add(path, "U8", (len(value),), value)
            self._remember(value, name)
        return {"$tensor": name, "kind": "bytes"}

    def _of_numpy(self, kind: type, value: Any, path: tuple[str, ...]) -> Any:
        """The form of numpy's array or scalar; None when it is neither, or must be pickled.

        A package that is not imported cannot have made `value`.
        """
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None
        if kind is numpy.ndarray:
            return self._numpy_array(numpy, value, path)
        if isinstance(value, numpy.generic) and _arrays.is_known(value.dtype.name):
            return {"$numpy": value.dtype.name, "value": self.value(value.item(), path)}
        return None

    def _of_others(self, value: Any, path: tuple[str, ...]) -> Any:
        """The form of TensorFlow's or JAX's array; None when it is neither, or must be pickled."""
        numpy = sys.modules.get("numpy")
        maker = _maker(value)
        if numpy is None or maker is None:
            return None
        try:
            array = numpy.asarray(value)
        except Exception:  # it has no value yet, or lies in other processes too: pickling says so
            return None
        if array.dtype.name == "bfloat16" and maker != "jax":
            return None  # it would come back as float32
        entry = self._numpy_array(numpy, array, path, value)
        return entry | {"jax": array.dtype.name} if entry is not None and maker == "jax" else entry

    def _numpy_array(self, numpy: Any, array: Any, path: tuple[str, ...], owner: Any = None) -> Any:
        """`owner` is what the array was made of, if that may be found in other places again."""
        if not _comes_back(array.dtype):
            return None
        owner = array if owner is None else owner
        name = self._known.get(id(owner))
        if name is None:
            contiguous = numpy.asarray(array, order="C").reshape(-1).view(numpy.uint8)
            name = self._add(path, *_arrays.as_stored(array.dtype.name, array.shape), contiguous)
            self._remember(owner, name)
        entry: dict[str, Any] = {"$tensor": name, "kind": "numpy"}
        if array.dtype.name in _arrays.PARTS:
            entry |= {"dtype": array.dtype.name, "shape": list(array.shape)}
        return entry

    def _of_torch(self, kind: type, value: Any, path: tuple[str, ...]) -> Any:
        """The form of torch's tensor, size, dtype or device; None when it is none of them, or must be pickled."""
        torch = _torch()
        if torch is None:
            return None
        if kind in (torch.Tensor, torch.nn.Parameter):
            if self._views is None:
                from lockstep._tensors import Views

                self._views = Views(self._add)
            return self._views.take(value, path)
        if kind is torch.Size:
            return {"$torch_size": list(value)}
        if kind is torch.dtype:
            return {"$torch_dtype": str(value).removeprefix("torch.")}
        return {"$torch_device": str(value)} if kind is torch.device else None

    def _add(self, path: tuple[str, ...], word: str, shape: tuple[int, ...], buffer: Any) -> str:
        base = ".".join(path).encode("utf-8", "backslashreplace").decode() or "value"
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}~{count}"
        self._names.add(name)
        self.tensors.append((name, word, tuple(shape), buffer))
        return name

    def _remember(self, owner: Any, name: str) -> None:
        self._known[id(owner)] = name
        self._alive.append(owner)

    def _object(self, value: Any, path: tuple[str, ...]) -> Any:
        form: dict[str, Any] = {"$object": len(self._objects)}
        self._objects.append((value, path, form))
        return form

    def _pickled(self) -> bytes:
        """The objects' pickle. Tensors in it are taken out; they are listed in the first object's form."""
        import cloudpickle

        entries: list[Any] = []
        take = self._taker(entries)

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
            def persistent_id(self, value: Any) -> int | None:
                return take(value)

        try:
            file = io.BytesIO()
            Pickler(file).dump([value for value, _, _ in self._objects])
        except Exception as error:
            raise self._unpicklable(error) from error
        if entries:
            self._objects[0][2]["tensors"] = entries
        return file.getvalue()

    def _taker(self, entries: list[Any]) -> Callable[[Any], int | None]:
        """Puts a tensor that is about to be pickled into `entries` and gives its number; None for all else."""
        torch = _torch()
        if torch is None:
            return lambda value: None
        names: dict[int, tuple[str, ...]] = {}
        for module, path, _ in self._objects:
            if isinstance(module, torch.nn.Module):
                for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                    names.setdefault(id(tensor), (*path, name))
        numbers: dict[int, int] = {}

        def take(value: Any) -> int | None:
            if type(value) not in (torch.Tensor, torch.nn.Parameter):
                return None
            if id(value) not in numbers:
                if value.__dict__.keys() - {"_is_buffer", "persistent"} or value._backward_hooks:
                    return None  # attributes of the user's own, which only a pickle keeps
                entry = self._of_torch(type(value), value, names.get(id(value), ("objects", str(len(entries)))))
                if entry is None:
                    return None
                self._alive.append(value)
                numbers[id(value)] = len(entries)
                entries.append(entry)
            return numbers[id(value)]

        return take

    def _unpicklable(self, error: Exception) -> SerializationError:
        import cloudpickle

        for value, path, _ in self._objects:
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
        self._arrays: dict[str, Any] = {}
        self._memories: dict[Any, Any] = {}
        self._outside: list[Any] = []
        self._objects: list[Any] | None = None

    def object(self, found: dict[str, Any]) -> Any:
        """json's object_hook: what is inside `found` has been through here already."""
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
        key = repr(found)  # what stands in two places is one array again
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
    """The list in objects.pkl; `outside` are the tensors that it refers to. What was on a GPU comes to the CPU."""
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
        raise StorageError(f"[checkpoint] objects.pkl holds a {_type_name(objects)}, not a list")
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


_DICTS = {dict: "$dict", OrderedDict: "$ordered_dict", Counter: "$counter"}
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


def _comes_back(dtype: Any) -> bool:
    """Whether numpy can read arrays of this type from the file again; float8, which other packages add, it cannot."""
    name = dtype.name
    return _arrays.is_known(name) and dtype.isnative and not name.startswith("float8")


def _maker(value: Any) -> str | None:
    """Whose array it is, TensorFlow's or JAX's. A package that is not imported cannot have made it."""
    for package, name in (("tensorflow", "Tensor"), ("tensorflow", "Variable"), ("jax", "Array")):
        kind = getattr(sys.modules.get(package), name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            return package
    return None


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _torch() -> Any:
    """torch, if it has been imported as a whole."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "nn") else None


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) < 100 else text[:100] + "..."


def _spelled(path: Sequence[str]) -> str:
    return "the checkpoint's dict" + "".join(f"[{key!r}]" for key in path)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
