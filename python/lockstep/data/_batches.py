"""Batches of every kind the user may have: pandas frames, dicts of numpy arrays, Arrow tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import pyarrow

from lockstep.data._formats import to_numpy
from lockstep.errors import ConfigError


def kind_of(batch: Any, where: str) -> str:
    """``pandas``, ``numpy``, ``pyarrow`` or ``record batch``. ConfigError if it is no batch."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(batch, pandas.DataFrame):
        return "pandas"
    if isinstance(batch, Mapping):
        return "numpy"
    if isinstance(batch, pyarrow.Table):
        return "pyarrow"
    if isinstance(batch, pyarrow.RecordBatch):
        return "record batch"
    raise ConfigError(
        f"[{where}] a batch is a {type(batch).__name__}; it must be a pandas DataFrame, a dict of numpy arrays "
        "or a pyarrow Table"
    )


def converted(batch: Any, kind: str, where: str) -> Any:
    """The batch as one of this kind; itself if it is one."""
    if kind_of(batch, where) == kind:
        return batch
    source = Columns(batch, where)
    names = list(source)
    if kind == "numpy":
        return {name: array_to_numpy(source[name]) for name in names}
    if kind != "pandas":
        return _arrow_batch({name: source[name] for name in names}, kind)
    import pandas

    return pandas.DataFrame({name: _to_series(source[name], None, False) for name in names})


def array_to_numpy(array: Any) -> numpy.ndarray[Any, Any]:
    """As columns of batches become numpy arrays: see :func:`lockstep.data._formats.to_numpy`."""
    return to_numpy(pyarrow.RecordBatch.from_arrays([array], ["column"]))["column"]


class Columns:
    """The columns of a batch as Arrow arrays. A column is converted when it is asked for; others are handed on as they
    are. The batch itself is never changed.

        >>> columns = Columns({"x": numpy.array([1.0, 2.0]), "y": numpy.array(["a", "b"])}, "Doubler")
        >>> columns["x"] = pyarrow.compute.multiply(columns["x"], 2)
        >>> columns.batch()
        {'x': array([2., 4.]), 'y': array(['a', 'b'], dtype='<U1')}

    In frames and numpy arrays NaN means that a value is missing; the array has a null there.
    """

    def __init__(self, batch: Any, where: str) -> None:
        self._where = where
        self._kind = kind_of(batch, where)
        self._index: Any = None
        if self._kind == "pandas":
            if not batch.columns.is_unique:
                raise ConfigError(f"[{where}] several columns of the DataFrame have the same name: {list(batch)}")
            self._index = batch.index
            self._columns: dict[Any, Any] = {name: batch[name] for name in batch.columns}
        elif self._kind == "numpy":
            self._columns = dict(batch)
        else:
            self._columns = {name: batch.column(name) for name in batch.schema.names}
        self._new: dict[str, tuple[Any, bool]] = {}  # arrays that were set; the columns have None there
        self._rows = _rows(batch, self._kind, self._columns)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._columns))

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    @property
    def rows(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> Any:
        """The column as one array. ConfigError if there is none."""
        if name not in self._columns:
            has = ", ".join(map(str, self._columns)) or "none"
            raise ConfigError(f"[{self._where}] there is no column {name!r} in the batch; its columns: {has}")
        if name in self._new:
            return self._new[name][0]
        try:
            return _to_arrow(self._columns[name])
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as error:
            raise ConfigError(f"[{self._where}] the column {name!r} has values of several types: {error}") from error

    def __setitem__(self, name: str, array: Any) -> None:
        """Replaces the column where it stands, or appends it."""
        self.set(name, array)

    def set(self, name: str, array: Any, *, as_lists: bool = False) -> None:
        """As by assignment. `as_lists`: in a frame, the rows of a fixed-size list are lists, not arrays."""
        self._columns[name] = None
        self._new[name] = (array, as_lists)

    def __delitem__(self, name: str) -> None:
        del self._columns[name]
        self._new.pop(name, None)

    def batch(self) -> Any:
        """A batch of the same kind as the one given."""
        made = {name: self._native(*self._new[name]) if name in self._new else self._columns[name] for name in self}
        if self._kind == "numpy":
            return made
        if self._kind == "pandas":
            import pandas

            return pandas.DataFrame(made, index=self._index)
        return _arrow_batch(made, self._kind)

    def _native(self, array: Any, as_lists: bool) -> Any:
        if self._kind == "pandas":
            return _to_series(array, self._index, as_lists)
        return array_to_numpy(array) if self._kind == "numpy" else array


def _arrow_batch(columns: Mapping[Any, Any], kind: str) -> Any:
    table = pyarrow.table(dict(columns))
    if kind == "pyarrow":
        return table
    return pyarrow.RecordBatch.from_arrays([_joined(column) for column in table.columns], schema=table.schema)


def _rows(batch: Any, kind: str, columns: Mapping[Any, Any]) -> int:
    if kind == "pandas":
        return len(batch)
    return len(next(iter(columns.values()), ())) if kind == "numpy" else int(batch.num_rows)


def _to_arrow(column: Any) -> Any:
    if isinstance(column, pyarrow.Array | pyarrow.ChunkedArray):
        return _joined(column)
    if isinstance(column, numpy.ndarray) and column.ndim > 1:
        return pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.ascontiguousarray(column))
    return _joined(pyarrow.array(column, from_pandas=True))


def _joined(column: Any) -> Any:
    if not isinstance(column, pyarrow.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()


def _to_series(array: Any, index: Any, as_lists: bool) -> Any:
    import pandas

    kind = array.type
    is_tensor = isinstance(kind, pyarrow.FixedShapeTensorType) or pyarrow.types.is_fixed_size_list(kind)
    if is_tensor and not as_lists and not array.null_count:
        rows = numpy.empty(len(array), dtype=object)
        for row, value in enumerate(array_to_numpy(array)):
            rows[row] = value
        return pandas.Series(rows, index=index)
    if is_tensor or pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return pandas.Series(array.to_pylist(), index=index, dtype=object)
    series = array.to_pandas()
    if index is not None:
        series.index = index
    return series
