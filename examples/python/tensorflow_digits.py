"""Keras on two workers, then on four: the digits of scikit-learn.

    scripts/environments.sh tf
    .venv-tf/bin/python examples/python/tensorflow_digits.py

Prints, after a table of losses of both runs and of one process alone:

    loss as in one process: True
    accuracy above 90 %: True
"""

from __future__ import annotations

from typing import Any

from lockstep import Result, RunConfig, ScalingConfig, session
from lockstep.tensorflow import ReportCheckpointCallback, TensorflowTrainer

EPOCHS, GLOBAL_BATCH = 6, 64


def digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.images[:1536, :, :, None] / 16.0).astype("float32"), data.target[:1536]


def make_model() -> Any:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(16, 3, activation="relu", input_shape=(8, 8, 1)),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def train_func() -> None:
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = make_model()
    checkpoint = session.get_checkpoint()
    done = 0
    if checkpoint is not None:  # after a failure
        checkpoint.get_model(model)
        done = int(model.optimizer.iterations.numpy()) * GLOBAL_BATCH // 1536
    images, labels = digits()
    model.fit(
        images,
        labels,
        batch_size=GLOBAL_BATCH,
        initial_epoch=done,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=[ReportCheckpointCallback()],
    )


def alone() -> list[float]:
    """The same in this process, without any strategy."""
    history = make_model().fit(*digits(), batch_size=GLOBAL_BATCH, epochs=EPOCHS, shuffle=False, verbose=0).history
    losses: list[float] = history["loss"]
    return losses


def on_workers(count: int) -> Result:
    trainer = TensorflowTrainer(
        train_func, scaling_config=ScalingConfig(num_workers=count), run_config=RunConfig(verbose=0)
    )
    return trainer.fit()


def main() -> None:
    results = {count: on_workers(count) for count in (2, 4)}
    model = results[2].checkpoint.get_model()  # imports TensorFlow as workers do: with Keras 2, and no log lines
    curves = {"1 process": alone()}
    for count, result in results.items():
        curves[f"{count} workers"] = result.metrics_dataframe["loss"].tolist()
    for name, losses in curves.items():
        print(f"{name:<10}", *(f"{loss:.3f}" for loss in losses))
    wanted, *found = curves.values()
    close = all(abs(a - b) < 0.05 * a for losses in found for a, b in zip(wanted, losses, strict=True))
    print("loss as in one process:", close)
    images, labels = digits()
    predicted = model.predict(images, verbose=0).argmax(1)
    print("accuracy above 90 %:", bool((predicted == labels).mean() > 0.9))


if __name__ == "__main__":
    main()
