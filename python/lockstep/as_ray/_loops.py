"""The loops over data sets with the arguments and defaults of Ray's releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import pyarrow

from lockstep.as_ray._rows import ITEM, TENSOR, converter, rows_of
from lockstep.data._loops import Loop, Loops


class RayLoops(Loops):
    """For data sets, pipelines and shards. Ray's `prefetch_blocks` has no meaning: threads read ahead in any case."""

    def iter_rows(self, *, prefetch_blocks: int = 0) -> Iterator[Any]:
        """Single rows: dicts, or up to Ray 2.0 values of any kind."""
        return self._loop(lambda batch: rows_of(pyarrow.record_batch(batch)), Loop(1, rows=True), "iter_rows")

    def iter_batches(
        self,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        *,
        prefetch_blocks: int = 0,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        _collate_fn: Any = None,
    ) -> Iterator[Any]:
        """Batches of the release's own format, or of the one that is named."""
        convert = converter(batch_format)
        loop = Loop(batch_size, drop_last, 0, local_shuffle_buffer_size, local_shuffle_seed)

        def made(batch: Any) -> Any:
            value = convert(pyarrow.record_batch(batch))
            return value if _collate_fn is None else _collate_fn(value)

        return self._loop(made, loop, f"conversion to {batch_format}")

    def iter_torch_batches(
        self, batch_size: int | None = 256, *, prefetch_blocks: int = 0, **options: Any
    ) -> Iterator[Any]:
        """Dicts of tensors, or tensors if the rows are no dicts."""
        options.pop("batch_format", None)  # of pipelines in 2.0
        return map(_single, super().iter_torch_batches(batch_size, **options))

    def iter_tf_batches(
        self, batch_size: int | None = 256, *, prefetch_blocks: int = 0, **options: Any
    ) -> Iterator[Any]:
        """Dicts of tensors, or tensors if the rows are no dicts."""
        options.pop("batch_format", None)
        return map(_single, super().iter_tf_batches(batch_size, **options))

    def to_torch(self, *, prefetch_blocks: int = 0, **options: Any) -> Any:
        """Pairs of features and labels."""
        return super().to_torch(**options)

    def to_tf(
        self,
        feature_columns: Any = None,
        label_columns: Any = None,
        *,
        output_signature: Any = None,
        label_column: str | None = None,
        prefetch_blocks: int = 0,
        **options: Any,
    ) -> Any:
        """Pairs of features and labels: by columns as in 2.6, or with the `output_signature` of 2.0, where features are
        matrices with a column each."""
        if output_signature is None:
            return super().to_tf(feature_columns, label_columns, **options)
        import tensorflow as tf

        def batches() -> Iterator[Any]:
            for frame in self.iter_batches(**{"batch_size": 1, **options}, batch_format="pandas"):
                label = None if label_column is None else _matrix(frame, label_column)
                rest = frame if label_column is None else frame.drop(columns=[label_column])
                features = _features(rest, feature_columns)
                yield features if label_column is None else (features, label)

        data = tf.data.Dataset.from_generator(batches, output_signature=output_signature)
        choices = tf.data.Options()
        # Every worker has its own rows already.
        choices.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return data.with_options(choices)


def _single(batch: Any) -> Any:
    if isinstance(batch, dict) and len(batch) == 1 and next(iter(batch)) in (ITEM, TENSOR):
        return next(iter(batch.values()))
    return batch


def _features(frame: Any, columns: Any) -> Any:
    if isinstance(columns, Mapping):
        return {key: _matrix(frame, group) for key, group in columns.items()}
    if columns and not isinstance(columns, str) and not isinstance(columns[0], str):
        return tuple(_matrix(frame, group) for group in columns)
    return _matrix(
        frame, list(frame.columns) if columns is None else [columns] if isinstance(columns, str) else columns
    )


def _matrix(frame: Any, columns: str | Sequence[str]) -> Any:
    if isinstance(columns, str):
        return _array(frame[columns])
    parts = [_array(frame[name]) for name in columns]
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    return parts[0] if len(parts) == 1 else numpy.concatenate(parts, axis=1)


def _array(series: Any) -> Any:
    values = series.to_numpy()
    is_arrays = values.dtype == object and len(values) and isinstance(values[0], numpy.ndarray)
    return numpy.stack(list(values)) if is_arrays else values
