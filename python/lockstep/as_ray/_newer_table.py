"""The part of the table that stands for what Ray has had since 2.7, and for the libraries below ``ray.train``."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.as_ray._entries import Names, Shared, at

_NEWER = "lockstep.as_ray._newer"
_LIBRARIES = "lockstep.as_ray._libraries"
_CONFIGS = at("lockstep", "CheckpointConfig FailureConfig RunConfig ScalingConfig")
_VALIDATION = at("lockstep", "ValidationConfig ValidationTaskConfig")
_CONTEXT = at(_NEWER, "TrainContext get_context")
TRAIN: Names = {
    **_CONTEXT,
    **at("lockstep.train", "get_checkpoint"),
    **at("lockstep", "Checkpoint Result TrainingFailedError"),
    **_CONFIGS,
    **_VALIDATION,
    **at(
        _NEWER,
        "CheckpointConsistencyMode CheckpointUploadMode ControllerError LoggingConfig ReportedCheckpoint"
        " ReportedCheckpointStatus UserCallback WorkerGroupError get_all_reported_checkpoints",
    ),
}
"""What ``ray.train`` has had since 2.7 or later."""
TUNE: Names = {
    **at("lockstep", "Checkpoint"),
    **at("lockstep.session", "get_checkpoint"),
    **at(_NEWER, "TuneContext=TrainContext get_context"),
}
"""What ``ray.tune`` has had since 2.7 or later."""
_LIGHTNING = at(
    _LIBRARIES,
    "RayDDPStrategy RayDeepSpeedStrategy RayFSDPStrategy RayLightningEnvironment RayTrainReportCallback"
    " prepare_trainer LightningTrainer LightningConfigBuilder",
)
_XGBOOST = {
    **at("lockstep.xgboost", "XGBoostCheckpoint XGBoostPredictor"),
    **at(_LIBRARIES, "XGBoostTrainer XGBoostConfig RayTrainReportCallback=XGBoostReportCallback"),
}
_LIGHTGBM = {
    **at("lockstep.lightgbm", "LightGBMCheckpoint LightGBMPredictor"),
    **at(_LIBRARIES, "LightGBMTrainer LightGBMConfig RayTrainReportCallback=LightGBMReportCallback get_network_params"),
}
_TRANSFORMERS = {
    **at(
        _LIBRARIES,
        "RayTrainReportCallback=TransformersReportCallback prepare_trainer=prepare_transformers_trainer"
        " TransformersTrainer",
    ),
}

MODULES: Mapping[str, Names | Shared] = {
    "ray.train.v2": {},
    "ray.train.v2.api": {},
    "ray.train.v2.api.callback": at(_NEWER, "UserCallback RayTrainCallback=UserCallback"),
    "ray.train.v2.api.config": {**_CONFIGS, **at(_NEWER, "LoggingConfig")},
    "ray.train.v2.api.context": _CONTEXT,
    "ray.train.v2.api.data_parallel_trainer": at("lockstep", "DataParallelTrainer"),
    "ray.train.v2.api.exceptions": {
        **at(_NEWER, "ControllerError WorkerGroupError"),
        **at("lockstep", "TrainingFailedError"),
    },
    "ray.train.v2.api.report_config": at(_NEWER, "CheckpointConsistencyMode CheckpointUploadMode"),
    "ray.train.v2.api.reported_checkpoint": at(_NEWER, "ReportedCheckpoint ReportedCheckpointStatus"),
    "ray.train.v2.api.result": at("lockstep", "Result"),
    "ray.train.v2.api.train_fn_utils": {
        **_CONTEXT,
        **at(_NEWER, "get_all_reported_checkpoints"),
        **at("lockstep.train", "get_checkpoint get_dataset_shard report"),
    },
    "ray.train.v2.api.validation_config": _VALIDATION,
    "ray.train.collective": at(_NEWER, "barrier broadcast_from_rank_zero"),
    "ray.train.lightning": _LIGHTNING,
    "ray.train.huggingface": at(
        _LIBRARIES, "TransformersTrainer HuggingFaceTrainer=TransformersTrainer AccelerateTrainer"
    ),
    "ray.train.huggingface.accelerate": at(_LIBRARIES, "AccelerateTrainer"),
    "ray.train.huggingface.transformers": _TRANSFORMERS,
    "ray.train.xgboost": _XGBOOST,
    "ray.train.lightgbm": _LIGHTGBM,
    "ray.tune.integration.comet": at("lockstep.integrations.comet", "CometLoggerCallback"),
    "ray.tune.logger.comet": at("lockstep.integrations.comet", "CometLoggerCallback"),
    "ray.tune.logger.aim": at("lockstep.integrations.aim", "AimLoggerCallback"),
    "ray.tune.integration.ray_train": at(_NEWER, "TuneReportCallback"),
}
