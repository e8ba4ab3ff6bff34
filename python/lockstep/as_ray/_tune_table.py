"""The part of the table that stands for ``ray.tune``."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.as_ray import _newer_table
from lockstep.as_ray._entries import Names, Shared, Topic, at, later, values

EXTERNAL = Topic("Lockstep has no adapter for this package", "use tune.search.TPESearch, GPSearch or OptunaSearch")
SCHEDULING = Topic("Lockstep does not have this scheduler", "use PopulationBasedTraining or ASHAScheduler")
INTEGRATION = Topic("Lockstep does not have this part of Ray Tune", "call session.report() in the training function")

FILES = values(
    EXPR_PARAM_FILE="params.json",
    EXPR_PARAM_PICKLE_FILE="params.pkl",
    EXPR_PROGRESS_FILE="progress.csv",
    EXPR_RESULT_FILE="result.json",
)
_TUNE = "lockstep.as_ray._tune"
_NAMES = "lockstep.as_ray._tune_names"
_VARIANTS = "lockstep.as_ray._variants"
_REPORTERS = at("lockstep.tune.progress_reporter", "CLIReporter JupyterNotebookReporter ProgressReporter")
_FUNCTION_API: Names = at(
    "lockstep.tune",
    "checkpoint_dir get_trial_dir get_trial_id get_trial_name is_session_enabled load_checkpoint report"
    " save_checkpoint",
) | at(_NAMES, "get_trial_resources")
_DOMAINS = at(
    "lockstep.tune",
    "choice lograndint loguniform qlograndint qloguniform qrandint qrandn quniform randint randn sample_from uniform",
)
_SAMPLE = {
    **_DOMAINS,
    **at("lockstep.tune.sample", "Categorical Domain Float Function Integer"),
    **at(_NAMES, "LEGACY_RNG"),
}
_STOPPERS = at(
    "lockstep.tune.stopper",
    "CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper NoopStopper Stopper"
    " TimeoutStopper TrialPlateauStopper",
)
_LOGGERS: Names = {
    **at("lockstep.callbacks", "CSVLoggerCallback JsonLoggerCallback LoggerCallback TBXLoggerCallback"),
    **at(
        "lockstep.as_ray._tune_loggers",
        "CSVLogger DEFAULT_LOGGERS JsonLogger LegacyLoggerCallback Logger NoopLogger TBXLogger UnifiedLogger",
    ),
    **at(_NAMES, "pretty_print"),
}
_WITH = at("lockstep.tune.trainable", "with_parameters with_resources")
_TRAINABLE: Names = {**at("lockstep.tune", "Trainable"), **_WITH, **_FUNCTION_API}
_CONFIG = at(_NAMES, "TuneConfig")
_TUNER = {**at(_NAMES, "Tuner"), **at("lockstep.tune", "ResultGrid"), **_CONFIG}
_ANALYSIS = at("lockstep.tune", "Analysis=ExperimentAnalysis ExperimentAnalysis")
_SYNC = at(_NAMES, "SyncConfig Syncer")
_EXPERIMENT = at("lockstep.tune", "Experiment Trial")
_RUN = at(_NAMES, "run run_experiments")
_PLACEMENT = at("lockstep.tune", "PlacementGroupFactory")
_REGISTRY = at(_NAMES, "get_trainable_cls register_env register_trainable _global_registry ENV_CREATOR")
_UTILS = {
    **at(_TUNE, "flatten_dict"),
    **at(_NAMES, "deep_update merge_dicts unflatten_dict wait_for_gpu validate_save_restore"),
}

# ---------------------------------------------------------------------- schedulers

_ASHA = at("lockstep.tune.schedulers", "ASHAScheduler AsyncHyperBandScheduler")
_HYPERBAND = at("lockstep.tune.schedulers", "HyperBandScheduler")
_BOHB = at("lockstep.tune.schedulers", "HyperBandForBOHB")
_MEDIAN = at("lockstep.tune.schedulers", "MedianStoppingRule")
_PBT = at("lockstep.tune.schedulers", "PopulationBasedTraining PopulationBasedTrainingReplay")
_SCHEDULER = at("lockstep.tune.schedulers", "FIFOScheduler TrialScheduler")
_PB2 = later(SCHEDULING, classes="PB2")
_CHANGING = later(
    Topic("resources of a running trial cannot be changed", "give them at the start: tune.with_resources()"),
    classes="DistributeResources DistributeResourcesToTopJob ResourceChangingScheduler",
)
_SCHEDULERS: dict[str, Names | Shared] = {
    "": {
        **_ASHA,
        **_HYPERBAND,
        **_BOHB,
        **_MEDIAN,
        **_PBT,
        **_SCHEDULER,
        **_PB2,
        **_CHANGING,
        **at("lockstep.tune.schedulers", "create_scheduler"),
    },
    ".async_hyperband": _ASHA,
    ".hb_bohb": _BOHB,
    ".hyperband": _HYPERBAND,
    ".median_stopping_rule": _MEDIAN,
    ".pb2": _PB2,
    ".pbt": _PBT,
    ".resource_changing_scheduler": _CHANGING,
    ".trial_scheduler": _SCHEDULER,
}

# ---------------------------------------------------------------------- searchers, in 1.7 and 2.0 also ray.tune.suggest

_SEARCHER = at("lockstep.tune.search", "Searcher")
_LIMITER = at("lockstep.tune.search", "ConcurrencyLimiter")
_REPEATER = {**at(_NAMES, "Repeater"), **at("lockstep.tune.search._wrappers", "TRIAL_INDEX")}
_BASIC = at(_VARIANTS, "BasicVariantGenerator")
_GENERATE = at(
    _VARIANTS,
    "RecursiveDependencyError count_variants format_vars generate_variants grid_search has_unresolved_values logger"
    " _resolve_nested_dict",
)
_ADAPTERS: dict[str, Names | Shared] = {
    ".bayesopt": at(_NAMES, "BayesOptSearch"),
    ".bohb": at("lockstep.tune.search", "TuneBOHB"),
    ".hyperopt": at(_NAMES, "HyperOptSearch"),
    ".optuna": at("lockstep.tune.search", "OptunaSearch"),
    ".ax": later(EXTERNAL, classes="AxSearch"),
    ".dragonfly": later(EXTERNAL, classes="DragonflySearch"),
    ".flaml": later(EXTERNAL, classes="BlendSearch CFO"),
    ".hebo": later(EXTERNAL, classes="HEBOSearch"),
    ".nevergrad": later(EXTERNAL, classes="NevergradSearch"),
    ".sigopt": later(EXTERNAL, classes="SigOptSearch"),
    ".skopt": later(EXTERNAL, classes="SkOptSearch"),
    ".zoopt": later(EXTERNAL, classes="ZOOptSearch"),
}
_SEARCH: dict[str, Names | Shared] = {
    "": {
        **_SEARCHER,
        **_LIMITER,
        **_REPEATER,
        **_BASIC,
        **at("lockstep.tune.search", "SearchAlgorithm create_searcher"),
        **at("lockstep.tune", "grid_search"),
    },
    ".basic_variant": _BASIC,
    ".concurrency_limiter": _LIMITER,
    ".repeater": _REPEATER,
    ".sample": _SAMPLE,
    ".search_algorithm": at("lockstep.tune.search", "SearchAlgorithm"),
    ".searcher": {**_SEARCHER, **_LIMITER},
    ".suggestion": {**_SEARCHER, **_LIMITER},
    ".variant_generator": _GENERATE,
    **_ADAPTERS,
}


def _below(parent: str, parts: Mapping[str, Names | Shared]) -> dict[str, Names | Shared]:
    return {parent + suffix: names for suffix, names in parts.items()}


TUNE: Mapping[str, Names | Shared] = {
    "ray.tune": {
        **at(_TUNE, "Callback TuneError"),
        **_newer_table.TUNE,
        **at("lockstep.tune", "create_scheduler create_searcher grid_search"),
        **_TUNER,
        **_RUN,
        **_DOMAINS,
        **_TRAINABLE,
        **_STOPPERS,
        **_EXPERIMENT,
        **_ANALYSIS,
        **_SYNC,
        **_REPORTERS,
        **_PLACEMENT,
        **_REGISTRY,
        **at("lockstep", "CheckpointConfig FailureConfig RunConfig"),
        **at(_NAMES, "durable"),
    },
    "ray.tune.analysis": _ANALYSIS,
    "ray.tune.analysis.experiment_analysis": _ANALYSIS,
    "ray.tune.callback": at(_TUNE, "Callback CallbackList"),
    "ray.tune.error": at(_TUNE, "TuneError"),
    "ray.tune.experiment": _EXPERIMENT,
    "ray.tune.experiment.experiment": _EXPERIMENT,
    "ray.tune.experiment.trial": _EXPERIMENT,
    "ray.tune.execution": {},
    "ray.tune.execution.placement_groups": _PLACEMENT,
    "ray.tune.integration": {},
    "ray.tune.integration.keras": at("lockstep.as_ray._tune_keras", "TuneReportCallback TuneReportCheckpointCallback"),
    "ray.tune.integration.lightgbm": later(INTEGRATION, classes="TuneReportCallback TuneReportCheckpointCallback"),
    "ray.tune.integration.mlflow": Shared("lockstep.integrations.mlflow", later(INTEGRATION, functions="mlflow_mixin")),
    "ray.tune.integration.pytorch_lightning": later(
        INTEGRATION, classes="TuneCallback TuneReportCallback TuneReportCheckpointCallback"
    ),
    "ray.tune.integration.torch": later(
        Topic("distributed trainables are trainers in Lockstep", "give TorchTrainer(...) to tune.Tuner"),
        functions="DistributedTrainableCreator distributed_checkpoint_dir is_distributed_trainable",
    ),
    "ray.tune.integration.wandb": Shared("lockstep.integrations.wandb", later(INTEGRATION, functions="wandb_mixin")),
    "ray.tune.integration.xgboost": later(INTEGRATION, classes="TuneReportCallback TuneReportCheckpointCallback"),
    "ray.tune.logger": _LOGGERS,
    "ray.tune.logger.csv": _LOGGERS,
    "ray.tune.logger.json": _LOGGERS,
    "ray.tune.logger.logger": _LOGGERS,
    "ray.tune.logger.tensorboardx": _LOGGERS,
    "ray.tune.progress_reporter": _REPORTERS,
    "ray.tune.registry": _REGISTRY,
    "ray.tune.resources": at(_NAMES, "Resources"),
    "ray.tune.result": {
        **FILES,
        **at(_TUNE, "AUTO_RESULT_KEYS DEFAULT_RESULTS_DIR"),
        **values(
            DEFAULT_METRIC="_metric",
            DONE="done",
            EPISODES_TOTAL="episodes_total",
            EPISODE_REWARD_MEAN="episode_reward_mean",
            EXPERIMENT_TAG="experiment_tag",
            HOSTNAME="hostname",
            MEAN_ACCURACY="mean_accuracy",
            MEAN_LOSS="mean_loss",
            NODE_IP="node_ip",
            PID="pid",
            SHOULD_CHECKPOINT="should_checkpoint",
            TIMESTEPS_THIS_ITER="timesteps_this_iter",
            TIMESTEPS_TOTAL="timesteps_total",
            TIME_THIS_ITER_S="time_this_iter_s",
            TIME_TOTAL_S="time_total_s",
            TRAINING_ITERATION="training_iteration",
            TRIAL_ID="trial_id",
            TRIAL_INFO="trial_info",
        ),
    },
    "ray.tune.result_grid": at("lockstep.tune", "ResultGrid"),
    "ray.tune.sample": _SAMPLE,
    **_below("ray.tune.schedulers", _SCHEDULERS),
    **_below("ray.tune.search", _SEARCH),
    "ray.tune.session": _FUNCTION_API,
    "ray.tune.stopper": _STOPPERS,
    **_below(
        "ray.tune.stopper",
        dict.fromkeys(
            [
                ".experiment_plateau",
                ".function_stopper",
                ".maximum_iteration",
                ".noop",
                ".stopper",
                ".timeout",
                ".trial_plateau",
            ],
            _STOPPERS,
        ),
    ),
    **_below("ray.tune.suggest", _SEARCH),
    "ray.tune.syncer": _SYNC,
    "ray.tune.trainable": _TRAINABLE,
    "ray.tune.trainable.session": _FUNCTION_API,
    "ray.tune.trainable.trainable": _TRAINABLE,
    "ray.tune.trainable.util": _WITH,
    "ray.tune.trial": _EXPERIMENT,
    "ray.tune.tune": _RUN,
    "ray.tune.tune_config": _CONFIG,
    "ray.tune.tuner": _TUNER,
    "ray.tune.utils": _UTILS,
    "ray.tune.utils.log": at(_NAMES, "Verbosity set_verbosity"),
    "ray.tune.utils.placement_groups": _PLACEMENT,
    "ray.tune.utils.trainable": _WITH,
    "ray.tune.utils.util": _UTILS,
}
"""Modules of Tune by name. They exist in all releases, so that scripts for each find theirs."""
