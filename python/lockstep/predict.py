"""Predictions of a trained model, for one batch or for whole data sets::

    from lockstep.predict import BatchPredictor
    from lockstep.torch import TorchPredictor

    predictor = BatchPredictor.from_checkpoint(result.checkpoint, TorchPredictor, model=Net())
    predictions = predictor.predict(ds, batch_size=256, keep_columns=["id"])
    predictions.write_parquet("predictions")

A predictor applies the preprocessor of its checkpoint first.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from typing_extensions import Self

    from lockstep.data import Dataset

__all__ = ["BatchPredictor", "Predictor"]

PREDICTIONS = "predictions"
"""The column of the predictions."""


class Predictor(abc.ABC):
    """A model that predicts batches. A subclass defines ``from_checkpoint`` and one of ``_predict_numpy`` and
    ``_predict_pandas``::

        class Mean(Predictor):
            @classmethod
            def from_checkpoint(cls, checkpoint, **kwargs):
                return cls(checkpoint.get_preprocessor())

            def _predict_numpy(self, data, **kwargs):
                return {"predictions": data["x"] - data["x"].mean()}
    """

    def __init__(self, preprocessor: Any = None) -> None:
        self._preprocessor = preprocessor

    @classmethod
    @abc.abstractmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> Self:
        """The predictor of the model in a checkpoint, with the checkpoint's preprocessor."""

    @classmethod
    def from_pandas_udf(cls, pandas_udf: Callable[[pd.DataFrame], pd.DataFrame]) -> Predictor:
        """A predictor that is a function of a ``DataFrame``."""
        return _OfFunction(pandas_udf)

    def get_preprocessor(self) -> Any:
        """The preprocessor, or None."""
        return self._preprocessor

    def set_preprocessor(self, preprocessor: Any) -> None:
        """Replaces the preprocessor; None: batches are predicted as they are."""
        self._preprocessor = preprocessor

    @classmethod
    def preferred_batch_format(cls) -> str:
        """``"numpy"``, or ``"pandas"`` for predictors that only define ``_predict_pandas``."""
        return "numpy" if cls._predict_numpy is not Predictor._predict_numpy else "pandas"

    def predict(self, data: Any, **kwargs: Any) -> Any:
        """The predictions for a numpy array, a dict of numpy arrays, a ``DataFrame`` or a pyarrow ``Table``: a
        ``DataFrame`` for a ``DataFrame``, a ``Table`` for a ``Table``, else a dict of arrays."""
        import numpy as np

        from lockstep.data import _batches

        kind = "numpy" if isinstance(data, np.ndarray) else _batches.kind_of(data, type(self).__name__)
        if self._preprocessor is not None:
            data = self._preprocessor.transform_batch(data)
        if self.preferred_batch_format() == "pandas":
            predicted = self._predict_pandas(_as_pandas(data), **kwargs)
        else:
            plain = data if isinstance(data, np.ndarray) else _batches.converted(data, "numpy", "predict")
            predicted = self._predict_numpy(plain, **kwargs)
        return _batches.converted(predicted, kind, type(self).__name__)

    def _predict_numpy(self, data: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
        """For subclasses. `data`: an array, or a dict of arrays."""
        raise NotImplementedError  # never called: predict() uses the other one

    def _predict_pandas(self, data: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
        """For subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines neither _predict_numpy nor _predict_pandas")

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled: its model belongs to this process; "
            "make another from the checkpoint, as BatchPredictor does in each of its workers"
        )


class _OfFunction(Predictor):
    def __init__(self, function: Callable[[pd.DataFrame], pd.DataFrame], preprocessor: Any = None) -> None:
        super().__init__(preprocessor)
        self._function = function

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> _OfFunction:
        return cls(kwargs["pandas_udf"], checkpoint.get_preprocessor())

    def _predict_pandas(self, data: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
        return self._function(data, **kwargs)


class BatchPredictor:
    """Predicts whole data sets, in worker processes that load the model once each; see ``lockstep.predict``."""

    def __init__(self, checkpoint: Checkpoint, predictor_cls: type[Predictor], **predictor_kwargs: Any) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise ConfigError(f"[BatchPredictor] checkpoint is a {type(checkpoint).__name__}; it must be a Checkpoint")
        if not (isinstance(predictor_cls, type) and issubclass(predictor_cls, Predictor)):
            raise ConfigError(f"[BatchPredictor] predictor_cls is {predictor_cls!r}; it must be a class of Predictor")
        self._checkpoint = checkpoint
        self._predictor_cls = predictor_cls
        self._kwargs = predictor_kwargs
        self._preprocessor: list[Any] = []
        """The preprocessor that replaces the checkpoint's, if there is one."""

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, predictor_cls: type[Predictor], **kwargs: Any) -> BatchPredictor:
        """`kwargs` are those of ``predictor_cls.from_checkpoint``."""
        return cls(checkpoint, predictor_cls, **kwargs)

    @classmethod
    def from_pandas_udf(cls, pandas_udf: Callable[[pd.DataFrame], pd.DataFrame]) -> BatchPredictor:
        """A function of a ``DataFrame`` as predictor."""
        return cls(Checkpoint.from_dict({}), _OfFunction, pandas_udf=pandas_udf)

    def get_preprocessor(self) -> Any:
        """The preprocessor that is applied, or None."""
        return self._preprocessor[0] if self._preprocessor else self._checkpoint.get_preprocessor()

    def set_preprocessor(self, preprocessor: Any) -> None:
        """Replaces the checkpoint's; None: batches are predicted as they are."""
        self._preprocessor = [preprocessor]

    def predict(
        self,
        data: Dataset,
        *,
        feature_columns: Sequence[str] | None = None,
        keep_columns: Sequence[str] | None = None,
        batch_size: int = 4096,
        min_scoring_workers: int = 1,
        max_scoring_workers: int | None = None,
        num_cpus_per_worker: float | None = None,
        num_gpus_per_worker: float | None = None,
        separate_gpu_stage: bool = True,
        ray_remote_args: Mapping[str, Any] | None = None,
        **predict_kwargs: Any,
    ) -> Dataset:
        """A data set of the predictions, which are made when its rows are read.

        Args:
            feature_columns: the columns that the model gets; None for all.
            keep_columns: columns that the predictions keep.
            batch_size: rows of a batch.
            min_scoring_workers: worker processes; `max_scoring_workers` of them, if it is given.
            predict_kwargs: of the predictor's ``predict``.

        The other arguments have no meaning here; programs that were written for Ray give them.
        """
        workers = max(min_scoring_workers, max_scoring_workers or 0)
        return data.map_batches(
            _Scorer,
            fn_constructor_args=(self._checkpoint, self._predictor_cls, self._kwargs, self._preprocessor),
            fn_kwargs={"features": feature_columns, "kept": list(keep_columns or ()), "options": predict_kwargs},
            batch_size=batch_size,
            batch_format=self._predictor_cls.preferred_batch_format(),
            keeps_rows=True,
            num_workers=workers,
        )

    def __repr__(self) -> str:
        return f"BatchPredictor({self._checkpoint!r}, {self._predictor_cls.__name__})"


class _Scorer:
    """Made once in each worker process."""

    def __init__(
        self, checkpoint: Checkpoint, kind: type[Predictor], kwargs: dict[str, Any], preprocessor: list[Any]
    ) -> None:
        self._predictor = kind.from_checkpoint(checkpoint, **kwargs)
        if preprocessor:
            self._predictor.set_preprocessor(preprocessor[0])

    def __call__(self, batch: Any, features: Sequence[str] | None, kept: list[str], options: dict[str, Any]) -> Any:
        for name in (*(features or ()), *kept):
            if name not in batch:
                raise ConfigError(f"[BatchPredictor] the data set has no column {name!r}, only {', '.join(batch)}")
        is_frame = not isinstance(batch, dict)
        given = batch if features is None else batch[list(features)] if is_frame else {n: batch[n] for n in features}
        predicted = self._predictor.predict(given, **options)
        for name in kept:
            predicted[name] = batch[name].to_numpy() if is_frame else batch[name]
        return predicted


def _as_pandas(data: Any) -> Any:
    """A ``DataFrame``; columns of an array are numbered."""
    import numpy as np

    from lockstep.data import _batches

    if isinstance(data, np.ndarray):
        data = {"data": data} if data.ndim != 2 else {str(i): data[:, i] for i in range(data.shape[1])}
    return _batches.converted(data, "pandas", "predict")
