"""Keras on many workers learns as on one: scikit-learn's digits, the same global batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Callback, Result, session

Fit = Callable[..., Result]
EPOCHS, BATCH = 4, 64


def digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.images[:1536, :, :, None] / 16.0).astype("float32"), data.target[:1536]


def make_model(keras: Any) -> Any:
    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Conv2D(8, 3, activation="relu", input_shape=(8, 8, 1)),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def train_func() -> None:
    import tensorflow as tf
    from lockstep.integrations.keras import ReportCheckpointCallback

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = make_model(tf.keras)
    images, labels = digits()
    model.fit(
        images,
        labels,
        batch_size=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=[ReportCheckpointCallback()],
    )
    session.report({"weights": [weight.tolist() for weight in model.get_weights()]})


@pytest.fixture(scope="module")
def alone() -> tuple[list[float], list[Any]]:
    """Losses and weights of a single process without Lockstep's workers."""
    from lockstep.tensorflow import _framework

    model = make_model(_framework.keras())
    history = model.fit(*digits(), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] / 2
    return history["loss"], model.get_weights()


class LastRow(Callback):
    def __init__(self) -> None:
        self.row: list[dict[str, Any]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.row = [result for result in results if result is not None]


@pytest.mark.parametrize("workers", [2, 4])
def test_digits(tf_fit: Fit, alone: tuple[list[float], list[Any]], workers: int) -> None:
    last = LastRow()
    result = tf_fit(train_func, workers, callbacks=[last])
    rows = [json.loads(line) for line in Path(result.path, "result.json").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses == pytest.approx(alone[0], rel=1e-4)
    assert [row["weights"] for row in last.row] == [last.row[0]["weights"]] * workers, "equal to the last bit"
    for ours, theirs in zip(result.checkpoint.get_model().get_weights(), alone[1], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)
    images, labels = digits()
    predicted = result.checkpoint.get_model().predict(images, verbose=0).argmax(1)
    assert (predicted == labels).mean() > 0.9
