"""Trains a TensorFlow model on many workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep._framework_trainer import FrameworkTrainer, Settings
from lockstep.backend import BackendConfig
from lockstep.checkpoint import Checkpoint
from lockstep.config import DataConfig, RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.tensorflow.checkpoint import TensorflowCheckpoint
from lockstep.tensorflow.config import TensorflowConfig
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class TensorflowTrainer(FrameworkTrainer):
    """Runs a TensorFlow training function on ``scaling_config.num_workers`` workers, with ``TF_CONFIG`` set::

        from lockstep import ScalingConfig, session
        from lockstep.tensorflow import ReportCheckpointCallback, TensorflowTrainer

        def train_func(config):
            import tensorflow as tf

            with tf.distribute.MultiWorkerMirroredStrategy().scope():
                model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
                model.compile(optimizer="adam", loss="mse")
                checkpoint = session.get_checkpoint()
                if checkpoint:  # after a failure
                    checkpoint.get_model(model)
            model.fit(x, y, batch_size=32 * session.get_world_size(), callbacks=[ReportCheckpointCallback()])

        TensorflowTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)).fit()

    ``batch_size`` is that of all workers together. ``session.get_checkpoint()`` and the ``Result`` return a
    ``TensorflowCheckpoint``.
    """

    _config_type: ClassVar[type[BackendConfig]] = TensorflowConfig
    _two_spellings: ClassVar[str] = "tensorflow_config and tensorflow_backend are two spellings of one thing; give one"
    _checkpoint_type: ClassVar[type[Checkpoint]] = TensorflowCheckpoint

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: TrainLoopConfig | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        tensorflow_backend: TensorflowConfig | None = None,
    ) -> None:
        settings = Settings(
            scaling_config,
            run_config,
            resume_from_checkpoint,
            datasets,
            dataset_config,
            preprocessor,
            metadata,
            validation_config,
        )
        super().__init__(train_loop_per_worker, train_loop_config, settings, tensorflow_config, tensorflow_backend)

    @classmethod
    def restore(  # type: ignore[override]
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: TrainLoopConfig | None = None,
        *,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        tensorflow_backend: TensorflowConfig | None = None,
    ) -> Self:
        """A trainer that continues the run at `path`; see DataParallelTrainer.restore()."""
        settings = Settings(scaling_config, run_config, resume_from_checkpoint, datasets, dataset_config, preprocessor)
        return cls._from_run(
            path, train_loop_per_worker, train_loop_config, settings, tensorflow_config, tensorflow_backend
        )
