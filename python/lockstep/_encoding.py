"""A dict checkpoint as three files, and back.

``data.json`` holds plain values directly and the rest as objects with a reserved key::

    {"$tensor": NAME, "kind": "numpy" | "torch" | "bytes"}    in tensors.safetensors; kind defaults to numpy
    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}
    {"$dict": [[key, value], ...]}                            a dict with a key that is not a str or begins with "$"
    {"$ordered_dict": [[key, value], ...]}                    with "metadata" too when it is a module's state_dict
    {"$counter": [[key, value], ...]}
    {"$bytes": base64}  {"$complex": [real, imag]}
    {"$float": "nan" | "inf" | "-inf"}  {"$int": "..."}       beyond what JSON, or 64 bits, hold
    {"$numpy": dtype, "value": ...}                           a numpy scalar
    {"$torch_size": [...]}  {"$torch_dtype": "float32"}  {"$torch_device": "cuda:0"}
    {"$preprocessor": JSON}                                   one of lockstep.data, as text: see ``_preprocessors``
    {"$object": i}                                            the i-th of the list that is pickled in objects.pkl

``$tensor`` may have "shape", "stride", "offset", "dtype" and "layout", for tensors that share memory or are not in C
order: see ``_arrays``. With torch it may also have "parameter": true, "requires_grad": true, "conj": true and "buffer":
"persistent" or "transient". Tensors inside pickled objects are stored like all others; the first ``$object`` lists them
under "tensors", and objects.pkl refers to them by their index there.

TensorFlow's tensors and variables and JAX's arrays are stored as numpy arrays, and come back as such. A JAX array is
marked by "jax", with its type, and comes back as a JAX array if JAX is imported.

C++ reads and writes the same files. numpy and torch are used only if the values or the file need them.
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

from lockstep import _arrays, _preprocessors
from lockstep._arrays import Tensor
from lockstep._decoding import Decoder
from lockstep.errors import SerializationError, StorageError

MAX_DEPTH = 100
"""Deeper nesting is an error. JSON readers are recursive; real states do not come near this depth."""
LARGE_BYTES = 64 * 1024
"""Bytes of at least this length are stored with the arrays instead of as base64."""

_NOT_PLAIN = object()


class Encoded(NamedTuple):
    """The contents of the three files; `objects` is None if there is nothing to pickle."""

    data: str
    tensors: list[Tensor]
    objects: bytes | None


def encode(value: Any, unwrap: bool = False) -> Encoded:
    """Encodes a checkpoint's dict. Arrays are borrowed, not copied, if their memory can be used directly.

    With `unwrap`, a model wrapped in DistributedDataParallel or torch.compile is stored without the wrapper, and its
    state_dict under the model's own names, without ``module.`` and ``_orig_mod.``.

    >>> encode({"epoch": 3, "range": (1, 2)}).data
    '{"epoch": 3, "range": {"$tuple": [1, 2]}}'
    """
    encoder = _Encoder(unwrap)
    tree = encoder.value(value, ())
    objects = encoder.finish()
    return Encoded(json.dumps(tree, allow_nan=False), encoder.tensors, objects)


def decode(data: str | bytes, tensors: Callable[[], Iterable[Tensor]], objects: Callable[[], bytes]) -> Any:
    """The inverse of encode(). `tensors` and `objects` are called only if something refers to them.

    >>> decode('{"range": {"$tuple": [1, 2]}}', lambda: [], lambda: b"")
    {'range': (1, 2)}
    """
    decoder = Decoder(tensors, objects)
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
        self._alive: list[Any] = []  # ids are valid only while their objects exist
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
        if array is None:
            plain = _preprocessors.dump_plain(value)
            array = None if plain is None else {"$preprocessor": plain}
        return array if array is not None else self._object(value, path)

    def finish(self) -> bytes | None:
        """Pickles the remaining objects, stores the tensors, and returns the contents of objects.pkl."""
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
                if kind is OrderedDict and notes:  # torch: the versions of the modules of a state_dict
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
        """The form of a numpy array or scalar; None if it is neither, or must be pickled.

        If numpy is not imported, `value` cannot be of its types.
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
        """The form of a TensorFlow or JAX array; None if it is neither, or must be pickled."""
        numpy = sys.modules.get("numpy")
        maker = _maker(value)
        if numpy is None or maker is None:
            return None
        try:
            array = numpy.asarray(value)
        except Exception:  # it has no value yet, or is spread over processes: pickling raises the error
            return None
        if array.dtype.name == "bfloat16" and maker != "jax":
            return None  # it would come back as float32
        entry = self._numpy_array(numpy, array, path, value)
        return entry | {"jax": array.dtype.name} if entry is not None and maker == "jax" else entry

    def _numpy_array(self, numpy: Any, array: Any, path: tuple[str, ...], owner: Any = None) -> Any:
        """`owner` is the object that the array was made from, if it may occur again elsewhere."""
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
        """The form of a torch tensor, size, dtype or device; None if it is none of them, or must be pickled."""
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
        """The objects' pickle. Tensors are taken out of it and listed in the first object's form."""
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
        """Appends a tensor that is about to be pickled to `entries` and returns its index; None for anything else."""
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
                    return None  # the user's own attributes, which only a pickle keeps
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


_DICTS = {dict: "$dict", OrderedDict: "$ordered_dict", Counter: "$counter"}


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
    """Whether UTF-8 can encode it; lone surrogates cannot be."""
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _all_plain(items: list[Any]) -> bool:
    """Whether a list can go into JSON unchanged. Does not loop over the items in Python, because such lists can be
    long."""
    kinds = set(map(type, items))
    if kinds == {float}:
        return all(map(math.isfinite, items))
    if kinds == {int}:
        return bool(min(items) >= -(2**63) and max(items) < 2**64)
    if kinds == {str}:
        return all(map(str.isascii, items))
    return kinds == {bool}


def _comes_back(dtype: Any) -> bool:
    """Whether numpy can read arrays of this type back from the file; not float8, which other packages add."""
    name = dtype.name
    return _arrays.is_known(name) and dtype.isnative and not name.startswith("float8")


def _maker(value: Any) -> str | None:
    """The package of the array, TensorFlow or JAX. A package that is not imported cannot have made it."""
    for package, name in (("tensorflow", "Tensor"), ("tensorflow", "Variable"), ("jax", "Array")):
        kind = getattr(sys.modules.get(package), name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            return package
    return None


def _torch() -> Any:
    """torch, if it has been imported completely."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "nn") else None


def _spelled(path: Sequence[str]) -> str:
    return "the checkpoint's dict" + "".join(f"[{key!r}]" for key in path)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
