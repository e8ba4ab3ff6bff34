"""Preprocessors that move and stretch the numbers of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import Floats, mapped
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.data.preprocessors._statistics import Extent, Moments, Quantiles, Statistic
from lockstep.errors import ConfigError


class _Scaler(ColumnPreprocessor):
    """``(value - centre) / scale``. A scale of 0 divides by 1. Missing values stay missing and do not count."""

    _statistic: type[Statistic]

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = column_names(columns, type(self).__name__)

    def _statistics(self) -> Sequence[Statistic]:
        return [self._statistic(column, type(self).__name__) for column in self.columns]

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            centre, scale = self._centre_and_scale(column)

            def scaled(values: Floats, centre: Any = centre, scale: Any = scale) -> Floats:
                if centre is None or scale is None:  # there were no values to fit to
                    return numpy.full_like(values, numpy.nan)
                result: Floats = values - centre
                result /= scale or 1.0
                return result

            columns[column] = mapped(columns[column], self._where(column), scaled)

    def _centre_and_scale(self, column: str) -> tuple[float | None, float | None]:
        raise NotImplementedError

    def _changes(self, column: str) -> bool:
        return column in self.columns


class StandardScaler(_Scaler):
    """Makes the mean 0 and the standard deviation (ddof=0) 1.

        >>> ds = lockstep.data.from_items([{"x": 1}, {"x": 3}])
        >>> StandardScaler(columns=["x"]).fit_transform(ds).take_all()
        [{'x': -1.0}, {'x': 1.0}]

    Args:
        columns: the columns to scale, each by its own mean and deviation.
    """

    _statistic = Moments

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        means = {f"mean({each.column})": each.mean() for each in statistics}
        return means | {f"std({each.column})": each.deviation() for each in statistics}

    def _centre_and_scale(self, column: str) -> tuple[float | None, float | None]:
        return self.stats_[f"mean({column})"], self.stats_[f"std({column})"]


class MinMaxScaler(_Scaler):
    """Makes the smallest value 0 and the largest 1.

        >>> ds = lockstep.data.from_items([{"x": 1}, {"x": 2}, {"x": 5}])
        >>> MinMaxScaler(columns=["x"]).fit_transform(ds).take_all()
        [{'x': 0.0}, {'x': 0.25}, {'x': 1.0}]

    Args:
        columns: the columns to scale, each by its own extent.
    """

    _statistic = Extent

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        lows = {f"min({each.column})": each.low for each in statistics}
        return lows | {f"max({each.column})": each.high for each in statistics}

    def _centre_and_scale(self, column: str) -> tuple[float | None, float | None]:
        low, high = self.stats_[f"min({column})"], self.stats_[f"max({column})"]
        return low, None if low is None else high - low


class MaxAbsScaler(_Scaler):
    """Divides by the largest absolute value. Zeros stay zeros.

        >>> ds = lockstep.data.from_items([{"x": -4}, {"x": 2}])
        >>> MaxAbsScaler(columns=["x"]).fit_transform(ds).take_all()
        [{'x': -1.0}, {'x': 0.5}]

    Args:
        columns: the columns to scale, each by its own largest value.
    """

    _statistic = Extent

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        return {
            f"abs_max({each.column})": None if each.low is None else max(abs(each.low), abs(each.high))
            for each in statistics
        }

    def _centre_and_scale(self, column: str) -> tuple[float | None, float | None]:
        return 0.0, self.stats_[f"abs_max({column})"]


class RobustScaler(_Scaler):
    """Makes the median 0 and the distance between two quantiles 1, so that few extreme values have little effect.

        >>> ds = lockstep.data.from_items([{"x": x} for x in (1, 2, 3, 4, 500)])
        >>> RobustScaler(columns=["x"]).fit_transform(ds).take_all()
        [{'x': -1.0}, {'x': -0.5}, {'x': 0.0}, {'x': 0.5}, {'x': 248.5}]

    Quantiles are exact, and interpolated between two values. ``fit`` holds the columns in memory.

    Args:
        columns: the columns to scale, each by its own quantiles.
        quantile_range: the two quantiles, from 0 to 1.
    """

    _statistic = Quantiles

    def __init__(self, columns: Sequence[str], quantile_range: tuple[float, float] = (0.25, 0.75)) -> None:
        super().__init__(columns)
        low, high = quantile_range
        if not 0 <= low <= high <= 1:
            raise ConfigError(
                f"[RobustScaler] quantile_range is {quantile_range}; it must be two numbers from 0 to 1, "
                "the smaller one first"
            )
        self.quantile_range = (low, high)

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        low, high = self.quantile_range
        kept: dict[str, Any] = {}
        for each in statistics:
            found = each.at([low, 0.5, high])
            names = ("low_quantile", "median", "high_quantile")
            kept |= {f"{name}({each.column})": value for name, value in zip(names, found, strict=True)}
        return kept

    def _centre_and_scale(self, column: str) -> tuple[float | None, float | None]:
        median, low = self.stats_[f"median({column})"], self.stats_[f"low_quantile({column})"]
        return median, None if median is None else self.stats_[f"high_quantile({column})"] - low
