"""Arrow columns of numpy arrays and Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import pyarrow

from lockstep.errors import ConfigError


def column_type(dtype: numpy.dtype[Any], shape: Sequence[int]) -> pyarrow.DataType:
    """The type of a column whose rows are arrays of this shape."""
    try:
        values = pyarrow.array(native_order(numpy.empty(0, dtype))).type
    except (pyarrow.ArrowException, ValueError) as error:
        raise ConfigError(f"[data] there are no columns of {dtype}: {error}") from error
    return pyarrow.fixed_shape_tensor(values, list(shape)) if shape else values


def native_order(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The same values in this machine's byte order, which Arrow needs."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def to_column(name: str, array: Any) -> pyarrow.Array:
    """An array whose rows lie along the first axis."""
    array = native_order(numpy.asarray(array))
    if array.ndim == 0:
        raise ConfigError(f"[data] from_numpy() got a single number for the column {name!r}; it must be an array")
    if array.ndim == 1:
        column_type(array.dtype, ())  # refuses what cannot be stored
        return pyarrow.array(array)
    kind = column_type(array.dtype, array.shape[1:])
    size = int(numpy.prod(array.shape[1:]))
    values = pyarrow.array(numpy.ascontiguousarray(array).reshape(-1))
    storage = pyarrow.FixedSizeListArray.from_arrays(values, size) if size else _empty_lists(kind, len(array))
    return pyarrow.ExtensionArray.from_storage(kind, storage)


def _empty_lists(kind: pyarrow.DataType, rows: int) -> pyarrow.Array:
    return pyarrow.array([[]] * rows, kind.storage_type)


def nested_column(arrays: Sequence[numpy.ndarray[Any, Any]], kind: pyarrow.DataType) -> pyarrow.Array:
    """Arrays of different shapes, as lists of lists."""
    values = pyarrow.array(numpy.concatenate([array.reshape(-1) for array in arrays]) if arrays else [], _leaf(kind))
    for axis in reversed(range(arrays[0].ndim if arrays else 0)):
        lengths = numpy.concatenate([numpy.full(int(numpy.prod(a.shape[:axis])), a.shape[axis]) for a in arrays])
        offsets = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)
        values = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), values)
    return values if arrays else pyarrow.array([], kind)


def nested_type(dtype: numpy.dtype[Any], dimensions: int) -> pyarrow.DataType:
    """The type of :func:`nested_column`."""
    kind = pyarrow.array(numpy.empty(0, dtype)).type
    for _ in range(dimensions):
        kind = pyarrow.list_(kind)
    return kind


def _leaf(kind: pyarrow.DataType) -> pyarrow.DataType:
    while pyarrow.types.is_list(kind):
        kind = kind.value_type
    return kind
