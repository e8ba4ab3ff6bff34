"""Preprocessors that change the shape of a distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import Floats, mapped
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.errors import ConfigError


def _yeo_johnson(values: Floats, power: float) -> Floats:
    result = numpy.empty_like(values)
    is_low = values < 0
    high, low = values[~is_low], values[is_low]
    result[~is_low] = numpy.log1p(high) if power == 0 else ((high + 1) ** power - 1) / power
    result[is_low] = -numpy.log1p(-low) if power == 2 else -((1 - low) ** (2 - power) - 1) / (2 - power)
    return result


def _box_cox(values: Floats, power: float) -> Floats:
    return numpy.log(values) if power == 0 else (values**power - 1) / power


_METHODS = {"yeo-johnson": _yeo_johnson, "box-cox": _box_cox}


class PowerTransformer(ColumnPreprocessor):
    """Applies a power transform, which can make numbers more like a normal distribution. It needs no fit.

        >>> PowerTransformer(columns=["x"], power=0.5).transform_batch({"x": numpy.array([0, 3, 8])})
        {'x': array([0., 2., 4.])}

    Args:
        columns: the columns to transform.
        power: the exponent. 1 changes little; 0 is a logarithm.
        method: "yeo-johnson", or "box-cox", which needs positive numbers.
    """

    _is_fittable = False

    def __init__(self, columns: Sequence[str], power: float, method: str = "yeo-johnson") -> None:
        self.columns = column_names(columns, "PowerTransformer")
        if method not in _METHODS:
            raise ConfigError(f"[PowerTransformer] method is {method!r}; it must be one of {', '.join(_METHODS)}")
        self.power = power
        self.method = method

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            columns[column] = mapped(columns[column], self._where(column), self._transformed_values)

    def _transformed_values(self, values: Floats) -> Floats:
        with numpy.errstate(invalid="ignore", divide="ignore"):
            return _METHODS[self.method](values, self.power)

    def _changes(self, column: str) -> bool:
        return column in self.columns
