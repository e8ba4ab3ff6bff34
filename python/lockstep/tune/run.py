"""``tune.run()`` and ``tune.run_experiments()``: the older interface, with the arguments of Ray's."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep._places import local_path
from lockstep.config import CheckpointConfig, FailureConfig, RunConfig
from lockstep.errors import ConfigError, LockstepError
from lockstep.trainer import DataParallelTrainer
from lockstep.tune._setup import check_trainable, name_of
from lockstep.tune._trial import Trial
from lockstep.tune.analysis import ExperimentAnalysis
from lockstep.tune.trainable import with_resources
from lockstep.tune.tune_config import TuneConfig
from lockstep.tune.tuner import Tuner


class Experiment:
    """The arguments of one experiment for run_experiments(); `more` are others of run()."""

    def __init__(
        self,
        name: str,
        run: Any,
        stop: Any = None,
        time_budget_s: float | timedelta | None = None,
        config: Mapping[str, Any] | None = None,
        resources_per_trial: Any = None,
        num_samples: int = 1,
        storage_path: str | os.PathLike[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        **more: Any,
    ) -> None:
        self.name = name
        self.run = run
        self.stop = stop
        self.time_budget_s = time_budget_s
        self.config = config
        self.resources_per_trial = resources_per_trial
        self.num_samples = num_samples
        self.storage_path = storage_path
        self.local_dir = local_dir
        self.more = more

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """From a dict of the arguments."""
        return cls(**{**spec, "name": name})

    def _arguments(self) -> dict[str, Any]:
        named = {name: value for name, value in vars(self).items() if name not in ("run", "more")}
        return {**named, **self.more}


def run(
    run_or_experiment: Any,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: float | timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: Any = None,
    log_to_file: Any = False,
    trial_name_creator: Callable[[Trial], str] | None = None,
    trial_dirname_creator: Callable[[Trial], str] | None = None,
    chdir_to_trial_dir: bool = False,
    sync_config: Any = None,
    export_formats: Any = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    server_port: int | None = None,
    resume: bool | str = False,
    reuse_actors: bool | None = None,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    checkpoint_keep_all_ranks: bool = False,
    local_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    **more: Any,
) -> ExperimentAnalysis:
    """Runs an experiment; the arguments are those of Ray's ``tune.run``. All trials go on from the checkpoint at the
    path `restore`. Raises LockstepError if a trial failed, unless `raise_on_failed_trial` is False."""
    _check_names(more)
    if isinstance(run_or_experiment, (list, tuple)):
        if len(run_or_experiment) != 1:
            raise ConfigError("[tune] run() takes one experiment; give several to tune.run_experiments()")
        run_or_experiment = run_or_experiment[0]
    if isinstance(run_or_experiment, Experiment):
        arguments = {
            "metric": metric,
            "mode": mode,
            "search_alg": search_alg,
            "scheduler": scheduler,
            "verbose": verbose,
            "progress_reporter": progress_reporter,
            "fail_fast": fail_fast,
            "resume": resume,
            "reuse_actors": reuse_actors,
            "callbacks": callbacks,
            "max_concurrent_trials": max_concurrent_trials,
            "chdir_to_trial_dir": chdir_to_trial_dir,
            "raise_on_failed_trial": raise_on_failed_trial,
            "seed": seed,
        }
        return run(run_or_experiment.run, **{**arguments, **run_or_experiment._arguments()})
    trainable = check_trainable(run_or_experiment)
    if resources_per_trial is not None and not isinstance(trainable, DataParallelTrainer):
        trainable = with_resources(trainable, resources_per_trial)
    storage = storage_path if storage_path is not None else local_dir
    if checkpoint_config is None:
        order, attribute = (*(checkpoint_score_attr or "").split("-", 1), "")[:2]
        is_min = order == "min" and bool(attribute)
        checkpoint_config = CheckpointConfig(
            num_to_keep=keep_checkpoints_num,
            checkpoint_score_attribute=attribute if is_min else checkpoint_score_attr,
            checkpoint_score_order="min" if is_min else "max",
            checkpoint_frequency=checkpoint_freq,
            checkpoint_at_end=checkpoint_at_end or None,
            keep_all_ranks=checkpoint_keep_all_ranks,
        )
    run_config = RunConfig(
        name=name,
        storage_path=storage,
        callbacks=callbacks,
        failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast),
        checkpoint_config=checkpoint_config,
        verbose=1 if verbose is None else int(verbose),
        stop=stop,
        progress_reporter=progress_reporter,
    )
    tune_config = TuneConfig(
        metric=metric,
        mode=mode,
        search_alg=search_alg,
        scheduler=scheduler,
        num_samples=num_samples,
        max_concurrent_trials=max_concurrent_trials,
        time_budget_s=time_budget_s,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
        reuse_actors=reuse_actors,
        seed=seed,
        chdir_to_trial_dir=chdir_to_trial_dir,
    )
    base = _core.default_storage_path() if storage is None else local_path(storage, "[tune] storage_path")
    place = Path(base) / (name or name_of(trainable))
    if _resumes(resume, name, place):
        restarts = "RESTART_ERRORED" in str(resume)
        resumes = "ERRORED" in str(resume) and not restarts
        tuner = Tuner.restore(place, trainable, resume_errored=resumes, restart_errored=restarts)
    else:
        tuner = Tuner(trainable, param_space=config, tune_config=tune_config, run_config=run_config)
        if restore is not None:
            tuner._begin_from(restore)
    grid = tuner.fit()
    if grid.num_errors and raise_on_failed_trial:
        first = str(grid.errors[0]).strip().splitlines()
        what = f"{grid.num_errors} of {len(grid)} trials failed; the first: {first[0] if first else ''}"
        raise LockstepError(f"[tune] {what}; see {grid.experiment_path}")
    return ExperimentAnalysis._of(grid, metric, mode)


_WITHOUT_EFFECT = (
    "checkpoint_upload_from_workers",
    "queue_trials",
    "trial_executor",
    "_entrypoint",
    "_experiment_checkpoint_dir",
    "_remote",
    "_remote_string_queue",
)
"""Other arguments of Ray's ``tune.run``."""


