"""Runs trials of a trainer: each is a run in the experiment's directory."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import queue
import shutil
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep import callbacks as run_callbacks
from lockstep.checkpoint import Checkpoint
from lockstep.config import FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import ConfigError, TrainingFailedError
from lockstep.trainer import DataParallelTrainer
from lockstep.tune._trial import Ended, Job, Reported
from lockstep.tune.sample import Categorical
from lockstep.tune.schedulers._scheduler import merged

_KEYS = ("train_loop_config", "scaling_config", "run_config", "datasets", "preprocessor", "metadata", "backend_config")
"""What param_space may hold for a trainer."""


def check_keys(trainer: DataParallelTrainer, space: Mapping[str, Any]) -> None:
    """Raises ConfigError if param_space has a key that no trainer takes."""
    if getattr(trainer, "_takes_flat_config", False) or hasattr(trainer, "_with_config"):
        return
    for key in space:
        if key not in _KEYS:
            what = f"[tune] param_space has {key!r}; for a trainer it has {', '.join(map(repr, _KEYS))}"
            raise ConfigError(f"{what}; parameters of the training function belong into 'train_loop_config'")
    for key in ("scaling_config", "run_config"):
        known = [field.name for field in dataclasses.fields(getattr(trainer, key))]
        for given in _dicts(space.get(key)):
            if unknown := [name for name in given if name not in known]:
                what = f"[tune] param_space[{key!r}] has {', '.join(map(repr, unknown))}"
                raise ConfigError(f"{what}; a {type(getattr(trainer, key)).__name__} has {', '.join(known)}")


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    """The dicts that a value of param_space may become."""
    if isinstance(value, Mapping):
        values = value["grid_search"] if set(value) == {"grid_search"} else None
    else:
        values = value.categories if isinstance(value, Categorical) else ()
    return [value] if values is None else [each for each in values if isinstance(each, Mapping)]


def configured(trainer: DataParallelTrainer, config: Mapping[str, Any]) -> DataParallelTrainer:
    """A copy of the trainer with the configuration of a trial."""
    if (own := getattr(trainer, "_with_config", None)) is not None:
        return own(config)  # type: ignore[no-any-return]
    made = copy.copy(trainer)
    if getattr(trainer, "_takes_flat_config", False):
        config = {"train_loop_config": config}
    for key, value in config.items():
        if key == "train_loop_config":
            base = made.train_loop_config
            if base is None or isinstance(base, Mapping):
                made.train_loop_config = merged(base or {}, value) if isinstance(value, Mapping) else value
            else:
                made.train_loop_config = dataclasses.replace(base, **value) if isinstance(value, Mapping) else value
        elif key in ("scaling_config", "run_config"):
            if not isinstance(value, (Mapping, ScalingConfig if key == "scaling_config" else RunConfig)):
                raise ConfigError(f"[tune] param_space[{key!r}] is {value!r}; it must be a config object or a dict")
            given = dataclasses.replace(getattr(made, key), **value) if isinstance(value, Mapping) else value
            setattr(made, key, given)
        elif key == "datasets":
            made._data = dataclasses.replace(made._data, datasets={**made._data.datasets, **value})
        elif key == "preprocessor":
            made._data = dataclasses.replace(made._data, preprocessor=value)
        else:
            setattr(made, key, value)
    made._validate()
    return made


def needs(scaling: ScalingConfig) -> dict[str, float]:
    """What all workers of a run use; a worker that asks for no CPU counts as one."""
    each = {"CPU": 1.0, **dict(scaling.resources_per_worker or {})}
    if scaling.use_gpu:
        each.setdefault("GPU", 1.0)
    workers = scaling._fixed("tune", "for trials, which run side by side")
    return {name: amount * workers for name, amount in each.items()}


class _Watch(run_callbacks.Callback):
    """Tells the loop what a run reports; waits for its decision if there may be one."""

    def __init__(self, runs: Runs, job: Job, waits: bool) -> None:
        self._runs = runs
        self._job = job
        self._waits = waits
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._reports = job.iterations
        self._ahead: int | None = None
        """How many more reports the trial has than its run: it may have taken over the checkpoint of another one."""
        self.replaces = False
        """Whether the run removes checkpoints that are not needed any more."""
        self._aside = _aside(Path(job.trial.logdir)) if job.has_directory else None

    def on_start(self, run: run_callbacks.RunInfo) -> None:
        """Puts back what callbacks wrote before the run made its directory."""
        if self._aside is not None:
            for each in self._aside.iterdir():
                each.replace(run.path / each.name)
            self._aside.rmdir()

    def on_result(self, metrics: dict[str, Any]) -> None:
        metrics = {**metrics, "trial_id": self._job.trial.trial_id}
        self._reports += 1
        self._ahead = self._reports - int(metrics.get("training_iteration") or 0)
        if not self._waits:
            self._runs.post(Reported(self._job, metrics))
            return
        self._runs.post(Reported(self._job, metrics, reply=self._answers.put))
        self._answer = self._answers.get()

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        if checkpoint.path is None:
            return
        iteration = self._reports
        if self._ahead is not None:
            iteration = int(metrics.get("training_iteration") or 0) + self._ahead
        reply = self._answers.put if self.replaces else None
        self._runs.post(Reported(self._job, None, str(checkpoint.path), reply, iteration, self._runs.saves_first))
        if self.replaces:  # the run removes older ones next: the database must have this one
            self._answers.get()

    def release(self) -> None:
        """Ends its wait for an answer."""
        self._answers.put(True)


def _aside(place: Path) -> Path | None:
    """Moves a directory that is not empty, as a run wants to make it; returns where it is."""
    if not any(place.iterdir()):
        return None
    return place.rename(place.with_name(f"{place.name}.partial"))


class _Decides(_Watch):
    def should_stop(self, metrics: dict[str, Any]) -> bool:
        return self._answer


class _Run:
    """One trial's run, in its own thread."""

    def __init__(self, runs: Runs, job: Job, trainer: DataParallelTrainer, need: dict[str, float]) -> None:
        self.job = job
        self.need = need
        self._runs = runs
        self._trainer = trainer
        self._watch: Any = trainer.run_config.callbacks[0]  # type: ignore[index]
        self._lock = threading.Lock()
        self._handle: Any = None
        self._stopped = False
        name = f"lockstep trial {job.number}"
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        error, interrupted = "", False
        try:
            with self._lock:
                if not self._stopped:
                    self._handle = self._trainer.start()
            if self._handle is not None:
                self._handle.wait()
        except TrainingFailedError as failed:
            error = _text(failed)
        except KeyboardInterrupt:
            interrupted = True
        except BaseException as problem:
            error = f"{type(problem).__name__}: {problem}"
        self._trainer.__dict__.clear()
        self._runs.ended(self, error, interrupted)

    def stop(self) -> None:
        self._stopped = True
        with self._lock:
            if self._handle is not None:
                self._handle.stop()

    def release(self) -> None:
        """For a report that the loop took and did not answer."""
        self._watch.release()


