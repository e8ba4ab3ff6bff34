"""How a run is set up. Plain dataclasses, checked when they are made and again when a trainer takes them.

>>> from lockstep import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
>>> ScalingConfig(num_workers=4).num_workers
4
>>> RunConfig(name="night", failure_config=FailureConfig(max_failures=3)).name
'night'
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lockstep import _core
from lockstep.callbacks import Callback, warn_of_unknown_hooks
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    from _typeshed import DataclassInstance

TrainLoopConfig: TypeAlias = "dict[str, Any] | DataclassInstance"
"""What a training function gets: a dict, or an object of a dataclass."""

PLACEMENT_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@dataclass
class ScalingConfig:
    """How many workers, and what each of them gets.

    >>> ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}).resources_per_worker
    {'CPU': 2}
    """

    num_workers: int = 1
    use_gpu: bool = False
    """One GPU a worker, unless resources_per_worker says more."""
    resources_per_worker: Mapping[str, float] | None = None
    """"CPU", "GPU" or names of your own; never oversubscribed."""
    placement_strategy: str = "PACK"
    trainer_resources: Mapping[str, float] | None = None
    """Accepted and checked; the driver runs in your own process, so nothing is reserved for it."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it may be."""
        where = "ScalingConfig"
        _check_int(where, "num_workers", self.num_workers, 1)
        _check_bool(where, "use_gpu", self.use_gpu)
        _check_resources(where, "resources_per_worker", self.resources_per_worker)
        _check_resources(where, "trainer_resources", self.trainer_resources)
        _check_choice(where, "placement_strategy", self.placement_strategy, PLACEMENT_STRATEGIES)
        gpus = (self.resources_per_worker or {}).get("GPU")
        if gpus is not None and bool(gpus) != self.use_gpu:
            _refuse(
                where,
                "resources_per_worker",
                dict(self.resources_per_worker or {}),
                f"its GPU entry contradicts use_gpu={self.use_gpu}",
            )

    def to_options(self) -> dict[str, Any]:
        """The plain values that the core takes."""
        resources = {name: float(amount) for name, amount in (self.resources_per_worker or {}).items()}
        return {
            "num_workers": self.num_workers,
            "use_gpu": self.use_gpu,
            "resources_per_worker": resources,
            "placement_strategy": self.placement_strategy,
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ScalingConfig:
        """From ``config_run`` of a ``run.json``; what is missing keeps its default."""
        known = ("num_workers", "use_gpu", "resources_per_worker", "placement_strategy")
        return cls(**{key: settings[key] for key in known if key in settings})


@dataclass
class FailureConfig:
    """How often a run may start again after a failure.

    >>> FailureConfig(max_failures=-1).max_failures  # for ever
    -1
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    """Accepted as in Ray: it says that the first failure ends the run, which ``max_failures=0`` means anyway."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it may be."""
        _check_int("FailureConfig", "max_failures", self.max_failures, -1, "-1 (for ever), 0 or more")
        if self.fail_fast != "raise":
            _check_bool("FailureConfig", "fail_fast", self.fail_fast)
        if self.fail_fast and self.max_failures != 0:
            _refuse(
                "FailureConfig", "max_failures", self.max_failures, f"it must be 0 with fail_fast={self.fail_fast!r}"
            )


@dataclass
class CheckpointConfig:
    """Which checkpoints stay on disk: by default all.

    >>> CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min").num_to_keep
    2
    """

    num_to_keep: int | None = None
    """The best so many, and always the latest. 0: in memory only, nothing is written."""
    checkpoint_score_attribute: str | None = None
    """Read from the checkpoint's dict first, else from the metrics. None: later is better."""
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    """Only for trainers that make the checkpoints themselves; a training function reports its own."""
    checkpoint_at_end: bool | None = None
    keep_all_ranks: bool = False
    """Merge the parts that all ranks report, for sharded models; by default rank 0's checkpoint is the checkpoint."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it may be."""
        where = "CheckpointConfig"
        if self.num_to_keep is not None:
            _check_int(where, "num_to_keep", self.num_to_keep, 0, "None (all), 0 (in memory only) or more")
        attribute = self.checkpoint_score_attribute
        if attribute is not None and not (isinstance(attribute, str) and attribute):
            _refuse(where, "checkpoint_score_attribute", attribute, "it must be the name of a metric or None")
        _check_text(where, "checkpoint_score_attribute", attribute or "")
        _check_choice(where, "checkpoint_score_order", self.checkpoint_score_order, ("max", "min"))
        _check_int(where, "checkpoint_frequency", self.checkpoint_frequency, 0)
        if self.checkpoint_at_end is not None:
            _check_bool(where, "checkpoint_at_end", self.checkpoint_at_end)
        _check_bool(where, "keep_all_ranks", self.keep_all_ranks)

    def validate_for_function(self) -> None:
        """As validate(), for a training function: nobody but itself can make its checkpoints."""
        self.validate()
        for field, value in (
            ("checkpoint_frequency", self.checkpoint_frequency),
            ("checkpoint_at_end", self.checkpoint_at_end),
        ):
            if value:
                _refuse(
                    "CheckpointConfig",
                    field,
                    value,
                    "it has no meaning for a training function, which makes its checkpoints itself; "
                    "call session.report(metrics, checkpoint=Checkpoint.from_dict({...})) where one is due",
                )

    def to_options(self) -> dict[str, Any]:
        """The plain values that the core takes."""
        return {
            "num_to_keep": self.num_to_keep,
            "score_attribute": self.checkpoint_score_attribute or "",
            "score_order": self.checkpoint_score_order,
            "keep_all_ranks": self.keep_all_ranks,
        }


@dataclass
class RunConfig:
    """One run: its place on disk and its policies.

    >>> RunConfig(name="night", hang_timeout=timedelta(minutes=5)).to_options()["hang_timeout"]
    300.0
    """

    name: str | None = None
    """One path component. None: <Trainer>_<Y-m-d_H-M-S>."""
    storage_path: str | os.PathLike[str] | None = None
    """Where run directories are made. None: ~/lockstep_results, or LOCKSTEP_STORAGE_PATH where that is set."""
    callbacks: Sequence[Callback] | None = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    verbose: int = 1
    """0: silent. 1: start and end, progress, warnings and what workers print. 2, 3, as in scripts for Ray: as 1."""
    hang_timeout: float | timedelta | None = None
    """A rank without progress for so long (seconds) hangs: the attempt fails. None: never."""
    heartbeat_timeout: float | timedelta = 10.0
    max_report_size: int = 16_000_000
    """Most bytes of metrics in one report, up to 2**30. What is bigger belongs into a checkpoint."""
    local_dir: str | os.PathLike[str] | None = None
    """Another spelling of storage_path."""
    stop: Mapping[str, float] | Callable[[str, dict[str, Any]], Any] | None = None
    """When the run ends early: at least so much of a metric, ``{"training_iteration": 10}``, or a function that is
    given the trial's id and a result of rank 0. None: when the training function returns."""
    sync_config: Any = None
    """Of tuning, as the next: not there yet."""
    progress_reporter: Any = None
    log_to_file: Any = False
    """Accepted for scripts written for Ray: what workers print is always in the run directory."""
    log_to_console: str = "rank0"
    """Whose output is shown: ``"rank0"``, ``"all"`` or ``"none"``. The files hold that of every rank."""

    def __post_init__(self) -> None:
        self.validate()
        for callback in self.callbacks or ():
            warn_of_unknown_hooks(callback, Callback, stacklevel=4)

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it may be."""
        where = "RunConfig"
        if self.name is not None:
            if not isinstance(self.name, str):
                _refuse(where, "name", self.name, "it must be a str or None")
            _check_text(where, "name", self.name)
            _core.check_run_name(self.name)
        for field in ("storage_path", "local_dir"):
            value = getattr(self, field)
            if value is not None:
                local_path(value, f"[{where}] {field}")
        if self.local_dir is not None and self.storage_path is not None and self.local_dir != self.storage_path:
            _refuse(
                where,
                "local_dir",
                self.local_dir,
                f"it is another spelling of storage_path, which is {self.storage_path!r}; give one",
            )
        _check_stop(where, self.stop)
        for field in ("sync_config", "progress_reporter"):
            if getattr(self, field) is not None:
                _refuse(
                    where, field, getattr(self, field), "it belongs to tuning, which is not there yet; leave it out"
                )
        _check_callbacks(where, self.callbacks)
        _check_type(where, "failure_config", self.failure_config, FailureConfig)
        _check_type(where, "checkpoint_config", self.checkpoint_config, CheckpointConfig)
        _check_int(where, "verbose", self.verbose, 0)
        if not isinstance(self.log_to_console, str) or self.log_to_console not in ("rank0", "all", "none"):
            _refuse(where, "log_to_console", self.log_to_console, "it must be 'rank0', 'all' or 'none'")
        if self.hang_timeout is not None:
            seconds(self.hang_timeout, f"[{where}] hang_timeout")
        seconds(self.heartbeat_timeout, f"[{where}] heartbeat_timeout")
        _check_int(where, "max_report_size", self.max_report_size, 1)
        if self.max_report_size > 2**30:
            _refuse(where, "max_report_size", self.max_report_size, "it must be at most 2**30 bytes")
        (self.failure_config or FailureConfig()).validate()
        (self.checkpoint_config or CheckpointConfig()).validate()

    def to_options(self) -> dict[str, Any]:
        """The plain values that the core takes."""
        path = self.storage_path if self.storage_path is not None else self.local_dir
        if path is None:
            path = os.environ.get("LOCKSTEP_STORAGE_PATH") or os.path.join("~", "lockstep_results")
        return {
            "name": self.name or "",
            "storage_path": local_path(path, "[RunConfig] storage_path"),
            "verbose": self.verbose,
            "log_to_console": self.log_to_console,
            "hang_timeout": None if self.hang_timeout is None else seconds(self.hang_timeout, "hang_timeout"),
            "heartbeat_timeout": seconds(self.heartbeat_timeout, "heartbeat_timeout"),
            "max_report_size": self.max_report_size,
            "max_failures": (self.failure_config or FailureConfig()).max_failures,
            "stop": {name: float(least) for name, least in self.stop.items()} if isinstance(self.stop, Mapping) else {},
            "checkpoint": (self.checkpoint_config or CheckpointConfig()).to_options(),
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> RunConfig:
        """From ``config_run`` of a ``run.json``: no callbacks, name or place; what is missing keeps its default."""
        return cls(
            failure_config=FailureConfig(max_failures=settings.get("max_failures", 0)),
            checkpoint_config=CheckpointConfig(
                num_to_keep=settings.get("num_to_keep"),
                checkpoint_score_attribute=settings.get("checkpoint_score_attribute") or None,
                checkpoint_score_order=settings.get("checkpoint_score_order", "max"),
                keep_all_ranks=settings.get("keep_all_ranks", False),
            ),
            verbose=settings.get("verbose", 1),
            log_to_console=settings.get("log_to_console", "rank0"),
            hang_timeout=settings.get("hang_timeout"),
            stop=settings.get("stop"),
            heartbeat_timeout=settings.get("heartbeat_timeout", 10.0),
            max_report_size=settings.get("max_report_size", cls.max_report_size),
        )


def local_path(path: str | os.PathLike[str], what: str) -> str:
    """The absolute local path that a plain path or a ``file://`` address names; other addresses are refused."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text or not _is_text(text):
        raise ConfigError(f"{what} is {path!r}; it must be a path, in UTF-8") from None
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{what} is {text!r}; only local paths and file:// addresses can be used")
        text = unquote(parts.path)
    return os.path.abspath(os.path.expanduser(text))


def run_path(path: str | os.PathLike[str], what: str) -> str:
    """The directory of the run that a user names: a path, or a name in the default storage path.

    Where there is no run, the path.
    """
    place = local_path(path, what)
    found = _core.find_run(os.fspath(path))
    return place if found is None else os.path.abspath(found)


def seconds(value: float | timedelta, what: str) -> float:
    """A duration in seconds; refuses what is not positive and finite."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not (0 < number < math.inf):
        raise ConfigError(f"{what} is {value!r}; it must be a positive number of seconds or a timedelta")
    return float(number)


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON can hold it, for people and for C++ to read; what is not plain becomes its repr.

    An object of a dataclass is the dict of its fields.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if _is_text(value) else repr(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return float(value)
    if depth < 32:
        if isinstance(value, Mapping):
            return {plain(key) if isinstance(key, str) else str(key): plain(v, depth + 1) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, depth + 1) for item in value]
        if is_dataclass_object(value):
            set_fields = (field.name for field in dataclasses.fields(value) if hasattr(value, field.name))
            return {name: plain(getattr(value, name), depth + 1) for name in set_fields}
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            item = value.item()
            return plain(item, depth + 1) if type(item).__module__ == "builtins" else repr(value)
    return repr(value)


def is_dataclass_object(value: object) -> bool:
    """Whether it is an object of a dataclass, and not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _refuse(where: str, field: str, value: object, rule: str) -> NoReturn:
    raise ConfigError(f"[{where}] {field} is {value!r}; {rule}")


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: no half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _check_text(where: str, field: str, value: str) -> None:
    if not _is_text(value):
        _refuse(where, field, value, "it must be text that UTF-8 can hold: it has half of a surrogate pair")


def _check_int(where: str, field: str, value: object, least: int, rule: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        _refuse(where, field, value, f"it must be {rule or f'an int of at least {least}'}")
    if value >= 2**31:
        _refuse(where, field, value, "it must be less than 2**31")


def _check_bool(where: str, field: str, value: object) -> None:
    if not isinstance(value, bool):
        _refuse(where, field, value, "it must be True or False")


def _check_choice(where: str, field: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        _refuse(where, field, value, f"it must be one of {', '.join(map(repr, choices))}")


def _check_type(where: str, field: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        _refuse(where, field, value, f"it must be a {kind.__name__} or None")


def _check_resources(where: str, field: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        _refuse(where, field, value, 'it must be a dict such as {"CPU": 2} or None')
    for name, amount in value.items():
        if not isinstance(name, str) or not name:
            _refuse(where, field, value, f"the name {name!r} must be a str")
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not (0 <= amount < math.inf):
            _refuse(where, field, value, f"the amount of {name!r} must be a number of at least 0")


def _check_stop(where: str, value: object) -> None:
    if value is None or (callable(value) and not isinstance(value, type)):
        return
    if not isinstance(value, Mapping):
        rule = 'it must be a dict such as {"training_iteration": 10}, a function of trial id and result, or None'
        _refuse(where, "stop", value, rule)
    for name, least in value.items():
        if not isinstance(name, str) or not name or not _is_text(name):
            _refuse(where, "stop", value, f"the name {name!r} must be that of a metric")
        if not isinstance(least, (int, float)) or math.isnan(least):
            _refuse(where, "stop", value, f"the value of {name!r} must be a number")


def _check_callbacks(where: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        _refuse(where, "callbacks", value, "it must be a list of Callback objects or None")
    for callback in value:
        if isinstance(callback, type) and issubclass(callback, Callback):
            _refuse(where, "callbacks", value, f"it holds the class {callback.__name__}; write {callback.__name__}()")
        if not isinstance(callback, Callback):
            _refuse(where, "callbacks", value, f"{callback!r} is no lockstep.Callback")
