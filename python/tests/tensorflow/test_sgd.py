"""RaySGD's Trainer and the older API on TensorFlow's backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from lockstep import sgd


def test_workers_that_stay_train_again_and_again(tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> list[float]:
        import tensorflow as tf

        with tf.distribute.MultiWorkerMirroredStrategy().scope():
            model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
            model.compile(optimizer=tf.keras.optimizers.SGD(config["lr"]), loss="mse")
        x = np.arange(16).reshape(8, 2).astype("float32") / 16
        losses: list[float] = model.fit(x, x[:, :1] + 1, batch_size=4, epochs=3, verbose=0).history["loss"]
        for loss in losses:
            sgd.report(loss=loss)
        return losses

    with sgd.Trainer(backend="tensorflow", num_workers=2, logdir=tmp_path) as trainer:
        for _ in range(2):
            first, second = trainer.run(train_func, config={"lr": 0.1})
            assert first == second and len(first) == 3 and first[-1] < first[0]
