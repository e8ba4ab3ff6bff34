"""Hyperparameter tuning: tries configurations and finds the best. For example::

from lockstep import session, tune

def train(config):
    for step in range(10):
        session.report({"loss": (config["x"] - 1) ** 2 / (step + 1)})

grid = tune.Tuner(
    train,
    param_space={"x": tune.uniform(-5, 5)},
    tune_config=tune.TuneConfig(num_samples=100, metric="loss", mode="min"),
).fit()
print(grid.get_best_result().config)
"""

from __future__ import annotations

from lockstep.callbacks import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from lockstep.errors import LockstepError as TuneError
from lockstep.tune import plot, schedulers, search, stopper
from lockstep.tune._trial import Trial
from lockstep.tune.analysis import ExperimentAnalysis
from lockstep.tune.callback import Callback
from lockstep.tune.function_api import (
    checkpoint_dir,
    get_trial_dir,
    get_trial_id,
    get_trial_name,
    is_session_enabled,
    load_checkpoint,
    report,
    save_checkpoint,
)
from lockstep.tune.placement_group_factory import PlacementGroupFactory
from lockstep.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
from lockstep.tune.result_grid import ResultGrid
from lockstep.tune.run import Experiment, run, run_experiments
from lockstep.tune.sample import (
    Categorical,
    Domain,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from lockstep.tune.schedulers import create_scheduler
from lockstep.tune.search import create_searcher
from lockstep.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from lockstep.tune.sync_config import SyncConfig
from lockstep.tune.trainable import Trainable, register_trainable, with_parameters, with_resources
from lockstep.tune.tune_config import TuneConfig
from lockstep.tune.tuner import Tuner

__all__ = [
    "CLIReporter",
    "CSVLoggerCallback",
    "Callback",
    "Categorical",
    "CombinedStopper",
    "Domain",
    "Experiment",
    "ExperimentAnalysis",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "JsonLoggerCallback",
    "JupyterNotebookReporter",
    "MaximumIterationStopper",
    "NoopStopper",
    "PlacementGroupFactory",
    "ProgressReporter",
    "ResultGrid",
    "Stopper",
    "SyncConfig",
    "TBXLoggerCallback",
    "TimeoutStopper",
    "Trainable",
    "Trial",
    "TrialPlateauStopper",
    "TuneConfig",
    "TuneError",
    "Tuner",
    "checkpoint_dir",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "grid_search",
    "is_session_enabled",
    "load_checkpoint",
    "lograndint",
    "loguniform",
    "plot",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "save_checkpoint",
    "schedulers",
    "search",
    "stopper",
    "uniform",
    "with_parameters",
    "with_resources",
]
