"""Python functions of users, called for batches or rows of a block."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from lockstep import session
from lockstep.data._columns import concatenated, rows_to_table, table_to_rows, to_column, to_table
from lockstep.data._formats import Arrays, _Unmarked, converter, to_numpy
from lockstep.errors import ConfigError

FORMATS = ("default", "numpy", "pandas", "pyarrow")
DEFAULT_BATCH_SIZE = 1024


class Function:
    """What a user gave: a function, or a class whose instance is called and made once in each process.

    >>> Function("map", str.upper, ()).name
    'map(upper)'
    """

    def __init__(
        self,
        method: str,
        fn: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        constructor_args: Sequence[Any] | None = None,
        constructor_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not callable(fn):
            raise ConfigError(f"[data] {method}() got a {type(fn).__name__}; it must be a function or a class")
        self._is_class = inspect.isclass(fn)
        if self._is_class and not callable(getattr(fn, "__call__", None)):  # noqa: B004
            raise ConfigError(f"[data] {method}() got the class {fn.__name__}, whose instances cannot be called")
        if not self._is_class and (constructor_args or constructor_kwargs):
            raise ConfigError(f"[data] {method}() got fn_constructor_args, but no class whose constructor takes them")
        if self._is_class and "__call__" not in {name for each in fn.__mro__ for name in vars(each)}:
            raise ConfigError(f"[data] {method}() got the class {fn.__name__}, which has no __call__ method")
        self.name = f"{method}({getattr(fn, '__name__', type(fn).__name__)})"
        self._fn = fn
        self._args = tuple(args or ())
        self._kwargs = dict(kwargs or {})
        self._constructor = tuple(constructor_args or ()), dict(constructor_kwargs or {})
        # Objects with state are called by one thread at a time.
        self._has_state = not (inspect.isroutine(fn) or isinstance(fn, numpy.ufunc))
        self._lock = threading.Lock()
        self._instance: Any = None
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_instance": None, "_process": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def turn(self) -> contextlib.AbstractContextManager[Any]:
        """What a thread holds while it calls."""
        return self._lock if self._has_state else contextlib.nullcontext()

    def __call__(self, given: Any) -> Any:
        if not self._is_class:
            return self._fn(given, *self._args, **self._kwargs)
        if self._process != os.getpid():
            args, kwargs = self._constructor
            self._instance = self._fn(*args, **kwargs)
            self._process = os.getpid()
        return self._instance(given, *self._args, **self._kwargs)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Exceptions get a note that names the step. The session has no answers meanwhile: rows must be the same
        whichever rank computes them."""
        before, session._step.name = session._step.name, self.name
        try:
            yield
        except BaseException as error:
            note = f"in the step {self.name} of a data set"
            if hasattr(error, "add_note") and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise
        finally:
            session._step.name = before


class Batches:
    """Calls a function for the batches of a block, and joins what it gives."""

    def __init__(
        self, function: Function, batch_size: int | None, batch_format: str, is_borrowed: bool, zero_copy: bool
    ) -> None:
        self._function = function
        self._batch_size = batch_size
        self._is_numpy = batch_format in ("numpy", "default")
        self._convert = to_batch(batch_format, is_borrowed, zero_copy)

    def __call__(self, rows: Any, block: int) -> pyarrow.Table:
        table = pyarrow.table(rows)
        with self._function.named(), self._function.turn():
            whole = as_batch(table)
            arrays = self._convert(whole) if self._is_numpy else None
            results, untouched = self._results(whole, arrays)
            if not results:  # nothing is no rows, not no columns
                return table.slice(0, 0)
            arrays = _joined_arrays(results, {name: arrays[name] for name in untouched} if arrays else {})
            joined = concatenated(map(to_table, results)) if arrays is None else to_table(arrays)
            # Arrow has integers with nulls, so types that were given as Arrow stay.
            is_arrow = isinstance(results[0], pyarrow.Table | pyarrow.RecordBatch)
            return joined if is_arrow else with_nulls(joined, table)

    def _results(self, whole: pyarrow.RecordBatch, arrays: Arrays | None) -> tuple[list[Any], set[str]]:
        """What the function gives for each batch, and the columns of `arrays` that it hands on as it gets them."""
        size = self._batch_size or max(1, whole.num_rows)
        results: list[Any] = []
        untouched = set(arrays or ())
        for begin in range(0, max(1, whole.num_rows), size):  # once without rows, if there are none
            if arrays is None:
                batch = self._convert(whole.slice(begin, size))
            else:  # slices of arrays are quicker made than arrays of slices
                batch = {name: array[begin : begin + size] for name, array in arrays.items()}
            given = dict(batch) if arrays is not None else {}  # the function may change the batch itself
            result = self._function(batch)
            more = list(result) if isinstance(result, Iterator) else [result]
            if len(more) != 1 or not isinstance(more[0], Mapping):
                untouched.clear()
            untouched = {name for name in untouched if more[0].get(name) is given[name]}
            results += more
        return results, untouched


