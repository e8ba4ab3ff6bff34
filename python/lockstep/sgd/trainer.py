"""RaySGD's ``Trainer``: a warm group of workers that runs one training function after the other."""

from __future__ import annotations

import functools
import os
import queue
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import _core, _pickling, session
from lockstep._pickled_metrics import unpacked
from lockstep._run_data import RunData
from lockstep.backend import BackendConfig
from lockstep.callbacks import Callback, CallbackAdapter, RunInfo, warn_of_unknown_hooks
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, DataConfig, ScalingConfig
from lockstep.errors import ConfigError, Failure, LockstepError
from lockstep.sgd.backends import backend_config_of
from lockstep.sgd.callbacks import SGDCallback, call_hook
from lockstep.sgd.checkpoints import CheckpointFiles, read_checkpoint
from lockstep.sgd.instances import SGDWorkerGroup
from lockstep.sgd.names import TUNE_CHECKPOINT_FILE_NAME
from lockstep.sgd.paths import construct_path
from lockstep.worker_group import Job, WorkerGroup

if TYPE_CHECKING:
    from typing_extensions import Self

Results = list[dict[str, Any] | None]
"""The metrics of all ranks, by rank; None for a rank that ended without that report."""
Run = Callable[[Callable[[], object], Callable[[Results], object]], list[Any]]
"""Runs to the end, in the calling thread, and returns the function's results by rank. The first argument is called when
the directory exists, the second with each row of reports."""


