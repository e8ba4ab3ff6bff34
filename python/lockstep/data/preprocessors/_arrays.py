"""Numbers, categories and lists in Arrow arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy
import pyarrow
import pyarrow.compute as compute

from lockstep.data._batches import array_to_numpy
from lockstep.errors import ConfigError

Floats: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"
Numbers: TypeAlias = "numpy.ndarray[Any, Any]"


def plain(array: Any) -> Any:
    """The values themselves, if the array has a dictionary of them or is an extension of another array."""
    if pyarrow.types.is_dictionary(array.type):
        return array.dictionary_decode()
    return array.storage if isinstance(array.type, pyarrow.BaseExtensionType) else array


def is_number(kind: Any) -> bool:
    types = pyarrow.types
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def is_list(kind: Any) -> bool:
    types = pyarrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def doubles(array: Any, where: str) -> Any:
    """An array of float64, with the same nulls. ConfigError if these are no numbers."""
    array = plain(array)
    if not is_number(array.type) and not pyarrow.types.is_null(array.type):
        raise ConfigError(f"{where} is {array.type}; it must be numbers")
    return array.cast(pyarrow.float64(), safe=False)  # large integers are rounded


def known(array: Any) -> Any:
    """Only the values that are not missing: neither null nor NaN."""
    if array.null_count:
        array = array.drop_null()
    if not pyarrow.types.is_floating(array.type):
        return array
    is_nan = compute.is_nan(array)
    return array.filter(compute.invert(is_nan)) if compute.any(is_nan).as_py() else array


def is_missing(array: Any) -> Any:
    """Where the array has a null or NaN."""
    return compute.is_null(array, nan_is_null=True)


def mapped(array: Any, where: str, function: Callable[[Floats], Floats]) -> Any:
    """The function of every number, computed in float64. Nulls stay; float32 and float16 stay what they are."""
    values = doubles(array, where)
    result = function(values.to_numpy(zero_copy_only=False))
    kind = array.type if pyarrow.types.is_floating(array.type) else pyarrow.float64()
    mask = compute.is_null(values).to_numpy(zero_copy_only=False) if values.null_count else None
    return pyarrow.array(result, mask=mask).cast(kind, safe=False)


def rows_of(array: Any, where: str) -> Numbers:
    """A matrix with one row of numbers for each value of the array, which is a number, a tensor, or a list. All lists
    must have the same length. Nulls are NaN."""
    if isinstance(array.type, pyarrow.FixedShapeTensorType) and not array.null_count:
        tensors = array_to_numpy(array)
        return tensors.reshape(len(tensors), -1)
    array = plain(array)
    if not is_list(array.type):
        whole = array if array.type in _AS_THEY_ARE and not array.null_count else doubles(array, where)
        return array_to_numpy(whole).reshape(len(array), 1)
    lengths = compute.unique(compute.list_value_length(array))
    if len(array) and (array.null_count or len(lengths) != 1):
        raise ConfigError(f"{where} has lists of different lengths or nulls; all lists must have the same length")
    return rows_of(array.flatten(), where).reshape(len(array), -1)


_AS_THEY_ARE = {pyarrow.bool_(), pyarrow.float16(), pyarrow.float32(), pyarrow.float64()} | {
    getattr(pyarrow, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def from_rows(rows: Numbers) -> Any:
    """A fixed-size list for each row of a matrix: the opposite of :func:`rows_of`."""
    count, width = rows.shape
    kind = pyarrow.list_(pyarrow.from_numpy_dtype(rows.dtype), width)
    if not count or not width:
        return pyarrow.array([[]] * count, kind)
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), type=kind)


def positions(array: Any, categories: Sequence[Any], where: str) -> Any:
    """The position of every value in `categories`, as int64; null for other values."""
    array = plain(array)
    if not categories or pyarrow.types.is_null(array.type):
        return pyarrow.nulls(len(array), pyarrow.int64())
    if is_list(array.type):
        numbered = {category: position for position, category in enumerate(categories)}
        return pyarrow.array([numbered.get(hashable(value)) for value in array.to_pylist()], pyarrow.int64())
    try:
        if pyarrow.types.is_integer(array.type) or pyarrow.types.is_floating(array.type):
            kind = pyarrow.int64() if _are_small_integers(array.type, categories) else pyarrow.float64()
            array = array.cast(kind, safe=False)
        among = pyarrow.array(categories, array.type)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError) as error:
        raise ConfigError(
            f"{where} is {array.type}, but was fitted to values like {categories[0]!r}: {error}"
        ) from error
    return compute.index_in(array, value_set=among).cast(pyarrow.int64())


def _are_small_integers(kind: Any, categories: Sequence[Any]) -> bool:
    is_small = pyarrow.types.is_integer(kind) and kind != pyarrow.uint64()
    return is_small and all(isinstance(category, int) for category in categories)


def hashable(value: Any) -> Any:
    """A list as a tuple, so that it can be a category."""
    return tuple(hashable(each) for each in value) if isinstance(value, list) else value
