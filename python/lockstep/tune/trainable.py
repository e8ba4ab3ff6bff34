"""What a trial runs: a function of the configuration, or a class with steps."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from lockstep import _core, session
from lockstep.checkpoint import Checkpoint
from lockstep.config import ScalingConfig
from lockstep.errors import ConfigError
from lockstep.trainer import DataParallelTrainer


class Trainable:
    """A trial in steps. Override ``setup`` and ``step``, and ``save_checkpoint`` and ``load_checkpoint`` if it can be
    continued::

        class Counter(tune.Trainable):
            def setup(self, config):
                self.count = 0
            def step(self):
                self.count += 1
                return {"count": self.count, "done": self.count == 10}
            def save_checkpoint(self, checkpoint_dir):
                return {"count": self.count}
            def load_checkpoint(self, checkpoint):
                self.count = checkpoint["count"]

    ``save_checkpoint`` returns a dict, or writes files to the directory and returns nothing, the directory, or the path
    of a file in it. ``load_checkpoint`` gets the same. An object can also be driven by hand::

        counter = Counter({})
        counter.train()  # {"count": 1, "training_iteration": 1, ...}
        path = counter.save()
        Counter({}).restore(path)
    """

    def __init__(self, config: dict[str, Any] | None = None, *_: Any, **__: Any) -> None:
        self._prepare(config or {})
        self.setup(self.config)

    def _prepare(self, config: dict[str, Any]) -> None:
        self.config = config
        self._iteration = 0
        self._time_total = 0.0
        self._directory: str | None = None

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """What a trial needs, as ``tune.with_resources()`` takes it. None: one CPU."""
        return None

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, at the beginning."""

    def step(self) -> dict[str, Any]:
        """One iteration; returns its metrics. ``"done": True`` in them ends the trial."""
        raise NotImplementedError("a Trainable must have step()")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | str | None:
        """A dict, or None after the files were written to `checkpoint_dir`."""
        raise NotImplementedError

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Gets what save_checkpoint() returned: the dict, or the directory."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Called at the end of the trial."""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Makes the object ready for another trial. False: a new object is made."""
        return False

    def export_model(self, export_formats: Any, export_dir: str | None = None) -> dict[str, str]:
        """Calls ``_export_model(formats, directory)`` of the subclass: paths by format."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        exported: dict[str, str] = self._export_model(formats, export_dir or self.logdir)
        return exported

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return {}

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with each result of train()."""

    def train(self) -> dict[str, Any]:
        """One step; its metrics with the keys that trials have too."""
        before = time.monotonic()
        result = dict(self.step())
        passed = time.monotonic() - before
        self._iteration += 1
        self._time_total += passed
        result = {"done": False, **self.get_auto_filled_metrics(time_this_iter=passed), **result}
        self.log_result(result)
        return result

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[dict[str, Any]]:
        """The results of train() for so many seconds or steps, or until one is done."""
        deadline = time.monotonic() + buffer_time_s
        results = [self.train()]
        while not results[-1]["done"] and len(results) < max_buffer_length and time.monotonic() < deadline:
            results.append(self.train())
        return results

    def get_auto_filled_metrics(
        self,
        now: datetime | None = None,
        time_this_iter: float | None = None,
        timestamp: int | None = None,
        debug_metrics_only: bool = False,
    ) -> dict[str, Any]:
        """The metrics that are in every result."""
        at = datetime.now() if now is None else now
        metrics = {
            "trial_id": self.trial_id,
            "date": at.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(at.timestamp()) if timestamp is None else timestamp,
            "pid": os.getpid(),
            "hostname": os.uname().nodename,
            "node_ip": _core.LOOPBACK,
            "config": self.config,
            "time_since_restore": self._time_total,
            "iterations_since_restore": self._iteration,
        }
        if debug_metrics_only:
            return metrics
        counts = {"training_iteration": self._iteration, "time_total_s": self._time_total}
        return {**metrics, **counts} | ({} if time_this_iter is None else {"time_this_iter_s": time_this_iter})

    def is_actor(self) -> bool:
        """Whether it runs as a trial of an experiment."""
        return session._session is not None

    def get_current_ip_pid(self) -> tuple[str, int]:
        """The address and the process where it runs."""
        return _core.LOOPBACK, os.getpid()

    def get_current_ip(self) -> str:
        """The address where it runs."""
        return _core.LOOPBACK

    def delete_checkpoint(self, checkpoint_path: str) -> None:
        """Removes what save() wrote."""
        shutil.rmtree(checkpoint_path, ignore_errors=True)

    def stop(self) -> None:
        """The same as cleanup()."""
        self.cleanup()

    def reset(self, new_config: dict[str, Any], *_: Any, **__: Any) -> bool:
        """Makes the object ready for another configuration by reset_config(); returns whether it can."""
        if not self.reset_config(new_config):
            return False
        self.config, self._iteration, self._time_total = new_config, 0, 0.0
        return True

    def save(self, checkpoint_dir: str | None = None, **_: Any) -> str:
        """Writes the current state to a directory, and returns its path."""
        place = checkpoint_dir or os.path.join(self.logdir, f"checkpoint_{self._iteration:06d}")
        os.makedirs(place, mode=0o700, exist_ok=True)
        saved = self.save_checkpoint(place)
        if isinstance(saved, dict):
            Checkpoint.from_dict(saved).to_directory(place)
        state = {"iteration": self._iteration, "time_total": self._time_total, "path": _within(place, saved)}
        with open(os.path.join(place, _STATE), "w", encoding="utf-8") as file:
            json.dump(state, file)
        return place

    def restore(self, checkpoint: Any, *_: Any, **__: Any) -> None:
        """Continues from what save() returned, or from a checkpoint of a trial."""
        held = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint.from_directory(checkpoint)
        state = _load(self, held)
        self._iteration = int(state.get("iteration", 0))
        self._time_total = float(state.get("time_total", 0.0))

    def save_to_object(self) -> bytes:
        """As save(), as bytes."""
        with tempfile.TemporaryDirectory(prefix="lockstep_trainable_") as place:
            return Checkpoint.from_directory(self.save(place)).to_bytes()

    def restore_from_object(self, obj: bytes) -> None:
        """Continues from what save_to_object() returned."""
        self.restore(Checkpoint.from_bytes(obj))

    def get_state(self) -> dict[str, Any]:
        """Iteration and time."""
        return {"iteration": self._iteration, "time_total": self._time_total}

    @property
    def training_iteration(self) -> int:
        """The number of steps so far."""
        return self._iteration

    @property
    def iteration(self) -> int:
        """The same."""
        return self._iteration

    @property
    def logdir(self) -> str:
        """The trial's directory; without a trial, a new one in the storage path."""
        if session._session is not None:
            return session.get_trial_dir()
        if self._directory is None:
            base = _core.default_storage_path()
            os.makedirs(base, mode=0o700, exist_ok=True)
            self._directory = tempfile.mkdtemp(
                prefix=f"{type(self).__name__}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_", dir=base
            )
        return self._directory

    @property
    def trial_id(self) -> str:
        """The trial's id; "default" without a trial."""
        return "default" if session._session is None else session.get_trial_id()

    @property
    def trial_name(self) -> str:
        """The trial's name; "default" without a trial."""
        return "default" if session._session is None else session.get_trial_name()

    @property
    def trial_resources(self) -> Any:
        """What default_resource_request() says."""
        return self.default_resource_request(self.config)

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """Advice for the user if the resources do not suffice."""
        return ""

    def get_config(self) -> dict[str, Any]:
        """The configuration."""
        return self.config


