"""What batches look like to the user: numpy, pandas, pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy
import pyarrow
import pyarrow.compute

from lockstep.errors import ConfigError

Arrays: TypeAlias = "dict[str, numpy.ndarray[Any, Any]]"


def converter(batch_format: str) -> Callable[[pyarrow.RecordBatch], Any]:
    """The function that makes batches of this format."""
    if batch_format not in _CONVERTERS:
        raise ConfigError(f"[data] batch_format is {batch_format!r}; it must be one of {', '.join(_CONVERTERS)}")
    return _CONVERTERS[batch_format]


def batch_converter(batch_format: str) -> Callable[[Any], Any]:
    """The same for the core's batches."""
    convert = converter(batch_format)
    if convert is to_numpy:
        return lambda batch: batch_to_numpy(batch, may_change=False)
    return lambda batch: convert(pyarrow.record_batch(batch))


def to_numpy(batch: pyarrow.RecordBatch) -> Arrays:
    """Arrays by column, without a copy where the layout allows it; those are read-only."""
    return {name: _column_to_numpy(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def batch_to_numpy(batch: Any, *, may_change: bool, columns: list[str] | None = None) -> Arrays:
    """The same of the core's batch, perhaps only of some columns. `may_change`: arrays can be written, copied only if
    the memory is the user's own."""
    made: Arrays | None = batch.arrays(writable=may_change and not batch.is_borrowed)
    if made is None:  # there are other columns than plain numbers
        rows = pyarrow.record_batch(batch)
        made = to_numpy(rows if columns is None else rows.select(columns))
    elif columns is not None:
        made = {name: made[name] for name in columns}
    return {name: writable(array, batch.is_borrowed) for name, array in made.items()} if may_change else made


def _column_to_numpy(column: pyarrow.Array) -> numpy.ndarray[Any, Any]:
    if not column.null_count:
        if isinstance(column.type, pyarrow.FixedShapeTensorType):
            tensors: numpy.ndarray[Any, Any] = column.to_numpy_ndarray()
            return tensors
        if pyarrow.types.is_fixed_size_list(column.type):
            values = _column_to_numpy(column.flatten())
            return values.reshape(len(column), column.type.list_size, *values.shape[1:])
    array: numpy.ndarray[Any, Any] = column.to_numpy(zero_copy_only=False)
    return array


def lists_to_numpy(column: pyarrow.Array) -> numpy.ndarray[Any, Any] | None:
    """Lists of numbers as one array with more dimensions. None if they are of different lengths, or have nulls."""
    if column.null_count:
        return None
    if not isinstance(column.type, pyarrow.ListType | pyarrow.LargeListType):
        is_plain = pyarrow.types.is_primitive(column.type) or isinstance(column.type, pyarrow.FixedSizeListType)
        return _column_to_numpy(column) if is_plain else None
    lengths = numpy.unique(pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False))
    values = lists_to_numpy(column.flatten())
    if values is None or len(lengths) > 1:
        return None
    return values.reshape(len(column), lengths[0] if len(lengths) else 0, *values.shape[1:])


def empty_batch(schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """A batch without rows, also of types of which pyarrow makes no array of nothing."""

    def empty(kind: pyarrow.DataType) -> pyarrow.Array:
        if isinstance(kind, pyarrow.BaseExtensionType):
            return pyarrow.ExtensionArray.from_storage(kind, empty(kind.storage_type))
        return pyarrow.array([], kind)

    return pyarrow.RecordBatch.from_arrays([empty(field.type) for field in schema], schema=schema)


def writable(array: numpy.ndarray[Any, Any], is_borrowed: bool) -> numpy.ndarray[Any, Any]:
    """The array, such that it may be changed. It is copied only if its memory is the user's own."""
    if array.flags.writeable:  # a copy already
        return array
    if is_borrowed:
        copied: numpy.ndarray[Any, Any] = array.copy()
        return copied
    # Nobody else uses these rows of the memory, which Arrow marks as read-only.
    unmarked: numpy.ndarray[Any, Any] = numpy.asarray(_Unmarked(array))
    return unmarked


class _Unmarked:
    """The memory of a read-only array, as numpy sees it when it may be written."""

    def __init__(self, array: numpy.ndarray[Any, Any]) -> None:
        self._owner = array
        place, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (place, False)}


def to_pandas(batch: pyarrow.RecordBatch) -> Any:
    """A ``DataFrame``, in whose cells tensors are numpy arrays."""
    tensors = [field.name for field in batch.schema if isinstance(field.type, pyarrow.FixedShapeTensorType)]
    if not tensors:
        return batch.to_pandas()
    import pandas

    arrays = {name: list(_column_to_numpy(batch.column(name))) for name in tensors}
    others = batch.select([name for name in batch.schema.names if name not in arrays]).to_pandas()
    columns = {name: pandas.Series(arrays[name]) if name in arrays else others[name] for name in batch.schema.names}
    return pandas.DataFrame(columns)


_CONVERTERS: dict[str, Callable[[pyarrow.RecordBatch], Any]] = {
    "default": to_numpy,
    "numpy": to_numpy,
    "pandas": to_pandas,
    "pyarrow": lambda batch: pyarrow.Table.from_batches([batch]),
}
