"""Rows and batches as the chosen release of Ray has them.

Up to Ray 2.0, rows may be any value, not only dicts: ``ray.data.range(3)`` has the rows 0, 1, 2. Here such values are
in a column of a reserved name, and arrays in another one, so that every block tells by its columns what its rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import pyarrow

from lockstep.as_ray import release
from lockstep.data._columns import rows_to_table, table_to_rows, to_table
from lockstep.data._functions import Function, as_batch, to_batch, with_nulls
from lockstep.errors import ConfigError

PLAIN = release in ("1.7", "2.0")
"""Whether rows may be any value."""
ITEM = "__item__"
TENSOR = "__value__"
FORMATS = ("default", "native", "numpy", "pandas", "pyarrow")


def rows_of(table: Any) -> list[Any]:
    """The rows as Python values."""
    names = table.schema.names
    if names == [ITEM]:
        return _items(table.column(0))
    rows = table_to_rows(table)
    for field in table.schema:
        if pyarrow.types.is_fixed_size_list(field.type):  # as Ray shows what a Concatenator gives
            for row in rows:
                row[field.name] = None if row[field.name] is None else numpy.array(row[field.name])
    return [row[TENSOR] for row in rows] if names == [TENSOR] else rows


def to_row(value: Any) -> Mapping[str, Any]:
    """A row as the core has it."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, numpy.ndarray) or hasattr(value, "detach"):
        return {TENSOR: value}
    if isinstance(value, tuple):  # Arrow has no tuples; _items() knows them by the names
        value = {str(number): part for number, part in enumerate(value)}
    return {ITEM: value}


def plain(value: Any) -> Any:
    """A row as a value within another one."""
    row = to_row(value)
    return row.get(ITEM, row)


def rows_table(rows: list[Any]) -> pyarrow.Table:
    """A table of rows of any kind."""
    made = rows_to_table([to_row(row) for row in rows], "a")
    return made if rows else pyarrow.table({ITEM: pyarrow.array([], pyarrow.int64())})


def _items(column: Any) -> list[Any]:
    items: list[Any] = column.to_pylist()
    kind = column.type
    if pyarrow.types.is_struct(kind) and kind.num_fields:
        names = [kind.field(number).name for number in range(kind.num_fields)]
        if names == [str(number) for number in range(len(names))]:
            return [None if item is None else tuple(item.values()) for item in items]
    return items


def converter(batch_format: str | None, is_borrowed: bool = True, zero_copy: bool = False) -> Callable[[Any], Any]:
    """The function that makes batches of this format of record batches. ``"native"``, the default up to 2.0, gives
    lists of values, arrays, or else frames (tables in 1.7)."""
    if batch_format is not None and batch_format not in FORMATS:
        raise ConfigError(f"[data] batch_format is {batch_format!r}; it must be one of {', '.join(FORMATS)}")
    is_native = batch_format in ("native", "default")
    of_tables = "pyarrow" if batch_format is None else batch_format
    if is_native:
        of_tables = {"1.7": "pyarrow", "2.0": "pandas"}.get(release, "numpy")
    convert = to_batch(of_tables, is_borrowed, zero_copy)
    of_arrays = to_batch("numpy", is_borrowed, zero_copy)

    def converted(batch: Any) -> Any:
        names = batch.schema.names
        if names == [ITEM]:
            if is_native:
                return _items(batch.column(0))
            if of_tables == "numpy":
                return numpy.array(_items(batch.column(0)))
            return convert(batch.rename_columns(["value"]))
        if names == [TENSOR] and (is_native or of_tables == "numpy"):
            return of_arrays(batch)[TENSOR]
        return convert(batch)

    return converted


def batch_table(batch: Any, given: pyarrow.Table) -> pyarrow.Table:
    """What a function gave for the batch `given`, as a table."""
    if isinstance(batch, list):
        return rows_table(batch)
    if isinstance(batch, numpy.ndarray):
        batch = {TENSOR: batch}
    made = to_table(batch)
    return made if isinstance(batch, pyarrow.Table) else with_nulls(made, given)


def on_batches(function: Function, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A user's function for batches as one for tables."""

    def call(table: Any) -> Any:
        with function.turn():
            result = function(convert(as_batch(table)))
            if isinstance(result, Iterator):
                return iter([batch_table(each, table) for each in result])
        return batch_table(result, table)

    return _named(call, function)


def on_rows(function: Function, method: str) -> Callable[[Any], Any]:
    """A user's function for rows of any kind as one for dicts."""

    def call(row: dict[str, Any]) -> Any:
        names = list(row)
        with function.turn():
            given: Any = row
            if names == [ITEM]:
                given = of_plain(row[ITEM])
            elif names == [TENSOR]:
                given = row[TENSOR]
            result = function(given)
            if method == "filter":
                return result
            return to_row(result) if method == "map" else [to_row(each) for each in result]

    return _named(call, function)


def of_plain(item: Any) -> Any:
    """The opposite of plain()."""
    if isinstance(item, dict) and item and list(item) == [str(number) for number in range(len(item))]:
        return tuple(item.values())
    return item


def _named(call: Callable[[Any], Any], function: Function) -> Callable[[Any], Any]:
    call.__name__ = call.__qualname__ = function.name.partition("(")[2].rstrip(")")
    return call
