"""The table of all modules of Ray that exist here, and where each of their names is in Lockstep.

To add a name, write it after its module. Names that Lockstep does not have yet are in the same table: once Lockstep has
them, ``later(DATA, ...)`` becomes ``at("lockstep.data", ...)``. The modules of Tune are in a table of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.as_ray import _newer_table
from lockstep.as_ray._entries import At, Names, PerRelease, Shared, Topic, at, later, values
from lockstep.as_ray._tune_table import FILES, TUNE

RELEASES = {"1.7": "1.7.0", "2.0": "2.0.0", "2.6": "2.6.0", "2.7": "2.7.0", "2.60": "2.60.0"}
"""The releases that can be chosen, and their ``ray.__version__``."""

DATA = Topic("this part of Ray Data is not available yet", "use a Dataset as it is: it streams, and epochs repeat it")
_CLUSTER = "lockstep.as_ray._cluster"
_SHARD = at("lockstep.session", "get_dataset_shard")
_TRAINER = {
    **at("lockstep.as_ray._base_trainer", "BaseTrainer"),
    **at("lockstep", "TrainingFailedError"),
}
_KEYS = values(
    PREPROCESSOR_KEY="_preprocessor", MODEL_KEY="model", TRAIN_DATASET_KEY="train", EVALUATION_DATASET_KEY="evaluation"
)
_ENVIRONMENT = values(
    COPY_DIRECTORY_CHECKPOINTS_INSTEAD_OF_MOVING_ENV="TRAIN_COPY_DIRECTORY_CHECKPOINTS_INSTEAD_OF_MOVING",
    DISABLE_LAZY_CHECKPOINTING_ENV="TRAIN_DISABLE_LAZY_CHECKPOINTING",
)
_AUTOFILLED = at(
    "lockstep.sgd.names",
    "BASIC_AUTOFILLED_KEYS DETAILED_AUTOFILLED_KEYS TIMESTAMP TIME_THIS_ITER_S TRAINING_ITERATION DATE HOSTNAME"
    " NODE_IP PID TIME_TOTAL_S TUNE_CHECKPOINT_FILE_NAME",
)
_FUNCTIONS = "load_checkpoint local_rank report save_checkpoint world_rank world_size"
_SGD_CALLBACKS = at("lockstep.sgd.callbacks", "JsonLoggerCallback PrintCallback TBXLoggerCallback")
_RUN_CALLBACKS = {**_SGD_CALLBACKS, "TBXLoggerCallback": At("lockstep.sgd.callbacks", "TrainTBXLoggerCallback")}
_BACKEND = at("lockstep.sgd.backends", "Backend BackendConfig")

MODULES: Mapping[str, Names | Shared] = {
    # ------------------------------------------------------------------ the cluster, which is this machine
    "ray": {
        "__version__": PerRelease(RELEASES),
        **at(
            _CLUSTER,
            "ObjectRef available_resources cluster_resources get_gpu_ids init is_initialized nodes put shutdown",
        ),
        **at("lockstep.as_ray._remote", "cancel get get_actor kill method remote wait"),
    },
    "ray.actor": at("lockstep.as_ray._remote", "ActorHandle"),
    "ray.cloudpickle": Shared("cloudpickle"),
    "ray.exceptions": {
        **at("lockstep", "RayError=LockstepError RayTaskError=TrainingFailedError RayActorError=EngineError"),
        **at("lockstep", "WorkerCrashedError=EngineError ActorDiedError=EngineError"),
        **at("lockstep", "GetTimeoutError=LockstepTimeoutError"),
    },
    "ray.util": at(_CLUSTER, "get_node_ip_address placement_group remove_placement_group"),
    # ------------------------------------------------------------------ AIR
    "ray.air": {
        **at("lockstep", "Checkpoint CheckpointConfig FailureConfig Result RunConfig ScalingConfig"),
        **at("lockstep.as_ray._dataset_config", "DatasetConfig"),
    },
    "ray.air.config": {
        **at("lockstep", "CheckpointConfig FailureConfig RunConfig ScalingConfig"),
        **at("lockstep.as_ray._dataset_config", "DatasetConfig"),
    },
    "ray.air.checkpoint": {
        **at("lockstep", "Checkpoint"),
        **values(_DICT_CHECKPOINT_ADDITIONAL_FILE_KEY="_ray_additional_checkpoint_files"),
    },
    "ray.air.result": at("lockstep", "Result"),
    "ray.air.session": Shared(
        "lockstep.session", {**_SHARD, **at("lockstep.as_ray._tune_names", "get_trial_resources")}
    ),
    "ray.air.constants": {
        **FILES,
        **_KEYS,
        **_ENVIRONMENT,
        **values(
            CHECKPOINT_ID_ATTR="_current_checkpoint_id",
            MAX_REPR_LENGTH=120,
            TENSOR_COLUMN_NAME="__value__",
            TIMESTAMP="timestamp",
            TIME_THIS_ITER_S="time_this_iter_s",
            TRAINING_ITERATION="training_iteration",
        ),
    },
    "ray.air.callbacks": {},
    "ray.air.callbacks.keras": at("lockstep.integrations.keras", "Callback"),
    "ray.air.integrations": {},
    "ray.air.integrations.keras": {
        **at("lockstep.as_ray._keras", "Callback"),
        **at("lockstep.integrations.keras", "ReportCheckpointCallback"),
    },
    "ray.air.integrations.mlflow": Shared("lockstep.integrations.mlflow"),
    "ray.air.integrations.wandb": Shared("lockstep.integrations.wandb"),
    "ray.air.integrations.comet": Shared("lockstep.integrations.comet"),
    # ------------------------------------------------------------------ Train
    "ray.train": {
        **at("lockstep.train", f"{_FUNCTIONS} Trainer"),
        **_newer_table.TRAIN,
        **at("lockstep.sgd", "BackendConfig CheckpointStrategy TrainingCallback=SGDCallback"),
        **at("lockstep.sgd", "TrainingIterator=SGDIterator"),
        **values(TRAIN_DATASET_KEY="train"),
        **_SHARD,
        **at("lockstep.config", "DataConfig"),
        **at("lockstep.as_ray._tune_names", "SyncConfig"),
    },
    "ray.train.context": at("lockstep.as_ray._newer", "TrainContext get_context"),
    "ray.train.trainer": {
        **_TRAINER,
        **at("lockstep.train", "Trainer"),
        **at("lockstep.sgd", "TrainingIterator=SGDIterator"),
    },
    "ray.train.base_trainer": _TRAINER,
    "ray.train.data_parallel_trainer": at("lockstep", "DataParallelTrainer"),
    "ray.train.backend": _BACKEND,
    "ray.train.batch_predictor": at("lockstep.predict", "BatchPredictor"),
    "ray.train.predictor": at("lockstep.predict", "Predictor"),
    "ray.train.callbacks": {
        **_RUN_CALLBACKS,
        **at("lockstep.sgd.callbacks", "TrainingCallback"),
        **at("lockstep.as_ray._run_callbacks", "TorchTensorboardProfilerCallback"),
    },
    "ray.train.callbacks.callback": at("lockstep.sgd.callbacks", "TrainingCallback"),
    "ray.train.callbacks.logging": {
        **_RUN_CALLBACKS,
        **at("lockstep.as_ray._run_callbacks", "MLflowLoggerCallback TorchTensorboardProfilerCallback"),
    },
    "ray.train.constants": {
        **_AUTOFILLED,
        **_KEYS,
        **_ENVIRONMENT,
        **values(
            ENABLE_DETAILED_AUTOFILLED_METRICS_ENV="TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS",
            ENABLE_SHARE_CUDA_VISIBLE_DEVICES_ENV="TRAIN_ENABLE_SHARE_CUDA_VISIBLE_DEVICES",
            TRAIN_ENABLE_WORKER_SPREAD_ENV="TRAIN_ENABLE_WORKER_SPREAD",
            TRAIN_PLACEMENT_GROUP_TIMEOUT_S_ENV="TRAIN_PLACEMENT_GROUP_TIMEOUT_S",
            TUNE_CHECKPOINT_ID="_current_checkpoint_id",
        ),
    },
    "ray.train.torch": Shared("lockstep.torch", at("lockstep.as_ray._newer", "get_devices")),
    "ray.train.torch.config": Shared("lockstep.torch.config"),
    "ray.train.torch.torch_checkpoint": at("lockstep.torch", "TorchCheckpoint"),
    "ray.train.torch.torch_trainer": at("lockstep.torch", "TorchTrainer"),
    "ray.train.torch.train_loop_utils": at(
        "lockstep.torch",
        "accelerate backward enable_reproducibility get_device prepare_data_loader prepare_model prepare_optimizer"
        " TorchWorkerProfiler",
    ),
    "ray.train.tensorflow": {
        **at("lockstep.tensorflow", "TensorflowCheckpoint TensorflowConfig TensorflowPredictor TensorflowTrainer"),
        **at("lockstep.tensorflow", "prepare_dataset_shard"),
    },
    "ray.train.tensorflow.keras": at("lockstep.integrations.keras", "ReportCheckpointCallback"),
    "ray.train.tensorflow.config": at("lockstep.tensorflow", "TensorflowConfig"),
    "ray.train.tensorflow.tensorflow_checkpoint": at("lockstep.tensorflow", "TensorflowCheckpoint"),
    "ray.train.tensorflow.tensorflow_trainer": at("lockstep.tensorflow", "TensorflowTrainer"),
    "ray.train.horovod": at("lockstep.horovod", "HorovodConfig HorovodTrainer"),
    "ray.train.horovod.config": at("lockstep.horovod", "HorovodConfig"),
    "ray.train.horovod.horovod_trainer": at("lockstep.horovod", "HorovodTrainer"),
    # ------------------------------------------------------------------ RaySGD
    "ray.sgd": at("lockstep.sgd", "get_data_shard get_dataset=get_dataset_shard"),
    "ray.util.sgd": {},
    "ray.util.sgd.v2": {
        **at("lockstep.sgd", f"{_FUNCTIONS} BackendConfig CheckpointConfig CheckpointStrategy JsonLoggerCallback"),
        **at("lockstep.sgd", "PrintCallback SGDCallback SGDIterator TBXLoggerCallback TorchConfig Trainer"),
        **at("lockstep.horovod", "HorovodConfig"),
        **at("lockstep.tensorflow", "TensorflowConfig"),
        **at("lockstep.sgd", "get_data_shard get_dataset_shard"),
    },
    "ray.util.sgd.v2.trainer": at("lockstep.sgd", "SGDIterator Trainer"),
    "ray.util.sgd.v2.backends": {},
    "ray.util.sgd.v2.backends.backend": {**_BACKEND, **at("lockstep.sgd.backends", "BackendInterface")},
    "ray.util.sgd.v2.backends.horovod": at("lockstep.horovod", "HorovodConfig"),
    "ray.util.sgd.v2.backends.tensorflow": at("lockstep.tensorflow", "TensorflowConfig"),
    "ray.util.sgd.v2.backends.torch": at("lockstep.sgd", "TorchConfig"),
    "ray.util.sgd.v2.callbacks": {**_SGD_CALLBACKS, **at("lockstep.sgd.callbacks", "SGDCallback")},
    "ray.util.sgd.v2.callbacks.callback": at("lockstep.sgd.callbacks", "SGDCallback"),
    "ray.util.sgd.v2.checkpoint": at("lockstep.sgd", "CheckpointStrategy"),
    "ray.util.sgd.v2.constants": {
        **_AUTOFILLED,
        **at("lockstep.sgd.names", "ENABLE_DETAILED_AUTOFILLED_METRICS_ENV"),
    },
    "ray.util.sgd.v2.session": at("lockstep.sgd", _FUNCTIONS),
    "ray.util.sgd.v2.utils": at("lockstep.sgd.paths", "construct_path"),
    "ray.util.sgd.v2.worker_group": at("lockstep.worker_group", "WorkerGroup"),
    **TUNE,
    **_newer_table.MODULES,
    # ------------------------------------------------------------------ Data
    "ray.data": {
        **at("lockstep.data", "DataIterator Dataset Preprocessor"),
        **at(
            "lockstep.as_ray._data",
            "ActorPoolStrategy DataContext DatasetContext=DataContext from_arrow from_arrow_refs from_huggingface"
            " from_items from_numpy from_numpy_refs from_pandas from_pandas_refs from_torch range range_arrow"
            " range_table range_tensor read_binary_files read_csv read_images read_json read_numpy read_parquet"
            " read_parquet_bulk read_text",
        ),
        **at("lockstep.as_ray._pipeline", "DatasetPipeline"),
    },
    "ray.data.dataset_pipeline": at("lockstep.as_ray._pipeline", "DatasetPipeline"),
    "ray.data.dataset_iterator": at("lockstep.data", "DatasetIterator=DataIterator DataIterator"),
    "ray.data.aggregate": at("lockstep.as_ray._aggregates", "AbsMax AggregateFn Count Max Mean Min Quantile Std Sum"),
    "ray.data.dataset": at("lockstep.data", "Dataset"),
    "ray.data.grouped_dataset": at("lockstep.data", "GroupedDataset=GroupedData"),
    "ray.data.grouped_data": at("lockstep.data", "GroupedData"),
    "ray.data.iterator": at("lockstep.data", "DataIterator"),
    "ray.data.block": later(DATA, classes="BlockAccessor"),
    "ray.data.context": at("lockstep.as_ray._data", "DataContext DatasetContext=DataContext"),
    "ray.data.extensions": at("lockstep.as_ray._data", "TensorArray"),
    "ray.data.extensions.tensor_extension": {
        **at("lockstep.as_ray._data", "TensorArray"),
        **later(DATA, classes="ArrowTensorType"),
    },
    "ray.data.preprocessor": at("lockstep.data.preprocessors", "Preprocessor PreprocessorNotFittedException"),
    "ray.data.preprocessors": at(
        "lockstep.data.preprocessors",
        "BatchMapper Categorizer Chain Concatenator CountVectorizer CustomKBinsDiscretizer FeatureHasher"
        " HashingVectorizer LabelEncoder MaxAbsScaler MinMaxScaler MultiHotEncoder Normalizer OneHotEncoder"
        " OrdinalEncoder PowerTransformer RobustScaler SimpleImputer StandardScaler Tokenizer TorchVisionPreprocessor"
        " UniformKBinsDiscretizer",
    ),
    **{
        f"ray.data.preprocessors.{module}": at("lockstep.data.preprocessors", names)
        for module, names in {
            "batch_mapper": "BatchMapper",
            "chain": "Chain",
            "concatenator": "Concatenator",
            "discretizer": "CustomKBinsDiscretizer UniformKBinsDiscretizer",
            "encoder": "Categorizer LabelEncoder MultiHotEncoder OneHotEncoder OrdinalEncoder",
            "hasher": "FeatureHasher",
            "imputer": "SimpleImputer",
            "normalizer": "Normalizer",
            "scaler": "MaxAbsScaler MinMaxScaler RobustScaler StandardScaler",
            "tokenizer": "Tokenizer",
            "torch": "TorchVisionPreprocessor",
            "transformer": "PowerTransformer",
            "vectorizer": "CountVectorizer HashingVectorizer",
        }.items()
    },
}
