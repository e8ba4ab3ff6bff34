"""What the fork server imports before it forks the workers of a TensorFlow run.

No operation may run here: it would start threads, which do not survive a fork.
"""

from lockstep.tensorflow import _framework

with _framework.silent_import():
    import tensorflow as tf

    import lockstep.integrations.keras
    import lockstep.tensorflow

    tf.keras.layers  # noqa: B018  # Keras is loaded when it is first looked at
    lockstep.integrations.keras.ReportCheckpointCallback  # noqa: B018
