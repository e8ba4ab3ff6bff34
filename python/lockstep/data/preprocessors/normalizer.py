"""Preprocessors that scale rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import doubles
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.errors import ConfigError


def _total(arrays: Sequence[Any]) -> Any:
    total = arrays[0]
    for array in arrays[1:]:
        total = compute.add(total, array)
    return total


_NORMS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "l1": lambda columns: _total([compute.abs(column) for column in columns]),
    "l2": lambda columns: compute.sqrt(_total([compute.multiply(column, column) for column in columns])),
    "max": lambda columns: compute.max_element_wise(*map(compute.abs, columns), skip_nulls=False),
}


class Normalizer(ColumnPreprocessor):
    """Scales each row so that the norm over these columns is 1. Rows of zeros stay zeros. It needs no fit.

        >>> Normalizer(columns=["x", "y"]).transform_batch({"x": numpy.array([3]), "y": numpy.array([4])})
        {'x': array([0.6]), 'y': array([0.8])}

    Args:
        columns: together they are the vector that is scaled. A missing value makes all of its row missing.
        norm: "l2" (Euclidean), "l1" (sum of absolute values) or "max" (largest absolute value).
    """

    _is_fittable = False

    def __init__(self, columns: Sequence[str], norm: str = "l2") -> None:
        self.columns = column_names(columns, "Normalizer")
        if norm not in _NORMS:
            raise ConfigError(f"[Normalizer] norm is {norm!r}; it must be one of {', '.join(_NORMS)}")
        self.norm = norm

    def _transform_columns(self, columns: Columns) -> None:
        if not self.columns:
            return
        vectors = [doubles(columns[column], self._where(column)) for column in self.columns]
        norm = _NORMS[self.norm](vectors)
        divisor = compute.if_else(compute.equal(norm, 0), 1.0, norm)
        for column, vector in zip(self.columns, vectors, strict=True):
            kind = columns[column].type
            scaled = compute.divide(vector, divisor)
            columns[column] = scaled.cast(kind, safe=False) if pyarrow.types.is_floating(kind) else scaled

    def _changes(self, column: str) -> bool:
        return column in self.columns
