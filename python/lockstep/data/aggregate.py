"""What can be computed of the rows of a data set, or of the rows of each group.

>>> ds = lockstep.data.range(4)
>>> ds.aggregate(Sum("id"), Mean("id"))
{'sum(id)': 6, 'mean(id)': 1.5}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.compute as pc

from lockstep.data._columns import table_to_rows
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


class AggregateFn:
    """An aggregate of your own. An accumulator goes through all rows; those of several parts are merged.

        >>> longest = AggregateFn(
        ...     init=lambda key: 0,
        ...     accumulate_row=lambda most, row: max(most, len(row["text"])),
        ...     merge=max,
        ...     name="longest",
        ... )

    Args:
        init: gives an accumulator, for the key of a group (``None`` without groups).
        merge: of two accumulators.
        accumulate_row: gives the accumulator after one more row, which is a dict.
        accumulate_block: gives it after more rows, which are a pyarrow table; instead of `accumulate_row`.
        finalize: gives the result for the last accumulator; else that is the result.
        name: of the result.
    """

    on: str | None = None
    grouped: tuple[str, Any] | None = None  # what Arrow calls it, and its options
    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made._given = args, kwargs
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), *self._given)  # Arrow's options cannot be pickled

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        accumulate_row: Callable[[Any, Any], Any] | None = None,
        accumulate_block: Callable[[Any, Any], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        if (accumulate_row is None) == (accumulate_block is None):
            raise ConfigError("[data] AggregateFn takes either accumulate_row or accumulate_block")
        self.init = init
        self.merge = merge
        self.accumulate_block = accumulate_block or _by_rows(accumulate_row)
        self.finalize = finalize or (lambda value: value)
        self.name = name or "aggregate"

    def of(self, table: pyarrow.Table, key: Any) -> Any:
        """The result for the rows of one group."""
        return self.finalize(self.accumulate_block(self.init(key), table))


def _again(kind: type[AggregateFn], args: tuple[Any, ...], kwargs: dict[str, Any]) -> AggregateFn:
    return kind(*args, **kwargs)


def _by_rows(accumulate_row: Any) -> Callable[[Any, Any], Any]:
    def accumulate(value: Any, table: pyarrow.Table) -> Any:
        for row in table_to_rows(table):
            value = accumulate_row(value, row)
        return value

    return accumulate


class _OfColumn(AggregateFn):
    """Of the values of one column. A result is ``None`` if there are no values, or if there are nulls that are not
    ignored."""

    def __init__(self, kind: str, on: str, ignore_nulls: bool, alias_name: str | None) -> None:
        if not isinstance(on, str):
            raise ConfigError(f"[data] {kind}() got {on!r}; it needs the name of a column")
        self.on = on
        self._ignore_nulls = ignore_nulls
        super().__init__(
            init=lambda key: None,
            merge=self._of_both,
            accumulate_block=self._accumulated,
            finalize=lambda value: None if value is None or value is _NULL else self._result(value),
            name=alias_name or f"{kind}({on})",
        )

    def _of_both(self, a: Any, b: Any) -> Any:
        if a is _NULL or b is _NULL:
            return _NULL
        return b if a is None else a if b is None else self._merged(a, b)

    def _accumulated(self, value: Any, table: pyarrow.Table) -> Any:
        column = table.column(self.on)
        if value is _NULL or (column.null_count and not self._ignore_nulls):
            return _NULL
        if len(column) == column.null_count:
            return value
        try:
            part = self._part(column)
        except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid, TypeError) as error:
            raise ConfigError(f"[data] {self.name} is not possible: the column is {column.type}") from error
        return self.merge(value, part)

    def _part(self, column: Any) -> Any:
        raise NotImplementedError

    def _merged(self, a: Any, b: Any) -> Any:
        return a + b

    def _result(self, value: Any) -> Any:
        return value


_NULL = object()


class Count(AggregateFn):
    """The number of rows."""

    grouped = "count_all", None

    def __init__(self, alias_name: str | None = None) -> None:
        super().__init__(
            init=lambda key: 0,
            merge=lambda a, b: a + b,
            accumulate_block=lambda count, table: count + table.num_rows,
            name=alias_name or "count()",
        )


class Sum(_OfColumn):
    """The sum of a column."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("sum", on, ignore_nulls, alias_name)
        self.grouped = "sum", pc.ScalarAggregateOptions(skip_nulls=ignore_nulls, min_count=1)

    def _part(self, column: Any) -> Any:
        return pc.sum(column).as_py()


