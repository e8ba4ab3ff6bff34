"""Predictions of PyTorch models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError
from lockstep.predict import PREDICTIONS, Predictor
from lockstep.torch.checkpoint import TorchCheckpoint

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self


class TorchPredictor(Predictor):
    """Predictions of a PyTorch model.

        >>> model = torch.nn.Linear(2, 1)
        >>> TorchPredictor(model).predict(numpy.ones((4, 2), dtype=numpy.float32))["predictions"].shape
        (4, 1)

    A batch of one column reaches the model as a tensor, one of several as a dict of tensors. If the model returns a
    dict of tensors, its keys are the columns of the predictions. A subclass may define ``call_model``.
    """

    def __init__(self, model: torch.nn.Module, preprocessor: Any = None, use_gpu: bool = False) -> None:
        if not isinstance(model, torch.nn.Module):
            raise ConfigError(f"[TorchPredictor] model is a {type(model).__name__}; it must be a torch.nn.Module")
        super().__init__(preprocessor)
        self.device = torch.device("cuda" if use_gpu else "cpu")
        self.model = model.to(self.device).eval()

    @classmethod
    def from_checkpoint(  # type: ignore[override]
        cls, checkpoint: Checkpoint, model: torch.nn.Module | None = None, use_gpu: bool = False
    ) -> Self:
        """`model`: one of the class that was saved, if the checkpoint holds a ``state_dict()``."""
        loaded = TorchCheckpoint.from_checkpoint(checkpoint).get_model(model)
        return cls(loaded, checkpoint.get_preprocessor(), use_gpu)

    def call_model(self, inputs: torch.Tensor | dict[str, torch.Tensor]) -> torch.Tensor | Mapping[str, torch.Tensor]:
        """What the model returns for a batch."""
        return self.model(inputs)  # type: ignore[no-any-return]

    def predict(self, data: Any, dtype: torch.dtype | Mapping[str, torch.dtype] | None = None, **kwargs: Any) -> Any:
        """As Predictor.predict(). `dtype`: that of the model's inputs, or one for each column; None: that of the
        data."""
        return super().predict(data, dtype=dtype, **kwargs)

    def _predict_numpy(self, data: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
        dtype = kwargs.pop("dtype", None)
        if kwargs:
            raise ConfigError(f"[TorchPredictor] predict does not take {', '.join(kwargs)}")

        def tensor(name: str, array: Any) -> torch.Tensor:
            wanted = dtype.get(name) if isinstance(dtype, Mapping) else dtype
            mine = array if array.flags.writeable else array.copy()
            return torch.as_tensor(mine).to(self.device, wanted)

        if not isinstance(data, dict):
            inputs: torch.Tensor | dict[str, torch.Tensor] = tensor("", data)
        elif len(data) == 1:
            inputs = tensor(*next(iter(data.items())))
        else:
            inputs = {name: tensor(name, array) for name, array in data.items()}
        with torch.inference_mode():
            predicted = self.call_model(inputs)
        if isinstance(predicted, torch.Tensor):
            return {PREDICTIONS: predicted.cpu().numpy()}
        if isinstance(predicted, Mapping) and all(isinstance(each, torch.Tensor) for each in predicted.values()):
            return {name: each.cpu().numpy() for name, each in predicted.items()}
        raise ConfigError(
            f"[TorchPredictor] the model returned a {type(predicted).__name__}; it must return a tensor or a dict of "
            "tensors. Define call_model() in a subclass otherwise"
        )
