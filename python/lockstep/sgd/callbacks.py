"""Hooks into a run of ``lockstep.sgd.Trainer``, called in the process that called ``run()``. For example::

from lockstep.sgd import SGDCallback

class Printer(SGDCallback):
    def handle_result(self, results):
        print([result["loss"] for result in results])

trainer.run(train_func, callbacks=[Printer()])
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from lockstep import _core
from lockstep._places import local_path
from lockstep._plain import plain
from lockstep.errors import ConfigError, LockstepError
from lockstep.sgd.names import RESULT_FILE_JSON, TRAINING_ITERATION
from lockstep.sgd.paths import refused

Results = list[dict[str, Any] | None]
"""Metrics by rank; None for a rank that ended without that report."""


class SGDCallback:
    """Override the hooks you need, with the parameters you need; by default they do nothing.

    Called one at a time, in the thread that called ``run()``. A hook that raises ends the run.
    """

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        """The workers are about to run the function; `logdir` is the directory of this run."""

    def handle_result(self, results: Results, **info: Any) -> None:
        """All ranks made their n-th report: metrics by rank, None for a rank that ended without it."""

    def finish_training(self, error: bool = False, **info: Any) -> None:
        """The run has ended; `error` says whether it failed."""


TrainingCallback = SGDCallback
"""Ray Train's name for it."""


def call_hook(hook: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a hook of a callback with the arguments that it has parameters for; returns its result.

    A parameter with a name from SGDCallback gets that argument. Parameters with other names get the argument at the
    same position. Only keyword-only parameters are passed by name::

        call_hook(callback.start_training, "/runs/run_001", {})
        call_hook(callback.handle_result, results)
        call_hook(callback.finish_training, False)
    """
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (TypeError, ValueError):  # compiled code has no signature
        return hook(*arguments)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return hook(*arguments)
    named = dict(zip(_hook_parameters(hook), arguments, strict=False))
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    places = [parameter.name for parameter in parameters if parameter.kind in kinds]
    keywords = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    passed = [named.get(name, argument) for name, argument in zip(places, arguments, strict=False)]
    return hook(*passed, **{name: named[name] for name in keywords if name in named})


def _hook_parameters(hook: Callable[..., Any]) -> list[str]:
    ours = getattr(SGDCallback, getattr(hook, "__name__", ""), None)
    return [] if ours is None else list(inspect.signature(ours).parameters)[1:]


class _LogdirCallback(SGDCallback):
    """Writes into a directory: its own, or the run's."""

    def __init__(self, logdir: str | os.PathLike[str] | None) -> None:
        self._given = None if logdir is None else Path(local_path(logdir, f"[{type(self).__name__}] logdir"))
        self._run: Path | None = None

    @property
    def logdir(self) -> Path | None:
        """The directory. None before the first run, unless one was given."""
        return self._given or self._run

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        self._run = Path(local_path(logdir, f"[{type(self).__name__}] logdir"))

    def _is_in_run_directory(self) -> bool:
        assert self._run is not None
        return self._given is None or self._given.resolve() == self._run.resolve()


class JsonLoggerCallback(_LogdirCallback):
    """Writes the results of some workers into a file that is valid JSON at any time: a list with one entry per report.

    An entry is a list of those workers' metrics, also for a single worker (null if it ended without that report)::

        callback = JsonLoggerCallback(workers_to_log=[0, 1])
        trainer.run(train_func, callbacks=[callback])
        json.loads(callback.log_path.read_text())  # [[{"loss": 0.5, ...}, {"loss": 0.4, ...}], ...]

    `workers_to_log` is a rank, a list of ranks, or None for all. The next run replaces the file in a given `logdir`.
    """

    _default_filename: ClassVar[str] = RESULT_FILE_JSON

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        filename: str | os.PathLike[str] | None = None,
        workers_to_log: int | Sequence[int] | None = 0,
    ) -> None:
        super().__init__(logdir)
        name = self._default_filename if filename is None else str(filename)
        if not name or name != os.path.basename(name) or name in (".", ".."):
            raise ConfigError(f"[JsonLoggerCallback] filename is {name!r}; it must be a name without a path")
        self.filename = name
        self._workers = _ranks("JsonLoggerCallback", "workers_to_log", workers_to_log)
        self._size = 0

    @property
    def log_path(self) -> Path | None:
        """The file. None before the first run, unless a logdir was given."""
        return None if self.logdir is None else self.logdir / self.filename

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        super().start_training(logdir, config)
        path = self._path()
        if self._is_in_run_directory() and path.exists():  # the run's own directory, or that of another callback
            raise ConfigError(f"[JsonLoggerCallback] {path} is there already; choose another filename")
        _core.replace_file(str(path), b"[]")
        self._size = 2

    def handle_result(self, results: Results, **info: Any) -> None:
        chosen = _chosen("JsonLoggerCallback", results, self._workers)
        text = json.dumps(_plain(chosen), ensure_ascii=False).encode("utf-8", "replace")
        path = self._path()
        try:
            with open(path, "r+b", buffering=0) as file:
                self._append(file.fileno(), (b",\n" if self._size > 2 else b"") + text)
        except OSError as error:
            raise refused(path, "written", error) from error

    def _append(self, file: int, entry: bytes) -> None:
        """Replaces the last bracket by `entry` and a bracket. If that fails, the file stays as it was."""
        end = self._size - 1
        if os.fstat(file).st_size != self._size:
            raise OSError(f"it has {os.fstat(file).st_size} bytes instead of {self._size}: someone else changed it")
        # In one write, so that a reader sees the old list or the new one.
        written = os.pwrite(file, entry + b"]", end)
        if written <= len(entry):
            os.pwrite(file, b"]", end)
            os.ftruncate(file, self._size)
            raise OSError(f"only {written} of {len(entry) + 1} bytes fit")
        self._size += len(entry)

    def _path(self) -> Path:
        path = self.log_path
        if path is None:
            raise LockstepError("[JsonLoggerCallback] no run has started; pass this callback to Trainer.run()")
        return path


