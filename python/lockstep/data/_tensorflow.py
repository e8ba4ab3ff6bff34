"""Batches as TensorFlow sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.compute
import tensorflow as tf

from lockstep.data._formats import empty_batch, to_numpy
from lockstep.errors import ConfigError


def to_tensors(batch: Any, dtypes: Any) -> dict[str, Any]:
    """Tensors by column; `dtypes` is one, or by column."""
    rows = pyarrow.record_batch(batch)
    given = dtypes if isinstance(dtypes, Mapping) else dict.fromkeys(rows.schema.names, dtypes)
    return {name: _to_tensor(name, array, rows, given.get(name)) for name, array in to_numpy(rows).items()}


def _to_tensor(name: str, array: Any, rows: pyarrow.RecordBatch, dtype: Any) -> Any:
    kind = rows.schema.field(name).type
    if _is_list(kind) and array.dtype.kind == "O":
        column = rows[name]
        if column.null_count:
            raise ConfigError(f"[data] the column {name!r} has lists that are null; there are no tensors of these")
        values = to_numpy(pyarrow.record_batch({name: column.flatten()}))[name]
        lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False).astype("int64")
        tensor = tf.RaggedTensor.from_row_lengths(tf.convert_to_tensor(values), lengths)
        return tensor if dtype is None else tf.cast(tensor, dtype)
    if array.dtype.kind == "O" and (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        array = ["" if text is None else text for text in array.tolist()]
    elif array.dtype.kind not in "biufc":
        raise ConfigError(
            f"[data] the column {name!r} is {kind}, of which there are no tensors; leave it out with select_columns()"
        )
    tensor = tf.convert_to_tensor(array)
    return tensor if dtype is None else tf.cast(tensor, dtype)


class Pairs:
    """What to_tf() gives: features and labels."""

    def __init__(self, schema: pyarrow.Schema, features: str | Sequence[str], labels: str | Sequence[str]) -> None:
        self._schema = schema
        self._features = features if isinstance(features, str) else list(features)
        self._labels = labels if isinstance(labels, str) else list(labels)
        for argument, columns in (("feature_columns", self._features), ("label_columns", self._labels)):
            for name in [columns] if isinstance(columns, str) else columns:
                if name not in schema.names:
                    raise ConfigError(f"[data] {argument} has {name!r}, but the columns are {', '.join(schema.names)}")

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        wanted = [self._features] if isinstance(self._features, str) else self._features
        wanted = [*wanted, *([self._labels] if isinstance(self._labels, str) else self._labels)]
        rows = pyarrow.record_batch(batch).select(list(dict.fromkeys(wanted)))
        tensors = to_tensors(rows, None)
        return _picked(self._features, tensors), _picked(self._labels, tensors)

    def dataset(self, begin: Callable[[], Iterator[Any]]) -> tf.data.Dataset:
        """A data set whose loops are `begin()`."""
        empty = self(empty_batch(self._schema))
        signature = tf.nest.map_structure(_spec, empty, expand_composites=False)
        data = tf.data.Dataset.from_generator(begin, output_signature=signature)
        options = tf.data.Options()
        # Every worker has its own rows already.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return data.with_options(options)


def _picked(columns: str | list[str], tensors: dict[str, Any]) -> Any:
    return tensors[columns] if isinstance(columns, str) else {name: tensors[name] for name in columns}


def _spec(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec(shape=[None, *tensor.shape[1:]], dtype=tensor.dtype)
    return tf.TensorSpec(shape=[None, *tensor.shape[1:]], dtype=tensor.dtype)


def _is_list(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind))
