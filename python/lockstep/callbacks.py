"""Hooks into a run, called in the process that called ``fit()``. For example::

from lockstep import Callback, RunConfig

class Printer(Callback):
    def on_result(self, metrics):
        print(metrics["training_iteration"], metrics["loss"])

RunConfig(callbacks=[Printer()])
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import _core
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.checkpoint import Checkpoint
    from lockstep.errors import Failure
    from lockstep.result import Result

PROFILER_DIRECTORY = "pytorch_profiler"
"""The folder of the run directory for the traces of lockstep.torch.profiler."""
PROFILER_SUFFIX = ".pt.trace.json"


@dataclass(frozen=True)
class RunInfo:
    """What a callback learns about the run at its start."""

    name: str
    path: Path
    trial_id: str
    experiment_id: str
    config: dict[str, Any]
    world_size: int
    trainer: str = ""
    hostname: str = ""
    node_ip: str = ""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunInfo:
        """From the core's dict; the core knows neither ``Path`` nor this class."""
        return cls(
            name=fields["name"],
            path=Path(fields["path"]),
            trial_id=fields["trial_id"],
            experiment_id=fields["experiment_id"],
            config=fields["config"] or {},
            world_size=fields["world_size"],
            trainer=fields.get("trainer", ""),
            hostname=fields.get("hostname") or os.uname().nodename,
            node_ip=fields.get("node_ip") or _core.LOOPBACK,
        )