class TBXLoggerCallback(_LogdirCallback):
    """Writes the numbers that one worker reports as TensorBoard events; the step is its ``_training_iteration``::

        trainer.run(train_func, callbacks=[TBXLoggerCallback(logdir="~/tensorboard/digits")])

    Every run has rank 0's events in its directory, with or without this callback; they are not written there twice.
    The events of another worker are in a subdirectory (``rank_1``), which TensorBoard shows as a curve of its own. In
    scripts written for Ray, tags begin with ``ray/sgd/``, as in Ray.
    """

    _ray_prefix: ClassVar[str] = "ray/sgd/"

    def __init__(self, logdir: str | os.PathLike[str] | None = None, worker_to_log: int = 0) -> None:
        super().__init__(logdir)
        if not _is_rank(worker_to_log):
            raise ConfigError(f"[TBXLoggerCallback] worker_to_log is {worker_to_log!r}; it must be a rank, such as 0")
        self._worker = worker_to_log
        self._sink: _core.ReportSink | None = None

    def start_training(self, logdir: str, config: dict[str, Any], **info: Any) -> None:
        super().start_training(logdir, config)
        self._sink = None
        self._prefix = self._ray_prefix if "lockstep.as_ray" in sys.modules else ""
        self._reports = 0
        place = self.logdir
        assert place is not None
        if not self._prefix and self._is_in_run_directory():
            if self._worker == 0:
                return
            place /= f"rank_{self._worker}"
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise refused(place, "made", error) from error
        self._sink = _core.ReportSink.tensorboard(str(place))
        self._sink.start({})

    def handle_result(self, results: Results, **info: Any) -> None:
        (metrics,) = _chosen("TBXLoggerCallback", results, [self._worker])
        self._reports += 1
        if self._sink is None or metrics is None:
            return
        step = metrics.get(TRAINING_ITERATION, self._reports)
        self._sink.write({self._prefix + key: value for key, value in metrics.items()}, int(step))
        self._sink.flush()

    def finish_training(self, error: bool = False, **info: Any) -> None:
        if self._sink is not None:
            self._sink.close()


class TrainTBXLoggerCallback(TBXLoggerCallback):
    """The same for ``lockstep.train.Trainer``, with Ray Train's tags for scripts written for Ray."""

    _ray_prefix = "ray/train/"


class PrintCallback(SGDCallback):
    """Prints each report as a line of JSON: a list of the metrics of `workers_to_print` (None: all workers)::

    trainer.run(train_func, callbacks=[PrintCallback(workers_to_print=0)])  # [{"loss": 0.5, ...}]
    """

    def __init__(
        self, workers_to_print: int | Sequence[int] | None = None, *, workers_to_log: int | Sequence[int] | None = None
    ) -> None:
        """`workers_to_log` is another spelling."""
        if workers_to_print is not None and workers_to_log is not None:
            raise ConfigError("[PrintCallback] workers_to_print and workers_to_log are both given; give one of them")
        name = "workers_to_log" if workers_to_print is None else "workers_to_print"
        given = workers_to_log if workers_to_print is None else workers_to_print
        self._workers = _ranks("PrintCallback", name, given)

    def handle_result(self, results: Results, **info: Any) -> None:
        print(json.dumps(_plain(_chosen("PrintCallback", results, self._workers))))


def _ranks(where: str, field: str, value: int | Sequence[int] | None) -> list[int] | None:
    """The ranks that `value` means: a rank, a list of ranks, or None for all."""
    if value is None:
        return None
    ranks = list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
    if not ranks or not all(map(_is_rank, ranks)):
        raise ConfigError(f"[{where}] {field} is {value!r}; it must be a rank, a list of ranks, or None for all")
    return [rank for rank in ranks if isinstance(rank, int)]


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _chosen(where: str, results: Results, ranks: Sequence[int] | None) -> Results:
    if ranks is None:
        return list(results)
    if max(ranks) >= len(results):
        raise ConfigError(f"[{where}] there is no rank {max(ranks)}: the run has {len(results)} workers")
    return [results[rank] for rank in ranks]


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays as in the run's own files; other objects become their repr."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if not isinstance(value, (bool, int, float, str)) and callable(getattr(value, "tolist", None)):
        try:
            return _core.as_in_files(value)
        except TypeError:
            return _plain(value.tolist())
    return plain(value)
