"""Arrays of ``tensors.safetensors`` and the entries of ``data.json`` that refer to them.

The file holds each piece of memory once, in C order. An entry says which part of it is meant, and its strides::

    {"$tensor": NAME, "kind": "torch",
     "shape": [...], "stride": [...], "offset": N,    the view: in elements; by default all of it, in C order
     "dtype": "complex128",                           the stored bytes are seen as this type; "shape" is given then
     "layout": [...]}                                 strides of the stored array in memory, if it has gaps

An entry without these is the stored array itself. Entries come from files and are not trusted: whatever they say,
nothing outside the array's own memory is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.errors import StorageError

Tensor = tuple[str, str, tuple[int, ...], Any]
"""Name, safetensors' name of the type, shape, and a buffer of the bytes."""

WORDS = {
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
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}
"""safetensors' names of the types, by those of numpy and torch."""
_NAMES = {word: name for name, word in WORDS.items()}

PARTS = {"complex128": ("float64", 2), "complex32": ("float16", 2), "float4_e2m1fn_x2": ("uint8", 1)}
"""Types that the file format lacks: the type that an element is stored as, and how many of them."""

_NUMPY_TYPES = [*(name for name in WORDS if name != "bfloat16" and not name.startswith("float8")), "complex128"]

MAX_SPREAD = 4
"""Gaps between elements are restored if the array with gaps is at most this many times as large as without."""


def is_known(dtype: str) -> bool:
    """Whether arrays of this type can be stored in the file."""
    return dtype in WORDS or dtype in PARTS


def as_stored(dtype: str, shape: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """The type and shape under which the file holds an array.

    >>> as_stored("float32", (2, 3)), as_stored("complex128", (2, 3))
    (('F32', (2, 3)), ('F64', (2, 3, 2)))
    """
    part, count = PARTS.get(dtype, (dtype, 1))
    return WORDS[part], (*shape, count) if count > 1 else tuple(shape)


def dtype_name(tensor: Tensor) -> str:
    """The type's name in numpy and torch."""
    if tensor[1] not in _NAMES:
        raise StorageError(
            f"[checkpoint] the array {tensor[0]!r} of tensors.safetensors is of type {tensor[1]}; "
            f"known are {', '.join(_NAMES)}"
        )
    return _NAMES[tensor[1]]


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of an array without gaps in C order.

    >>> c_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * max(shape[axis], 1)
    return tuple(strides)


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last one in memory.

    >>> extent((2, 3), (8, 2))
    13
    """
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def layout_of(found: Mapping[str, Any], tensor: Tensor) -> tuple[int, ...] | None:
    """The entry's "layout", checked; None if the array has no gaps."""
    if "layout" not in found:
        return None
    layout, shape = _numbers(found, "layout", tensor), tensor[2]
    if len(layout) != len(shape) or extent(shape, layout) > MAX_SPREAD * math.prod(shape):
        raise _bad(f"the layout {list(layout)}", tensor, f"which does not fit its shape {list(shape)}")
    return layout


def view_of(
    found: Mapping[str, Any], tensor: Tensor, layout: tuple[int, ...] | None, count: int
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The shape, strides and offset of an entry, checked to lie within `count` elements."""
    if "dtype" in found and "shape" not in found:
        raise _bad(f"the dtype {found['dtype']!r}", tensor, "but no shape")
    shape = _numbers(found, "shape", tensor) if "shape" in found else tensor[2]
    usual = layout if layout is not None and "shape" not in found else c_strides(shape)
    strides = _numbers(found, "stride", tensor) if "stride" in found else usual
    offset = _numbers({"offset": [found.get("offset", 0)]}, "offset", tensor)[0]
    fits = len(shape) == len(strides) and offset + extent(shape, strides) <= count and math.prod(shape) < 2**63
    if not fits:
        asked = f"shape {list(shape)}, stride {list(strides)}, offset {offset}"
        raise _bad(asked, tensor, f"which has only {count} elements")
    return shape, strides, offset


def fill(memory: Any, tensor: Tensor, layout: tuple[int, ...] | None) -> None:
    """Copies a stored array to `memory`, a numpy array of bytes with room for the array with its gaps."""
    import numpy

    _, _, shape, buffer = tensor
    if not len(memory):
        return
    source = numpy.frombuffer(buffer, dtype=numpy.uint8)
    if layout is None:
        memory[:] = source
        return
    size = len(source) // math.prod(shape)
    strides = (*(stride * size for stride in layout), 1)
    numpy.lib.stride_tricks.as_strided(memory, (*shape, size), strides)[...] = source.reshape(*shape, size)


def numpy_array(tensor: Tensor, found: Mapping[str, Any], memories: dict[Any, Any]) -> Any:
    """The numpy array of an entry, which the caller may change. `memories` holds the arrays loaded by the same call."""
    import numpy

    layout = layout_of(found, tensor)
    if (tensor[0], layout) not in memories:
        memories[tensor[0], layout] = _numpy_memory(tensor, layout)
    flat = memories[tensor[0], layout]
    if "dtype" in found:
        if found["dtype"] not in _NUMPY_TYPES or tensor[1] == "BF16":
            raise _bad(f"the dtype {found['dtype']!r}", tensor, "which numpy lacks")
        dtype = numpy.dtype(found["dtype"])
        flat = flat.view(numpy.uint8)[: flat.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
    shape, strides, offset = view_of(found, tensor, layout, len(flat))
    if strides == c_strides(shape):
        view = flat[offset : offset + math.prod(shape)].reshape(shape)
    else:
        steps = tuple(stride * flat.itemsize for stride in strides)
        view = numpy.lib.stride_tricks.as_strided(flat[offset:], shape, steps)
    return view.conj() if found.get("conj") else view


def _numpy_memory(tensor: Tensor, layout: tuple[int, ...] | None) -> Any:
    import numpy

    name = dtype_name(tensor)
    if name != "bfloat16" and name not in _NUMPY_TYPES:
        raise StorageError(f"[checkpoint] the array {tensor[0]!r} is of type {name}, which numpy lacks; install torch")
    dtype = numpy.dtype("uint16" if name == "bfloat16" else name)
    count = extent(tensor[2], layout or c_strides(tensor[2]))
    memory = numpy.zeros(count, dtype) if layout else numpy.empty(count, dtype)
    fill(memory.view(numpy.uint8), tensor, layout)
    if name == "bfloat16":  # numpy has no such type; float32 represents every bfloat16 exactly
        return (memory.astype(numpy.uint32) << 16).view(numpy.float32)
    return memory


def _numbers(found: Mapping[str, Any], key: str, tensor: Tensor) -> tuple[int, ...]:
    values = found[key]
    if type(values) is not list or not all(type(value) is int and 0 <= value < 2**63 for value in values):
        raise _bad(f"the {key} {values!r}", tensor, "which must be whole numbers of at least 0")
    return tuple(values)


def _bad(what: str, tensor: Tensor, why: str) -> StorageError:
    return StorageError(f"[checkpoint] data.json is broken: it gives {what} for the array {tensor[0]!r}, {why}")
