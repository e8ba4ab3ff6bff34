"""Preprocessors that make numbers of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
import pyarrow.compute as compute

from lockstep.data._batches import Columns
from lockstep.data.preprocessors._arrays import from_rows, is_list, is_missing, plain, positions
from lockstep.data.preprocessors._column_preprocessor import ColumnPreprocessor, column_names, map_tables
from lockstep.data.preprocessors._statistics import Counts, Statistic
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset


class _Encoder(ColumnPreprocessor):
    """Numbers the categories of its columns by their order. ``stats_["unique_values(column)"]`` maps each to its
    number. Missing values are an error."""

    columns: list[str]
    _by_element = False

    def _statistics(self) -> Sequence[Statistic]:
        owner = type(self).__name__
        return [Counts(column, owner, by_element=self._by_element) for column in self.columns]

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        kept = {}
        for each in statistics:
            if each.has_missing:
                raise ConfigError(
                    f"[{type(self).__name__}] Unable to fit column '{each.column}' because it contains null values. "
                    "Consider imputing missing values first."
                )
            values = sorted(each.most_common(self._limit(each.column)))
            kept[f"unique_values({each.column})"] = {value: number for number, value in enumerate(values)}
        return kept

    def _limit(self, column: str) -> int | None:
        """How many categories are kept: the most frequent ones. None: all."""
        return None

    def _categories(self, column: str) -> list[Any]:
        return list(self.stats_[f"unique_values({column})"])

    def _array(self, columns: Columns, column: str) -> Any:
        array = plain(columns[column])
        if compute.any(is_missing(array)).as_py():
            raise ConfigError(
                f"[{type(self).__name__}] Unable to transform column '{column}' because it contains null values. "
                "Consider imputing missing values first."
            )
        return array

    def _codes(self, array: Any, column: str) -> Any:
        return positions(array, self._categories(column), self._where(column))

    def _changes(self, column: str) -> bool:
        return column in self.columns


class OrdinalEncoder(_Encoder):
    """Replaces each category by its number: 0 for the first in sorted order, and so on.

        >>> ds = lockstep.data.from_items([{"sex": "male"}, {"sex": "female"}, {"sex": "male"}])
        >>> OrdinalEncoder(columns=["sex"]).fit_transform(ds).take_all()
        [{'sex': 1}, {'sex': 0}, {'sex': 1}]

    A category that was not there during ``fit`` becomes null (NaN in pandas and numpy).

    Args:
        columns: the columns to encode, each with its own numbers.
        encode_lists: of columns of lists, whether the elements of the lists are the categories; else each list as a
            whole is one.
    """

    def __init__(self, columns: Sequence[str], *, encode_lists: bool = True) -> None:
        self.columns = column_names(columns, "OrdinalEncoder")
        self.encode_lists = encode_lists

    @property
    def _by_element(self) -> bool:  # type: ignore[override]
        return self.encode_lists

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            array = self._array(columns, column)
            if not (is_list(array.type) and self.encode_lists):
                columns[column] = self._codes(array, column)
                continue
            lengths = compute.list_value_length(array).to_numpy(zero_copy_only=False)
            ends = pyarrow.array(numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32))
            columns[column] = pyarrow.ListArray.from_arrays(ends, self._codes(array.flatten(), column))


class LabelEncoder(_Encoder):
    """Replaces the categories of the column of labels by their numbers, and numbers by their categories.

        >>> ds = lockstep.data.from_items([{"species": "setosa"}, {"species": "virginica"}, {"species": "setosa"}])
        >>> encoder = LabelEncoder(label_column="species")
        >>> encoded = encoder.fit_transform(ds)
        >>> encoded.take_all()
        [{'species': 0}, {'species': 1}, {'species': 0}]
        >>> encoder.inverse_transform(encoded).take(1)
        [{'species': 'setosa'}]

    A category that was not there during ``fit`` becomes null (NaN in pandas and numpy).

    Args:
        label_column: the column to encode.
    """

    def __init__(self, label_column: str) -> None:
        self.label_column = label_column
        self.columns = column_names([label_column], "LabelEncoder")

    def _transform_columns(self, columns: Columns) -> None:
        columns[self.label_column] = self._codes(self._array(columns, self.label_column), self.label_column)

    def inverse_transform(self, ds: Dataset) -> Dataset:
        """The data set with categories instead of numbers."""
        self._check_fitted("inverse_transform")
        return map_tables(ds, "LabelEncoder.inverse_transform", self._frozen()._inverse_batch)

    def inverse_transform_batch(self, data: Any) -> Any:
        """The batch with categories instead of numbers: the same kind."""
        self._check_fitted("inverse_transform_batch")
        return self._inverse_batch(data)

    def _inverse_batch(self, data: Any) -> Any:
        columns = Columns(data, "LabelEncoder")
        codes = columns[self.label_column]
        categories = self._categories(self.label_column)
        try:
            numbers = codes.cast(pyarrow.int64())
        except pyarrow.ArrowInvalid as error:
            raise ConfigError(
                f"{self._where(self.label_column)} does not hold the numbers of labels: {error}"
            ) from error
        inside = compute.and_(compute.greater_equal(numbers, 0), compute.less(numbers, len(categories)))
        numbers = compute.if_else(inside, numbers, None)
        columns[self.label_column] = pyarrow.array(categories).take(numbers)
        return columns.batch()


class _LimitedEncoder(_Encoder):
    """One that may keep only the most frequent categories."""

    def __init__(self, columns: Sequence[str], *, max_categories: Mapping[str, int] | None = None) -> None:
        self.columns = column_names(columns, type(self).__name__)
        others = [column for column in max_categories or () if column not in self.columns]
        if others:
            raise ConfigError(f"[{type(self).__name__}] max_categories names {others}, which are not in columns")
        self.max_categories = None if max_categories is None else dict(max_categories)

    def _limit(self, column: str) -> int | None:
        return (self.max_categories or {}).get(column)


class OneHotEncoder(_LimitedEncoder):
    """Replaces a column by one column for each category, named ``{column}_{category}``: 1 where the row has this
    category, else 0. They come last.

        >>> ds = lockstep.data.from_items([{"color": "red"}, {"color": "green"}])
        >>> OneHotEncoder(columns=["color"]).fit_transform(ds).take_all()
        [{'color_green': 0, 'color_red': 1}, {'color_green': 1, 'color_red': 0}]

    A category that was not there during ``fit``, or was not frequent enough, is 0 in all of them. Lists are categories
    as a whole; see :class:`MultiHotEncoder` for their elements.

    Args:
        columns: the columns to encode.
        max_categories: by column, how many categories to keep: the most frequent ones.
    """

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            codes = compute.fill_null(self._codes(self._array(columns, column), column), -1).to_numpy()
            for number, category in enumerate(self._categories(column)):
                columns[f"{column}_{category}"] = pyarrow.array((codes == number).astype(numpy.int64))
            del columns[column]

    def _changes(self, column: str) -> bool:
        return column in self.columns or any(column.startswith(f"{each}_") for each in self.columns)


class MultiHotEncoder(_LimitedEncoder):
    """Replaces each list of categories by a vector with a number for each category: 1 if the list has it, else 0.

        >>> ds = lockstep.data.from_items([{"genre": ["comedy", "action"]}, {"genre": ["drama"]}])
        >>> MultiHotEncoder(columns=["genre"]).fit_transform(ds).take_all()
        [{'genre': [1, 1, 0]}, {'genre': [0, 0, 1]}]

    A value that is no list counts as a list of one. Other categories than those of ``fit`` are ignored.

    Args:
        columns: the columns to encode.
        max_categories: by column, how many categories to keep: the most frequent ones.
    """

    _by_element = True

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            array = self._array(columns, column)
            rows = numpy.zeros((len(array), len(self._categories(column))), numpy.int64)
            if is_list(array.type):
                lengths = compute.list_value_length(array).to_numpy(zero_copy_only=False)
                array = array.flatten()
            else:
                lengths = numpy.ones(len(array), numpy.int64)
            codes = compute.fill_null(self._codes(array, column), -1).to_numpy()
            row_numbers = numpy.repeat(numpy.arange(len(rows)), lengths)
            rows[row_numbers[codes >= 0], codes[codes >= 0]] = 1
            columns.set(column, from_rows(rows), as_lists=True)


class Categorizer(ColumnPreprocessor):
    """Makes columns categorical: ``CategoricalDtype`` in pandas, dictionaries in Arrow. It needs pandas.

        >>> frame = pandas.DataFrame({"sex": ["male", "female", "male"]})
        >>> categorizer = Categorizer(columns=["sex"]).fit(lockstep.data.from_pandas(frame))
        >>> categorizer.transform_batch(frame)["sex"].cat.categories.tolist()
        ['female', 'male']

    Missing values, and other values than those of ``fit``, are missing.

    Args:
        columns: the columns to make categorical.
        dtypes: by column, the ``pandas.CategoricalDtype``; else the sorted values of the column are the categories.
    """

    def __init__(self, columns: Sequence[str], dtypes: Mapping[str, Any] | None = None) -> None:
        self.columns = column_names(columns, "Categorizer")
        self.dtypes = dict(dtypes or {})
        others = [column for column in self.dtypes if column not in self.columns]
        if others:
            raise ConfigError(f"[Categorizer] dtypes names {others}, which are not in columns")

    def _statistics(self) -> Sequence[Statistic]:
        return [Counts(column, "Categorizer") for column in self.columns if column not in self.dtypes]

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        import pandas

        return self.dtypes | {each.column: pandas.CategoricalDtype(sorted(each.counts)) for each in statistics}

    def _transform_columns(self, columns: Columns) -> None:
        for column in self.columns:
            columns[column] = categorical(columns[column], self.stats_[column], self._where(column))

    def _changes(self, column: str) -> bool:
        return column in self.columns


def categorical(array: Any, dtype: Any, where: str) -> Any:
    """A dictionary array with the categories of a ``CategoricalDtype``."""
    categories = list(dtype.categories)
    codes = positions(array, categories, where)
    kind = plain(array).type
    values = pyarrow.array(categories) if pyarrow.types.is_null(kind) or not categories else None
    return dictionary(codes, pyarrow.array(categories, kind) if values is None else values, bool(dtype.ordered))


def dictionary(codes: Any, values: Any, is_ordered: bool) -> Any:
    """A dictionary array: for each code the value at this position."""
    return pyarrow.DictionaryArray.from_arrays(codes.cast(pyarrow.int32()), values, ordered=is_ordered)
