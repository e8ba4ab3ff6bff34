"""How a run is set up. Plain dataclasses, checked when they are made and again when a trainer takes them.

The core has the rules: ``_to_core()`` passes the values to the struct of the same name in
``include/lockstep/config.h``. This module checks only what Python alone knows.

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


@dataclass
class ScalingConfig:
    """How many workers, and what each of them gets.

    >>> ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}).resources_per_worker
    {'CPU': 2}
    """

    num_workers: int = 1
    use_gpu: bool = False
    """One GPU per worker, unless resources_per_worker says otherwise."""
    resources_per_worker: Mapping[str, float] | None = None
    """Amounts of "CPU", "GPU" or your own names. None is given out twice."""
    placement_strategy: str = "PACK"
    trainer_resources: Mapping[str, float] | None = None
    """Accepted and checked, without effect: the driver runs in your process."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it must be."""
        self._to_core()
        amounts = {} if self.trainer_resources is None else self.trainer_resources
        if not isinstance(amounts, Mapping) or not all(map(_is_amount, amounts.values())):
            _refuse("ScalingConfig", "trainer_resources", amounts, 'it must be a dict such as {"CPU": 1} or None')

    def _to_core(self) -> _core.ScalingConfig:
        return _core.ScalingConfig(self)

    @classmethod
    def _from_core(cls, core: _core.ScalingConfig) -> ScalingConfig:
        return cls(**_values(core))


@dataclass
class FailureConfig:
    """How often a run may be retried after a failure.

    >>> FailureConfig(max_failures=-1).max_failures  # no limit
    -1
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    """Accepted as in Ray, with ``max_failures=0`` only, which already ends the run at the first failure."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it must be."""
        self._to_core()
        if self.fail_fast != "raise":
            _check_bool("FailureConfig", "fail_fast", self.fail_fast)
        if self.fail_fast and self.max_failures != 0:
            _refuse(
                "FailureConfig", "max_failures", self.max_failures, f"it must be 0 with fail_fast={self.fail_fast!r}"
            )

    def _to_core(self) -> _core.FailureConfig:
        return _core.FailureConfig(self)


@dataclass
class CheckpointConfig:
    """Which checkpoints stay on disk: by default all.

    >>> CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min").num_to_keep
    2
    """

    num_to_keep: int | None = None
    """How many of the best stay on disk; the latest always does. None: all. 0: in memory only, nothing is written."""
    checkpoint_score_attribute: str | None = None
    """Read from the checkpoint's dict first, else from the metrics. None: later is better."""
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    """Must be 0: a training function reports its checkpoints itself."""
    checkpoint_at_end: bool | None = None
    keep_all_ranks: bool = False
    """Merge the parts that all ranks report, for sharded models; by default rank 0's checkpoint is the checkpoint."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it must be."""
        self._to_core()
        frequency = self.checkpoint_frequency
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
            _refuse("CheckpointConfig", "checkpoint_frequency", frequency, "it must be an int of at least 0")
        if self.checkpoint_at_end is not None:
            _check_bool("CheckpointConfig", "checkpoint_at_end", self.checkpoint_at_end)

    def validate_for_function(self) -> None:
        """As validate(); also refuses fields that ask the trainer to make checkpoints."""
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

    def _to_core(self) -> _core.CheckpointConfig:
        return _core.CheckpointConfig(self)


@dataclass
class DataConfig:
    """How the data sets of a trainer reach its workers.

    >>> DataConfig(datasets_to_split=["train", "unlabeled"]).equal
    True
    """

    datasets_to_split: str | Sequence[str] | None = ("train",)
    """The data sets of which every rank gets its part, or ``"all"``. Of the others every rank gets all rows."""
    datasets_to_shuffle: str | Sequence[str] | None = ("train",)
    """The data sets whose rows come in another order in each epoch, or ``"all"``. The others keep their order."""
    seed: int = 0
    """The seed of the shuffle. The same seed gives the same orders, for any number of workers."""
    window: int = 100_000
    """Rows that are shuffled among each other."""
    equal: bool | str = True
    """Whether all ranks get the same number of batches. ``"pad"`` (or ``True``) divides the last rows evenly, repeating
    a row where there are too few; ``"drop"`` drops them; ``"uneven"`` (or ``False``) deals them like the others."""
    prefetch: int = 2
    """Windows, or blocks where nothing is shuffled, that are read ahead."""
    resume: bool = True
    """Whether workers that start from a checkpoint continue where the data sets were when it was saved."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it must be."""
        self._to_core()

    def _to_core(self) -> _core.DataConfig:
        def names(given: object) -> object:
            return () if isinstance(given, str) and given == "all" else given

        split, shuffle = names(self.datasets_to_split), names(self.datasets_to_shuffle)
        equal = ("pad" if self.equal else "uneven") if isinstance(self.equal, bool) else self.equal
        return _core.DataConfig(self, datasets_to_split=split, datasets_to_shuffle=shuffle, equal=equal)

    def splits(self, name: str) -> bool:
        """Whether each rank gets its part of this data set."""
        return _names(self.datasets_to_split, name)

    def shuffles(self, name: str) -> bool:
        """Whether this data set is shuffled."""
        return _names(self.datasets_to_shuffle, name)


