"""Statistics of columns, gathered in one pass over a data set, batch by batch."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
import pyarrow.compute as compute

from lockstep.data._progress import Progress
from lockstep.data.preprocessors._arrays import doubles, hashable, is_list, known, plain

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

_BATCH_ROWS = 65_536


class Statistic(abc.ABC):
    """Of one column. Missing values, null and NaN, do not count."""

    def __init__(self, column: str, owner: str) -> None:
        self.column = column
        self._where = f"[{owner}] the column {column!r}"

    @abc.abstractmethod
    def update(self, array: Any) -> None:
        """Takes in the next rows."""


def gather(ds: Dataset, statistics: Iterable[Statistic], owner: str) -> None:
    """Reads the columns of the statistics once."""
    wanted = list(statistics)
    columns = list(dict.fromkeys(statistic.column for statistic in wanted))
    if not columns:
        return
    batches = ds.select_columns(columns).iter_batches(batch_size=_BATCH_ROWS, batch_format="pyarrow")
    total = ds.count() if ds._native.is_counted() else None  # counting could take as long as the fit
    with Progress(f"fit {owner}", total) as progress:
        for table in batches:
            arrays = {name: table.column(name).combine_chunks() for name in columns}
            for statistic in wanted:
                statistic.update(arrays[statistic.column])
            progress.add(table.num_rows)


class Moments(Statistic):
    """Mean and variance. Those of each batch are merged (Chan), so that no sum grows large and loses digits."""

    def __init__(self, column: str, owner: str) -> None:
        super().__init__(column, owner)
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0  # the sum of squared distances from the mean
        self._extent = Extent(column, owner)

    def update(self, array: Any) -> None:
        values = known(doubles(array, self._where))
        count = len(values)
        if not count:
            return
        self._extent.update(values)
        mean = compute.mean(values).as_py()
        squares = compute.variance(values, ddof=0).as_py() * count
        total = self._count + count
        distance = mean - self._mean
        self._mean += distance * (count / total)
        self._squares += squares + distance * distance * (self._count * (count / total))
        self._count = total

    def mean(self) -> float | None:
        """None if all values are missing."""
        if self._is_constant():  # the mean of equal numbers may be rounded
            return self._extent.low
        return self._mean if self._count else None

    def deviation(self) -> float | None:
        """The standard deviation of the values themselves (ddof=0)."""
        if self._is_constant():
            return 0.0
        return math.sqrt(self._squares / self._count) if self._count else None

    def _is_constant(self) -> bool:
        return self._count > 0 and self._extent.low == self._extent.high


class Extent(Statistic):
    """The smallest and the largest value; None if all are missing."""

    def __init__(self, column: str, owner: str) -> None:
        super().__init__(column, owner)
        self.low: float | None = None
        self.high: float | None = None

    def update(self, array: Any) -> None:
        values = known(doubles(array, self._where))
        if not len(values):
            return
        found = compute.min_max(values).as_py()
        self.low = found["min"] if self.low is None else min(self.low, found["min"])
        self.high = found["max"] if self.high is None else max(self.high, found["max"])


class Quantiles(Statistic):
    """Exact quantiles. They need the whole column at once, so its numbers stay in memory: 8 bytes each."""

    def __init__(self, column: str, owner: str) -> None:
        super().__init__(column, owner)
        self._parts: list[Any] = []

    def update(self, array: Any) -> None:
        values = known(doubles(array, self._where))
        if len(values):
            self._parts.append(values)

    def at(self, points: Sequence[float]) -> list[float | None]:
        """The quantiles at these points, from 0 to 1, interpolated linearly between two values."""
        if not self._parts:
            return [None] * len(points)
        values = pyarrow.chunked_array(self._parts).to_numpy()
        return [float(each) for each in numpy.quantile(values, points)]


class Counts(Statistic):
    """How often each value occurs, by the order of first occurrence."""

    def __init__(
        self,
        column: str,
        owner: str,
        *,
        by_element: bool = False,
        prepare: Callable[[Any], Any] | None = None,
    ) -> None:
        """`by_element`: the elements of lists count, not the lists. `prepare` makes the array to count of a batch."""
        super().__init__(column, owner)
        self.counts: dict[Any, int] = {}
        self.has_missing = False
        self._by_element = by_element
        self._prepare = prepare

    def update(self, array: Any) -> None:
        values = plain(array if self._prepare is None else self._prepare(array))
        if is_list(values.type) and self._by_element:
            self.has_missing |= values.null_count > 0
            values = plain(values.flatten())
        present = known(values)
        self.has_missing |= len(present) < len(values)
        for value, count in _counted(present):
            self.counts[value] = self.counts.get(value, 0) + count

    def most_common(self, count: int | None = None) -> list[Any]:
        """The values from the most frequent to the least; at equal counts the one that occurred first."""
        ordered = sorted(self.counts, key=lambda value: -self.counts[value])
        return ordered if count is None else ordered[:count]


def _counted(values: Any) -> Iterable[tuple[Any, int]]:
    if is_list(values.type):
        return ((hashable(value), 1) for value in values.to_pylist())
    counted = compute.value_counts(values)
    return zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