def is_class_trainable(trainable: Any) -> bool:
    """Whether it is a class with steps."""
    return isinstance(trainable, type) and callable(getattr(trainable, "step", None))


class _Adapted(Trainable):
    """What a class that only has steps lacks."""

    _own: ClassVar[type]
    """The class."""
    _is_set_up = False

    def __init__(self, config: dict[str, Any]) -> None:
        self._prepare(config)
        own = self._own.__init__  # type: ignore[misc]
        if own is not object.__init__:
            own(self, *([config] if _takes_config(own) else []))
        if not self._is_set_up:
            self.setup(config)

    def setup(self, config: dict[str, Any]) -> None:
        self._is_set_up = True
        if hasattr(self._own, "setup"):
            self._own.setup(self, config)


def _takes_config(constructor: Callable[..., Any]) -> bool:
    kinds = [each.kind for each in list(inspect.signature(constructor).parameters.values())[1:]]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(kind in positional or kind is inspect.Parameter.VAR_POSITIONAL for kind in kinds)


@functools.lru_cache(maxsize=8)
def as_trainable(kind: type) -> type[Trainable]:
    """The class itself, or a Trainable of a class that only has ``setup``, ``step`` and so on."""
    if issubclass(kind, Trainable):
        return kind
    made = {"_own": kind, "__module__": kind.__module__, "__init__": _Adapted.__init__, "setup": _Adapted.setup}
    return type(kind.__name__, (kind, _Adapted), made)


def run_function(function: Callable[..., Any], config: dict[str, Any]) -> None:
    """Calls a function trainable, and reports what it yields or returns."""
    from lockstep.tune import function_api

    names = _parameters(function)
    more: dict[str, Any] = {"checkpoint_dir": _checkpoint_directory()} if "checkpoint_dir" in names else {}
    if "reporter" in names:
        more["reporter"] = function_api.report
    returned = function(config, **more) if names else function()
    if inspect.isgenerator(returned):
        for metrics in returned:
            _report(metrics)
    elif returned is not None:
        _report(returned)
    function_api.save_pending()


