"""``ray.data.aggregate``. Up to Ray 2.0, aggregates are also of rows that are no dicts, and of functions of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep.as_ray._rows import ITEM, PLAIN, TENSOR, of_plain, plain, to_row
from lockstep.data import aggregate
from lockstep.data.aggregate import AggregateFn, Count

if TYPE_CHECKING:
    from lockstep.as_ray._dataset import RayDataset

_VALUE = "value"
"""The column of a row that is no dict, beside other columns."""


def _of_rows(kind: Any) -> Any:
    class OfRows(kind):  # type: ignore[misc]
        """`on` is a column, a function of a row, or nothing: the rows themselves, which are numbers."""

        core = kind

        def __init__(self, on: Any = None, *args: Any, **kwargs: Any) -> None:
            self.given: tuple[Any, tuple[Any, ...], dict[str, Any]] = on, args, kwargs
            super().__init__(on if isinstance(on, str) else ITEM, *args, **kwargs)

    OfRows.__name__ = OfRows.__qualname__ = kind.__name__
    return OfRows


class _OwnOfRows(AggregateFn):
    """Rows may be of any kind."""

    def __init__(self, init: Any, merge: Any, accumulate_row: Any = None, *args: Any, **kwargs: Any) -> None:
        def of_any(value: Any, row: dict[str, Any]) -> Any:
            return accumulate_row(value, _value_of(row))

        super().__init__(init, merge, None if accumulate_row is None else of_any, *args, **kwargs)


def _value_of(row: dict[str, Any]) -> Any:
    for name in (ITEM, TENSOR, _VALUE):
        if name in row:
            return of_plain(row[name])
    return row


def prepared(
    dataset: RayDataset, aggs: Sequence[Any], key: Callable[[Any], Any] | None = None
) -> tuple[Any, list[Any]]:
    """A data set with columns for all that the aggregates are of, and for the key, and the core's aggregates."""
    functions: dict[str, Callable[[Any], Any]] = {} if key is None else {"key": key}
    for number, each in enumerate(aggs):
        if callable(_on(each)):
            functions[f"on_{number}"] = _on(each)
    made = []
    for number, each in enumerate(aggs):
        if not hasattr(each, "given"):
            made.append(each)
            continue
        on, args, kwargs = each.given
        row = _VALUE if functions else ITEM
        made.append(each.core(row if on is None else f"on_{number}" if callable(on) else on, *args, **kwargs))
    if not functions:
        return dataset, made

    def with_columns(row: Any) -> dict[str, Any]:
        kept = {_VALUE: plain(row)} if key is not None or ITEM in to_row(row) else dict(row)
        return {**kept, **{name: function(row) for name, function in functions.items()}}

    return dataset.map(with_columns), made


def _on(agg: Any) -> Any:
    return agg.given[0] if hasattr(agg, "given") else None


if PLAIN:
    AggregateFn = _OwnOfRows  # type: ignore[misc]
    AbsMax, Max, Mean, Min, Quantile, Std, Sum = map(
        _of_rows,
        (
            aggregate.AbsMax,
            aggregate.Max,
            aggregate.Mean,
            aggregate.Min,
            aggregate.Quantile,
            aggregate.Std,
            aggregate.Sum,
        ),
    )
else:
    from lockstep.data.aggregate import AbsMax, Max, Mean, Min, Quantile, Std, Sum

__all__ = ["AbsMax", "AggregateFn", "Count", "Max", "Mean", "Min", "Quantile", "Std", "Sum"]
