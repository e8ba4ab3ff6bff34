"""Predictions of Keras models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError
from lockstep.predict import PREDICTIONS, Predictor
from lockstep.tensorflow.checkpoint import TensorflowCheckpoint

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self


class TensorflowPredictor(Predictor):
    """Predictions of a Keras model::

        predictor = TensorflowPredictor.from_checkpoint(result.checkpoint)
        predictor.predict(numpy.ones((4, 2)))["predictions"]

    A batch of one column reaches the model as a tensor, one of several as a dict of tensors. If the model returns a
    dict of tensors, its keys are the columns of the predictions. A subclass may define ``call_model``.
    """

    def __init__(self, *, model: Any = None, preprocessor: Any = None, use_gpu: bool = False) -> None:
        super().__init__(preprocessor)
        self.use_gpu = use_gpu
        self._model = model

    @classmethod
    def from_checkpoint(  # type: ignore[override]
        cls, checkpoint: Checkpoint, model_definition: Callable[[], Any] | None = None, use_gpu: bool = False
    ) -> Self:
        """`model_definition`: makes a model, into which the checkpoint's weights are loaded, if the checkpoint does not
        describe the model."""
        stored = TensorflowCheckpoint.from_checkpoint(checkpoint)
        model = stored.get_model() if model_definition is None else stored.get_model(model_definition)
        return cls(model=model, preprocessor=checkpoint.get_preprocessor(), use_gpu=use_gpu)

    def call_model(self, inputs: Any) -> Any:
        """What the model returns for a batch."""
        return self._model(inputs)

    def predict(self, data: Any, dtype: Any = None, **kwargs: Any) -> Any:
        """As Predictor.predict(). `dtype`: TensorFlow's type of the model's inputs, or one for each column; None: that
        of the data."""
        return super().predict(data, dtype=dtype, **kwargs)

    def _predict_numpy(self, data: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
        import tensorflow as tf

        dtype = kwargs.pop("dtype", None)
        if kwargs:
            raise ConfigError(f"[TensorflowPredictor] predict does not take {', '.join(kwargs)}")

        def tensor(name: str, array: Any) -> Any:
            return tf.convert_to_tensor(array, dtype=dtype.get(name) if isinstance(dtype, Mapping) else dtype)

        with tf.device("GPU:0" if self.use_gpu else "cpu:0"):
            if not isinstance(data, dict):
                inputs = tensor("", data)
            elif len(data) == 1:
                inputs = tensor(*next(iter(data.items())))
            else:
                inputs = {name: tensor(name, array) for name, array in data.items()}
            predicted = self.call_model(inputs)
        if isinstance(predicted, Mapping):
            return {name: each.numpy() for name, each in predicted.items()}
        return {PREDICTIONS: predicted.numpy()}
