"""The base of all preprocessors."""

from __future__ import annotations

import abc
import copy
import enum
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.data._batches import converted, kind_of
from lockstep.errors import ConfigError, LockstepError

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Self

    from lockstep.data.dataset import Dataset


def map_batches(ds: Any, name: str, function: Callable[[Any], Any], **options: Any) -> Dataset:
    """The data set with one step more, which plans show by its name."""

    def transform(batch: Any) -> Any:
        return function(batch)

    transform.__name__ = transform.__qualname__ = name
    mapped: Dataset = ds.map_batches(transform, **options)
    return mapped


class PreprocessorNotFittedException(LockstepError):
    """The preprocessor must be fitted first."""


class Preprocessor(abc.ABC):  # noqa: B024 - a subclass needs only some of the methods
    """Changes the columns of data sets and of single batches, with statistics of the data set that it was fitted to.

        >>> scaler = MinMaxScaler(columns=["x"])
        >>> scaler.fit_transform(lockstep.data.from_items([{"x": 1}, {"x": 3}])).take_all()
        [{'x': 0.0}, {'x': 1.0}]
        >>> scaler.transform_batch({"x": numpy.array([2])})
        {'x': array([0.5])}

    A class of your own overrides ``_fit``, unless ``_is_fittable`` is False, and ``_transform_pandas`` or
    ``_transform_numpy``::

        class Centred(Preprocessor):
            def _fit(self, ds):
                frame = ds.to_pandas()
                self.stats_ = {"mean": frame["x"].mean()}
                return self

            def _transform_pandas(self, df):
                df["x"] -= self.stats_["mean"]
                return df

    If there are both, :meth:`preferred_batch_format` chooses. Attributes that end with an underscore are the fitted
    state. An object is pickled with its attributes, so they should be small.
    """

    class FitStatus(str, enum.Enum):
        """Whether :meth:`fit` was called. A ``Chain`` may be partially fitted."""

        NOT_FITTABLE = "NOT_FITTABLE"
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"
        FITTED = "FITTED"

    _is_fittable = True
    _functions: ClassVar[tuple[str, ...]] = ()
    """The constructor's arguments that are code of the user's own; those of Lockstep are stored without pickle else."""

    def fit_status(self) -> Preprocessor.FitStatus:
        """Whether :meth:`fit` was called, or need not be."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        is_fitted = self.__dict__.get("_fitted") or any(name.endswith("_") for name in vars(self))
        return Preprocessor.FitStatus.FITTED if is_fitted else Preprocessor.FitStatus.NOT_FITTED

    def fit(self, ds: Dataset) -> Self:
        """Computes the statistics of `ds`, by reading it. What was fitted before is replaced, with a warning."""
        status = self.fit_status()
        if status is Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status in (Preprocessor.FitStatus.FITTED, Preprocessor.FitStatus.PARTIALLY_FITTED):
            warnings.warn(f"[{type(self).__name__}] fit() was called before; its result is replaced", stacklevel=2)
        self._fit(ds)
        self._fitted = True
        return self

    def fit_transform(self, ds: Dataset) -> Dataset:
        """:meth:`fit` and then :meth:`transform`."""
        self.fit(ds)
        return self.transform(ds)

    def transform(self, ds: Dataset) -> Dataset:
        """The data set whose rows are the transformed ones of `ds`. They are transformed when they are read, with the
        statistics of now: another ``fit`` does not change it."""
        self._check_fitted("transform")
        transformed = self._transform_dataset(ds)
        self._transformed = transformed
        return transformed

    def transform_batch(self, data: Any) -> Any:
        """A transformed copy of a pandas ``DataFrame``, a dict of numpy arrays or a pyarrow ``Table``: the same
        kind."""
        self._check_fitted("transform_batch")
        return self._transform_batch(data)

    def transform_stats(self) -> str | None:
        """The statistics of the data set that the last :meth:`transform` gave: how fast its rows were read. None if
        there is none."""
        stats = getattr(getattr(self, "_transformed", None), "stats", None)
        return None if stats is None else str(stats())

    @classmethod
    def preferred_batch_format(cls) -> str:
        """Which of ``_transform_pandas`` and ``_transform_numpy`` is used if there are both: "pandas" or "numpy"."""
        return "pandas"

    def _fit(self, ds: Dataset) -> Preprocessor:
        """Computes the statistics and keeps them in attributes that end with an underscore, usually ``stats_``."""
        raise NotImplementedError(f"{type(self).__name__} has no _fit(); without state, set _is_fittable = False")

    def _transform_pandas(self, df: pandas.DataFrame) -> pandas.DataFrame:
        raise NotImplementedError

    def _transform_numpy(self, np_data: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _get_transform_config(self) -> dict[str, Any]:
        """Further arguments of ``map_batches``, such as ``batch_size``."""
        return {}

    def _transform_dataset(self, ds: Dataset) -> Dataset:
        kind = self._batch_format()
        frozen = self._frozen()
        function = frozen._transform_pandas if kind == "pandas" else frozen._transform_numpy
        return map_batches(ds, type(self).__name__, function, batch_format=kind, **self._get_transform_config())

    def _transform_batch(self, data: Any) -> Any:
        where = type(self).__name__
        kind = self._batch_format()
        if kind == "pandas":
            frame = converted(data, "pandas", where)
            result: Any = self._transform_pandas(frame.copy(deep=False))
        else:
            result = self._transform_numpy(dict(converted(data, "numpy", where)))
        return converted(result, kind_of(data, where), where)

    def _batch_format(self) -> str:
        cls = type(self)
        has_pandas = cls._transform_pandas is not Preprocessor._transform_pandas
        has_numpy = cls._transform_numpy is not Preprocessor._transform_numpy
        if not has_pandas and not has_numpy:
            raise NotImplementedError(f"{cls.__name__} must have _transform_pandas() or _transform_numpy()")
        if has_pandas and has_numpy:
            preferred = self.preferred_batch_format()
            kind = str(getattr(preferred, "value", preferred))
            if kind not in ("pandas", "numpy"):
                raise ConfigError(
                    f"[{cls.__name__}] preferred_batch_format() gives {preferred!r}; it must be 'pandas' or 'numpy'"
                )
            return kind
        return "pandas" if has_pandas else "numpy"

    def _check_fitted(self, method: str) -> None:
        status = self.fit_status()
        if status in (Preprocessor.FitStatus.NOT_FITTED, Preprocessor.FitStatus.PARTIALLY_FITTED):
            advice = ", or use fit_transform()" if method == "transform" else ""
            raise PreprocessorNotFittedException(
                f"[{type(self).__name__}] `fit` must be called before `{method}`{advice}"
            )

    def _frozen(self) -> Self:
        """What plans keep: an object that a later fit does not change."""
        return copy.copy(self)

    def _arguments(self) -> dict[str, Any]:
        """The constructor's, if attributes have their names; with ``stats_`` they are the whole state of those of
        Lockstep."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_transformed"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"