class _OfTrial:
    """The function in the trials of a trainable."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *config: Any) -> Any:
        if session._session is not None:
            session._session.pickled_file = TUNE_CHECKPOINT_FILE_NAME
        return self._function(*config)


class Trainer:
    """Starts workers once, and runs training functions on them::

        from lockstep import sgd

        def train_func(config):
            for epoch in range(config["num_epochs"]):
                sgd.report(epoch=epoch)
            return sgd.world_rank()

        with sgd.Trainer(backend="torch", num_workers=2) as trainer:
            trainer.run(train_func, config={"num_epochs": 3})  # [0, 1]

    If the function raises, the run ends with that error. If workers die, they are replaced and the run continues from
    its last checkpoint, up to `max_retries` times (-1: no limit). The trainer can be used again after both. The
    results of functions are pickled on the workers and unpickled in this process.
    """

    _prefix: ClassVar[str] = "sgd"
    _checkpoints_are_files: ClassVar[bool] = True

    def __init__(
        self,
        backend: str | BackendConfig = "torch",
        num_workers: int = 1,
        use_gpu: bool = False,
        resources_per_worker: dict[str, float] | None = None,
        logdir: str | Path | None = None,
        max_retries: int = 3,
    ) -> None:
        if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < -1:
            raise ConfigError(f"[sgd] max_retries is {max_retries!r}; it must be an int of at least -1 (no limit)")
        if logdir is not None and not isinstance(logdir, (str, os.PathLike)):
            raise ConfigError(f"[sgd] logdir is {logdir!r}; it must be a path or None")
        scaling = ScalingConfig(num_workers=num_workers, use_gpu=use_gpu, resources_per_worker=resources_per_worker)
        self._group = WorkerGroup(scaling, backend_config_of(backend), trainer="Trainer")
        self._max_retries = max_retries
        name = f"{self._prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}" if logdir is None else logdir
        self.logdir: Path = construct_path(Path(name), Path(_core.default_storage_path()))
        """The directory that holds those of the runs."""
        self.latest_run_dir: Path | None = None
        """The directory of the newest run; None before the first."""
        self._files: CheckpointFiles | None = None
        self._iterator: SGDIterator | None = None
        self._dropped: list[str] = []
        """Names of instances on the workers whose groups no longer exist."""
        self._worker_groups: weakref.WeakSet[SGDWorkerGroup] = weakref.WeakSet()

    # ------------------------------------------------------------------ its life

    def start(self, initialization_hook: Callable[[], Any] | None = None) -> None:
        """Starts the workers and calls the hook on each, also on workers that replace others later."""
        if self._group.is_started:
            raise LockstepError("[sgd] the trainer is started already; call shutdown() before another start()")
        if initialization_hook is not None and not callable(initialization_hook):
            raise ConfigError(f"[sgd] initialization_hook is {initialization_hook!r}; it must be a function or None")
        self.logdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._group.start(initialization_hook, max_failures=self._max_retries)

    def shutdown(self) -> None:
        """Ends the workers, and a run whose iterator has not finished."""
        self._check_started("shutdown")
        if self._iterator is not None and not self._iterator._is_over:
            self._group.stop()
            self._iterator._thread.join()
        self._iterator = None
        self._group.shutdown()

    def __enter__(self) -> Self:
        if not self._group.is_started:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._group.is_started:
            self.shutdown()

    # ------------------------------------------------------------------ runs

    def run(
        self,
        train_func: Callable[..., Any],
        config: dict[str, Any] | None = None,
        callbacks: Sequence[SGDCallback] | None = None,
        checkpoint: dict[str, Any] | Checkpoint | str | Path | None = None,
        checkpoint_strategy: CheckpointConfig | None = None,
        dataset: Any = None,
    ) -> list[Any]:
        """Runs the function on all workers and returns its results by rank.

        `checkpoint` is what ``load_checkpoint()`` returns at first: a dict, or the path of a saved one. `dataset` is a
        data set of ``lockstep.data``, or a dict of them: ``get_dataset_shard()`` gives every worker its part of each.
        """
        hooks = _callbacks(callbacks)
        run = self._new_run(train_func, config, dataset, checkpoint, checkpoint_strategy)
        started: list[SGDCallback] = []

        def start() -> None:
            for hook in hooks:
                started.append(hook)
                call_hook(hook.start_training, str(self.latest_run_dir), config or {})

        def handle(results: Results) -> None:
            for hook in hooks:
                call_hook(hook.handle_result, results)

        failed = True
        try:
            values = run(start, handle)
            failed = False
            return values
        finally:
            for hook in started:
                call_hook(hook.finish_training, failed)

    def run_iterator(
        self,
        train_func: Callable[..., Any],
        config: dict[str, Any] | None = None,
        checkpoint: dict[str, Any] | Checkpoint | str | Path | None = None,
        checkpoint_strategy: CheckpointConfig | None = None,
        dataset: Any = None,
    ) -> SGDIterator:
        """As run(), but returns an iterator over the workers' reports as they arrive."""
        run = self._new_run(train_func, config, dataset, checkpoint, checkpoint_strategy)
        self._iterator = SGDIterator(run, self._group)
        return self._iterator

    def to_worker_group(self, train_cls: type, *args: Any, **kwargs: Any) -> SGDWorkerGroup:
        """Makes an instance of the class on every worker; starts the workers if necessary.

        group = trainer.to_worker_group(Worker, lr=0.1)
        group.call("train_epoch")  # [0.7, 0.8]
        """
        if not self._group.is_started:
            self.start()
        self._check_idle()
        return SGDWorkerGroup(self, train_cls, args, kwargs)

    def to_tune_trainable(self, train_func: Callable[..., Any], dataset: Any = None) -> Any:
        """A trainable for ``tune.run()`` and ``tune.Tuner``: a trial uses as many workers as this trainer::

        trainable = trainer.to_tune_trainable(train_func)
        analysis = tune.run(trainable, config={"lr": tune.loguniform(1e-4, 1e-1)}, num_samples=10)

        Its checkpoints are directories that also hold the pickled dict, in the file TUNE_CHECKPOINT_FILE_NAME.
        """
        from lockstep.trainer import DataParallelTrainer

        trainable = DataParallelTrainer(
            functools.wraps(train_func)(_OfTrial(train_func)),
            backend_config=self._group.backend_config,
            scaling_config=self._group.scaling_config,
            datasets=_datasets(dataset),
        )
        trainable._takes_flat_config = True  # type: ignore[attr-defined]
        return trainable

    # ------------------------------------------------------------------ what the latest run saved

    @property
    def latest_checkpoint(self) -> dict[Any, Any] | None:
        """What was last passed to ``save_checkpoint()`` in the newest run, or else what that run started from."""
        return None if self._files is None else self._files.latest

    @property
    def latest_checkpoint_dir(self) -> Path | None:
        """The directory of the newest run's checkpoints; None before the first run."""
        return None if self._files is None else self._files.directory

    @property
    def latest_checkpoint_path(self) -> Path | None:
        """The path of the newest run's newest checkpoint, if it is on disk."""
        return None if self._files is None else self._files.latest_path

    @property
    def best_checkpoint(self) -> dict[Any, Any] | None:
        """The newest run's best checkpoint by the score of its strategy; the latest if there is no score."""
        return None if self._files is None else self._files.best

    @property
    def best_checkpoint_path(self) -> Path | None:
        """The path of the best checkpoint."""
        return None if self._files is None else self._files.best_path

    @staticmethod
    def load_checkpoint_from_path(path: str | Path) -> dict[Any, Any]:
        """The dict in a checkpoint file or directory. It is unpickled: use only files that you trust."""
        return read_checkpoint(path)._saved()

    # ------------------------------------------------------------------ inside

    def _new_run(
        self,
        train_func: Callable[..., Any],
        config: dict[str, Any] | None,
        dataset: Any,
        checkpoint: dict[str, Any] | Checkpoint | str | Path | None,
        strategy: CheckpointConfig | None,
    ) -> Run:
        self._check_started("run")
        self._check_idle()
        _pickling.check_signature(train_func)
        if config is not None and not isinstance(config, dict):
            raise ConfigError(f"[sgd] config is {config!r}; it must be a dict or None")
        if not isinstance(strategy, (CheckpointConfig, type(None))):
            raise ConfigError(f"[sgd] checkpoint_strategy is {strategy!r}; it must be a CheckpointStrategy or None")
        resume_from = None if checkpoint is None else read_checkpoint(checkpoint)
        job = Job(
            train_func,
            config,
            max_failures=self._max_retries,
            data=RunData(_datasets(dataset), DataConfig(datasets_to_split="all")),
        )
        job.directory = directory = self._next_run_dir()
        files = CheckpointFiles(
            directory / "checkpoints",
            strategy or CheckpointConfig(),
            as_file=self._checkpoints_are_files,
            resume_from=resume_from,
        )
        self.latest_run_dir, self._files = directory, files
        job.resume_from = files.latest_handle

        def run(on_start: Callable[[], object], on_results: Callable[[Results], object]) -> list[Any]:
            job.callbacks = [CallbackAdapter(_Hooks(self._group, on_start, on_results, files))]
            return self._group.run(job)

        return run

    def _next_run_dir(self) -> Path:
        """A number above those that exist, perhaps from an earlier process."""
        found = (re.fullmatch(r"run_(\d+)", entry.name) for entry in self.logdir.iterdir())
        return self.logdir / f"run_{max((int(match[1]) for match in found if match), default=0) + 1:03d}"

    def _check_started(self, what: str) -> None:
        if not self._group.is_started:
            raise LockstepError(
                f"[sgd] {what}() was called before start() or after shutdown(); call start() first, or use the trainer "
                "as a context manager"
            )

    def _check_idle(self) -> None:
        self._check_iterator()
        for group in list(self._worker_groups):
            group._flush()

    def _check_iterator(self) -> None:
        if self._iterator is not None and not self._iterator._is_over:
            raise LockstepError(
                "[sgd] the iterator of an earlier run_iterator() is not finished; go on with it, or call its "
                "get_final_results(force=True)"
            )

    @property
    def _executor(self) -> WorkerGroup:
        return self._group

    _backend_executor = _executor