class Min(_OfColumn):
    """The smallest value of a column."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("min", on, ignore_nulls, alias_name)
        self.grouped = "min", pc.ScalarAggregateOptions(skip_nulls=ignore_nulls, min_count=1)

    def _part(self, column: Any) -> Any:
        return pc.min(column).as_py()

    def _merged(self, a: Any, b: Any) -> Any:
        return b if a != a else a if b != b else min(a, b)  # NaN is no value


class Max(_OfColumn):
    """The largest value of a column."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("max", on, ignore_nulls, alias_name)
        self.grouped = "max", pc.ScalarAggregateOptions(skip_nulls=ignore_nulls, min_count=1)

    def _part(self, column: Any) -> Any:
        return pc.max(column).as_py()

    def _merged(self, a: Any, b: Any) -> Any:
        return b if a != a else a if b != b else max(a, b)


class AbsMax(_OfColumn):
    """The largest absolute value of a column."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("abs_max", on, ignore_nulls, alias_name)

    def _part(self, column: Any) -> Any:
        return pc.max(pc.abs(column)).as_py()

    def _merged(self, a: Any, b: Any) -> Any:
        return max(a, b)


class Mean(_OfColumn):
    """The mean of a column."""

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("mean", on, ignore_nulls, alias_name)
        self.grouped = "mean", pc.ScalarAggregateOptions(skip_nulls=ignore_nulls, min_count=1)

    def _part(self, column: Any) -> Any:
        return pc.sum(column).as_py(), len(column) - column.null_count

    def _merged(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]

    def _result(self, value: Any) -> Any:
        return value[0] / value[1]


class Std(_OfColumn):
    """The standard deviation of a column, with `ddof` degrees of freedom less than values."""

    def __init__(self, on: str, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("std", on, ignore_nulls, alias_name)
        self._ddof = ddof
        self.grouped = "stddev", pc.VarianceOptions(ddof=ddof, skip_nulls=ignore_nulls)

    def _part(self, column: Any) -> Any:
        count = len(column) - column.null_count
        return count, pc.mean(column).as_py(), pc.variance(column, ddof=0).as_py() * count

    def _merged(self, a: Any, b: Any) -> Any:
        # Differences to means, not squares of values, so that large values with small differences stay exact.
        count, difference = a[0] + b[0], b[1] - a[1]
        squares = a[2] + b[2] + difference * difference * a[0] * b[0] / count
        return count, a[1] + difference * b[0] / count, squares

    def _result(self, value: Any) -> Any:
        return math.sqrt(value[2] / (value[0] - self._ddof)) if value[0] > self._ddof else None


class Quantile(_OfColumn):
    """A quantile of a column, between values linearly. All values of the column are held in memory."""

    def __init__(self, on: str, q: float = 0.5, ignore_nulls: bool = True, alias_name: str | None = None) -> None:
        super().__init__("quantile", on, ignore_nulls, alias_name)
        if not 0 <= q <= 1:
            raise ConfigError(f"[data] quantile() got q={q!r}; it must be from 0 to 1")
        self._q = q

    def _part(self, column: Any) -> Any:
        return list(column.chunks) if isinstance(column, pyarrow.ChunkedArray) else [column]

    def _result(self, value: Any) -> Any:
        return pc.quantile(pyarrow.chunked_array(value), q=self._q)[0].as_py()


def check(aggregates: Sequence[Any], method: str) -> Sequence[AggregateFn]:
    """The aggregates, if they are some."""
    if not aggregates:
        raise ConfigError(f"[data] {method}() got no aggregates; give at least one, such as Sum('x')")
    for each in aggregates:
        if not isinstance(each, AggregateFn):
            raise ConfigError(f"[data] {method}() got a {type(each).__name__}; it takes aggregates, such as Sum('x')")
    return aggregates
