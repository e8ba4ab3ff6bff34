"""Data sets as TensorFlow sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import tensorflow as tf
from lockstep import ConfigError, Result, session

pytest.importorskip("pyarrow")
import lockstep.data


def test_batches_as_tensors() -> None:
    rows = [{"x": float(n), "s": str(n), "l": list(range(n)), "b": n > 2} for n in range(5)]
    first, second = lockstep.data.from_items(rows).iter_tf_batches(batch_size=3)
    assert first["x"].dtype == tf.float64 and first["s"].numpy().tolist() == [b"0", b"1", b"2"]
    assert isinstance(first["l"], tf.RaggedTensor) and second["l"].to_list() == [[0, 1, 2], [0, 1, 2, 3]]
    assert second["b"].numpy().tolist() == [True, True]
    (batch,) = lockstep.data.range(3).iter_tf_batches(dtypes={"id": tf.float32})
    assert batch["id"].dtype == tf.float32
    with pytest.raises(ConfigError, match="there are no tensors"):
        next(lockstep.data.from_items([{"d": {"a": 1}}]).iter_tf_batches())


def test_to_tf_gives_pairs() -> None:
    ds = lockstep.data.from_numpy({"x": numpy.arange(30.0).reshape(10, 3), "y": numpy.arange(10)})
    pairs = ds.to_tf("x", "y", batch_size=4, drop_last=True)
    assert pairs.element_spec[0].shape.as_list() == [None, 3] and pairs.element_spec[1].dtype == tf.int64
    for _ in range(2):
        assert [(x.shape[0], y.shape[0]) for x, y in pairs] == [(4, 4), (4, 4)]
    for features, labels in ds.to_tf(["x"], ["y"], batch_size=10):
        assert features["x"].shape == (10, 3) and labels["y"].numpy().tolist() == list(range(10))
    with pytest.raises(ConfigError, match="label_columns has 'z', but the columns are x, y"):
        ds.to_tf("x", "z")


def test_keras_trains_on_a_shard(tf_fit: Callable[..., Result]) -> None:
    def train_func() -> None:
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.1))
        shard = session.get_dataset_shard("train")
        losses: list[Any] = []
        for _ in range(3):
            losses += model.fit(shard.to_tf("x", "y", batch_size=8), verbose=0).history["loss"]
        session.report({"losses": losses, "epoch": shard.epoch, "rows": shard.stats().rows})

    x = numpy.random.default_rng(0).random((64, 2))
    data = lockstep.data.from_numpy({"x": x, "y": x.sum(axis=1)})
    metrics = tf_fit(train_func, 2, datasets={"train": data}).metrics
    assert metrics["losses"][-1] < metrics["losses"][0] / 2 and metrics["rows"] == 3 * 32 and metrics["epoch"] == 3
