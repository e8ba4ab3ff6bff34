"""TensorFlow and Keras on many workers. For example::

from lockstep import ScalingConfig, session
from lockstep.tensorflow import ReportCheckpointCallback, TensorflowTrainer

def train_func():
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse")
    model.fit(x, y, batch_size=32 * session.get_world_size(), callbacks=[ReportCheckpointCallback()])

TensorflowTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()

Importing this module does not import TensorFlow: the process that calls ``fit()`` need not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.tensorflow.checkpoint import TensorflowCheckpoint
from lockstep.tensorflow.config import TensorflowConfig
from lockstep.tensorflow.data import prepare_dataset_shard
from lockstep.tensorflow.predictor import TensorflowPredictor
from lockstep.tensorflow.trainer import TensorflowTrainer

if TYPE_CHECKING:
    from lockstep.integrations.keras import ReportCheckpointCallback

__all__ = [
    "ReportCheckpointCallback",
    "TensorflowCheckpoint",
    "TensorflowConfig",
    "TensorflowPredictor",
    "TensorflowTrainer",
    "prepare_dataset_shard",
]


def __getattr__(name: str) -> Any:
    """Imports the callback on first access, because its module imports this one."""
    if name != "ReportCheckpointCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lockstep.integrations.keras import ReportCheckpointCallback

    return ReportCheckpointCallback


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