def _report(metrics: Any) -> None:
    if isinstance(metrics, (int, float)):
        metrics = {"_metric": metrics}
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"[tune] the function returned a {type(metrics).__name__}; return a dict of metrics or None")
    session.report(dict(metrics))


@functools.lru_cache(maxsize=8)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The names of its parameters; Ray's older functions have ``checkpoint_dir`` or ``reporter``."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset({"config"})


def _checkpoint_directory() -> str | None:
    checkpoint = session.get_checkpoint()
    if checkpoint is None:
        return None
    return checkpoint.path or checkpoint.to_directory()


def run_class(kind: type, before: Trainable | None, given: Mapping[str, Any]) -> Trainable | None:
    """Runs a class trainable to its end; returns the object if reset_config() may use it for the next trial."""
    config = given["config"]
    kind = as_trainable(kind)
    trial: Trainable | None = None
    if before is not None and before.reset_config(config):
        trial = before
        trial.config, trial._iteration = config, 0
    if trial is None:
        if before is not None:
            before.cleanup()
        trial = kind(config)
    is_done = False
    try:
        _run_steps(trial, kind, given)
        is_done = True
    finally:
        is_kept = is_done and kind.reset_config is not Trainable.reset_config
        if not is_kept:
            trial.cleanup()
    return trial if is_kept else None


def _run_steps(trial: Trainable, kind: type[Trainable], given: Mapping[str, Any]) -> None:
    checkpoint = session.get_checkpoint()
    ahead = 0
    if checkpoint is not None:
        state = _load(trial, checkpoint)
        reports = int(given["iterations"])
        is_others = reports > 0 and os.path.dirname(checkpoint.path or "") != given["directory"]
        trial._iteration = reports if is_others else _iteration_of(checkpoint, state) or reports
        ahead = trial._iteration - reports  # of the checkpoint that the experiment began with
    can_save = kind.save_checkpoint is not Trainable.save_checkpoint
    every, at_end = given["checkpoint_every"], given["checkpoint_at_end"]
    done = False
    while not done and not session.should_stop():
        returned = trial.step()
        if not isinstance(returned, Mapping):
            raise ConfigError(f"[tune] {kind.__name__}.step() returned {returned!r}; it must return a dict of metrics")
        metrics = dict(returned)
        trial._iteration += 1
        done = bool(metrics.get("done", False))
        is_due = (every and trial._iteration % every == 0) or (at_end and done)
        if ahead:
            metrics.setdefault("training_iteration", trial._iteration)
        session.report(metrics, checkpoint=_saved(trial) if can_save and is_due else None)
    if at_end and can_save and not done:
        session._save(_saved(trial))


