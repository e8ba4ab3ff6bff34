"""The table of all modules of Ray that exist here, and where each of their names is in Lockstep.

To add a name, write it after its module. Names that Lockstep does not have yet are in the same table: once Lockstep has
them, ``later(TUNING, ...)`` becomes ``at("lockstep.tune", ...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

RELEASES = {"1.7": "1.7.0", "2.0": "2.0.0", "2.6": "2.6.0"}
"""The releases that can be chosen, and their ``ray.__version__``."""


class At(NamedTuple):
    """The object `name` of `module`; without a name, the one of the same name as in Ray."""

    module: str
    name: str = ""


class Value(NamedTuple):
    """A constant."""

    value: Any


class PerRelease(NamedTuple):
    """A constant that differs from release to release."""

    by_release: Mapping[str, Any]


class Topic(NamedTuple):
    """A part of Ray that Lockstep does not have yet."""

    what: str
    instead: str


class Later(NamedTuple):
    """A name that can be imported and raises NotAvailableError when it is used."""

    topic: Topic
    is_class: bool


Names = Mapping[str, At | Later | PerRelease | Value]


class Shared(NamedTuple):
    """A module that is the same object as Lockstep's; `added` are names that Lockstep's does not have."""

    module: str
    added: Names = MappingProxyType({})


DATA = Topic("this part of Ray Data is not available yet", "use a Dataset as it is: it streams, and epochs repeat it")
TUNING = Topic("tuning is not available yet", "make a trainer for each configuration and call its fit()")
PREDICTION = Topic(
    "prediction on data sets is not available yet",
    "load the model from the checkpoint (to_dict(), get_model()) and call it",
)


def at(module: str, names: str) -> dict[str, At]:
    """Names, separated by spaces, of one module of Lockstep; ``Ray=Lockstep`` if they differ."""
    pairs = (word.partition("=") for word in names.split())
    return {name: At(module, other) for name, _, other in pairs}


def later(topic: Topic, *, classes: str = "", functions: str = "") -> dict[str, Later]:
    """Names that do not exist yet."""
    return {name: Later(topic, True) for name in classes.split()} | {
        name: Later(topic, False) for name in functions.split()
    }


def values(**constants: Any) -> dict[str, Value]:
    """Constants by name."""
    return {name: Value(value) for name, value in constants.items()}


_CLUSTER = "lockstep.as_ray._cluster"
_TUNE = "lockstep.as_ray._tune"
_SHARD = at("lockstep.session", "get_dataset_shard")
_TRAINER = {
    **at("lockstep.as_ray._base_trainer", "BaseTrainer"),
    **at("lockstep", "TrainingFailedError"),
}
_FILES = values(
    EXPR_PARAM_FILE="params.json",
    EXPR_PARAM_PICKLE_FILE="params.pkl",
    EXPR_PROGRESS_FILE="progress.csv",
    EXPR_RESULT_FILE="result.json",
)
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
_LOGGERS = at("lockstep.callbacks", "CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback")
_SEARCH_SPACE = later(
    TUNING,
    functions="choice grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn quniform randint randn"
    " sample_from uniform",
)

MODULES: Mapping[str, Names | Shared] = {
    # ------------------------------------------------------------------ the cluster, which is this machine
    "ray": {
        "__version__": PerRelease(RELEASES),
        **at(
            _CLUSTER,
            "ObjectRef available_resources cancel cluster_resources get get_actor get_gpu_ids init is_initialized kill"
            " method nodes put remote shutdown wait",
        ),
    },
    "ray.cloudpickle": Shared("cloudpickle"),
    "ray.exceptions": {
        **at("lockstep", "RayError=LockstepError RayTaskError=TrainingFailedError RayActorError=EngineError"),
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
    "ray.air.session": Shared("lockstep.session", _SHARD),
    "ray.air.constants": {
        **_FILES,
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
    # ------------------------------------------------------------------ Train
    "ray.train": {
        **at("lockstep.train", f"{_FUNCTIONS} Trainer"),
        **at("lockstep.train", "TrainContext get_checkpoint get_context"),  # these and the next since 2.7
        **at("lockstep", "Checkpoint CheckpointConfig FailureConfig Result RunConfig ScalingConfig"),
        **at("lockstep.sgd", "BackendConfig CheckpointStrategy TrainingCallback=SGDCallback"),
        **at("lockstep.sgd", "TrainingIterator=SGDIterator"),
        **values(TRAIN_DATASET_KEY="train"),
        **_SHARD,
        **at("lockstep.config", "DataConfig"),
        **later(TUNING, classes="SyncConfig"),
    },
    "ray.train.context": at("lockstep.train", "TrainContext get_context"),
    "ray.train.trainer": {
        **_TRAINER,
        **at("lockstep.train", "Trainer"),
        **at("lockstep.sgd", "TrainingIterator=SGDIterator"),
    },
    "ray.train.base_trainer": _TRAINER,
    "ray.train.data_parallel_trainer": at("lockstep", "DataParallelTrainer"),
    "ray.train.backend": _BACKEND,
    "ray.train.batch_predictor": later(PREDICTION, classes="BatchPredictor"),
    "ray.train.predictor": later(PREDICTION, classes="Predictor"),
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
    "ray.train.torch": Shared("lockstep.torch", later(PREDICTION, classes="TorchPredictor")),
    "ray.train.torch.config": Shared("lockstep.torch.config"),
    "ray.train.torch.torch_checkpoint": at("lockstep.torch", "TorchCheckpoint"),
    "ray.train.torch.torch_trainer": at("lockstep.torch", "TorchTrainer"),
    "ray.train.torch.train_loop_utils": at(
        "lockstep.torch",
        "accelerate backward enable_reproducibility get_device prepare_data_loader prepare_model prepare_optimizer"
        " TorchWorkerProfiler",
    ),
    "ray.train.tensorflow": {
        **at("lockstep.tensorflow", "TensorflowCheckpoint TensorflowConfig TensorflowTrainer prepare_dataset_shard"),
        **later(PREDICTION, classes="TensorflowPredictor"),
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
    # ------------------------------------------------------------------ Tune: what callbacks and loggers need
    "ray.tune": {
        **at(_TUNE, "Callback TuneError"),
        **_SEARCH_SPACE,
        **later(
            TUNING,
            classes="Experiment ResultGrid Stopper SyncConfig Trainable TuneConfig Tuner",
            functions="checkpoint_dir create_scheduler is_session_enabled register_trainable report run run_experiments"
            " with_parameters",
        ),
    },
    "ray.tune.callback": {**at(_TUNE, "Callback"), **later(TUNING, classes="CallbackList")},
    "ray.tune.error": at(_TUNE, "TuneError"),
    "ray.tune.experiment": {**at("lockstep.callbacks", "Trial"), **later(TUNING, classes="Experiment")},
    "ray.tune.integration": {},
    "ray.tune.integration.mlflow": Shared("lockstep.integrations.mlflow"),
    "ray.tune.integration.wandb": Shared("lockstep.integrations.wandb"),
    "ray.tune.logger": {**_LOGGERS, **later(TUNING, classes="LegacyLoggerCallback Logger")},
    "ray.tune.registry": later(TUNING, functions="register_env register_trainable"),
    "ray.tune.result": {
        **_FILES,
        **at(_TUNE, "AUTO_RESULT_KEYS DEFAULT_RESULTS_DIR"),
        **values(
            DEFAULT_METRIC="_metric",
            DONE="done",
            EPISODES_TOTAL="episodes_total",
            EXPERIMENT_TAG="experiment_tag",
            HOSTNAME="hostname",
            NODE_IP="node_ip",
            PID="pid",
            TIMESTEPS_TOTAL="timesteps_total",
            TIME_THIS_ITER_S="time_this_iter_s",
            TIME_TOTAL_S="time_total_s",
            TRAINING_ITERATION="training_iteration",
            TRIAL_ID="trial_id",
        ),
    },
    "ray.tune.result_grid": later(TUNING, classes="ResultGrid"),
    "ray.tune.schedulers": later(
        TUNING,
        classes="ASHAScheduler AsyncHyperBandScheduler FIFOScheduler MedianStoppingRule PopulationBasedTraining"
        " TrialScheduler",
        functions="create_scheduler",
    ),
    "ray.tune.search": {
        **later(TUNING, classes="BasicVariantGenerator ConcurrencyLimiter"),
        **later(TUNING, functions="grid_search"),
    },
    "ray.tune.search.basic_variant": later(TUNING, classes="BasicVariantGenerator"),
    "ray.tune.search.sample": later(TUNING, classes="Categorical Float Function Integer LEGACY_RNG"),
    "ray.tune.search.variant_generator": later(
        TUNING, classes="RecursiveDependencyError", functions="_resolve_nested_dict generate_variants logger"
    ),
    "ray.tune.stopper": later(TUNING, classes="MaximumIterationStopper Stopper TimeoutStopper TrialPlateauStopper"),
    "ray.tune.trainable": later(TUNING, classes="Trainable", functions="with_parameters"),
    "ray.tune.tune_config": later(TUNING, classes="TuneConfig"),
    "ray.tune.tuner": later(TUNING, classes="TuneConfig Tuner"),
    "ray.tune.utils": at(_TUNE, "flatten_dict"),
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
    "ray.data.aggregate": Shared("lockstep.data.aggregate"),
    "ray.data.dataset": at("lockstep.data", "Dataset"),
    "ray.data.grouped_data": at("lockstep.data", "GroupedData"),
    "ray.data.iterator": at("lockstep.data", "DataIterator"),
    "ray.data.block": later(DATA, classes="BlockAccessor"),
    "ray.data.context": at("lockstep.as_ray._data", "DataContext DatasetContext=DataContext"),
    "ray.data.extensions": {},
    "ray.data.extensions.tensor_extension": later(DATA, classes="ArrowTensorType"),
    "ray.data.preprocessor": at("lockstep.data.preprocessors", "Preprocessor PreprocessorNotFittedException"),
    "ray.data.preprocessors": at(
        "lockstep.data.preprocessors",
        "BatchMapper Categorizer Chain Concatenator CountVectorizer CustomKBinsDiscretizer FeatureHasher"
        " HashingVectorizer LabelEncoder MaxAbsScaler MinMaxScaler MultiHotEncoder Normalizer OneHotEncoder"
        " OrdinalEncoder PowerTransformer RobustScaler SimpleImputer StandardScaler Tokenizer TorchVisionPreprocessor"
        " UniformKBinsDiscretizer",
    ),
    "ray.data.preprocessors.batch_mapper": at("lockstep.data.preprocessors", "BatchMapper"),
}
