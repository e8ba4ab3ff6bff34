"""The methods of data sets that compute something of all rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute as pc

from lockstep.data.aggregate import AbsMax, AggregateFn, Max, Mean, Min, Std, Sum, check
from lockstep.data.grouped_data import GroupedData
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset


class Aggregates:
    """Blocks are read one after the other, and only the columns that are needed; see
    :class:`~lockstep.data.Dataset`."""

    def aggregate(self, *aggs: AggregateFn) -> dict[str, Any] | None:
        """The results by name, as ``{"sum(x)": 3.0}``; ``None`` if there are no rows. For what there is, see
        :mod:`lockstep.data.aggregate`."""
        check(aggs, "aggregate")
        ds = self._with_columns_of(aggs)
        values = [each.init(None) for each in aggs]
        has_rows = False
        for table in ds._tables("aggregate"):
            has_rows = True
            values = [
                each.merge(value, each.accumulate_block(each.init(None), table))
                for each, value in zip(aggs, values, strict=True)
            ]
        if not has_rows:
            return None
        return {each.name: each.finalize(value) for each, value in zip(aggs, values, strict=True)}

    def sum(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The sum of a column, or a dict of the sums of several: all that hold numbers, if none is named.

        >>> lockstep.data.range(5).sum("id")
        10
        """
        return self._of_columns("sum", on, lambda name: Sum(name, ignore_nulls))

    def min(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The smallest values; see :meth:`sum`."""
        return self._of_columns("min", on, lambda name: Min(name, ignore_nulls))

    def max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The largest values; see :meth:`sum`."""
        return self._of_columns("max", on, lambda name: Max(name, ignore_nulls))

    def abs_max(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The largest absolute values; see :meth:`sum`."""
        return self._of_columns("abs_max", on, lambda name: AbsMax(name, ignore_nulls))

    def mean(self, on: str | Sequence[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The means; see :meth:`sum`."""
        return self._of_columns("mean", on, lambda name: Mean(name, ignore_nulls))

    def std(self, on: str | Sequence[str] | None = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        """The standard deviations, with `ddof` degrees of freedom less than values; see :meth:`sum`."""
        return self._of_columns("std", on, lambda name: Std(name, ddof, ignore_nulls))

    def unique(self, column: str) -> list[Any]:
        """The different values of a column, sorted if they can be; a null is last.

        >>> lockstep.data.from_items([3, 1, 3]).unique("item")
        [1, 3]
        """
        ds: Dataset = self  # type: ignore[assignment]
        found: dict[Any, None] = {}
        for table in ds.select_columns(column)._tables("unique"):
            try:
                found.update(dict.fromkeys(pc.unique(table.column(0)).to_pylist()))
            except (pyarrow.ArrowNotImplementedError, TypeError) as error:
                raise ConfigError(
                    f"[data] unique() is not possible for {column!r}, which is {table[0].type}"
                ) from error
        nulls = [None] if None in found else []
        values = [value for value in found if value is not None]
        try:
            return sorted(values) + nulls
        except TypeError:
            return values + nulls

    def groupby(self, key: str | Sequence[str] | None) -> GroupedData:
        """The rows by the values of one or more columns; see :class:`~lockstep.data.grouped_data.GroupedData`.

        >>> lockstep.data.from_items([{"k": 1, "x": 2}, {"k": 1, "x": 3}]).groupby("k").sum("x").take_all()
        [{'k': 1, 'sum(x)': 5}]
        """
        ds: Dataset = self  # type: ignore[assignment]
        if callable(key):
            raise ConfigError("[data] groupby() got a function; name a column, which map() or add_column() can make")
        keys = [] if key is None else [key] if isinstance(key, str) else list(key)
        ds._check_columns("groupby", keys)
        return GroupedData(ds, keys)

    def _of_columns(self, method: str, on: str | Sequence[str] | None, make: Any) -> Any:
        ds: Dataset = self  # type: ignore[assignment]
        names = columns_for(ds, method, on)
        results = self.aggregate(*[make(name) for name in names])
        if len(names) == 1:
            return None if results is None else next(iter(results.values()))
        return dict.fromkeys([make(name).name for name in names]) if results is None else results

    def _with_columns_of(self, aggs: Sequence[AggregateFn]) -> Dataset:
        ds: Dataset = self  # type: ignore[assignment]
        names = list(dict.fromkeys(each.on for each in aggs if each.on is not None))
        ds._check_columns("aggregate", names)
        # An aggregate of one's own may look at any column; a count at none, but rows need one.
        whole = any(each.on is None and each.grouped is None for each in aggs)
        return ds if whole or not names else ds.select_columns(names)

    def _tables(self, step: str) -> Iterator[pyarrow.Table]:
        ds: Dataset = self  # type: ignore[assignment]
        return (pyarrow.Table.from_batches([batch]) for batch in ds._record_batches(step))


def columns_for(ds: Dataset, method: str, on: str | Sequence[str] | None, leave_out: Sequence[str] = ()) -> list[str]:
    """The columns that an aggregate is of: those that are named, else all that hold numbers."""
    if on is not None:
        names = [on] if isinstance(on, str) else list(on)
        ds._check_columns(method, names)
        if not names:
            raise ConfigError(f"[data] {method}() got no columns; name at least one")
        return names
    names = [field.name for field in ds.schema() if _is_number(field.type) and field.name not in leave_out]
    if not names:
        raise ConfigError(f"[data] {method}() needs columns with numbers; the columns are {', '.join(ds.columns())}")
    return names


def _is_number(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