def _iteration_of(checkpoint: Checkpoint, state: Mapping[str, Any]) -> int:
    """The number of steps before a checkpoint; 0 if it does not say."""
    if "iteration" in state:
        return int(state["iteration"])
    try:
        with open(os.path.join(checkpoint.path or "", "manifest.json"), encoding="utf-8") as file:
            return int(json.load(file)["metrics"]["training_iteration"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


_STATE = "trainable.json"
"""The file of a checkpoint that holds what its files do not: how far the object was, and the path that
save_checkpoint() returned."""


def _load(trial: Trainable, checkpoint: Checkpoint) -> dict[str, Any]:
    """Gives load_checkpoint() what save_checkpoint() returned; returns the rest of the state."""
    files = checkpoint._as_handle().files()
    state = json.loads(checkpoint._as_handle().read(_STATE)) if _STATE in files else {}
    if "data.json" in files:
        trial.load_checkpoint(checkpoint._saved())
        return state
    with checkpoint.as_directory() as path:
        trial.load_checkpoint(os.path.join(path, state["path"]) if state.get("path") else path)
    return state


def _within(place: str, saved: Any) -> str:
    """The path that save_checkpoint() returned, seen from the directory; empty for the directory itself."""
    if not isinstance(saved, (str, os.PathLike)):
        return ""
    path = os.path.relpath(saved, place)
    return "" if path == "." or path.startswith("..") else path


def _saved(trial: Trainable) -> Checkpoint:
    with tempfile.TemporaryDirectory(prefix="lockstep_trainable_") as place:
        saved = trial.save_checkpoint(place)
        if isinstance(saved, dict):
            return Checkpoint.from_dict(saved)
        if path := _within(place, saved):
            with open(os.path.join(place, _STATE), "w", encoding="utf-8") as file:
                json.dump({"path": path}, file)
        return Checkpoint.from_bytes(Checkpoint.from_directory(place).to_bytes())


def with_parameters(trainable: Any, **objects: Any) -> Any:
    """A trainable that also gets `objects`, which are sent to each worker once::

    tune.with_parameters(train, data=big_array)  # def train(config, data=None)
    """
    if is_class_trainable(trainable):
        inner = trainable

        class WithParameters(inner):  # type: ignore[misc, valid-type]
            def setup(self, config: dict[str, Any]) -> None:
                inner.setup(self, config, **objects)

        WithParameters.__name__ = inner.__name__
        return WithParameters
    if not callable(trainable) or isinstance(trainable, type):
        raise ConfigError(f"[tune] with_parameters() got {trainable!r}; it must be a function or a Trainable")
    check_parameters(trainable, objects)
    return functools.wraps(trainable)(_WithParameters(trainable, objects))


class _WithParameters:
    def __init__(self, function: Callable[..., Any], objects: dict[str, Any]) -> None:
        self._function = function
        self._objects = objects

    def __call__(self, config: dict[str, Any], **more: Any) -> Any:
        if not _parameters(self._function):
            return self._function()
        return self._function(config, **self._objects, **more)


def check_parameters(function: Callable[..., Any], objects: Mapping[str, Any]) -> None:
    """Raises ConfigError unless the function can be called with a configuration and with `objects`."""
    if isinstance(function, _WithParameters):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    names = signature.parameters
    given = {**objects, **{name: None for name in ("checkpoint_dir", "reporter") if name in names}}
    try:
        signature.bind(*([{}] if names else []), **given)
    except TypeError as error:
        advice = "" if objects else "; give further arguments with tune.with_parameters"
        name = getattr(function, "__name__", "the trainable")
        raise ConfigError(f"[tune] {name}{signature} cannot be called with a configuration: {error}{advice}") from None


def with_resources(trainable: Any, resources: Any) -> Any:
    """A trainable whose trials need these resources, for example ``{"cpu": 2, "gpu": 0.5}``. With a function of the
    configuration, every trial gets the most that any configuration needs."""
    wanted = resources if _is_function(resources) else _amounts(resources)
    if isinstance(trainable, type):
        made: Any = type(trainable.__name__, (trainable,), {"__module__": trainable.__module__})
        made._lockstep_resources = staticmethod(wanted) if callable(wanted) else wanted
        return made
    if isinstance(trainable, DataParallelTrainer):
        raise ConfigError("[tune] with_resources() got a trainer; its ScalingConfig says what a trial needs")
    made = functools.wraps(trainable)(_WithParameters(trainable, {}))
    made._lockstep_resources = wanted
    return made


def _is_function(resources: Any) -> bool:
    return callable(resources) and not hasattr(resources, "required_resources")


def resources_of(trainable: Any, configs: Callable[[], Iterable[dict[str, Any]]]) -> dict[str, float]:
    """What each trial needs. If that depends on the configuration, the most that any of `configs` needs."""
    wanted = getattr(trainable, "_lockstep_resources", None)
    if wanted is None and is_class_trainable(trainable):
        request = getattr(trainable, "default_resource_request", None)
        plain = getattr(Trainable.default_resource_request, "__func__", None)
        wanted = None if getattr(request, "__func__", plain) is plain else request
    if not callable(wanted):
        return dict(wanted or {})
    most: dict[str, float] = {}
    for config in configs():
        for name, amount in _amounts(wanted(config) or {}).items():
            most[name] = max(amount, most.get(name, 0.0))
    return most


def _amounts(resources: Any) -> dict[str, float]:
    if isinstance(resources, ScalingConfig):
        from lockstep.tune._runs import needs

        return needs(resources)
    if hasattr(resources, "required_resources"):
        resources = resources.required_resources
    if not isinstance(resources, Mapping):
        raise ConfigError(f"[tune] the resources are {resources!r}; they must be a dict such as {{'cpu': 2}}")
    names = {"cpu": "CPU", "gpu": "GPU"}
    try:
        wanted = {names.get(str(name).lower(), str(name)): float(amount) for name, amount in resources.items()}
    except (TypeError, ValueError):
        wanted = {"": -1.0}
    if not all(0 <= amount < math.inf for amount in wanted.values()):
        raise ConfigError(f"[tune] the resources are {resources!r}; amounts must be numbers that are not negative")
    return wanted


_registered: dict[str, Any] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Makes a trainable known by a name, for ``tune.run("name")``."""
    if not callable(trainable):
        raise ConfigError(f"[tune] register_trainable() got {trainable!r}; it must be a function or a class")
    _registered[name] = trainable


def get_trainable(name: str) -> Any:
    """The trainable of that name."""
    if name not in _registered:
        known = ", ".join(sorted(_registered)) or "none"
        raise ConfigError(f"[tune] there is no trainable {name!r}; register_trainable() has: {known}")
    return _registered[name]
