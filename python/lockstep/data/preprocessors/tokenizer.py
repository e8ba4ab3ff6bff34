"""Preprocessors that cut text into tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow
import pyarrow.compute as compute

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import plain
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.errors import ConfigError


def tokens(array: Any, function: Callable[[str], list[Any]] | None, where: str) -> Any:
    """A list of tokens for each text; null for null."""
    array = plain(array)
    if pyarrow.types.is_null(array.type):
        array = array.cast(pyarrow.string())
    if not (pyarrow.types.is_string(array.type) or pyarrow.types.is_large_string(array.type)):
        raise ConfigError(f"{where} is {array.type}; it must be strings")
    if function is None:
        return compute.split_pattern(array, " ")
    made = pyarrow.array([None if text is None else list(function(text)) for text in array.to_pylist()])
    is_untyped = pyarrow.types.is_null(made.type) or pyarrow.types.is_null(made.type.value_type)
    return made.cast(pyarrow.list_(pyarrow.string())) if is_untyped else made


class Tokenizer(ColumnPreprocessor):
    """Replaces each text by the list of its tokens. It needs no fit.

        >>> Tokenizer(columns=["text"]).transform_batch(pyarrow.table({"text": ["Hello, world"]})).to_pylist()
        [{'text': ['Hello,', 'world']}]

    Args:
        columns: the columns to tokenize.
        tokenization_fn: gives the list of tokens of a text; else texts are split at each space.
    """

    _is_fittable = False
    _functions = ("tokenization_fn",)

    def __init__(self, columns: Sequence[str], tokenization_fn: Callable[[str], list[Any]] | None = None) -> None:
        self.columns = column_names(columns, "Tokenizer")
        self.tokenization_fn = tokenization_fn

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            columns[column] = tokens(columns[column], self.tokenization_fn, self._where(column))

    def _changes(self, column: str) -> bool:
        return column in self.columns
