"""Preprocessors that count the tokens of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as compute

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import positions
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names
from lockstep.data.preprocessors._statistics import Counts, Statistic
from lockstep.data.preprocessors.hasher import checked_features, hashed
from lockstep.data.preprocessors.tokenizer import tokens
from lockstep.errors import ConfigError


class HashingVectorizer(ColumnPreprocessor):
    """Replaces a column of texts by the columns ``hash_{column}_0`` to ``hash_{column}_{n - 1}``, which come last. Each
    token of a text is hashed to one of them, which counts it. It needs no fit, and no memory for a vocabulary.

        >>> batch = pyarrow.table({"text": ["I like like"]})
        >>> HashingVectorizer(columns=["text"], num_features=4).transform_batch(batch).to_pylist()
        [{'hash_text_0': 0, 'hash_text_1': 1, 'hash_text_2': 0, 'hash_text_3': 2}]

    Args:
        columns: the columns to count, each on its own.
        num_features: how many columns there will be for each. With too few of them, different tokens share one.
        tokenization_fn: gives the list of tokens of a text; else texts are split at each space.
    """

    _is_fittable = False
    _functions = ("tokenization_fn",)

    def __init__(
        self,
        columns: Sequence[str],
        num_features: int,
        tokenization_fn: Callable[[str], list[str]] | None = None,
    ) -> None:
        self.columns = column_names(columns, "HashingVectorizer")
        self.num_features = checked_features(num_features, "HashingVectorizer")
        self.tokenization_fn = tokenization_fn

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            lists = tokens(columns[column], self.tokenization_fn, self._where(column))
            words = lists.flatten().dictionary_encode()
            features = [hashed(word, self.num_features) for word in words.dictionary.to_pylist()]
            codes = numpy.array(features, numpy.int64)[words.indices.to_numpy()]
            del columns[column]
            for number, counts in enumerate(_counted(lists, codes, self.num_features)):
                columns[f"hash_{column}_{number}"] = pyarrow.array(counts)

    def _changes(self, column: str) -> bool:
        return column in self.columns or column.startswith("hash_")


class CountVectorizer(ColumnPreprocessor):
    """Replaces a column of texts by one column for each token, ``{column}_{token}``, that counts it. They come last,
    from the most frequent token to the least.

        >>> ds = lockstep.data.from_items([{"text": "a b b"}, {"text": "a b"}])
        >>> CountVectorizer(columns=["text"]).fit_transform(ds).take_all()
        [{'text_b': 2, 'text_a': 1}, {'text_b': 1, 'text_a': 1}]

    Tokens that were not there during ``fit`` are ignored.

    Args:
        columns: the columns to count, each on its own.
        tokenization_fn: gives the list of tokens of a text; else texts are split at each space.
        max_features: how many tokens are kept: the most frequent ones of the column. None: all.
    """

    _functions = ("tokenization_fn",)

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: Callable[[str], list[str]] | None = None,
        max_features: int | None = None,
    ) -> None:
        self.columns = column_names(columns, "CountVectorizer")
        self.tokenization_fn = tokenization_fn
        if max_features is not None and max_features < 1:
            raise ConfigError(f"[CountVectorizer] max_features is {max_features!r}; it must be at least 1")
        self.max_features = max_features

    def _statistics(self) -> Sequence[Statistic]:
        def made(column: str) -> Statistic:
            return Counts(
                column,
                "CountVectorizer",
                by_element=True,
                prepare=lambda array: tokens(array, self.tokenization_fn, self._where(column)),
            )

        return [made(column) for column in self.columns]

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        return {
            f"token_counts({each.column})": {token: each.counts[token] for token in each.most_common(self.max_features)}
            for each in statistics
        }

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            lists = tokens(columns[column], self.tokenization_fn, self._where(column))
            vocabulary = list(self.stats_[f"token_counts({column})"])
            codes = compute.fill_null(positions(lists.flatten(), vocabulary, self._where(column)), -1).to_numpy()
            del columns[column]
            for token, counts in zip(vocabulary, _counted(lists, codes, len(vocabulary)), strict=True):
                columns[f"{column}_{token}"] = pyarrow.array(counts)

    def _changes(self, column: str) -> bool:
        return column in self.columns or any(column.startswith(f"{each}_") for each in self.columns)


def _counted(lists: Any, codes: Any, features: int) -> Any:
    """For each feature, how often it occurs in each list. `codes` are the features of the flattened lists; negative
    ones do not count."""
    lengths = compute.fill_null(compute.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows = numpy.repeat(numpy.arange(len(lists)), lengths)
    known = codes >= 0
    cells = codes[known] * len(lists) + rows[known]
    return numpy.bincount(cells, minlength=features * len(lists)).reshape(features, len(lists))