class Callback:
    """Override the hooks you need; by default they do nothing. Called one at a time, in the thread that called
    ``fit()``.

    A callback may be slow: workers continue meanwhile. A callback that raises ends the run with an error that names it.
    """

    _stop_requested = False

    def on_start(self, run: RunInfo) -> None:
        """The run directory exists; no worker runs yet."""

    def on_attempt_started(self, attempt: int) -> None:
        """All workers of an attempt run; also called for the first attempt (0)."""

    def on_result(self, metrics: dict[str, Any]) -> None:
        """Rank 0 reported: its metrics with the autofilled keys."""

    def should_stop(self, metrics: dict[str, Any]) -> bool:
        """Called after on_result, if it is overridden. True ends the run: every rank stops after this report.

        Reports on all ranks wait for the answer::

            class GoodEnough(Callback):
                def should_stop(self, metrics):
                    return metrics["loss"] < 0.1
        """
        return False

    def request_stop(self) -> None:
        """Ends the run early, from any hook: every rank stops after the same report, one of the next ones.

        If the callback serves several runs, the one whose hook calls this ends.
        """
        for adapter in reversed(_running.adapters):
            if adapter._callback is self:
                adapter._stop_requested = True
                return
        self._stop_requested = True

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        """All ranks made their n-th report of the attempt: metrics by rank, None for a rank that ended without it."""

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        """A checkpoint was committed."""

    def on_validated(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        """A committed checkpoint was checked by the function of a ValidationConfig: all its metrics."""

    def on_attempt_failed(self, failures: list[Failure], again: bool) -> None:
        """An attempt failed; the first failing rank comes first. `again` says whether it is retried."""

    def on_end(self, result: Result) -> None:
        """The run has ended, successfully or not (``result.error``)."""


class EarlyStopping(Callback):
    """Ends a run when a metric stops improving::

        RunConfig(callbacks=[EarlyStopping("validation/loss", patience=3)])

    It ends after `patience` results in a row that are not better than the best before by more than `min_delta`. `mode`
    is ``"min"`` if lower is better and ``"max"`` if higher is. Results without the metric do not count.
    """

    def __init__(self, metric: str, patience: int = 1, mode: str = "min", min_delta: float = 0.0) -> None:
        kinds: dict[str, tuple[type, ...]] = {"metric": (str,), "patience": (int,), "mode": (str,)}
        for name, value in (("metric", metric), ("patience", patience), ("mode", mode), ("min_delta", min_delta)):
            if not isinstance(value, kinds.get(name, (int, float))) or isinstance(value, bool):
                raise ConfigError(f"[EarlyStopping] {name} is {value!r}; it must not be a {type(value).__name__}")
        self._arguments = (metric, patience, mode, min_delta)
        self._rule = _core.EarlyStopping(*self._arguments)

    @property
    def best(self) -> float | None:
        """The best value so far."""
        return self._rule.best

    def on_start(self, run: RunInfo) -> None:
        self._rule.reset()

    def should_stop(self, metrics: dict[str, Any]) -> bool:
        return self._rule.should_stop(metrics)


Stop = Callable[[str, dict[str, Any]], Any]
"""A function of a trial's id and a result."""


class StopWhen(Callback):
    """Calls a function given as ``RunConfig(stop=...)``, which has the signature of Ray's. If it also has
    ``stop_all()``, as stoppers have, that is asked after each result."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._trial_id = ""

    def on_start(self, run: RunInfo) -> None:
        self._trial_id = run.trial_id

    def should_stop(self, metrics: dict[str, Any]) -> bool:
        stop_all = getattr(self._stop, "stop_all", bool)
        return bool(self._stop(self._trial_id, metrics)) or bool(stop_all())


@dataclass
class Trial:
    """The run as loggers see it: a run is an experiment of one trial."""

    PENDING: ClassVar[str] = "PENDING"
    RUNNING: ClassVar[str] = "RUNNING"
    PAUSED: ClassVar[str] = "PAUSED"
    TERMINATED: ClassVar[str] = "TERMINATED"
    ERROR: ClassVar[str] = "ERROR"

    trial_id: str
    config: dict[str, Any]
    logdir: str
    trainable_name: str
    experiment_tag: str = "0"
    status: str = "PENDING"
    """PENDING, RUNNING, TERMINATED or ERROR."""
    last_result: dict[str, Any] = field(default_factory=dict)
    """The newest result; while ``log_trial_result`` runs, the previous one."""
    checkpoint: Checkpoint | None = None
    """The newest committed one."""
    evaluated_params: dict[str, Any] = field(default_factory=dict)

    @property
    def local_path(self) -> str:
        """The same as logdir."""
        return self.logdir

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"

    def __hash__(self) -> int:
        return hash(self.trial_id)


class LoggerCallback(Callback):
    """A callback with the interface of Ray Tune's loggers. ``__init__`` may be overridden without calling this one::

    class LoggingCallback(LoggerCallback):
        def __init__(self):
            self.results = []

        def log_trial_result(self, iteration, trial, result):
            self.results.append(result)
    """

    _trial: Trial

    def log_trial_start(self, trial: Trial) -> None:
        """The run starts."""

    def log_trial_restore(self, trial: Trial) -> None:
        """The workers were restarted after a failure."""

    def log_trial_save(self, trial: Trial) -> None:
        """``trial.checkpoint`` was committed."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Rank 0 reported; `iteration` is the result's ``training_iteration``."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """The run has ended."""

    # The hooks of Tune, for programs that drive a logger by hand.

    def setup(self, **info: Any) -> None:
        """As Tune calls it, before all others."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """As Tune calls it."""
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """As Tune calls it."""
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """As Tune calls it."""
        self.log_trial_save(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """As Tune calls it."""
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """As Tune calls it."""
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """As Tune calls it."""
        self.log_trial_end(trial, failed=True)

    def on_start(self, run: RunInfo) -> None:
        now = time.time()
        self._trial = Trial(run.trial_id, run.config, str(run.path), run.trainer or run.name, status="RUNNING")
        self._trial.last_result = {
            "trial_id": run.trial_id,
            "experiment_id": run.experiment_id,
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            "timestamp": int(now),
            "pid": os.getpid(),
            "hostname": run.hostname,
            "node_ip": run.node_ip,
            "config": run.config,
        }
        owner = next(kind for kind in type(self).__mro__ if "setup" in vars(kind))
        if owner.__module__.partition(".")[0] != "lockstep":  # ours are set up by on_start
            self.setup(stop=None, num_samples=1, total_num_samples=1)
        self.log_trial_start(self._trial)

    def on_attempt_started(self, attempt: int) -> None:
        if attempt > 0:
            self.log_trial_restore(self._trial)

    def on_result(self, metrics: dict[str, Any]) -> None:
        self.log_trial_result(int(metrics.get("training_iteration") or 0), self._trial, metrics)
        self._trial.last_result = metrics

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._trial.checkpoint = checkpoint
        self.log_trial_save(self._trial)

    def on_end(self, result: Result) -> None:
        trial: Trial | None = self.__dict__.pop("_trial", None)
        if trial is None:  # another callback raised in on_start before this one was called
            return
        failed = result.error is not None
        trial.status = "ERROR" if failed else "TERMINATED"
        self.log_trial_end(trial, failed=failed)


class _FileLogger(LoggerCallback):
    """Writes results to another file in the format of the run's own; does nothing if that is the run's own file."""

    _name = ""
    """The name of the file in the run directory, if it is fixed."""

    def __init__(self, logdir: str | os.PathLike[str] | None = None) -> None:
        from lockstep._places import local_path

        where = type(self).__name__
        self.logdir = None if logdir is None else Path(local_path(logdir, f"[{where}] logdir"))
        self.filename = self._name
        self._sinks: dict[str, _core.ReportSink | None] = {}

    def log_trial_start(self, trial: Trial) -> None:
        self._sinks[trial.trial_id] = None
        run = Path(trial.logdir)
        place = self.logdir or run
        is_run = self.__dict__.get("_trial") is trial  # otherwise driven by hand: nothing else writes the file
        if is_run and self.filename == self._name and place.resolve() == run.resolve():
            return
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        sink = self._sinks[trial.trial_id] = self._open(str(place))
        sink.start(trial.config if is_run else _plain(trial.config))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._sinks:
            self.log_trial_start(trial)
        sink = self._sinks[trial.trial_id]
        if sink is not None:
            try:
                sink.write(result, iteration)
            except TypeError:
                if self.__dict__.get("_trial") is trial:
                    raise
                sink.write(_plain(result), iteration)
            sink.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        sink = self._sinks.pop(trial.trial_id, None)
        if sink is not None:
            sink.close()

    def _open(self, directory: str) -> _core.ReportSink:
        raise NotImplementedError


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with text for what no file can hold: programs that drive a logger by hand give it anything."""
    made: dict[str, Any] = json.loads(json.dumps(values, default=repr))
    return made


class JsonLoggerCallback(_FileLogger):
    """Every run has ``result.json`` in its directory, with or without this callback. With a `logdir` or `filename`, the
    same lines are also written there::

        RunConfig(callbacks=[JsonLoggerCallback(logdir="~/curves", filename="digits.json")])
    """

    _name = "result.json"

    def __init__(self, logdir: str | os.PathLike[str] | None = None, filename: str | None = None) -> None:
        super().__init__(logdir)
        if filename is not None and (not filename or filename != os.path.basename(filename) or filename in (".", "..")):
            raise ConfigError(f"[JsonLoggerCallback] filename is {filename!r}; it must be a name without a path")
        self.filename = filename or self._name

    def _open(self, directory: str) -> _core.ReportSink:
        return _core.ReportSink.json(directory, self.filename)

    def log_trial_start(self, trial: Any) -> None:
        super().log_trial_start(trial)
        if not isinstance(trial, Trial):  # driven by hand: runs and experiments write it themselves
            self.update_config(trial, trial.config)

    def update_config(self, trial: Any, config: dict[str, Any]) -> None:
        """Writes the configuration of a trial to ``params.json`` and ``params.pkl``."""
        import cloudpickle

        place = self.logdir or Path(trial.logdir)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / "params.json").write_text(json.dumps(config, indent=2, default=repr))
        (place / "params.pkl").write_bytes(cloudpickle.dumps(config))


