"""Rows of objects that give one item at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import pyarrow

from lockstep.data._tensors import column_type, to_column
from lockstep.errors import ConfigError

_ROWS_OF_BLOCK = 256


class TorchRows:
    """The items of a map-style dataset of torch, read when they are needed."""

    is_borrowed = False
    paths: tuple[str, ...] = ()
    size_bytes = 0

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._count = len(dataset)
        first = _row(dataset[0]) if self._count else {}
        self.schema = pyarrow.schema({name: _type(value) for name, value in first.items()})
        self.description = f"from_torch: {type(dataset).__name__} of {self._count}"
        self.identity = f"torch {type(dataset).__name__} {self.schema}"

    def rows_of_blocks(self) -> list[int]:
        """One per item."""
        return [min(_ROWS_OF_BLOCK, self._count - begin) for begin in range(0, self._count, _ROWS_OF_BLOCK)]

    def skipped(self) -> list[str]:
        """Nothing ever is."""
        return []

    def read(self, block: int, columns: list[int]) -> pyarrow.Table:
        """The next items."""
        begin = block * _ROWS_OF_BLOCK
        numbers = range(begin, min(begin + _ROWS_OF_BLOCK, self._count))
        rows = [_row(self._dataset[number]) for number in numbers]
        arrays = {}
        for column in columns:
            field = self.schema.field(column)
            try:
                arrays[field.name] = _array(field, [row[field.name] for row in rows])
            except (KeyError, ValueError, TypeError, pyarrow.ArrowException) as error:
                raise ConfigError(
                    f"[data] from_torch(): the items {begin} to {numbers[-1]} do not fit the column {field.name!r}, "
                    f"which is {field.type} in item 0: {error}"
                ) from error
        return pyarrow.table(arrays)


def _row(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {str(name): _plain(value) for name, value in item.items()}
    if isinstance(item, tuple | list):
        return {f"item_{number}": _plain(value) for number, value in enumerate(item)}
    return {"item": _plain(item)}


def _plain(value: Any) -> Any:
    """Tensors and images as arrays, and arrays of no dimensions as numbers."""
    if isinstance(value, str | bytes | int | float | None):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    elif hasattr(value, "__array_interface__"):
        value = numpy.asarray(value)
    return value[()] if isinstance(value, numpy.ndarray) and value.ndim == 0 else value


def _type(value: Any) -> pyarrow.DataType:
    if isinstance(value, numpy.ndarray):
        return column_type(value.dtype, value.shape)
    return pyarrow.array([value]).type


def _array(field: pyarrow.Field, values: list[Any]) -> pyarrow.Array:
    if isinstance(values[0], numpy.ndarray):
        column = to_column(field.name, numpy.stack(values))
        if column.type != field.type:
            raise ValueError(f"they are {column.type}")
        return column
    return pyarrow.array(values, field.type)
