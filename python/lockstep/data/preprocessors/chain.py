"""Preprocessors one after the other."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstep.data.preprocessor import Preprocessor
from lockstep.data.preprocessors._column_preprocessor import (
    ColumnPreprocessor,
    fit_together,
    transform_batch_together,
    transform_together,
)
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    from lockstep.data.dataset import Dataset

_STATUS = Preprocessor.FitStatus


class Chain(Preprocessor):
    """Applies several preprocessors, each to what the one before it gives.

        >>> ds = lockstep.data.from_items([{"x": 0}, {"x": None}, {"x": 4}])
        >>> Chain(SimpleImputer(["x"]), MinMaxScaler(["x"])).fit_transform(ds).take_all()
        [{'x': 0.0}, {'x': 0.5}, {'x': 1.0}]

    ``fit`` fits each to what the ones before it give. Those that do not depend on each other, because they use other
    columns, are fitted in the same pass over the data.

    Args:
        preprocessors: the first one to the last one.
    """

    def __init__(self, *preprocessors: Preprocessor) -> None:
        wrong = [each for each in preprocessors if not isinstance(each, Preprocessor)]
        if wrong:
            raise ConfigError(f"[Chain] {wrong[0]!r} is no Preprocessor")
        self.preprocessors = preprocessors

    @property
    def _is_fittable(self) -> bool:  # type: ignore[override]
        return any(each.fit_status() is not _STATUS.NOT_FITTABLE for each in self.preprocessors)

    def fit_status(self) -> Preprocessor.FitStatus:
        """``PARTIALLY_FITTED`` if some of the preprocessors were fitted on their own."""
        found = {each.fit_status() for each in self.preprocessors} - {_STATUS.NOT_FITTABLE}
        if not found:
            return _STATUS.NOT_FITTABLE
        return found.pop() if len(found) == 1 else _STATUS.PARTIALLY_FITTED

    def _fit(self, ds: Dataset) -> Preprocessor:
        fitting: list[Any] = []  # in the next pass over `ds`
        passing: list[Preprocessor] = []  # from `ds` to what the next one is fitted to
        for each in self._steps():
            if each.fit_status() is not _STATUS.NOT_FITTABLE:
                if not _is_independent(each, passing):
                    _finish(fitting, ds)
                    ds = _transformed(passing, ds)
                    fitting, passing = [], []
                if _works_on_columns(each):
                    fitting.append(each)
                else:
                    each._fit(ds)
                    each._fitted = True
            passing.append(each)
        _finish(fitting, ds)
        return self

    def _transform_dataset(self, ds: Dataset) -> Dataset:
        return _transformed(self._steps(), ds)

    def _transform_batch(self, data: Any) -> Any:
        for are_columns, run in itertools.groupby(self._steps(), _works_on_columns):
            steps = list(run)
            if are_columns:
                data = transform_batch_together(steps, data)
            else:
                for each in steps:
                    data = each.transform_batch(data)
        return data

    def _steps(self) -> list[Preprocessor]:
        """With those of chains within this one."""
        nested = ((each._steps() if isinstance(each, Chain) else [each]) for each in self.preprocessors)
        return list(itertools.chain.from_iterable(nested))

    def _frozen(self) -> Self:
        frozen = copy.copy(self)
        frozen.preprocessors = tuple(each._frozen() for each in self.preprocessors)
        return frozen

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.preprocessors))})"


def _works_on_columns(preprocessor: Preprocessor) -> bool:
    return isinstance(preprocessor, ColumnPreprocessor) and preprocessor._works_on_columns()


def _is_independent(preprocessor: Any, before: Sequence[Any]) -> bool:
    """Whether the ones before leave its columns alone, so that it can be fitted to the same data."""
    if not all(map(_works_on_columns, [preprocessor, *before])):
        return False
    columns = {statistic.column for statistic in preprocessor._statistics()}
    return not any(each._changes(column) for each in before for column in columns)


def _finish(fitting: Sequence[ColumnPreprocessor], ds: Dataset) -> None:
    fit_together(fitting, ds, "Chain")
    for each in fitting:
        each._fitted = True


def _transformed(preprocessors: Sequence[Preprocessor], ds: Dataset) -> Dataset:
    """Neighbours that work on columns are one step of the plan."""
    for are_columns, run in itertools.groupby(preprocessors, _works_on_columns):
        steps = list(run)
        if are_columns:
            ds = transform_together(steps, ds)
        else:
            for each in steps:
                ds = each.transform(ds)
    return ds