class Runs:
    """At most `most` runs at once, and no more than the machine's resources allow. For one thread."""

    def __init__(
        self,
        trainer: DataParallelTrainer,
        directory: Path,
        *,
        run_config: RunConfig,
        most: int | None = None,
        waits: bool = True,
        callbacks: list[Any] | None = None,
    ) -> None:
        self._trainer = trainer
        self._directory = directory
        self._run_config = run_config
        self.saves_first = bool(getattr(trainer, "_takes_flat_config", False))
        self._most = most
        self._waits = waits
        self._callbacks = callbacks or []
        self._total = _core.total_resources()
        self._usual = needs(trainer.scaling_config)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._runs: dict[int, _Run] = {}
        self._waiting: deque[tuple[Job, DataParallelTrainer, dict[str, float]]] = deque()

    # ------------------------------------------------------------------ for the loop

    def can_start(self) -> bool:
        """Whether another trial fits, as far as is known before its configuration."""
        if self._waiting or (self._most is not None and len(self._runs) >= self._most):
            return False
        return self._fits(self._usual)

    def start(self, job: Job) -> None:
        """Starts a trial, or lets it wait until all of its workers fit."""
        try:
            trainer = self._prepared(job)
            need = needs(trainer.scaling_config)
        except Exception as error:
            self._events.put(Ended(job, f"{type(error).__name__}: {error}"))
            return
        if self._waiting or not self._fits(need):
            self._waiting.append((job, trainer, need))
        else:
            self._runs[job.number] = _Run(self, job, trainer, need)

    def poll(self, timeout: float) -> list[Reported | Ended]:
        """What happened, or nothing after `timeout` seconds."""
        events: list[Reported | Ended] = []
        with contextlib.suppress(queue.Empty):
            found = self._events.get(timeout=timeout)
            while True:
                if isinstance(found, tuple):
                    run, error, interrupted = found
                    del self._runs[run.job.number]
                    if interrupted:
                        raise KeyboardInterrupt
                    run.thread.join()
                    events.append(Ended(run.job, "" if run.job.stopping else error))
                else:
                    events.append(found)
                found = self._events.get_nowait()
        while self._waiting and self._fits(self._waiting[0][2]):
            job, trainer, need = self._waiting.popleft()
            self._runs[job.number] = _Run(self, job, trainer, need)
        return events

    def kill(self, job: Job) -> None:
        """Ends the run of a trial; its checkpoints are kept."""
        if job.number in self._runs:
            self._runs[job.number].stop()
        for waiting in [each for each in self._waiting if each[0] is job]:
            self._waiting.remove(waiting)
            self._events.put(Ended(job))

    def close(self, checkpoints: Collection[str] = ()) -> None:
        """Ends all runs. `checkpoints` are those that the experiment goes on from: a run that ends now reports newer
        ones, which nobody stores any more, and removes these."""
        self._waiting.clear()
        places = {run.job.trial.logdir for run in self._runs.values()}
        held = []
        for each in checkpoints:
            if os.path.dirname(each) in places:
                with contextlib.suppress(OSError):  # a full disk: the runs must end all the same
                    held.append(_hold(Path(each)))
        for run in self._runs.values():
            run.stop()
            run.release()
        while any(run.thread.is_alive() for run in self._runs.values()):
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=0.05)
                if isinstance(event, Reported):
                    event.answer(True)
        self._runs.clear()
        for copy_of in held:
            _put_back(copy_of)

    # ------------------------------------------------------------------ for runs

    def post(self, event: Reported) -> None:
        """Called in the thread of a run."""
        self._events.put(event)

    def ended(self, run: _Run, error: str, interrupted: bool) -> None:
        """The same."""
        self._events.put((run, error, interrupted))

    # ------------------------------------------------------------------ how

    def _fits(self, need: dict[str, float]) -> bool:
        if not self._runs:
            return True
        held: dict[str, float] = {}
        for run in self._runs.values():
            for name, amount in run.need.items():
                held[name] = held.get(name, 0) + amount
        return all(held.get(name, 0) + amount <= self._total.get(name, 0) + 1e-9 for name, amount in need.items())

    def _prepared(self, job: Job) -> DataParallelTrainer:
        trainer = configured(self._trainer, job.trial.config)
        watch = (_Decides if self._waits else _Watch)(self, job, self._waits)
        trainer.run_config = dataclasses.replace(
            self._run_config if trainer.run_config is self._trainer.run_config else trainer.run_config,
            name=os.path.basename(job.trial.logdir),
            storage_path=str(self._directory),
            local_dir=None,
            resume="never",
            callbacks=[watch, *(copied(each) for each in self._callbacks)],
            failure_config=FailureConfig(max_failures=0),
            stop=None,
            verbose=0,
        )
        checkpoints = trainer.run_config.checkpoint_config
        watch.replaces = checkpoints is not None and checkpoints.num_to_keep is not None
        place = Path(job.trial.logdir)
        if place.exists() and not job.checkpoint and not job.has_directory:
            shutil.rmtree(place)  # what an attempt left that is not to be continued
        if (place / "run.json").exists():
            own = prepare_checkpoint(job)
            cut_rows(place, job.iterations)
            if own is None:
                _core.adopt_checkpoint(str(place), job.checkpoint)
            trainer._restored = str(place)
            if trainer.train_loop_config is None:
                trainer.train_loop_config = {}
        elif job.checkpoint:
            trainer.resume_from_checkpoint = trainer._type_of_checkpoints().from_directory(job.checkpoint)
        return trainer