class CSVLoggerCallback(_FileLogger):
    """Every run has ``progress.csv`` in its directory; with a `logdir`, the same table is also written there."""

    _name = "progress.csv"

    def _open(self, directory: str) -> _core.ReportSink:
        return _core.ReportSink.csv(directory)


class TBXLoggerCallback(_FileLogger):
    """Every run has TensorBoard events in its directory; with a `logdir`, they are also written there::

    RunConfig(callbacks=[TBXLoggerCallback(logdir="~/tensorboard/digits")])
    """

    def _open(self, directory: str) -> _core.ReportSink:
        return _core.ReportSink.tensorboard(directory)


class TorchTensorboardProfilerCallback(Callback):
    """Lists the traces that ``lockstep.torch.profiler.TorchWorkerProfiler`` wrote, and prints where they are::

        profiler = TorchTensorboardProfilerCallback()
        TorchTrainer(train_func, run_config=RunConfig(callbacks=[profiler])).fit()
        profiler.traces[0]  # .../pytorch_profiler/rank_0.0.pt.trace.json

    The workers write them with or without this callback.
    """

    def __init__(self) -> None:
        self.traces: list[Path] = []
        """After the run: every trace in its directory, sorted by name."""

    def on_start(self, run: RunInfo) -> None:
        self.traces = []

    def on_end(self, result: Result) -> None:
        self.traces = sorted((result.path / PROFILER_DIRECTORY).glob("*" + PROFILER_SUFFIX))
        if self.traces:
            print(f"lockstep: {len(self.traces)} profiler traces in {self.traces[0].parent}")


