"""Preprocessors that hash the names of columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy
import pyarrow

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import doubles
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.errors import ConfigError


def hashed(token: object, num_features: int) -> int:
    """The feature that a token belongs to: SHA-1 of its text, as a number, modulo `num_features`. It is the same in
    every process."""
    digest = hashlib.sha1(str(token).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big") % num_features


def checked_features(num_features: int, owner: str) -> int:
    """ConfigError unless it is at least 1."""
    if isinstance(num_features, bool) or not isinstance(num_features, int) or num_features < 1:
        raise ConfigError(f"[{owner}] num_features is {num_features!r}; it must be an int of at least 1")
    return num_features


class FeatureHasher(ColumnPreprocessor):
    """Replaces columns, each with the frequency of one token, by the columns ``hash_0`` to ``hash_{n - 1}``. The token,
    which is the column's name, is hashed to one of them; frequencies of the same one are added. It needs no fit.

        >>> batch = pyarrow.table({"I": [1, 1], "like": [1, 0], "Python": [1, 1]})
        >>> FeatureHasher(columns=["I", "like", "Python"], num_features=8).transform_batch(batch).to_pandas().to_numpy()
        array([[0, 0, 0, 2, 0, 1, 0, 0],
               [0, 0, 0, 1, 0, 1, 0, 0]])

    A missing frequency counts as 0.

    Args:
        columns: the columns to hash.
        num_features: how many columns there will be. With too few of them, different tokens share one.
    """

    _is_fittable = False

    def __init__(self, columns: Sequence[str], num_features: int) -> None:
        self.columns = column_names(columns, "FeatureHasher")
        self.num_features = checked_features(num_features, "FeatureHasher")

    def _transform_columns(self, columns: Columns) -> None:
        sums = numpy.zeros((self.num_features, columns.rows))
        are_integers = True
        for column in self.columns:
            array = columns[column]
            are_integers &= pyarrow.types.is_integer(array.type) or pyarrow.types.is_boolean(array.type)
            values = doubles(array, self._where(column)).to_numpy(zero_copy_only=False)
            sums[hashed(column, self.num_features)] += numpy.nan_to_num(values, nan=0.0)
            del columns[column]
        for number, values in enumerate(sums):
            columns[f"hash_{number}"] = pyarrow.array(values.astype(numpy.int64) if are_integers else values)

    def _changes(self, column: str) -> bool:
        return column in self.columns or column.startswith("hash_")