_HELD = ".held"


def _hold(checkpoint: Path) -> Path:
    """A second name for the files of a checkpoint."""
    held = checkpoint.with_name(checkpoint.name + _HELD)
    shutil.rmtree(held, ignore_errors=True)
    return Path(shutil.copytree(checkpoint, held, copy_function=_link))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # not every file system has links
        shutil.copy2(source, target)


def _put_back(held: Path) -> None:
    checkpoint = held.with_name(held.name.removesuffix(_HELD))
    if checkpoint.exists():
        shutil.rmtree(held)
    else:
        held.rename(checkpoint)


def prepare_checkpoint(job: Job) -> int | None:
    """If the trial goes on from one of its own checkpoints: removes newer ones, which the experiment does not know, and
    returns its number."""
    place = Path(job.trial.logdir)
    if not job.checkpoint or Path(job.checkpoint).parent != place:
        return None
    own = int(job.checkpoint.rsplit("_", 1)[1])
    for each in place.glob("checkpoint_*[0-9]"):
        seq = each.name.removeprefix("checkpoint_")
        if seq.isdigit() and int(seq) > own:
            _core.remove_checkpoint(str(place), int(seq))
    return own


def cut_rows(place: Path, count: int) -> None:
    """Leaves the first `count` reports in the files of a trial: it will make the others again."""
    for name in ("result.json", "progress.csv"):
        file = place / name
        if not file.exists():
            continue
        with open(file, newline="", encoding="utf-8") as lines:
            kept = "".join(islice(lines, count)) if name == "result.json" else _rows(lines, count + 1)
        _core.replace_file(str(file), kept.encode())


def _rows(lines: Iterable[str], count: int) -> str:
    """The first rows of CSV; a field in quotes may have line ends."""
    made, row = [], ""
    for line in lines:
        row += line
        if row.count('"') % 2 == 0:
            made.append(row)
            row = ""
            if len(made) == count:
                break
    return "".join(made)


def copied(callback: Any) -> Any:
    """Each run has a callback of its own."""
    from lockstep.tune.callback import _copy

    return _copy(callback)


def _text(failed: TrainingFailedError) -> str:
    failures = failed.result.failures if failed.result is not None else []
    traceback = next((each.traceback for each in reversed(failures) if each.traceback), "")
    return traceback or str(failed)