def warn_of_unknown_hooks(callback: object, base: type, stacklevel: int) -> None:
    """Warns about methods that look like hooks of `base` but are not: they would never be called."""
    import difflib

    classes = [kind for kind in type(callback).__mro__ if issubclass(kind, base)]
    ours = [kind for kind in classes if kind.__module__.partition(".")[0] == "lockstep"]
    hooks = sorted({name for kind in ours for name, value in vars(kind).items() if callable(value) and name[0] != "_"})
    known = {name for kind in type(callback).__mro__ if kind in ours or kind not in classes for name in vars(kind)}
    for name in sorted({name for kind in classes for name, value in vars(kind).items() if callable(value)} - known):
        if name.startswith("on_") or (name[0] != "_" and difflib.get_close_matches(name, hooks, 1, 0.9)):
            meant = difflib.get_close_matches(name, hooks, 1)
            advice = f"did you mean {meant[0]}?" if meant else f"the hooks are {', '.join(hooks)}"
            what = f"[callback] {type(callback).__name__}.{name} is not a hook and is never called"
            warnings.warn(f"{what}; {advice}", UserWarning, stacklevel)


class CallbackAdapter:
    """The core calls this for one callback. It converts arguments to Lockstep's types and remembers an exception."""

    def __init__(self, callback: Callback, checkpoint_type: type[Checkpoint] | None = None) -> None:
        self._callback = callback
        self._checkpoint_type = checkpoint_type
        self._stop_requested = False
        self.raised: BaseException | None = None
        self.name = type(callback).__name__

    def wants_all_ranks(self) -> bool:
        """Whether the callback needs the metrics of all ranks; otherwise the core does not decode them."""
        return type(self._callback).on_report is not Callback.on_report

    def may_stop(self) -> bool:
        """Whether the callback may end the run; otherwise reports need not wait for it."""
        return type(self._callback).should_stop is not Callback.should_stop

    def take_stop_request(self) -> bool:
        """Whether the callback called request_stop() since the last call of this method."""
        requested = self._stop_requested or self._callback._stop_requested
        self._stop_requested = self._callback._stop_requested = False
        return requested

    def on_start(self, run: Mapping[str, Any]) -> None:
        self._callback._stop_requested = False  # of an earlier run
        self._call("on_start", RunInfo.from_dict(run))

    def on_attempt_started(self, attempt: int) -> None:
        self._call("on_attempt_started", attempt)

    def on_result(self, metrics: dict[str, Any]) -> None:
        self._call("on_result", metrics)

    def should_stop(self, metrics: dict[str, Any]) -> bool:
        return bool(self._call("should_stop", metrics))

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self._call("on_report", results)

    def on_checkpoint(self, checkpoint: Any, metrics: dict[str, Any]) -> None:
        from lockstep.checkpoint import Checkpoint

        kind = self._checkpoint_type or Checkpoint
        self._call("on_checkpoint", kind._from_handle(checkpoint), metrics)

    def on_validated(self, checkpoint: Any, metrics: dict[str, Any]) -> None:
        from lockstep.checkpoint import Checkpoint

        kind = self._checkpoint_type or Checkpoint
        self._call("on_validated", kind._from_handle(checkpoint), metrics)

    def on_attempt_failed(self, failures: list[Failure], again: bool) -> None:
        self._call("on_attempt_failed", failures, again)

    def on_end(self, outcome: Any) -> None:
        from lockstep.result import Result

        self._call("on_end", Result._from_outcome(outcome, checkpoint_type=self._checkpoint_type))

    def _call(self, hook: str, *arguments: Any) -> Any:
        _running.adapters.append(self)
        try:
            return getattr(self._callback, hook)(*arguments)
        except BaseException as error:
            if self.raised is None:
                self.raised = error
            raise
        finally:
            _running.adapters.pop()


class _RunningHooks(threading.local):
    """The adapters whose hooks run in this thread, the innermost last: a hook may run another run."""

    def __init__(self) -> None:
        self.adapters: list[CallbackAdapter] = []


_running = _RunningHooks()
