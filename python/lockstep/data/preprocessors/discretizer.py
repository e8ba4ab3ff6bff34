"""Preprocessors that put numbers into bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import Floats, doubles
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.data.preprocessors._statistics import Extent, Statistic
from lockstep.data.preprocessors.encoder import dictionary
from lockstep.errors import ConfigError

_WIDER = 0.001  # how far the outermost bin reaches beyond the data, which is part of it then, as in pandas.cut


class _Discretizer(ColumnPreprocessor):
    """Replaces each number by the number of its bin, from 0. What is in no bin, or missing, becomes null."""

    def __init__(
        self,
        columns: Sequence[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
    ) -> None:
        owner = type(self).__name__
        self.columns = column_names(columns, owner)
        if duplicates not in ("raise", "drop"):
            raise ConfigError(f"[{owner}] duplicates is {duplicates!r}; it must be 'raise' or 'drop'")
        if isinstance(bins, Mapping):
            missing = [column for column in self.columns if column not in bins]
            if missing:
                raise ConfigError(f"[{owner}] bins has nothing for the columns {missing}")
        self.bins = bins
        self.right = right
        self.include_lowest = include_lowest
        self.duplicates = duplicates
        self.dtypes = None if dtypes is None else dict(dtypes)

    def _bins_of(self, column: str) -> Any:
        return self.bins[column] if isinstance(self.bins, Mapping) else self.bins

    def _edges_of(self, column: str) -> Sequence[float]:
        raise NotImplementedError

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            values = doubles(columns[column], self._where(column)).to_numpy(zero_copy_only=False)
            numbers = self._numbers(values, self._edges(column))
            columns[column] = self._typed(numbers, column)

    def _numbers(self, values: Floats, edges: Floats) -> Any:
        found = edges.searchsorted(values, side="left" if self.right else "right")
        if self.include_lowest:
            found[values == edges[0]] = 1
        outside = (found == 0) | (found == len(edges)) | numpy.isnan(values)
        return pyarrow.array(found.astype(numpy.int64) - 1, mask=outside)

    def _edges(self, column: str) -> Floats:
        edges = numpy.asarray(self._edges_of(column), numpy.float64)
        if len(edges) < 2 or (numpy.diff(edges) < 0).any():
            raise ConfigError(
                f"{self._where(column)} has the bins {edges.tolist()}; they must be two or more, and grow"
            )
        distinct = numpy.unique(edges)
        if len(distinct) < len(edges) and self.duplicates == "raise":
            raise ConfigError(
                f"{self._where(column)} has bins with equal edges: {edges.tolist()}; drop them with duplicates='drop'"
            )
        return distinct

    def _typed(self, numbers: Any, column: str) -> Any:
        dtype = (self.dtypes or {}).get(column)
        if dtype is None:
            return numbers
        if not hasattr(dtype, "categories"):
            return numbers.cast(pyarrow.from_numpy_dtype(numpy.dtype(dtype)))
        return dictionary(numbers, pyarrow.array(list(dtype.categories)), bool(dtype.ordered))

    def _changes(self, column: str) -> bool:
        return column in self.columns


class CustomKBinsDiscretizer(_Discretizer):
    """Replaces each number by the number of the bin that it is in, for given bins. It needs no fit.

        >>> discretizer = CustomKBinsDiscretizer(columns=["x"], bins=[0, 1, 4, 10])
        >>> discretizer.transform_batch({"x": numpy.array([0.2, 1.0, 3.0, 10.0])})
        {'x': array([0, 0, 1, 2])}

    Numbers outside the bins become null (NaN in pandas and numpy).

    Args:
        columns: the columns to put into bins.
        bins: the edges, one more than there are bins; or a dict with the edges for each column.
        right: whether the right edge belongs to a bin; else the left one.
        include_lowest: whether the first edge belongs to the first bin even so.
        duplicates: what to do about equal edges: "raise" an error or "drop" them.
        dtypes: by column, an integer type, or a ``pandas.CategoricalDtype`` whose categories name the bins.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        bins: Iterable[float] | Mapping[str, Iterable[float]],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
    ) -> None:
        given = {name: list(each) for name, each in bins.items()} if isinstance(bins, Mapping) else list(bins)
        super().__init__(
            columns, given, right=right, include_lowest=include_lowest, duplicates=duplicates, dtypes=dtypes
        )

    def _edges_of(self, column: str) -> Sequence[float]:
        edges: Sequence[float] = self._bins_of(column)
        return edges


class UniformKBinsDiscretizer(_Discretizer):
    """Replaces each number by the number of the bin that it is in, for bins of equal width over the column's extent.

        >>> ds = lockstep.data.from_items([{"x": x} for x in (0, 1, 5, 10)])
        >>> UniformKBinsDiscretizer(columns=["x"], bins=2).fit_transform(ds).take_all()
        [{'x': 0}, {'x': 0}, {'x': 0}, {'x': 1}]

    Numbers outside the extent of the fitted data become null (NaN in pandas and numpy).

    Args:
        columns: the columns to put into bins.
        bins: how many; or a dict with the number for each column.
        right: whether the right edge belongs to a bin; else the left one.
        include_lowest: whether the first edge belongs to the first bin even so.
        duplicates: what to do about equal edges: "raise" an error or "drop" them.
        dtypes: by column, an integer type, or a ``pandas.CategoricalDtype`` whose categories name the bins.
    """

    def __init__(
        self,
        columns: Sequence[str],
        bins: int | Mapping[str, int],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            columns, bins, right=right, include_lowest=include_lowest, duplicates=duplicates, dtypes=dtypes
        )
        for column in self.columns:
            count = self._bins_of(column)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ConfigError(f"{self._where(column)} shall have {count!r} bins; it must be an int of at least 1")

    def _statistics(self) -> Sequence[Statistic]:
        return [Extent(column, "UniformKBinsDiscretizer") for column in self.columns]

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        return {each.column: self._uniform(each.low, each.high, self._bins_of(each.column)) for each in statistics}

    def _uniform(self, low: float | None, high: float | None, count: int) -> list[float]:
        if low is None or high is None:
            low = high = 0.0
        if low == high:
            margin = _WIDER * (abs(low) or 1.0)
            edges = numpy.linspace(low - margin, high + margin, count + 1)
        else:
            edges = numpy.linspace(low, high, count + 1)
            margin = _WIDER * (high - low)
            if self.right:
                edges[0] -= margin
            else:
                edges[-1] += margin
        return [float(edge) for edge in edges]

    def _edges_of(self, column: str) -> Sequence[float]:
        edges: Sequence[float] = self.stats_[column]
        return edges
