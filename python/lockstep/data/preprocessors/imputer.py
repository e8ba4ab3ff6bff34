"""Preprocessors that fill in missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import is_missing, is_number, plain
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.data.preprocessors._statistics import Counts, Moments, Statistic
from lockstep.errors import ConfigError

_STRATEGIES = ("mean", "most_frequent", "constant")


class SimpleImputer(ColumnPreprocessor):
    """Replaces missing values, null and NaN.

        >>> ds = lockstep.data.from_items([{"x": 1}, {"x": None}, {"x": 2}])
        >>> SimpleImputer(columns=["x"]).fit_transform(ds).take_all()
        [{'x': 1.0}, {'x': 1.5}, {'x': 2.0}]

    A column that a batch does not have at all is added, with the replacement in every row.

    Args:
        columns: the columns to fill.
        strategy: what replaces a missing value. "mean": the mean of the column, which must be numbers, and becomes
            floats; "most_frequent": its most frequent value, of several the smallest; "constant": `fill_value`.
        fill_value: for "constant".
    """

    def __init__(self, columns: Sequence[str], strategy: str = "mean", fill_value: Any = None) -> None:
        self.columns = column_names(columns, "SimpleImputer")
        if strategy not in _STRATEGIES:
            raise ConfigError(
                f"[SimpleImputer] strategy is {strategy!r}, which is not supported; it must be one of "
                f"{', '.join(_STRATEGIES)}"
            )
        if strategy == "constant" and fill_value is None:
            raise ConfigError('[SimpleImputer] `fill_value` must be set for the strategy "constant"')
        self.strategy = strategy
        self.fill_value = fill_value
        self._is_fittable = strategy != "constant"

    def _statistics(self) -> Sequence[Statistic]:
        kind = Moments if self.strategy == "mean" else Counts
        return [kind(column, "SimpleImputer") for column in self.columns]

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        if self.strategy == "mean":
            return {f"mean({each.column})": each.mean() for each in statistics}
        return {f"most_frequent({each.column})": _most_frequent(each.counts) for each in statistics}

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            value = self._replacement(column)
            if column not in columns:
                columns[column] = pyarrow.array([value] * columns.rows, pyarrow.scalar(value).type)
                continue
            array = columns[column]
            columns[column] = self._filled(column, array, value)

    def _replacement(self, column: str) -> Any:
        if self.strategy == "constant":
            return self.fill_value
        value = self.stats_[f"{self.strategy}({column})"]
        if value is None:
            raise ConfigError(f"{self._where(column)} had no values when it was fitted, so there is nothing to fill in")
        return value

    def _filled(self, column: str, array: Any, value: Any) -> Any:
        is_dictionary = pyarrow.types.is_dictionary(array.type)
        array = plain(array)
        if pyarrow.types.is_null(array.type):
            array = array.cast(pyarrow.scalar(value).type)
        elif pyarrow.types.is_integer(array.type) and (self.strategy == "mean" or isinstance(value, float)):
            array = array.cast(pyarrow.float64(), safe=False)
        elif pyarrow.types.is_decimal(array.type) and self.strategy == "mean":
            array = array.cast(pyarrow.float64())
        elif pyarrow.types.is_boolean(array.type) and not isinstance(value, bool) and is_number(_type_of(value)):
            array = array.cast(_type_of(value))
        try:
            replacement = pyarrow.scalar(value, array.type)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise ConfigError(f"{self._where(column)} is {array.type} and cannot be filled with {value!r}") from error
        filled = compute.if_else(is_missing(array), replacement, array)
        return filled.dictionary_encode() if is_dictionary else filled

    def _changes(self, column: str) -> bool:
        return column in self.columns


def _type_of(value: Any) -> Any:
    return pyarrow.scalar(value).type


def _most_frequent(counts: dict[Any, int]) -> Any:
    highest = max(counts.values(), default=0)
    return min((value for value, count in counts.items() if count == highest), default=None)
