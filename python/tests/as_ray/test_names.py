"""Every name that scripts for Ray import is there, and is Lockstep's own."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from .conftest import Script

TRAINING = {
    "ray": "init is_initialized shutdown put get remote wait kill get_actor ObjectRef cluster_resources"
    " available_resources nodes air train tune util data cloudpickle __version__",
    "ray.cloudpickle": "dump dumps load loads",
    "ray.util": "get_node_ip_address placement_group sgd",
    "ray.air": "Checkpoint CheckpointConfig FailureConfig RunConfig ScalingConfig session",
    "ray.air.config": "CheckpointConfig DatasetConfig FailureConfig RunConfig ScalingConfig",
    "ray.air.checkpoint": "Checkpoint _DICT_CHECKPOINT_ADDITIONAL_FILE_KEY",
    "ray.air.result": "Result",
    "ray.air.session": "report get_checkpoint get_dataset_shard get_local_rank get_local_world_size get_node_rank"
    " get_trial_dir get_world_rank get_world_size",
    "ray.air.constants": "EXPR_PARAM_FILE EXPR_PARAM_PICKLE_FILE EXPR_PROGRESS_FILE EXPR_RESULT_FILE MAX_REPR_LENGTH"
    " MODEL_KEY PREPROCESSOR_KEY TIME_THIS_ITER_S TRAINING_ITERATION",
    "ray.air.integrations.mlflow": "MLflowLoggerCallback",
    "ray.air.integrations.wandb": "WandbLoggerCallback",
    "ray.train": "DataConfig Trainer get_dataset_shard load_checkpoint local_rank report save_checkpoint trainer"
    " world_rank world_size torch Checkpoint CheckpointConfig FailureConfig Result RunConfig ScalingConfig SyncConfig"
    " TrainContext get_checkpoint get_context",
    "ray.train.context": "TrainContext get_context",
    "ray.train.collective": "barrier broadcast_from_rank_zero",
    "ray.train.v2.api.data_parallel_trainer": "DataParallelTrainer",
    "ray.train.v2.api.exceptions": "ControllerError TrainingFailedError WorkerGroupError",
    "ray.train.torch": "accelerate backward enable_reproducibility get_device prepare_data_loader prepare_model"
    " prepare_optimizer TorchCheckpoint TorchConfig TorchPredictor TorchTrainer TorchWorkerProfiler",
    "ray.train.torch.torch_trainer": "TorchTrainer",
    "ray.train.torch.torch_checkpoint": "TorchCheckpoint",
    "ray.train.data_parallel_trainer": "DataParallelTrainer",
    "ray.train.base_trainer": "BaseTrainer TrainingFailedError",
    "ray.train.trainer": "BaseTrainer Trainer TrainingFailedError",
    "ray.train.batch_predictor": "BatchPredictor",
    "ray.train.backend": "Backend BackendConfig",
    "ray.train.callbacks": "JsonLoggerCallback PrintCallback TBXLoggerCallback TorchTensorboardProfilerCallback"
    " TrainingCallback",
    "ray.train.callbacks.callback": "TrainingCallback",
    "ray.train.callbacks.logging": "MLflowLoggerCallback",
    "ray.train.constants": "BASIC_AUTOFILLED_KEYS COPY_DIRECTORY_CHECKPOINTS_INSTEAD_OF_MOVING_ENV"
    " DETAILED_AUTOFILLED_KEYS DISABLE_LAZY_CHECKPOINTING_ENV ENABLE_DETAILED_AUTOFILLED_METRICS_ENV PREPROCESSOR_KEY"
    " TRAINING_ITERATION TRAIN_DATASET_KEY TRAIN_ENABLE_WORKER_SPREAD_ENV",
    "ray.util.sgd": "v2",
    "ray.util.sgd.v2": "CheckpointStrategy SGDCallback TorchConfig Trainer load_checkpoint local_rank report"
    " save_checkpoint world_rank",
    "ray.util.sgd.v2.callbacks": "JsonLoggerCallback TBXLoggerCallback",
    "ray.util.sgd.v2.callbacks.callback": "SGDCallback",
    "ray.util.sgd.v2.backends.backend": "Backend BackendConfig BackendInterface",
    "ray.util.sgd.v2.constants": "BASIC_AUTOFILLED_KEYS DETAILED_AUTOFILLED_KEYS ENABLE_DETAILED_AUTOFILLED_METRICS_ENV"
    " TRAINING_ITERATION TUNE_CHECKPOINT_FILE_NAME",
    "ray.util.sgd.v2.utils": "construct_path",
    "ray.util.sgd.v2.worker_group": "WorkerGroup",
}

FRAMEWORKS = {
    "ray.train.tensorflow": "TensorflowCheckpoint TensorflowConfig TensorflowTrainer prepare_dataset_shard",
    "ray.train.tensorflow.config": "TensorflowConfig",
    "ray.train.tensorflow.keras": "ReportCheckpointCallback",
    "ray.train.tensorflow.tensorflow_checkpoint": "TensorflowCheckpoint",
    "ray.train.tensorflow.tensorflow_trainer": "TensorflowTrainer",
    "ray.train.horovod.config": "HorovodConfig",
    "ray.train.horovod": "HorovodConfig HorovodTrainer",
    "ray.train.horovod.horovod_trainer": "HorovodTrainer",
    "ray.air.callbacks.keras": "Callback",
    "ray.air.integrations.keras": "Callback ReportCheckpointCallback",
    "ray.util.sgd.v2": "HorovodConfig TensorflowConfig",
}

DATA_AND_TUNING = {
    "ray.train.tensorflow": "TensorflowPredictor",
    "ray.data": "ActorPoolStrategy DataIterator Dataset DatasetPipeline Preprocessor from_arrow from_items from_numpy"
    " from_pandas range range_table range_tensor read_csv read_parquet",
    "ray.data.preprocessor": "Preprocessor",
    "ray.data.preprocessors": "BatchMapper Concatenator",
    "ray.data.preprocessors.batch_mapper": "BatchMapper",
    "ray.data.block": "BlockAccessor",
    "ray.data.context": "DataContext DatasetContext",
    "ray.data.extensions.tensor_extension": "ArrowTensorType",
    "ray.tune": "Callback Experiment Stopper SyncConfig Trainable TuneConfig TuneError Tuner checkpoint_dir choice"
    " create_scheduler grid_search is_session_enabled lograndint loguniform qlograndint qloguniform qrandint qrandn"
    " quniform randint randn register_trainable report run run_experiments sample_from trainable uniform"
    " with_parameters",
    "ray.tune.tuner": "TuneConfig Tuner",
    "ray.tune.tune_config": "TuneConfig",
    "ray.tune.result_grid": "ResultGrid",
    "ray.tune.callback": "Callback CallbackList",
    "ray.tune.experiment": "Experiment Trial",
    "ray.tune.registry": "",
    "ray.tune.trainable": "with_parameters",
    "ray.tune.utils": "flatten_dict",
    "ray.tune.logger": "CSVLoggerCallback JsonLoggerCallback LegacyLoggerCallback Logger LoggerCallback"
    " TBXLoggerCallback",
    "ray.tune.integration.mlflow": "MLflowLoggerCallback",
    "ray.tune.result": "AUTO_RESULT_KEYS DEFAULT_METRIC DEFAULT_RESULTS_DIR DONE EXPERIMENT_TAG EXPR_PARAM_FILE"
    " EXPR_PARAM_PICKLE_FILE EXPR_PROGRESS_FILE EXPR_RESULT_FILE HOSTNAME NODE_IP PID TIMESTEPS_TOTAL TIME_TOTAL_S"
    " TRIAL_ID",
    "ray.tune.schedulers": "AsyncHyperBandScheduler FIFOScheduler MedianStoppingRule PopulationBasedTraining"
    " TrialScheduler",
    "ray.tune.stopper": "MaximumIterationStopper TimeoutStopper TrialPlateauStopper",
    "ray.tune.search": "BasicVariantGenerator ConcurrencyLimiter grid_search",
    "ray.tune.search.basic_variant": "BasicVariantGenerator",
    "ray.tune.search.sample": "Categorical Float Function Integer LEGACY_RNG",
    "ray.tune.search.variant_generator": "RecursiveDependencyError _resolve_nested_dict generate_variants logger",
}

SAME = {
    "ray.air.session": "lockstep.session",
    "ray.train.torch": "lockstep.torch",
    "ray.cloudpickle": "cloudpickle",
    "ray.air.integrations.mlflow": "lockstep.integrations.mlflow",
    "ray.tune.integration.mlflow": "lockstep.integrations.mlflow",
    "ray.air.integrations.wandb": "lockstep.integrations.wandb",
    "ray.air.Checkpoint": "lockstep.Checkpoint",
    "ray.air.config.ScalingConfig": "lockstep.ScalingConfig",
    "ray.air.RunConfig": "lockstep.RunConfig",
    "ray.air.result.Result": "lockstep.Result",
    "ray.train.report": "lockstep.train.report",
    "ray.train.Checkpoint": "lockstep.Checkpoint",
    "ray.train.ScalingConfig": "lockstep.ScalingConfig",
    "ray.train.RunConfig": "lockstep.RunConfig",
    "ray.train.Trainer": "lockstep.train.Trainer",
    "ray.train.trainer.Trainer": "lockstep.train.Trainer",
    "ray.train.base_trainer.TrainingFailedError": "lockstep.TrainingFailedError",
    "ray.train.data_parallel_trainer.DataParallelTrainer": "lockstep.DataParallelTrainer",
    "ray.train.torch.torch_trainer.TorchTrainer": "lockstep.torch.TorchTrainer",
    "ray.train.callbacks.TrainingCallback": "lockstep.sgd.SGDCallback",
    "ray.util.sgd.v2.Trainer": "lockstep.sgd.Trainer",
    "ray.util.sgd.v2.report": "lockstep.sgd.report",
    "ray.util.sgd.v2.TorchConfig": "lockstep.torch.TorchConfig",
    "ray.util.sgd.v2.callbacks.JsonLoggerCallback": "lockstep.sgd.JsonLoggerCallback",
    "ray.util.sgd.v2.worker_group.WorkerGroup": "lockstep.worker_group.WorkerGroup",
    "ray.tune.logger.LoggerCallback": "lockstep.LoggerCallback",
    "ray.tune.logger.JsonLoggerCallback": "lockstep.callbacks.JsonLoggerCallback",
    "ray.tune.experiment.Trial": "lockstep.tune.Trial",
    "ray.tune.ResultGrid": "lockstep.tune.ResultGrid",
    "ray.tune.schedulers.pbt.PopulationBasedTraining": "lockstep.tune.schedulers.PopulationBasedTraining",
    "ray.tune.suggest.optuna.OptunaSearch": "lockstep.tune.search.OptunaSearch",
    "ray.tune.trainable.with_parameters": "lockstep.tune.with_parameters",
}

VALUES = {
    "ray.air.constants.TRAINING_ITERATION": "training_iteration",
    "ray.train.constants.TRAINING_ITERATION": "_training_iteration",
    "ray.util.sgd.v2.constants.TRAINING_ITERATION": "_training_iteration",
    "ray.train.constants.ENABLE_DETAILED_AUTOFILLED_METRICS_ENV": "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS",
    "ray.util.sgd.v2.constants.ENABLE_DETAILED_AUTOFILLED_METRICS_ENV": "SGD_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS",
    "ray.air.constants.PREPROCESSOR_KEY": "_preprocessor",
    "ray.air.constants.EXPR_RESULT_FILE": "result.json",
    "ray.tune.result.EXPR_PROGRESS_FILE": "progress.csv",
    "ray.tune.result.TRIAL_ID": "trial_id",
}

RESOLVE = """
import importlib, json
found = {}
for module, names in json.loads(%r).items():
    for name in names.split() or [""]:
        code = f"from {module} import {name}" if name else f"import {module}"
        try:
            exec(code, {})
            found[f"{module}.{name}"] = ""
        except Exception as error:
            found[f"{module}.{name}"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


def resolved(script: Script, modules: dict[str, str]) -> dict[str, str]:
    """What went wrong with the import of each name; nothing, if all is well."""
    return json.loads(script(RESOLVE % json.dumps(modules)).stdout)


@pytest.mark.parametrize("release", ["1.7", "2.0", "2.6"])
def test_names_of_training_can_be_imported(script: Script, release: str) -> None:
    found = json.loads(script(RESOLVE % json.dumps(TRAINING), LOCKSTEP_AS_RAY=release).stdout)
    assert len(found) > 100
    assert {name: error for name, error in found.items() if error} == {}


def test_names_of_data_and_tuning_can_be_imported(script: Script) -> None:
    found = resolved(script, DATA_AND_TUNING)
    assert len(found) > 90
    assert {name: error for name, error in found.items() if error} == {}


def test_names_of_frameworks_are_there_or_say_why_not(script: Script) -> None:
    for name, error in resolved(script, FRAMEWORKS).items():
        folder = next(word for word in ("keras", "tensorflow", "horovod") if word in name.lower())
        package = "lockstep.integrations.keras" if folder == "keras" else f"lockstep.{folder}"
        if importlib.util.find_spec(package) is not None:
            assert error == "", name
        else:
            assert error.startswith("ImportError") and "not in this version of Lockstep yet" in error, name
            assert package in error


LOOK = """
import importlib
def look(path):
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)
"""


def test_names_are_the_objects_of_lockstep(script: Script) -> None:
    code = f"{LOOK}\nprint([(a, b) for a, b in {SAME!r}.items() if look(a) is not look(b)])"
    assert script(code).stdout == "[]\n"


def test_shared_modules_keep_their_names(script: Script) -> None:
    code = """
import ray.air.session, ray.train.torch.torch_trainer, lockstep, sys
for module in (lockstep.session, lockstep.torch):
    assert module.__name__ == module.__spec__.name and module.__name__.startswith("lockstep."), module
    assert "lockstep/as_ray" not in module.__file__
assert ray.train.torch.torch_trainer.TorchTrainer is lockstep.torch.TorchTrainer
assert "lockstep.torch.trainer" in sys.modules
"""
    script(code)


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_constants_have_their_values(script: Script, name: str, value: Any) -> None:
    assert script(f"{LOOK}\nprint(look({name!r}))").stdout.strip() == value


def test_packages_have_a_path_and_parts_are_found_without_an_import(script: Script) -> None:
    code = """
import ray, sys
assert ray.__path__ == [] and ray.train.__path__ == [] and ray.__spec__.name == "ray"
assert ray.air.session.report is lockstep.session.report
assert ray.train.torch.TorchTrainer is lockstep.torch.TorchTrainer
assert ray.util.sgd.v2.callbacks.SGDCallback is lockstep.sgd.SGDCallback
from ray.util.sgd import v2 as sgd
assert sgd is sys.modules["ray.util.sgd.v2"]
from ray import train, tune
assert "report" in dir(train) and "torch" in dir(train)
"""
    script(code)


def test_star_imports_give_what_is_there(script: Script) -> None:
    script("from ray.util.sgd.v2 import *\nassert Trainer is lockstep.sgd.Trainer\nassert 'SGDCallback' in globals()")


def test_what_is_not_known_is_not_found(script: Script) -> None:
    code = """
import importlib
# The second is a file of lockstep.torch, which must not be loaded again under another name.
for name in ("ray.serve", "ray.train.torch.loader"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name == name and "Lockstep" in str(error), error
    else:
        raise AssertionError(name)
import ray
assert not hasattr(ray, "no_such_thing") and not hasattr(ray.train, "no_such_thing")
assert not hasattr(ray.train, "__wrapped__")
try:
    ray.train.no_such_name
except AttributeError as error:
    assert "the releases 1.7, 2.0, 2.6, 2.7, 2.60 (" in str(error) and "coming-from-ray.md" in str(error), error
try:
    from ray.air import NoSuchThing
except ImportError:
    pass
else:
    raise AssertionError
"""
    script(code)


@pytest.mark.parametrize("release", ["1.7", "2.0", "2.6"])
def test_every_name_of_tune_is_there(script: Script, release: str) -> None:
    code = """
import importlib
from lockstep.as_ray._entries import Shared
from lockstep.as_ray._tune_table import TUNE
found = 0
for name, names in TUNE.items():
    module = importlib.import_module(name)
    for each in names.added if isinstance(names, Shared) else names:
        if name != "ray.tune.integration.keras":  # needs TensorFlow
            getattr(module, each)
            found += 1
print(found)
"""
    assert int(script(code, LOCKSTEP_AS_RAY=release).stdout) > 400