def _check_names(more: Mapping[str, Any]) -> None:
    for name in more:
        if name not in _WITHOUT_EFFECT:
            there = [each for each in inspect.signature(run).parameters if each != "more"]
            meant = difflib.get_close_matches(name, there, 1)
            advice = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(there)}"
            raise ConfigError(f"[tune] run() has no argument {name!r}; {advice}")


def _resumes(resume: bool | str, name: str | None, place: Path) -> bool:
    if not resume:
        return False
    if name is None:
        raise ConfigError(f"[tune] resume is {resume!r} without a name; give the name of the experiment")
    exists = Tuner.can_restore(place)
    if not exists and "AUTO" not in str(resume) and resume is not True:
        raise ConfigError(f"[tune] resume is {resume!r}, but {place} holds no experiment")
    return exists


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Any],
    scheduler: Any = None,
    verbose: int | None = None,
    resume: bool | str = False,
    reuse_actors: bool | None = None,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
    **more: Any,
) -> list[Trial]:
    """Runs experiments one after the other; returns their trials. `more` are other arguments of run()."""
    _check_names({name: value for name, value in more.items() if name not in inspect.signature(run).parameters})
    if isinstance(experiments, Mapping):
        experiments = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    elif isinstance(experiments, Experiment):
        experiments = [experiments]
    trials: list[Trial] = []
    for each in experiments:
        given = each if isinstance(each, Experiment) else Experiment.from_json(each["name"], each)
        analysis = run(
            given.run,
            **{
                **given._arguments(),
                **more,
                "scheduler": scheduler,
                "verbose": verbose,
                "resume": resume,
                "reuse_actors": reuse_actors,
                "raise_on_failed_trial": raise_on_failed_trial,
                "callbacks": callbacks,
            },
        )
        trials += analysis.trials
    return trials
