"""Preprocessors of images, for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from lockstep.data.preprocessor import Preprocessor
from lockstep.data.preprocessors._column_preprocessor import column_names
from lockstep.errors import ConfigError


class TorchVisionPreprocessor(Preprocessor):
    """Applies a transform of torchvision, or another function of images. It needs no fit.

        >>> flip = TorchVisionPreprocessor(["image"], transform=lambda image: image.flip(-1))
        >>> flip.transform_batch({"image": numpy.arange(6).reshape(1, 2, 3)})
        {'image': array([[[2, 1, 0],
                [5, 4, 3]]])}

    Args:
        columns: the columns of images.
        transform: gets a tensor and gives a tensor or an array. One that takes no tensors, like ``ToTensor``, gets the
            numpy array.
        output_columns: where the results go, for each of `columns`; else they replace the images.
        batched: whether the transform gets all images of a batch at once, else one after the other.
    """

    _is_fittable = False
    _functions = ("transform",)

    def __init__(
        self,
        columns: Sequence[str],
        transform: Callable[[Any], Any],
        output_columns: Sequence[str] | None = None,
        batched: bool = False,
    ) -> None:
        self.columns = column_names(columns, "TorchVisionPreprocessor")
        self.output_columns = (
            None if output_columns is None else column_names(output_columns, "TorchVisionPreprocessor")
        )
        if self.output_columns is not None and len(self.output_columns) != len(self.columns):
            raise ConfigError(
                f"[TorchVisionPreprocessor] output_columns has {len(self.output_columns)} names, "
                f"but columns {len(self.columns)}"
            )
        self.transform_fn = transform
        self.batched = batched

    def _transform_numpy(self, np_data: dict[str, Any]) -> dict[str, Any]:
        for column, output in zip(self.columns, self.output_columns or self.columns, strict=True):
            images = np_data[column]
            if self.batched:
                np_data[output] = self._apply(images)
                continue
            results = [self._apply(image) for image in images]
            if len({result.shape for result in results}) == 1:
                np_data[output] = numpy.stack(results)
            else:
                np_data[output] = numpy.empty(len(results), dtype=object)
                for row, result in enumerate(results):
                    np_data[output][row] = result
        return np_data

    def _apply(self, image: Any) -> numpy.ndarray[Any, Any]:
        import torch

        try:
            result = self.transform_fn(torch.as_tensor(numpy.array(image)))
        except TypeError:  # ToTensor takes arrays and Pillow images only
            result = self.transform_fn(image)
        if isinstance(result, torch.Tensor):
            result = result.numpy()
        if not isinstance(result, numpy.ndarray):
            raise ConfigError(
                f"[TorchVisionPreprocessor] transform gives a {type(result).__name__}; it must give a tensor or array"
            )
        return result

    def _arguments(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "transform": self.transform_fn,
            "output_columns": self.output_columns,
            "batched": self.batched,
        }

    def __repr__(self) -> str:
        return (
            f"TorchVisionPreprocessor(columns={self.columns!r}, output_columns={self.output_columns!r}, "
            f"transform={self.transform_fn!r})"
        )
