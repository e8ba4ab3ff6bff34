"""The rows of a data set by the values of some columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
import pyarrow.compute as pc

from lockstep.data._columns import concatenated, to_column, to_table
from lockstep.data._functions import FORMATS, Function, as_batch, to_batch
from lockstep.data._plans import step
from lockstep.data.aggregate import AggregateFn, Count, Max, Mean, Min, Std, Sum, check
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset


class GroupedData:
    """The rows of a data set in groups. Made by :meth:`Dataset.groupby`.

        >>> ds = lockstep.data.from_items([{"k": n % 2, "x": n} for n in range(4)])
        >>> ds.groupby("k").mean("x").take_all()
        [{'k': 0, 'mean(x)': 1.0}, {'k': 1, 'mean(x)': 2.0}]

    Methods give data sets with one row per group, sorted by the key; a null is a key of its own, the last one. They run
    when the result is first needed, with all rows in memory, but only the columns that are needed.
    """

    def __init__(self, dataset: Dataset, keys: list[str]) -> None:
        self._dataset = dataset
        self._keys = keys

    def __repr__(self) -> str:
        return f"GroupedData(key={self._keys!r})\n  {self._dataset!r}"

    def aggregate(self, *aggs: AggregateFn) -> Dataset:
        """A column per aggregate, as ``sum(x)``, beside the keys."""
        check(aggs, "aggregate")
        return self._dataset._grouped(self._keys, tuple(aggs))

    agg = aggregate

    def count(self) -> Dataset:
        """The number of rows of each group, in the column ``count()``."""
        return self.aggregate(Count())

    def sum(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """The sums of columns: all that hold numbers, if none is named."""
        return self._of("sum", on, lambda name: Sum(name, ignore_nulls))

    def min(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """The smallest values of columns."""
        return self._of("min", on, lambda name: Min(name, ignore_nulls))

    def max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """The largest values of columns."""
        return self._of("max", on, lambda name: Max(name, ignore_nulls))

    def mean(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """The means of columns."""
        return self._of("mean", on, lambda name: Mean(name, ignore_nulls))

    def std(self, on: str | Sequence[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> Dataset:
        """The standard deviations of columns."""
        return self._of("std", on, lambda name: Std(name, ddof, ignore_nulls))

    def map_groups(
        self, fn: Callable[..., Any], *, compute: Any = None, batch_format: str = "default", **options: Any
    ) -> Dataset:
        """What a function gives for the rows of each group, which are one batch; see :meth:`Dataset.map_batches`.

        >>> ds = lockstep.data.from_items([{"k": n % 2, "x": n} for n in range(4)])
        >>> ds.groupby("k").map_groups(lambda group: {"first": group["x"][:1]}).take_all()
        [{'first': 0}, {'first': 1}]
        """
        if batch_format not in FORMATS:
            raise ConfigError(f"[data] batch_format is {batch_format!r}; it must be one of {', '.join(FORMATS)}")
        return self._dataset._mapped_groups(self._keys, fn, batch_format, options)

    def _of(self, method: str, on: str | Sequence[str] | None, make: Any) -> Dataset:
        from lockstep.data._aggregates import columns_for

        return self.aggregate(*[make(name) for name in columns_for(self._dataset, method, on, self._keys)])


class Groups:
    """The methods of :class:`~lockstep.data.Dataset` behind :class:`GroupedData`."""

    @step
    def _grouped(self, keys: list[str], aggs: tuple[AggregateFn, ...]) -> Dataset:
        ds: Dataset = self  # type: ignore[assignment]
        if not any(each.on is None and each.grouped is None for each in aggs):
            names = list(dict.fromkeys([*keys, *(each.on for each in aggs if each.on is not None)]))
            ds._check_columns("aggregate", names)
            ds = ds.select_columns(names) if names else ds
        text = ", ".join(each.name for each in aggs)
        return ds._new(
            ds._native.whole(
                lambda rows: aggregated(pyarrow.table(rows), keys, aggs),
                description=f"groupby: {', '.join(keys) or 'all rows'}; {text} (in memory)",
            )
        )

    @step
    def _mapped_groups(self, keys: list[str], fn: Any, batch_format: str, options: dict[str, Any]) -> Dataset:
        from lockstep.data._steps import row_function

        ds: Dataset = self  # type: ignore[assignment]
        function = row_function("map_groups", fn, dict(options))
        return ds._new(
            ds._native.whole(
                lambda rows: mapped(pyarrow.table(rows), keys, function, batch_format),
                description=f"groupby: {', '.join(keys) or 'all rows'}; {function.name} (in memory)",
            )
        )


def aggregated(table: pyarrow.Table, keys: list[str], aggs: Sequence[AggregateFn]) -> pyarrow.Table:
    """One row per group: the keys, then the aggregates."""
    known = [each for each in aggs if each.grouped is not None]
    columns: dict[str, Any] = {}
    if keys and len(known) == len(aggs):
        calls = []
        for each in known:
            kind, options = each.grouped or ("", None)
            calls.append(([] if each.on is None else each.on, kind, options))
        try:
            result = table.group_by(keys).aggregate(calls)
        except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid) as error:
            raise ConfigError(f"[data] groupby({', '.join(keys)}) is not possible: {error}") from error
        columns = {name: result.column(name) for name in keys}
        # Arrow names results by column and function, of which there may be equal ones; their order is as asked for.
        others = [n for n in range(result.num_columns) if n not in {result.column_names.index(name) for name in keys}]
        for number, each in zip(others, aggs, strict=True):
            columns[_free(each.name, columns)] = result.column(number)
        return pyarrow.table(columns).sort_by([(name, "ascending") for name in keys])
    groups = list(_groups(table, keys))
    for number, name in enumerate(keys):
        columns[name] = pyarrow.array([key[number] for key, _ in groups], table.schema.field(name).type)
    for each in aggs:
        values = [each.of(group, key[0] if len(key) == 1 else key or None) for key, group in groups]
        columns[_free(each.name, columns)] = to_column(values)
    return pyarrow.table(columns)


def mapped(table: pyarrow.Table, keys: list[str], function: Function, batch_format: str) -> pyarrow.Table:
    """What the function gives for each group."""
    convert = to_batch(batch_format, True, False)
    tables = []
    with function.named(), function.turn():
        for _, group in _groups(table, keys):
            result = function(convert(as_batch(group)))
            tables += [to_table(each) for each in (result if isinstance(result, Iterator) else [result])]
    return concatenated(tables) if tables else table


def _groups(table: pyarrow.Table, keys: list[str]) -> Iterator[tuple[tuple[Any, ...], pyarrow.Table]]:
    """The key and the rows of each group, by key."""
    if not table.num_rows:
        return
    if not keys:
        yield (), table
        return
    table = table.sort_by([(name, "ascending") for name in keys]).combine_chunks()
    is_new = numpy.zeros(table.num_rows, bool)
    is_new[0] = True
    for name in keys:
        column = table.column(name).combine_chunks()
        codes = pc.fill_null(column.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
        is_new[1:] |= codes[1:] != codes[:-1]
    begins = [*numpy.flatnonzero(is_new).tolist(), table.num_rows]
    for begin, end in itertools.pairwise(begins):
        yield tuple(table.column(name)[begin].as_py() for name in keys), table.slice(begin, end - begin)


def _free(name: str, taken: dict[str, Any]) -> str:
    number = 2
    free = name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free
