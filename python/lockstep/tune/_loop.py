"""The loop of an experiment: starts what it chooses, tells it what happened, and acts on its decisions."""

from __future__ import annotations

import json
import os
import shutil
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep.config import CheckpointConfig
from lockstep.errors import ConfigError, InternalError, LockstepError
from lockstep.result import Result
from lockstep.tune._console import Console
from lockstep.tune._space import ParamSpace
from lockstep.tune._trial import Ended, Job, Reported, Taken, Trial
from lockstep.tune.callback import Hooks, checkpoint_at

_NOT_STORED = frozenset(_core.tune.keys_not_stored())
"""Keys of results that the database does not keep: the trial's own files have them."""
_LONGEST_WAIT = 0.5
_REMOVE_EVERY = 0.2
"""Seconds between removals of checkpoints, each of which waits for the database."""


class Loop:
    """Runs an experiment to its end, in the thread that calls run()."""

    def __init__(
        self,
        experiment: Any,
        directory: Path,
        space: ParamSpace,
        hooks: Hooks,
        console: Console,
        *,
        trainable_name: str,
        stopper: Callable[[str, dict[str, Any]], bool] | None = None,
        time_budget: float | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        names: Callable[[Trial], tuple[str, str]] | None = None,
        bridges: Sequence[Any] = (),
        first_checkpoint: str = "",
    ) -> None:
        self._experiment = experiment
        self._directory = directory
        self._space = space
        self._hooks = hooks
        self._console = console
        self._trainable_name = trainable_name
        self._stopper = stopper
        self._deadline = None if time_budget is None else time.monotonic() + time_budget
        self._keep = checkpoint_config or CheckpointConfig()
        self._names = names
        self._places: dict[int, str] = {}
        """Directories of trials whose checkpoints are counted."""
        self._taken: set[str] = set()
        """Names of trials' directories, which may not be there yet."""
        self._first_checkpoint = first_checkpoint
        self._trials: dict[int, Trial] = {}
        self._running: dict[int, Job] = {}
        self._kept: dict[int, list[tuple[int, float | None]]] = {}
        self._unneeded: list[tuple[str, int]] = []
        """Checkpoints to remove once the database has newer ones."""
        self._next_removal = 0.0
        self._stopped = False
        self._whole: dict[int, dict[str, Any]] | None = {} if bridges else None
        """The last results of running trials, for searchers and schedulers in Python."""
        for bridge in bridges:
            bridge.results = self._whole.get  # type: ignore[union-attr]
            bridge.stored = _results_of(weakref.ref(experiment))  # which refers to the bridge
        self._fail_fast = bool(experiment.settings().fail_fast)
        self._metrics = list(experiment.settings().metrics)
        self._has_metric = experiment.count(_core.tune.TrialState.terminated) > 0
        """Whether a trial has reported the metric."""
        self._go_on = _core.tune.Decision.Kind.go_on
        self._pause = _core.tune.Decision.Kind.pause

    def run(self, executor: Any) -> None:
        """Until no trial runs and none is to be started."""
        experiment = self._experiment
        while True:
            may_start = True
            while may_start and executor.can_start():
                start = experiment.next()
                may_start = start is not None
                if start is not None:
                    self._start(start, executor)
            if not self._running:
                if experiment.is_done():
                    break
                if not may_start:
                    raise InternalError("[tune] no trial runs and none can start, but the experiment is not done")
            self._hooks.step()
            for event in executor.poll(self._wait()):
                if isinstance(event, Reported):
                    self._reported(event, executor)
                elif isinstance(event, Taken):
                    self._taken_over(event, executor)
                else:
                    self._ended(event, executor)
            self._hooks.step_end()
            self._look_at_time(executor)
            if self._unneeded and time.monotonic() > self._next_removal:
                self._remove_unneeded()
            self._console.update(experiment, len(self._running))
        for number in self._places:  # donors kept theirs until now
            self._retain(number)
        self._remove_unneeded()

    def remember(self) -> None:
        """Shows the stopper what an earlier driver stored, in the order of time."""
        if self._stopper is None:
            return
        seen = []
        for number in range(self._experiment.size()):
            trial = self._experiment.trial(number)
            if trial.state == _core.tune.TrialState.pending and not trial.checkpoint:
                continue  # it begins anew
            own = {"trial_id": trial.id, "config": self._space.config(trial.config)}
            seen += [{**result, **own} for result in self._experiment.results(number)]
        for result in sorted(seen, key=lambda each: each.get("timestamp", 0)):
            self._stops(result["trial_id"], result)

    def _wait(self) -> float:
        if self._deadline is None or self._stopped:
            return _LONGEST_WAIT
        return min(_LONGEST_WAIT, max(0.0, self._deadline - time.monotonic()))

    def _look_at_time(self, executor: Any) -> None:
        """At the end of the time budget, and after a failure that ends all, running trials end too."""
        if self._stopped or self._deadline is None or time.monotonic() < self._deadline:
            return
        self._stop_all(executor)

    def _stop_all(self, executor: Any) -> None:
        self._stopped = True
        self._experiment.stop()
        for job in self._running.values():
            job.stopping, job.decided = True, "stop"
            executor.kill(job)

    # ------------------------------------------------------------------ what happens

    def _start(self, start: Any, executor: Any) -> None:
        trial = self._trials.get(start.trial)
        again = start.attempt > 0
        if trial is None:
            trial = Trial(start.id, {}, "", self._trainable_name, number=start.trial, custom_name=start.name)
            trial.experiment_tag = str(start.trial)
        trial.config = self._space.config(start.config)
        trial.evaluated_params = trial.config
        if not trial.logdir:
            name = start.name
            if self._names is not None and not again:
                trial.custom_name, name = self._names(trial)
                if name in self._taken or os.path.exists(self._directory / name):
                    name = f"{name}_{trial.trial_id}"
                self._taken.add(name)
                self._experiment.set_name(start.trial, name)
            trial.logdir = str(self._directory / name)
        if again and start.trial not in self._kept and self._keep.num_to_keep is not None:
            self._kept[start.trial] = self._found(trial.logdir, start.checkpoint)
        checkpoint = start.checkpoint or self._first_checkpoint
        trial.checkpoint = checkpoint_at(checkpoint)
        trial.status = "RUNNING"
        job = Job(start.trial, start.attempt, start.iterations, checkpoint, trial)
        self._running[start.trial] = job
        self._console.started(trial)
        if self._hooks.any:
            self._trials[start.trial] = trial
            if not again:  # callbacks may write into it
                shutil.rmtree(trial.logdir, ignore_errors=True)
                os.makedirs(trial.logdir, mode=0o700)
                job.has_directory = True
            self._hooks.started(trial, again)
        executor.start(job)

    def _reported(self, event: Reported, executor: Any) -> None:
        job, result = event.job, event.metrics
        if event.checkpoint:
            job.trial.checkpoint = checkpoint_at(event.checkpoint)
        if result is None:
            iteration = event.iteration or job.iterations
            if event.is_before_report:
                is_there = job.iterations > event.iteration
                iteration = event.iteration + 1 if is_there else event.iteration
                job.loose = "" if is_there else event.checkpoint
            self._experiment.on_checkpoint(job.number, event.checkpoint, iteration)
            self._saved(job, event.checkpoint, job.trial.last_result)
            if event.reply is not None:
                self._experiment.sync()
            event.answer(False)
            return
        try:
            job.iterations += 1
            if self._whole is not None:
                self._whole[job.number] = result
            last = self._hooks.any and self._hooks.reported(job.trial, result)
            job.trial.last_result = result
            if not last and self._stopper is not None:
                last = self._stops(job.trial.trial_id, result)
            try:
                decision = self._experiment.on_report(job.number, result, event.checkpoint, bool(last), _NOT_STORED)
            except ConfigError as error:
                self._cannot_use(str(error), job, result)
                if event.reply is None:
                    executor.kill(job)
                event.answer(True)
                return
            self._has_metric = True
            if job.loose:
                self._experiment.on_checkpoint(job.number, job.loose, job.iterations)
                job.loose = ""
            self._decide(job, decision.kind)
            if self._stopper is not None and getattr(self._stopper, "stop_all", bool)():
                self._experiment.stop()
                self._stopped = job.stopping = True
                for other in self._running.values():  # each ends with its next report
                    other.stopping, other.decided = True, "stop"
            if event.checkpoint:
                self._saved(job, event.checkpoint, result)
        except BaseException:
            event.answer(True)
            raise
        event.answer(job.stopping)
        self._console.reported(job.trial, result)

    def _taken_over(self, event: Taken, executor: Any) -> None:
        job = event.job
        job.iterations += event.count
        job.trial.last_result = event.metrics
        if event.problem:
            self._has_metric = self._has_metric or event.count > 1
            self._cannot_use(event.problem, job, event.metrics)
            executor.kill(job)
            return
        self._has_metric = True
        self._decide(job, event.decision)
        self._console.reported(job.trial, event.metrics, event.best)

    def _decide(self, job: Job, decision: Any) -> None:
        if decision != self._go_on:
            job.decided = "pause" if decision == self._pause else "stop"
            job.stopping = True

    def _stops(self, trial_id: str, result: dict[str, Any]) -> bool:
        try:
            return bool(self._stopper and self._stopper(trial_id, result))
        except LockstepError:
            raise
        except Exception as error:
            what = f"[tune] stop raised {type(error).__name__}: {error} for trial {trial_id}"
            again = f"tune.Tuner.restore({str(self._directory)!r})"
            raise ConfigError(f"{what}; mend it and restore with {again}; its stop= replaces the function") from error

    def _cannot_use(self, problem: str, job: Job, result: dict[str, Any]) -> None:
        """A report without the metric is the failure of that trial alone, if others have it. Raises ConfigError if no
        trial has: its name is wrong."""
        is_there = all(_core.number_at(result, name) is not None for name in self._metrics)
        if is_there or not self._has_metric:
            raise ConfigError(problem)
        job.problem = job.problem or problem
        job.stopping = True

    def _saved(self, job: Job, path: str, result: dict[str, Any]) -> None:
        if self._hooks.any:
            self._hooks.saved(job.trial)
        if self._keep.num_to_keep is None or os.path.dirname(path) != job.trial.logdir:
            return
        attribute = self._keep.checkpoint_score_attribute
        kept = self._kept.setdefault(job.number, [])
        score = None
        if attribute is not None:
            score = _core.score_of(_core.Checkpoint.from_directory(path), result, attribute)
        kept.append((int(path.rsplit("_", 1)[1]), score))
        self._places[job.number] = job.trial.logdir
        if job.number not in self._experiment.donors():
            self._retain(job.number)

    def _retain(self, number: int) -> None:
        """Lets go of the checkpoints of a trial that CheckpointConfig does not keep."""
        kept, most = self._kept[number], max(1, self._keep.num_to_keep or 0)
        remove, _ = _core.decide_retention(kept, most, self._keep.checkpoint_score_order)
        self._unneeded += [(self._places[number], seq) for seq in remove]
        self._kept[number] = [each for each in kept if each[0] not in remove]

    def _found(self, logdir: str, newest: str) -> list[tuple[int, float | None]]:
        """The checkpoints that an earlier driver kept, and their scores."""
        attribute, kept = self._keep.checkpoint_score_attribute, []
        for path in sorted(Path(logdir).glob("checkpoint_*[0-9]")):
            if os.path.dirname(newest) == logdir and path.name > os.path.basename(newest):
                break  # the executor removes it
            checkpoint = _core.Checkpoint.from_directory(str(path))
            score = None
            if attribute is not None:
                metrics = json.loads((path / "manifest.json").read_text())["metrics"]
                score = _core.score_of(checkpoint, metrics, attribute)
            kept.append((int(path.name.rsplit("_", 1)[1]), score))
        return kept

    def _remove_unneeded(self) -> None:
        """A trial that is killed now must find the checkpoint that the database names."""
        self._experiment.sync()
        needed = set(self._experiment.checkpoints()) if self._unneeded else set()
        keep = []
        for logdir, seq in self._unneeded:
            if f"{logdir}/checkpoint_{seq:06d}" in needed:
                keep.append((logdir, seq))
            else:
                _core.remove_checkpoint(logdir, seq)
        self._unneeded = keep
        self._next_removal = time.monotonic() + _REMOVE_EVERY

    def _ended(self, event: Ended, executor: Any) -> None:
        job = event.job
        del self._running[job.number]
        event.error = job.problem or event.error
        again = self._experiment.on_ended(job.number, event.error)
        if self._whole is not None:
            self._whole.pop(job.number, None)
        trial = job.trial
        trial.error_msg = event.error
        if again:
            trial.status = "PAUSED" if not event.error else "PENDING"
            self._console.paused(trial)
            if event.error:
                self._console.failed(trial, event.error, again=True)
            return
        trial.status = "ERROR" if event.error else "TERMINATED"
        if event.error:
            self._console.failed(trial, event.error, again=False)
        if self._hooks.any:
            result = Result.from_path(trial.logdir) if self._hooks.wants_results else None
            self._hooks.ended(trial, result)
        self._console.ended(trial)
        if event.error and self._fail_fast:
            self._stop_all(executor)


def _results_of(experiment: Callable[[], Any]) -> Callable[[int], list[dict[str, Any]]]:
    def results(number: int) -> list[dict[str, Any]]:
        found = experiment()
        return [] if found is None else found.results(number)

    return results
