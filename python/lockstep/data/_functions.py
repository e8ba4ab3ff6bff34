"""Python functions of users, called for batches or rows of a block."""

from __future__ import annotations

import contextlib
import inspect
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from lockstep import session
from lockstep.data._columns import concatenated, rows_to_table, table_to_rows, to_column, to_table
from lockstep.data._formats import Arrays, converter, empty_batch, to_numpy, writable
from lockstep.data._native import native
from lockstep.errors import ConfigError

FORMATS = ("default", "numpy", "pandas", "pyarrow")
DEFAULT_BATCH_SIZE = 4096
"""Rows of a batch, if nothing is said: smaller ones cost more for the calls than many functions do."""


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
        self._may_change = not zero_copy
        # The function may change the memory of the block, unless that belongs to the user.
        self._is_in_place = self._is_numpy and (zero_copy or not is_borrowed)
        self._convert = to_batch(batch_format, is_borrowed, zero_copy)

    def __call__(self, rows: Any, block: int) -> Any:
        """A table; or `rows` itself, the core's, if the function hands on all its columns."""
        with self._function.named(), self._function.turn():
            arrays: Arrays | None = None
            if self._is_in_place and isinstance(rows, native.Rows):
                arrays = rows.arrays(writable=self._may_change)
            if arrays:  # plain numbers without nulls
                results, untouched, is_same = self._results(rows.num_rows, arrays)
                return rows if is_same else self._joined(results, arrays, untouched, rows)
            table = pyarrow.table(rows)
            whole = as_batch(table)
            if not self._is_numpy:
                return self._joined(self._results_of(whole), None, set(), table)
            arrays = self._convert(whole)
            results, untouched, _ = self._results(whole.num_rows, arrays)
            return self._joined(results, arrays, untouched, table)

    def _joined(self, results: list[Any], arrays: Arrays | None, untouched: set[str], rows: Any) -> pyarrow.Table:
        if not results:  # nothing is no rows, not no columns
            return pyarrow.table(rows).slice(0, 0)
        joined_arrays = _joined_arrays(results, {name: arrays[name] for name in untouched} if arrays else {})
        joined = concatenated(map(to_table, results)) if joined_arrays is None else to_table(joined_arrays)
        # Arrow has integers with nulls, so types that were given as Arrow stay; the core's arrays have no nulls.
        is_arrow = isinstance(results[0], pyarrow.Table | pyarrow.RecordBatch)
        return with_nulls(joined, rows) if isinstance(rows, pyarrow.Table) and not is_arrow else joined

    def _begins(self, rows: int) -> range:
        return range(0, max(1, rows), self._batch_size or max(1, rows))  # once without rows, if there are none

    def _results_of(self, whole: pyarrow.RecordBatch) -> list[Any]:
        """What the function gives for each batch."""
        results: list[Any] = []
        for begin in (begins := self._begins(whole.num_rows)):
            results += _listed(self._function(self._convert(whole.slice(begin, begins.step))))
        return results

    def _results(self, rows: int, arrays: Arrays) -> tuple[list[Any], set[str], bool]:
        """What the function gives for each batch of arrays, the columns that it hands on as it gets them, and whether
        these are all that it gives."""
        results: list[Any] = []
        untouched = set(arrays)
        is_same = True
        names, begins = list(arrays), self._begins(rows)
        # Slices of arrays are quicker made than arrays of slices, and those of one column after the other most quickly.
        pieces = [[column[begin : begin + begins.step] for begin in begins] for column in arrays.values()]
        for given in zip(*pieces, strict=True):
            result = self._function(dict(zip(names, given, strict=True)))  # the function may change the dict
            if type(result) is dict and list(result) == names and all(map(operator.is_, result.values(), given)):
                results.append(result)
                continue
            is_same = False
            more = _listed(result)
            if len(more) != 1 or not isinstance(more[0], Mapping):
                untouched.clear()
            before = dict(zip(names, given, strict=True))
            untouched = {name for name in untouched if more[0].get(name) is before[name]}
            results += more
        return results, untouched, is_same


def _listed(result: Any) -> list[Any]:
    """The batches of a result, which may be a generator."""
    return list(result) if isinstance(result, Iterator) else [result]


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
                made = [row for rows_of_one in made for row in _rows_of(rows_of_one)]
            if not made:  # nothing is no rows, not no columns
                return table.slice(0, 0)
            return rows_to_table(made, "for a row a" if self._kind == "map" else "among the rows a")


def _rows_of(given: Any) -> Iterable[Any]:
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise ConfigError(
            f"[data] the function of flat_map() gave a {type(given).__name__} for a row; it must give a list of rows, "
            "which are dicts, or be a generator of them"
        )
    return given


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
        return lambda batch: {name: writable(array, is_borrowed) for name, array in to_numpy(batch).items()}
    return converter("pyarrow")


def as_batch(table: pyarrow.Table) -> pyarrow.RecordBatch:
    """All rows of the table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_batch(table.schema)


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
