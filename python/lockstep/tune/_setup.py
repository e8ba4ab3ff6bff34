"""From what a Tuner is given to an experiment of the core; all that is wrong is found here, before anything starts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep import _core
from lockstep.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import ConfigError
from lockstep.trainer import DataParallelTrainer
from lockstep.tune import _runs
from lockstep.tune._space import ParamSpace
from lockstep.tune.sample import Domain
from lockstep.tune.schedulers import (
    FIFOScheduler,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    TrialScheduler,
    create_scheduler,
)
from lockstep.tune.schedulers import _scheduler as scheduling
from lockstep.tune.schedulers._native import NativeScheduler
from lockstep.tune.search import Searcher, create_searcher
from lockstep.tune.search import _searcher as searching
from lockstep.tune.search._native import NativeSearcher
from lockstep.tune.stopper import CombinedStopper, FunctionStopper, Stopper
from lockstep.tune.trainable import check_parameters, get_trainable, is_class_trainable
from lockstep.tune.tune_config import TuneConfig


@dataclass
class Setup:
    """What an experiment needs besides its database."""

    trainable: Any
    space: ParamSpace
    tune: TuneConfig
    run: RunConfig
    settings: Any
    scheduler: Any = None
    """A scheduler in Python."""
    searcher: Any = None
    """A searcher in Python."""
    stopper: Stopper | None = None
    decides: bool = False
    """Whether reports wait for a decision."""
    has_mode: bool = True
    """Whether lower or higher values of the metric are better is known."""
    bridges: list[Any] = field(default_factory=list)
    """Those that want the whole results of running trials."""


def check_trainable(trainable: Any) -> Any:
    """The trainable itself, also of a name. Raises ConfigError if it is none."""
    if isinstance(trainable, str):
        trainable = get_trainable(trainable)
    if isinstance(trainable, DataParallelTrainer) or is_class_trainable(trainable):
        return trainable
    if isinstance(trainable, type):
        name = trainable.__name__
        if issubclass(trainable, DataParallelTrainer):
            raise ConfigError(
                f"[tune] the trainable is the class {name}; make an object of it: {name}(train_func, ...)"
            )
        raise ConfigError(
            f"[tune] the trainable is the class {name}, which has no step(); derive it from tune.Trainable"
        )
    if not callable(trainable):
        raise ConfigError(
            f"[tune] the trainable is {trainable!r}; it must be a trainer, a function or a tune.Trainable"
        )
    check_parameters(trainable, {})
    return trainable


def name_of(trainable: Any) -> str:
    """For names of trials and experiments."""
    if isinstance(trainable, DataParallelTrainer):
        return type(trainable).__name__
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    return "lambda" if name == "<lambda>" else str(name)


def set_up(trainable: Any, param_space: Mapping[str, Any], tune: TuneConfig, run: RunConfig) -> Setup:
    """Checks everything. Raises ConfigError."""
    if not isinstance(tune, TuneConfig):
        raise ConfigError(f"[Tuner] tune_config is {tune!r}; it must be a TuneConfig or None")
    if not isinstance(run, RunConfig):
        raise ConfigError(f"[Tuner] run_config is {run!r}; it must be a RunConfig or None")
    if not isinstance(param_space, Mapping):
        raise ConfigError(f"[Tuner] param_space is {param_space!r}; it must be a dict")
    param_space = {key: _opened(value) for key, value in param_space.items()}
    searcher = _searcher(tune.search_alg)
    scheduler = _scheduler(tune.scheduler)
    param_space = _space_of(param_space, searcher, scheduler)
    if isinstance(trainable, DataParallelTrainer):
        _runs.check_keys(trainable, param_space)
        _check_size(trainable)
    elif not is_class_trainable(trainable):
        (run.checkpoint_config or CheckpointConfig()).validate_for_function()
    metrics, modes, has_mode = _objectives(tune, searcher, scheduler)

    settings = _core.tune.ExperimentSettings()
    settings.metrics, settings.modes = metrics, modes
    settings.num_samples = int(tune.num_samples)
    seed = tune.seed if tune.seed is not None else getattr(searcher, "seed", None)
    settings.seed = random.getrandbits(53) if seed is None else int(seed)
    settings.time_attribute = scheduler.time_attr
    settings.time_budget = tune.time_budget
    failure = run.failure_config or FailureConfig()
    settings.max_failures = failure.max_failures
    settings.fail_fast = bool(failure.fail_fast)
    settings.stop = dict(run.stop) if isinstance(run.stop, Mapping) else {}
    setup = Setup(trainable, ParamSpace({}), tune, run, settings, has_mode=has_mode)
    stoppers = [each if isinstance(each, Stopper) else FunctionStopper(each) for each in run._stop_functions()]
    if stoppers:
        setup.stopper = stoppers[0] if len(stoppers) == 1 else CombinedStopper(*stoppers)
    _use_searcher(setup, searcher, dict(param_space))
    _use_scheduler(setup, scheduler)
    setup.decides = bool(
        settings.stop or setup.stopper is not None or (settings.scheduler["kind"] != "fifo" and not _goes_on(setup))
    )
    return setup


def _goes_on(setup: Setup) -> bool:
    return setup.scheduler is not None and not setup.scheduler.may_stop()


def _searcher(given: Any) -> Searcher:
    if given is None:
        return create_searcher("random")
    if isinstance(given, str):
        return create_searcher(given)
    if not isinstance(given, Searcher):
        raise ConfigError(f"[TuneConfig] search_alg is {given!r}; it must be a searcher of tune.search, or your own")
    return given


def _scheduler(given: Any) -> TrialScheduler:
    if given is None:
        return FIFOScheduler()
    if isinstance(given, str):
        return create_scheduler(given)
    if not isinstance(given, TrialScheduler):
        raise ConfigError(f"[TuneConfig] scheduler is {given!r}; it must be one of tune.schedulers, or your own")
    return given


def _space_of(given: Mapping[str, Any], searcher: Searcher, scheduler: TrialScheduler) -> Mapping[str, Any]:
    if isinstance(scheduler, PopulationBasedTrainingReplay):
        return scheduling.merged(given, scheduler.config)
    own = getattr(searcher, "space", None)
    if own is None or not isinstance(searcher, NativeSearcher):
        return given
    if _has_domains(given):
        raise ConfigError("[tune] both param_space and the searcher's space have domains; give one of them")
    return scheduling.merged(given, own)


def _opened(value: Any) -> Any:
    """A ScalingConfig that holds a search space, as a dict of what it changes."""
    if not isinstance(value, ScalingConfig) or not value._searched():
        return value
    default = ScalingConfig()
    return {name: each for name, each in vars(value).items() if each != getattr(default, name)}


def _has_domains(value: Any) -> bool:
    if isinstance(value, Domain):
        return True
    if isinstance(value, Mapping):
        return "grid_search" in value or any(map(_has_domains, value.values()))
    return isinstance(value, list) and any(map(_has_domains, value))


def _objectives(tune: TuneConfig, searcher: Searcher, scheduler: TrialScheduler) -> tuple[list[str], list[str], bool]:
    """Metrics, modes, and whether the modes were given. Raises ConfigError unless all that name a metric or a mode name
    the same ones, or if one who compares trials has no mode."""
    metric, mode = _agreed("metric", tune, searcher, scheduler), _agreed("mode", tune, searcher, scheduler)
    if metric is not None:
        compares = not isinstance(scheduler, FIFOScheduler) and isinstance(scheduler, NativeScheduler)
        who = type(searcher).__name__ if searcher._needs_metric else type(scheduler).__name__ if compares else None
        if mode is None and who is not None:
            raise ConfigError(f"[tune] mode is missing; {who} must know it: TuneConfig(metric={metric!r}, mode='min')")
        found = TuneConfig(metric=metric, mode=mode)
        return found.metrics, found.modes, mode is not None
    if isinstance(scheduler, PopulationBasedTrainingReplay):
        return ["training_iteration"], ["max"], True  # it compares nothing, but the core asks for a metric
    return [], [], True


def _agreed(name: str, tune: TuneConfig, searcher: Searcher, scheduler: TrialScheduler) -> Any:
    where, found = "TuneConfig", _listed(getattr(tune, name))
    given: list[Any] = [scheduler, searcher]
    for each in given:
        own = None if f"_{name}" in each._taken else _listed(getattr(each, name))
        if own is None:
            continue
        if found is None:
            where, found = type(each).__name__, own
        elif own != found and (each is searcher or own != found[:1]):  # a scheduler compares the first of several
            what = f"{name} of {type(each).__name__} is {_shown(own)}, but that of {where} is {_shown(found)}"
            raise ConfigError(f"[tune] {what}; give it once, in TuneConfig")
    return found if found is None or len(found) > 1 else found[0]


def _listed(value: Any) -> list[Any] | None:
    return None if value is None else [value] if isinstance(value, str) else list(value)


def _shown(values: list[Any]) -> str:
    return repr(values[0] if len(values) == 1 else values)


def _check_size(trainer: DataParallelTrainer) -> None:
    total = _core.total_resources()
    each = dict(trainer.scaling_config.resources_per_worker or {})
    workers = trainer.scaling_config._fixed("tune", "for trials, which run side by side")
    if trainer.scaling_config.use_gpu:
        each.setdefault("GPU", 1)
    for name, amount in each.items():
        if (wanted := amount * workers) > total.get(name, 0) + 1e-9:
            raise ConfigError(
                f"[tune] a trial needs {wanted:g} {name} for its {workers} workers, "
                f"but there are {total.get(name, 0):g}; ask for less in scaling_config"
            )


def _use_searcher(setup: Setup, searcher: Searcher, param_space: dict[str, Any]) -> None:
    settings = setup.settings
    if isinstance(searcher, NativeSearcher) and searcher.is_native:
        setup.space = ParamSpace(param_space)
        settings.param_space = setup.space.value
        settings.searcher = searcher.description()
        settings.points_to_evaluate = [setup.space.to_core(point) for point in searcher.points_to_evaluate]
        return
    names: Any = settings.metrics
    metric = None if not names else names[0] if len(names) == 1 else list(names)
    mode = None if not names or not setup.has_mode else settings.modes[0] if len(names) == 1 else list(settings.modes)
    searched = param_space if _has_domains(param_space) else {}
    used = searcher.set_search_properties(metric, mode, searched)
    searcher._use_seed(settings.seed)
    if searched and used is False:
        what = f"{type(searcher).__name__} cannot use the domains of param_space"
        raise ConfigError(f"[tune] {what}; its set_search_properties() returned False. Give it its own space")
    if not settings.metrics and searcher._needs_metric:
        raise ConfigError(
            f"[tune] metric is missing; {type(searcher).__name__} learns from it: TuneConfig(metric=, mode=)"
        )
    setup.space = ParamSpace(_without_domains(param_space), is_open=True)
    settings.param_space = setup.space.value
    settings.searcher = {"kind": "custom"}
    setup.searcher = searching.Bridge(searcher, list(settings.metrics), list(settings.modes))
    setup.bridges.append(setup.searcher)


def _without_domains(value: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for key, each in value.items():
        if isinstance(each, Mapping) and "grid_search" not in each:
            made[key] = _without_domains(dict(each))
        elif not _has_domains(each):
            made[key] = each
    return made


_DECISIONS = ("on_trial_result", "choose_trial_to_run")


def _is_changed(scheduler: NativeScheduler) -> bool:
    """Whether it is a FIFOScheduler whose decisions a subclass makes. Raises ConfigError for the other schedulers."""
    changed = [name for name in _DECISIONS if getattr(type(scheduler), name) is not getattr(TrialScheduler, name)]
    if changed and not isinstance(scheduler, FIFOScheduler):
        kind = type(scheduler).__name__
        raise ConfigError(
            f"[tune] {kind} overrides {changed[0]}(), but the core decides for its base; "
            "derive it from TrialScheduler or FIFOScheduler"
        )
    return bool(changed)


def _use_scheduler(setup: Setup, scheduler: TrialScheduler) -> None:
    settings = setup.settings
    explore = scheduler.custom_explore_fn if isinstance(scheduler, PopulationBasedTraining) else None
    setup.space.is_open |= isinstance(scheduler, PopulationBasedTraining)
    if isinstance(scheduler, NativeScheduler) and not _is_changed(scheduler):
        settings.scheduler = scheduler.description()
        if setup.searcher is None and explore is None and not setup.space.has_functions:
            return
        inner = _core.tune.make_scheduler(scheduler.description(), settings.seed)
    else:
        metric = settings.metrics[0] if settings.metrics else None
        mode = settings.modes[0] if settings.modes and setup.has_mode else None
        scheduler.set_search_properties(metric, mode)
        inner = scheduling.Bridge(scheduler, metric, mode)
        setup.bridges.append(inner)
    suggested = None if setup.searcher is None else setup.searcher.suggested
    space = setup.space
    setup.scheduler = scheduling.Around(inner, suggested, explore, space.to_core, space.config, space.resolved)
    of = getattr(scheduler, "kind", "custom")
    settings.scheduler = {"kind": "custom", "name": type(scheduler).__name__, "of": of}
