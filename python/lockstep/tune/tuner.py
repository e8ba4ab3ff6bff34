"""Runs experiments."""

from __future__ import annotations

import os
import secrets
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep._interrupts import ends_uncaught, sigterm_interrupts
from lockstep._places import local_path
from lockstep.config import CheckpointConfig, FailureConfig, RunConfig
from lockstep.errors import ConfigError, TrainingInterrupted
from lockstep.trainer import DataParallelTrainer
from lockstep.tune import _stored
from lockstep.tune._console import Console
from lockstep.tune._execution import executor_of
from lockstep.tune._loop import Loop
from lockstep.tune._setup import Setup, check_trainable, name_of, set_up
from lockstep.tune.callback import Hooks
from lockstep.tune.progress_reporter import Reports
from lockstep.tune.result_grid import ResultGrid
from lockstep.tune.tune_config import TuneConfig


class Tuner:
    """Tries configurations of a trainer, a function or a class::

        tuner = tune.Tuner(
            TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2)),
            param_space={"train_loop_config": {"lr": tune.loguniform(1e-4, 1e-1)}},
            tune_config=tune.TuneConfig(num_samples=20, metric="loss", mode="min"),
        )
        best = tuner.fit().get_best_result()

    A function takes the configuration and calls ``session.report``, or returns a dict of metrics. A class is a
    ``tune.Trainable``. The param_space of a trainer has the keys "train_loop_config", "scaling_config" and so on.
    """

    def __init__(
        self,
        trainable: Any = None,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
    ) -> None:
        if trainable is None:
            raise ConfigError("[Tuner] trainable is missing; give a trainer, a function or a tune.Trainable")
        self._trainable = check_trainable(trainable)
        if run_config is None:
            given = isinstance(self._trainable, DataParallelTrainer)
            run_config = self._trainable.run_config if given else RunConfig()
        if run_config.resume != "never":
            raise ConfigError(
                f"[Tuner] resume is {run_config.resume!r}; a Tuner does not take it: Tuner.restore(path) continues"
            )
        self._space = {} if param_space is None else param_space
        self._tune = TuneConfig() if tune_config is None else tune_config
        self._run = run_config
        self._path: Path | None = None
        self._again: dict[str, bool] | None = None
        """How the experiment at the path is continued; None: it is a new one."""
        self._is_restored = False
        """Whether another object ran a part of it."""
        self._first_checkpoint = ""
        self._setup = set_up(self._trainable, self._space, self._tune, self._run)

    def fit(self) -> ResultGrid:
        """Runs all trials and returns their results. Failed trials are in its ``errors``; nothing is raised for them.

        Raises ConfigError before anything starts if an argument is wrong, the error of the first failed trial with
        ``FailureConfig(fail_fast="raise")``, and TrainingInterrupted after Ctrl-C or SIGTERM: ``Tuner.restore(path)``
        then continues.
        """
        try:
            path = self._fit(self._setup)
        except BaseException as error:
            each: BaseException | None = error
            while each is not None:
                traceback.clear_frames(each.__traceback__)  # they hold the experiment, and so its lock
                each = each.__context__
            raise
        grid = ResultGrid._open(path, self._setup.space)
        if grid.num_errors and (self._run.failure_config or FailureConfig()).fail_fast == "raise":
            raise grid.errors[0]
        return grid

    def get_results(self) -> ResultGrid:
        """The results of the experiment, which fit() has run or restore() has found."""
        if self._path is None:
            raise ConfigError("[Tuner] there are no results yet; call fit(), or Tuner.restore(path)")
        return ResultGrid._open(self._path, self._setup.space)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any = None,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        callbacks: Sequence[Any] | None = None,
        stop: Any = None,
    ) -> Tuner:
        """A tuner that continues the experiment in a directory, as if it had never stopped::

            tune.Tuner.restore("~/lockstep_results/digits").fit()

        Failed trials are tried again from their newest checkpoint with `resume_errored`, from their beginning with
        `restart_errored`. Without `trainable`, the one that is stored there is unpickled, if it has the hash that the
        database has. `param_space` replaces objects in the space that cannot be pickled; it must be the same otherwise.
        `callbacks` replaces those that are stored, and `stop` the functions and stoppers of ``RunConfig(stop=)``; a
        dict of limits stays as it is.
        """
        place = _place(path)
        stored = _stored.load(place, None if trainable is None else check_trainable(trainable))
        if param_space is not None and _stored.shape(param_space) != _stored.shape(stored.space):
            raise ConfigError("[Tuner] param_space differs from the experiment's; leave it out, or give the same")
        run = stored.run if callbacks is None else replace(stored.run, callbacks=callbacks)
        if stop is not None:
            if isinstance(stop, Mapping) or isinstance(run.stop, Mapping):
                raise ConfigError(f"[Tuner] stop is {stop!r}; only functions and stoppers can be replaced, not limits")
            run = replace(run, stop=stop)
        tuner = cls(
            stored.trainable,
            param_space=stored.space if param_space is None else param_space,
            tune_config=stored.tune,
            run_config=replace(run, name=place.name, storage_path=str(place.parent), local_dir=None),
        )
        tuner._path, tuner._is_restored = place, True
        tuner._again = {"resume_errored": resume_errored, "restart_errored": restart_errored}
        if not resume_unfinished:
            tuner._again["only_errored"] = True
        return tuner

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is an experiment in the directory."""
        return (_place(path) / "experiment.sqlite").is_file()

    # ------------------------------------------------------------------ the parts of fit()

    def _begin_from(self, checkpoint: str | os.PathLike[str]) -> None:
        """Trials that have no checkpoint of their own go on from this one: a directory, or a file in it."""
        place = Path(local_path(checkpoint, "[tune] restore"))
        place = place.parent if place.is_file() else place
        if not place.is_dir():
            raise ConfigError(f"[tune] restore is {place}, which is no directory; give the path of a checkpoint")
        self._first_checkpoint = str(place)

    def _fit(self, setup: Setup) -> Path:
        if self._again is None:
            path, experiment = self._create(setup)
        else:
            assert self._path is not None
            path = self._path
            how = {name: value for name, value in self._again.items() if name != "only_errored"}
            experiment = _core.tune.Experiment.open(path, **how)
            for number in experiment.in_state(_core.tune.TrialState.running):  # killed after its last report
                trial = experiment.trial(number)
                _core.finish_record(str(path / trial.name), trial.last_result or {})
        self._path = path
        self._again = {"resume_errored": False, "restart_errored": False}
        for adviser in (setup.searcher, setup.scheduler):
            if adviser is not None:
                experiment.use(adviser)
        self._run_all(setup, experiment, path)
        return path

    def _create(self, setup: Setup) -> tuple[Path, Any]:
        trainable = name_of(self._trainable)
        base = self._run.storage_path or self._run.local_dir
        storage = Path(_core.default_storage_path() if base is None else local_path(base, "[RunConfig] storage_path"))
        settings = setup.settings
        tune = replace(self._tune, seed=settings.seed)  # advisers in Python are made anew from it
        payload = _stored.dump(self._trainable, self._space, tune, self._run)
        settings.extra = {"trial_name_prefix": trainable, "trainable": trainable, **_stored.marks(payload)}
        settings.extra = {**settings.extra, "first_checkpoint": self._first_checkpoint, "has_mode": setup.has_mode}
        settings.extra = {**settings.extra, "experiment_id": secrets.token_hex(16)}
        name = self._run.name or f"{trainable}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
        storage.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (storage / name, *(storage / f"{name}_{i}" for i in range(2, 100) if self._run.name is None)):
            if (path / "experiment.sqlite").exists() or (path / "run.json").exists():
                continue
            try:
                path.mkdir(mode=0o700, exist_ok=self._run.name is not None)
            except FileExistsError:  # another experiment of this second
                continue
            settings.name = path.name
            _stored.write(path, payload)
            return path, _core.tune.Experiment.create(path, settings)
        raise ConfigError(
            f"[Tuner] {storage / name} holds an experiment or a run already; "
            f"choose another name, or continue it: Tuner.restore({str(storage / name)!r})"
        )

    def _run_all(self, setup: Setup, experiment: Any, path: Path) -> None:
        settings = experiment.settings()
        metric = settings.metrics[0] if settings.metrics and setup.has_mode else None
        mode = settings.modes[0] if settings.modes else None
        space = _core.tune.Space(settings.param_space)
        total = settings.num_samples * max(1, space.grid_size()) if settings.num_samples > 0 else None
        callbacks = list(self._run.callbacks or ())
        if self._run.progress_reporter is not None:
            callbacks.append(Reports(self._run.progress_reporter, total, metric, mode))
        is_trainer = isinstance(self._trainable, DataParallelTrainer)
        hooks = Hooks(callbacks, runs_call_theirs=is_trainer)
        console = Console(self._run.verbose, metric, mode, total, experiment)
        decides = setup.decides or hooks.may_stop
        shows = self._run.verbose > 0 and self._run.log_to_console != "none"
        tell = console.printed if shows else None
        takes = None if decides or hooks.any or setup.bridges else experiment
        executor = executor_of(setup, path, settings, decides, hooks.of_runs, tell, takes)
        loop = Loop(
            experiment,
            path,
            setup.space,
            hooks,
            console,
            trainable_name=name_of(self._trainable),
            stopper=setup.stopper,
            time_budget=self._tune.time_budget,
            checkpoint_config=None if is_trainer else self._run.checkpoint_config or CheckpointConfig(),
            names=partial(_names, self._tune)
            if self._tune.trial_name_creator or self._tune.trial_dirname_creator
            else None,
            bridges=setup.bridges,
            first_checkpoint=settings.extra.get("first_checkpoint", ""),
        )
        hooks.setup(self._run.stop, self._tune.num_samples, total)
        try:
            with sigterm_interrupts():
                if self._is_restored:
                    loop.remember()
                self._is_restored = False
                loop.run(executor)
        except KeyboardInterrupt as interrupt:
            executor.close(experiment.checkpoints())
            experiment.sync()
            console.close(str(path))
            raise _interrupted(path, interrupt) from None
        except BaseException:
            executor.close(experiment.checkpoints())
            experiment.sync()
            raise
        executor.close()
        for file, text in experiment.policy_files():
            _core.replace_file(str(path / file), text.encode())
        experiment.sync()
        hooks.experiment_ended()
        console.close(str(path))


def _place(path: str | os.PathLike[str]) -> Path:
    """The directory of an experiment, given its path or its name in the default storage path."""
    place = Path(local_path(path, "[Tuner] path"))
    if place.exists() or os.sep in os.fspath(path):
        return place
    named = Path(_core.default_storage_path()) / os.fspath(path)
    return named if named.exists() else place


def _names(config: TuneConfig, trial: Any) -> tuple[str, str]:
    """The name of a trial and of its directory."""
    name = str(config.trial_name_creator(trial)) if config.trial_name_creator else str(trial)
    trial.custom_name = name
    return name, str(config.trial_dirname_creator(trial)) if config.trial_dirname_creator else name


def _interrupted(path: Path, interrupt: KeyboardInterrupt) -> TrainingInterrupted:
    signal = getattr(interrupt, "signal", 2) or 2
    advice = f"what was reported is kept; continue with tune.Tuner.restore({str(path)!r}).fit()"
    return ends_uncaught(TrainingInterrupted(f"[tune] the experiment was interrupted; {advice}", None, signal))
