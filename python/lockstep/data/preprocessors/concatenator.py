"""Preprocessors that make one column of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import from_rows, rows_of
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.errors import ConfigError


class Concatenator(ColumnPreprocessor):
    """Joins columns of numbers into one column of vectors, and drops them. It needs no fit.

        >>> batch = {"x": numpy.array([0, 3]), "y": numpy.array([0.5, 0.2]), "label": numpy.array([1, 0])}
        >>> Concatenator(exclude=["label"]).transform_batch(batch)
        {'label': array([1, 0]), 'concat_out': array([[0. , 0.5],
               [3. , 0.2]])}

    The numbers are in the order of the columns of the data. Columns of vectors are joined too.

    Args:
        output_column_name: the new column, which comes last.
        include: the columns to join; else all.
        exclude: columns to leave as they are, also if they are in `include`.
        dtype: numpy type of the numbers; else the smallest that holds those of all columns. Give it if integers may be
            missing, which only floats can hold.
        raise_if_missing: whether it is an error if a batch lacks a column of `include` or `exclude`.
    """

    _is_fittable = False

    def __init__(
        self,
        output_column_name: str = "concat_out",
        include: Sequence[str] | str | None = None,
        exclude: Sequence[str] | str | None = None,
        dtype: Any = None,
        raise_if_missing: bool = False,
    ) -> None:
        self.output_column_name = output_column_name
        self.include = None if include is None else _names(include)
        self.exclude = None if exclude is None else _names(exclude)
        self.dtype = None if dtype is None else numpy.dtype(dtype)
        self.raise_if_missing = raise_if_missing

    def _transform_columns(self, columns: Columns) -> None:
        if self.raise_if_missing:
            for what, names in (("include", self.include), ("exclude", self.exclude)):
                missing = [name for name in names or () if name not in columns]
                if missing:
                    raise ConfigError(f"[Concatenator] Missing columns specified in '{what}': {missing}")
        joined = [name for name in columns if self._joins(name)]
        if not joined:
            raise ConfigError(f"[Concatenator] there is no column to join; the columns are {', '.join(columns)}")
        rows = numpy.concatenate([rows_of(columns[name], self._where(name)) for name in joined], axis=1)
        for name in joined:
            del columns[name]
        columns[self.output_column_name] = from_rows(rows if self.dtype is None else rows.astype(self.dtype))

    def _joins(self, column: str) -> bool:
        return (self.include is None or column in self.include) and column not in (self.exclude or ())

    def _changes(self, column: str) -> bool:
        return column == self.output_column_name or self._joins(column)


def _names(names: Sequence[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else column_names(names, "Concatenator")