def _joined_arrays(results: list[Any], whole: Arrays) -> dict[Any, numpy.ndarray[Any, Any]] | None:
    """The columns of all results, if they are dicts of arrays with the same keys; quicker than tables of each. Those in
    `whole` need not be joined."""
    first = results[0]
    if not isinstance(first, Mapping) or not first:
        return None
    for result in results:
        if not isinstance(result, Mapping) or result.keys() != first.keys():
            return None
        lengths = set()
        for array in result.values():
            if not isinstance(array, numpy.ndarray) or array.ndim == 0:
                return None
            lengths.add(len(array))
        if len(lengths) != 1:
            return None
    if len(results) == 1:
        return dict(first)
    for name in first:
        kinds = {result[name].dtype.kind for result in results}
        if len(kinds) > 1 and not kinds <= set("iuf"):  # numpy would make text of numbers
            return None
    try:
        return {
            name: whole[name] if name in whole else numpy.concatenate([result[name] for result in results])
            for name in first
        }
    except (TypeError, ValueError):  # of several shapes or types
        return None


class Rows:
    """Calls a function for the rows of a block."""

    def __init__(self, function: Function, kind: str) -> None:
        self._function = function
        self._kind = kind

    def __call__(self, rows: Any, block: int) -> pyarrow.Table:
        table = pyarrow.table(rows)
        with self._function.named(), self._function.turn():
            if self._kind == "filter":
                return table.filter(numpy.array([bool(self._function(row)) for row in table_to_rows(table)], bool))
            made = [self._function(row) for row in table_to_rows(table)]
            if self._kind == "flat_map":
                made = [row for rows_of_one in made for row in rows_of_one]
            if not made:  # nothing is no rows, not no columns
                return table.slice(0, 0)
            return rows_to_table(made, "for a row a" if self._kind == "map" else "among the rows a")


class NewColumn:
    """Calls a function for a frame of a block; what it gives is a new column."""

    def __init__(self, function: Function, column: str) -> None:
        self._function = function
        self._column = column

    def __call__(self, rows: Any, block: int) -> pyarrow.Table:
        table = pyarrow.table(rows)
        with self._function.named(), self._function.turn():
            values = self._function(_to_frame(as_batch(table)))
            column = to_column(values) if hasattr(values, "__len__") else to_column([values] * table.num_rows)
            if len(column) != table.num_rows:
                raise ConfigError(f"[data] the function gave {len(column)} values for {table.num_rows} rows")
        if self._column in table.schema.names:
            return table.set_column(table.schema.get_field_index(self._column), self._column, column)
        return table.append_column(self._column, column)


def to_batch(batch_format: str | None, is_borrowed: bool, zero_copy: bool) -> Callable[[pyarrow.RecordBatch], Any]:
    """The function that makes batches which a user's function may change, unless `zero_copy`."""
    if batch_format == "pandas":
        return _to_frame
    if batch_format in ("numpy", "default"):
        if zero_copy:
            return to_numpy
        return lambda batch: {name: _writable(array, is_borrowed) for name, array in to_numpy(batch).items()}
    return converter("pyarrow")


def as_batch(table: pyarrow.Table) -> pyarrow.RecordBatch:
    """All rows of the table as one batch."""
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pyarrow.RecordBatch.from_arrays([_empty(field.type) for field in table.schema], schema=table.schema)


def _empty(kind: pyarrow.DataType) -> pyarrow.Array:
    if isinstance(kind, pyarrow.ExtensionType | pyarrow.BaseExtensionType):
        return pyarrow.ExtensionArray.from_storage(kind, pyarrow.array([], kind.storage_type))
    return pyarrow.array([], kind)


def with_nulls(table: pyarrow.Table, given: pyarrow.Table) -> pyarrow.Table:
    """Integers with nulls are floats with NaN in numpy and pandas. A column that a function hands on as it got it has
    its own type again, so that blocks with and without nulls have the same types."""
    for number, field in enumerate(table.schema):
        before = given.schema.get_field_index(field.name)
        if before < 0 or table.num_rows != given.num_rows or not pyarrow.types.is_floating(field.type):
            continue
        column = given.column(before)
        if not pyarrow.types.is_integer(column.type) or not column.null_count:
            continue
        if numpy.array_equal(table.column(number).to_numpy(), column.to_numpy(), equal_nan=True):
            table = table.set_column(number, field.name, column)
    return table


def _to_frame(batch: pyarrow.RecordBatch) -> Any:
    frame = converter("pandas")(batch)
    for name in frame.columns:
        values = frame[name].values
        if isinstance(values, numpy.ndarray) and not values.flags.writeable:
            return frame.copy()
    return frame


def _writable(array: numpy.ndarray[Any, Any], is_borrowed: bool) -> numpy.ndarray[Any, Any]:
    if array.flags.writeable:
        return array
    # Nobody else uses these rows of the memory, which Arrow marks as read-only.
    return array.copy() if is_borrowed else numpy.asarray(_Unmarked(array))
