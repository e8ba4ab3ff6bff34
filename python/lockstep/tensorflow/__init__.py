"""TensorFlow and Keras on many workers. For example::

from lockstep import ScalingConfig, session
from lockstep.integrations.keras import ReportCheckpointCallback
from lockstep.tensorflow import TensorflowTrainer

def train_func():
    import tensorflow as tf

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse")
    model.fit(x, y, batch_size=32 * session.get_world_size(), callbacks=[ReportCheckpointCallback()])

TensorflowTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()

Importing this imports no TensorFlow: the process that calls ``fit()`` need not load it.
"""

from lockstep.tensorflow.checkpoint import TensorflowCheckpoint
from lockstep.tensorflow.config import TensorflowConfig
from lockstep.tensorflow.data import prepare_dataset_shard
from lockstep.tensorflow.trainer import TensorflowTrainer

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]