@dataclass
class RunConfig:
    """One run: its place on disk and its policies.

    >>> RunConfig(name="night", hang_timeout=timedelta(minutes=5)).failure_config is None
    True
    """

    name: str | None = None
    """One path component. None: <Trainer>_<Y-m-d_H-M-S>."""
    storage_path: str | os.PathLike[str] | None = None
    """Where run directories are made. None: LOCKSTEP_STORAGE_PATH, or else ~/lockstep_results."""
    callbacks: Sequence[Callback] | None = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    verbose: int = 1
    """0: silent. 1: start and end, progress, warnings and what workers print. 2 and 3 mean the same as 1."""
    hang_timeout: float | timedelta | None = None
    """In seconds: a rank without progress for this long hangs, and the attempt fails. None: no limit."""
    heartbeat_timeout: float | timedelta = 10.0
    """In seconds: a worker without a heartbeat for this long counts as dead, and the attempt fails."""
    max_report_size: int = 16_000_000
    """Maximum size of the metrics in one report, in bytes, up to 2**30. Put larger values into a checkpoint."""
    local_dir: str | os.PathLike[str] | None = None
    """Another spelling of storage_path."""
    stop: Mapping[str, float] | Callable[[str, dict[str, Any]], Any] | None = None
    """When the run ends early: once a metric is at least this large, ``{"training_iteration": 10}``, or once a function
    of the trial's id and rank 0's metrics returns True. None: when the training function returns."""
    sync_config: Any = None
    """Refused, like progress_reporter: it is part of tuning, which does not exist yet."""
    progress_reporter: Any = None
    log_to_file: Any = False
    """Accepted as in Ray, without effect: what workers print is always in the run directory."""
    log_to_console: str = "rank0"
    """Whose output is shown: ``"rank0"``, ``"all"`` or ``"none"``. The log files have the output of every rank."""
    wait_for_resources: bool = True
    """Whether a run waits for resources that other runs of this process hold. False: it raises EngineError at once."""

    def __post_init__(self) -> None:
        self.validate()
        for callback in self.callbacks or ():
            warn_of_unknown_hooks(callback, Callback, stacklevel=4)

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it must be."""
        where = "RunConfig"
        if self.local_dir is not None and self.storage_path is not None and self.local_dir != self.storage_path:
            _refuse(
                where,
                "local_dir",
                self.local_dir,
                f"it is another spelling of storage_path, which is {self.storage_path!r}; give one",
            )
        self._to_core()
        for field in ("sync_config", "progress_reporter"):
            if getattr(self, field) is not None:
                _refuse(
                    where, field, getattr(self, field), "it is part of tuning, which does not exist yet; leave it out"
                )
        _check_callbacks(where, self.callbacks)
        for config in (self.failure_config, self.checkpoint_config):
            if config is not None:
                config.validate()

    def _to_core(self, **instead: object) -> _core.RunConfig:
        """`instead`: values that replace those of fields."""
        field = "local_dir" if self.storage_path is None else "storage_path"
        path = getattr(self, field)
        given = {
            "storage_path": None if path is None else local_path(path, f"[RunConfig] {field}"),
            "stop": None if callable(self.stop) and not isinstance(self.stop, type) else self.stop,
        }
        return _core.RunConfig(self, **{**given, **instead})

    @classmethod
    def _from_core(cls, core: _core.RunConfig) -> RunConfig:
        failure = FailureConfig(**_values(core.failure_config))
        checkpoint = CheckpointConfig(**_values(core.checkpoint_config))
        return cls(**{**_values(core), "failure_config": failure, "checkpoint_config": checkpoint})


def local_path(path: str | os.PathLike[str], what: str) -> str:
    """The absolute local path that a plain path or a ``file://`` address names; other addresses are refused."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text or not is_text(text):
        raise ConfigError(f"{what} is {path!r}; it must be a path, in UTF-8") from None
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{what} is {text!r}; only local paths and file:// addresses can be used")
        text = unquote(parts.path)
    return os.path.abspath(os.path.expanduser(text))


def run_path(path: str | os.PathLike[str], what: str) -> str:
    """The directory of the run that a user names: a path, or a name in the default storage path.

    Returns the path if there is no run.
    """
    place = local_path(path, what)
    found = _core.find_run(os.fspath(path))
    return place if found is None else os.path.abspath(found)


def seconds(value: float | timedelta, what: str) -> float:
    """A duration in seconds. Raises ConfigError unless it is positive and finite."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not (0 < number < math.inf):
        raise ConfigError(f"{what} is {value!r}; it must be a positive number of seconds or a timedelta")
    return float(number)


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON can hold it. A dataclass instance becomes the dict of its fields; other objects become their
    repr."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if is_text(value) else repr(value)
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
    """Whether it is an instance of a dataclass, not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _refuse(where: str, field: str, value: object, rule: str) -> NoReturn:
    raise ConfigError(f"[{where}] {field} is {value!r}; {rule}")


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: no half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _names(names: str | Sequence[str] | None, name: str) -> bool:
    return name in (("train",) if names is None else (name,) if names == "all" else names)


def _check_bool(where: str, field: str, value: object) -> None:
    if not isinstance(value, bool):
        _refuse(where, field, value, "it must be True or False")


def _values(
    core: _core.ScalingConfig | _core.FailureConfig | _core.CheckpointConfig | _core.RunConfig,
) -> dict[str, Any]:
    return {name: getattr(core, name) for name in core.names}


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


def _check_callbacks(where: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        _refuse(where, "callbacks", value, "it must be a list of Callback objects or None")
    for callback in value:
        if isinstance(callback, type) and issubclass(callback, Callback):
            _refuse(where, "callbacks", value, f"it holds the class {callback.__name__}; write {callback.__name__}()")
        if not isinstance(callback, Callback):
            _refuse(where, "callbacks", value, f"{callback!r} is not a lockstep.Callback")
