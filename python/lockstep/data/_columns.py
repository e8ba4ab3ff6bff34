"""Columns and tables out of what Python functions give."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from lockstep.data._formats import to_numpy
from lockstep.data._tensors import native_order
from lockstep.errors import ConfigError


def to_column(values: Any) -> Any:
    """An Arrow array of the values of a column.

    Arrays with more dimensions become tensors, as do lists of equal arrays:

        >>> to_column(numpy.zeros((5, 2, 3))).type.shape
        [2, 3]
    """
    if isinstance(values, pyarrow.Array | pyarrow.ChunkedArray):
        return values
    if hasattr(values, "detach") and hasattr(values, "numpy"):  # a tensor of torch
        values = values.detach().cpu().numpy()
    elif hasattr(values, "__array__") and not isinstance(values, numpy.ndarray) and not _is_pandas(values):
        values = numpy.asarray(values)
    if isinstance(values, numpy.ndarray) and values.dtype != object:
        return _from_array(values)
    if _is_pandas(values) and values.dtype.kind != "O":
        return _joined(pyarrow.array(values, from_pandas=True))
    return _from_values(list(values), _is_pandas(values))


def to_table(batch: Any, rows: int | None = None) -> pyarrow.Table:
    """A batch of any format as a table: a dict of columns, a ``DataFrame``, a table or record batch. Raises
    ``ConfigError`` for anything else, and if the columns are not equally long."""
    if isinstance(batch, pyarrow.Table):
        return batch
    if isinstance(batch, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([batch])
    if isinstance(batch, Mapping):
        return _from_columns(batch, rows)
    if _is_pandas(batch) and hasattr(batch, "columns"):
        if not batch.columns.is_unique:
            raise ConfigError(f"[data] several columns of the DataFrame have the same name: {list(batch.columns)}")
        return _from_columns({name: batch[name] for name in batch.columns}, len(batch))
    raise ConfigError(
        f"[data] the function gave a {type(batch).__name__}; it must give a batch: a dict of arrays, a pandas "
        "DataFrame, a pyarrow Table, or a generator of these"
    )


def rows_to_table(rows: Sequence[Any], what: str) -> pyarrow.Table:
    """A table of rows, which are dicts; keys that a row lacks are nulls."""
    names: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            raise ConfigError(f"[data] the function gave {what} {type(row).__name__}; a row is a dict of its columns")
        names.update(dict.fromkeys(row))
    return _from_columns({name: [row.get(name) for row in rows] for name in names}, len(rows))


def table_to_rows(table: pyarrow.Table | pyarrow.RecordBatch) -> list[dict[str, Any]]:
    """The rows as dicts of Python values. Tensors are numpy arrays."""
    tensors = [field.name for field in table.schema if isinstance(field.type, pyarrow.FixedShapeTensorType)]
    if not tensors:
        return table.to_pylist()  # type: ignore[no-any-return]
    others = table.select([name for name in table.schema.names if name not in tensors])
    rows = others.to_pylist() if others.num_columns else [{} for _ in range(table.num_rows)]
    for name in tensors:
        arrays = to_numpy(pyarrow.RecordBatch.from_arrays([_joined(table.column(name))], [name]))[name]
        for row, value in zip(rows, arrays, strict=True):
            row[name] = value
    return [{name: row[name] for name in table.schema.names} for row in rows]


def _is_pandas(values: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.DataFrame | pandas.Series | pandas.Index)


def _from_columns(columns: Mapping[Any, Any], rows: int | None) -> pyarrow.Table:
    made = {}
    for name, values in columns.items():
        try:
            made[str(name)] = to_column(values)
        except (TypeError, pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as error:
            raise ConfigError(f"[data] the column {str(name)!r} cannot be stored: {error}") from error
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(f"[data] columns of a batch must be equally long, but their lengths are {lengths}")
    if not made:  # rows without columns are nothing
        return pyarrow.table({})
    return pyarrow.table(made)


def _from_array(array: numpy.ndarray[Any, Any]) -> Any:
    if array.ndim == 0:
        raise TypeError("it is a single value; a column is an array with one value per row")
    array = native_order(array)
    if array.ndim == 1:
        return pyarrow.array(array)
    if 0 in array.shape[1:] or not len(array):  # which tensors cannot have
        return pyarrow.array(array.tolist(), pyarrow.list_(pyarrow.from_numpy_dtype(array.dtype)))
    return pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.ascontiguousarray(array))


def _from_values(values: list[Any], from_pandas: bool = False) -> Any:
    first = next((value for value in values if value is not None), None)
    if hasattr(first, "detach") and hasattr(first, "numpy"):
        values = [None if value is None else numpy.asarray(value.detach().cpu()) for value in values]
        first = next(value for value in values if value is not None)
    if isinstance(first, numpy.ndarray) and first.dtype != object:
        if first.ndim and all(isinstance(each, numpy.ndarray) and each.shape == first.shape for each in values):
            return _from_array(numpy.stack(values))
        values = [value.tolist() if isinstance(value, numpy.ndarray) else value for value in values]
    return _joined(pyarrow.array(values, from_pandas=from_pandas))


def _joined(column: Any) -> Any:
    if not isinstance(column, pyarrow.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def concatenated(tables: Iterable[pyarrow.Table]) -> pyarrow.Table:
    """The rows of all tables, whose types are widened if they differ. Tables without rows do not count, unless all are
    such."""
    given = list(tables)
    filled = [table for table in given if table.num_rows] or given[:1]
    if len(filled) == 1:
        return filled[0]
    if all(table.schema.equals(filled[0].schema) for table in filled):
        return pyarrow.concat_tables(filled)
    for table in filled:
        if set(table.column_names) != set(filled[0].column_names):
            raise ConfigError(
                f"[data] the function gave the columns {', '.join(table.column_names)}, but for other rows "
                f"{', '.join(filled[0].column_names)}; it must always give the same ones"
            )
    try:
        return pyarrow.concat_tables(filled, promote_options="permissive")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise ConfigError(f"[data] the function gave columns of different types: {error}") from error
