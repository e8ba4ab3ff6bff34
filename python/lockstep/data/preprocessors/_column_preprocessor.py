"""The base of the preprocessors that come with Lockstep: they work on Arrow arrays, column by column."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lockstep.data._batches import Columns
from lockstep.data.preprocessor import Preprocessor, map_batches
from lockstep.data.preprocessors._statistics import Statistic, gather
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    import pandas

    from lockstep.data.dataset import Dataset


class ColumnPreprocessor(Preprocessor):
    """Attributes have the names of the constructor's arguments; with ``stats_`` they are the whole state."""

    stats_: dict[str, Any]

    def _statistics(self) -> Sequence[Statistic]:
        """New ones of all columns that :meth:`_keep` needs."""
        return []

    def _keep(self, statistics: Sequence[Any]) -> dict[str, Any]:
        """What `stats_` becomes, from the statistics in the order in which they were made."""
        return {}

    @abc.abstractmethod
    def _transform_columns(self, columns: Columns) -> None:
        """Transforms a batch, in place."""

    @abc.abstractmethod
    def _changes(self, column: str) -> bool:
        """Whether a transform may change, make or drop this column; if not, others can be fitted before it is done."""

    def _fit(self, ds: Dataset) -> Preprocessor:
        fit_together([self], ds, type(self).__name__)
        return self

    def _transform_dataset(self, ds: Dataset) -> Dataset:
        return transform_together([self], ds) if self._works_on_columns() else super()._transform_dataset(ds)

    def _transform_batch(self, data: Any) -> Any:
        return transform_batch_together([self], data) if self._works_on_columns() else super()._transform_batch(data)

    def _transform_pandas(self, df: pandas.DataFrame) -> Any:
        return transform_batch_together([self], df)

    def _transform_numpy(self, np_data: dict[str, Any]) -> Any:
        return transform_batch_together([self], np_data)

    def _batch_format(self) -> str:
        cls, base = type(self), ColumnPreprocessor
        return "numpy" if cls._transform_pandas is base._transform_pandas else "pandas"

    @classmethod
    def _works_on_columns(cls) -> bool:
        """Whether it does what this class does; a class of the user's own may do it in another way."""
        base = ColumnPreprocessor
        return all(
            getattr(cls, name) is getattr(base, name) for name in ("_fit", "_transform_pandas", "_transform_numpy")
        )

    def _where(self, column: str) -> str:
        return f"[{type(self).__name__}] the column {column!r}"

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._arguments().items())
        return f"{type(self).__name__}({arguments})"


def map_tables(ds: Dataset, name: str, function: Callable[[Any], Any]) -> Dataset:
    """The data set with a step more, whose function gets whole blocks as tables and gives as many rows."""
    return map_batches(ds, name, function, batch_format="pyarrow", batch_size=None, keeps_rows=True)


def transform_together(preprocessors: Sequence[Any], ds: Dataset) -> Dataset:
    """They transform the data set in this order, in one step of its plan."""
    frozen = [preprocessor._frozen() for preprocessor in preprocessors]
    name = ", ".join(type(preprocessor).__name__ for preprocessor in preprocessors)
    return map_tables(ds, name, lambda table: transform_batch_together(frozen, table))


def transform_batch_together(preprocessors: Sequence[Any], batch: Any) -> Any:
    """They transform the batch in this order. Columns are converted only once."""
    columns = Columns(batch, type(preprocessors[0]).__name__)
    for preprocessor in preprocessors:
        preprocessor._transform_columns(columns)
    return columns.batch()


def fit_together(preprocessors: Sequence[ColumnPreprocessor], ds: Dataset, owner: str) -> None:
    """Fits them all to the same data in one pass."""
    statistics = [preprocessor._statistics() for preprocessor in preprocessors]
    gather(ds, (statistic for several in statistics for statistic in several), owner)
    for preprocessor, several in zip(preprocessors, statistics, strict=True):
        preprocessor.stats_ = preprocessor._keep(several)


def column_names(columns: Any, owner: str) -> list[str]:
    """A list of names. ConfigError if it is something else; a single string is a usual mistake."""
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise ConfigError(f"[{owner}] columns is {columns!r}; it must be a list of names")
    return list(columns)
