"""Preprocessors that are a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.data._batches import converted, kind_of
from lockstep.data.preprocessor import Preprocessor, map_batches
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

_FORMATS = ("pandas", "numpy", "pyarrow")


class BatchMapper(Preprocessor):
    """Applies a function to every batch. It needs no fit.

        >>> double = BatchMapper(lambda batch: {"x": batch["x"] * 2}, batch_format="numpy")
        >>> double.transform_batch({"x": numpy.array([1, 2])})
        {'x': array([2, 4])}

    Args:
        fn: gets a batch and gives one, which may have other columns and another number of rows.
        batch_format: what `fn` gets: "pandas" (default), "numpy" or "pyarrow".
        batch_size: rows that `fn` gets at once when a data set is transformed; None: whole blocks.
    """

    _is_fittable = False
    _functions = ("fn",)

    def __init__(
        self, fn: Callable[[Any], Any], batch_format: str | None = None, batch_size: int | str | None = "default"
    ) -> None:
        if not callable(fn):
            raise ConfigError(f"[BatchMapper] fn is {fn!r}; it must be a function")
        batch_format = getattr(batch_format, "value", batch_format) or "pandas"
        if batch_format not in _FORMATS:
            raise ConfigError(
                f"[BatchMapper] batch_format is {batch_format!r}; it must be one of {', '.join(_FORMATS)}"
            )
        self.fn = fn
        self.batch_format = batch_format
        self.batch_size = batch_size

    def _get_transform_config(self) -> dict[str, Any]:
        return {} if self.batch_size == "default" else {"batch_size": self.batch_size}

    def _transform_dataset(self, ds: Dataset) -> Dataset:
        options = {"batch_format": self.batch_format, **self._get_transform_config()}
        return map_batches(ds, "BatchMapper", self.fn, **options)

    def _transform_batch(self, data: Any) -> Any:
        kind = kind_of(data, "BatchMapper")
        given = converted(data, self.batch_format, "BatchMapper")
        if self.batch_format != "pyarrow":
            given = dict(given) if self.batch_format == "numpy" else given.copy(deep=False)
        result = self.fn(given)
        return converted(result, kind, "BatchMapper")

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", repr(self.fn))
        return f"BatchMapper(fn={name}, batch_format={self.batch_format!r}, batch_size={self.batch_size!r})"