class TrainTrainer(Trainer):
    """Ray Train's first ``Trainer``: the same, with checkpoints that are directories."""

    _prefix = "train"
    _checkpoints_are_files = False


TrainTrainer.__name__ = TrainTrainer.__qualname__ = "Trainer"


def _datasets(given: Any) -> Mapping[str, Any]:
    return {} if given is None else given if isinstance(given, Mapping) else {"train": given}


def _callbacks(given: Any) -> list[SGDCallback]:
    if given is None:
        return []
    if not isinstance(given, (list, tuple)) or not all(hasattr(each, "handle_result") for each in given):
        raise ConfigError(f"[sgd] callbacks is {given!r}; it must be a list of SGDCallback")
    for callback in given:
        warn_of_unknown_hooks(callback, SGDCallback, stacklevel=4)
    return list(given)


class _Hooks(Callback):
    def __init__(
        self,
        group: WorkerGroup,
        on_start: Callable[[], object],
        on_results: Callable[[Results], object],
        files: CheckpointFiles,
    ) -> None:
        self._group = group
        self._group.num_failures = 0
        self._on_start = on_start
        self._on_results = on_results
        self._files = files

    def on_start(self, run: RunInfo) -> None:
        self._on_start()

    def on_attempt_failed(self, failures: Sequence[Failure], again: bool) -> None:
        self._group.num_failures += again

    def on_report(self, results: Results) -> None:
        self._on_results([unpacked(metrics) for metrics in results])

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._files.add(checkpoint, metrics)


class SGDIterator(Iterator[Results]):
    """The reports of a run's workers as they arrive; each item is the list of all ranks' metrics::

        for results in trainer.run_iterator(train_func):
            print(results[0]["loss"])

    Workers do not wait for the reader.
    """

    def __init__(self, run: Run, group: WorkerGroup) -> None:
        self._run = run
        self._executor = self._backend_executor = group
        self._queue: queue.SimpleQueue[Results | None] = queue.SimpleQueue()
        self._values: list[Any] | None = None
        self._error: BaseException | None = None
        self._finished = False
        self._is_over = False
        self._thread = group.thread = threading.Thread(target=self._work, name="lockstep-run", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._values = self._run(lambda: None, self._queue.put)
        except BaseException as error:
            self._error = error
        finally:
            self._is_over = True
            self._queue.put(None)

    def __next__(self) -> Results:
        if not self._finished:
            results = self._queue.get()
            if results is not None:
                return results
            self._finished = True
            self._thread.join()
            if self._error is not None:
                raise self._error
        raise StopIteration

    def is_finished(self) -> bool:
        """Whether the run has ended and all its results have been taken."""
        return self._finished

    def get_final_results(self, force: bool = False) -> list[Any] | None:
        """The function's results by rank. With `force`, results that have not been taken are dropped.

        As in Ray, scripts written for it get None if results were not taken, or if the run's error was raised already.
        """
        in_ray = "lockstep.as_ray" in sys.modules
        if not self._finished and not force:
            advice = "iterate to the end, or call get_final_results(force=True)"
            if in_ray:
                print(f"lockstep: the run's results were not all taken; {advice}", file=sys.stderr)
                return None
            raise LockstepError(f"[sgd] the run's results were not all taken; {advice}")
        was_finished = self._finished
        for _ in self:
            pass
        if self._error is not None and not (in_ray and was_finished):
            raise self._error
        return self._values
