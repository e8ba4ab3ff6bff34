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

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lockstep import _core
from lockstep._places import storage_path
from lockstep.callbacks import Callback, Stop, warn_of_unknown_hooks
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    from _typeshed import DataclassInstance

    from lockstep.tune import PlacementGroupFactory
    from lockstep.validation import ValidationConfig

TrainLoopConfig: TypeAlias = "dict[str, Any] | DataclassInstance"
"""What a training function gets: a dict, or an object of a dataclass."""

ENGINES = ("auto", "local", "slurm", "ray", "ssh", "join")


class _Checked:
    """A configuration that is checked when it is made."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises ConfigError naming the field, its value and what it must be."""
        self._to_core()

    def _to_core(self) -> object:
        raise NotImplementedError


@dataclass
class ScalingConfig(_Checked):
    """How many workers, and what each of them gets.

    >>> ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}).resources_per_worker
    {'CPU': 2}
    >>> ScalingConfig(num_workers=(2, 8)).num_workers  # elastic: what there is room for, from 2 to 8
    (2, 8)
    """

    num_workers: int | tuple[int, int] = 1
    """0: the training function runs in the process that calls ``fit()``, so that debuggers and notebooks work. A pair
    of ints: the run is elastic."""
    use_gpu: bool = False
    """One GPU per worker, unless resources_per_worker says otherwise."""
    resources_per_worker: Mapping[str, float] | None = None
    """Amounts of "CPU", "GPU" or your own names. None is given out twice."""
    placement_strategy: str = "PACK"
    resize_interval: float | timedelta = 60.0
    """In seconds: an elastic run does not grow sooner than this after its size has changed."""
    trainer_resources: Mapping[str, float] | None = None
    """Accepted and checked, without effect: the driver runs in your process."""

    def __post_init__(self) -> None:
        if not self._searched():
            super().__post_init__()

    def validate(self) -> None:
        for name, value in self._searched().items():
            _refuse("ScalingConfig", name, value, "search spaces belong into the param_space of a Tuner")
        self._to_core()
        amounts = {} if self.trainer_resources is None else self.trainer_resources
        if not isinstance(amounts, Mapping) or not all(map(_is_amount, amounts.values())):
            _refuse("ScalingConfig", "trainer_resources", amounts, 'it must be a dict such as {"CPU": 1} or None')

    # The resources, under Ray's names.

    @property
    def num_cpus_per_worker(self) -> float:
        """The CPUs of each worker."""
        return self._of_worker().get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """The GPUs of each worker."""
        return self._of_worker().get("GPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What each worker has besides CPUs and GPUs."""
        return {name: amount for name, amount in self._of_worker().items() if name not in ("CPU", "GPU")}

    @property
    def total_resources(self) -> dict[str, float]:
        """Those of all workers and of the trainer."""
        return dict(self.as_placement_group_factory().required_resources)

    def as_placement_group_factory(self) -> PlacementGroupFactory:
        """A bundle for the trainer and one for each worker."""
        from lockstep.tune import PlacementGroupFactory

        bundles = [self._of_trainer(), *[self._of_worker()] * self._least_and_most()[1]]
        return PlacementGroupFactory(bundles, strategy=self.placement_strategy)

    @classmethod
    def from_placement_group_factory(cls, pgf: PlacementGroupFactory) -> ScalingConfig:
        """The inverse of as_placement_group_factory()."""
        trainer, *workers = pgf.bundles
        own = workers[0] if workers else None
        return cls(
            num_workers=len(workers),
            use_gpu=bool(own and own.get("GPU")),
            resources_per_worker=own,
            placement_strategy=pgf.strategy,
            trainer_resources=trainer,
        )

    def _of_worker(self) -> dict[str, float]:
        given = self.resources_per_worker
        if given is None:
            return {"GPU": 1.0} if self.use_gpu else {"CPU": 1.0}
        named = {**({"GPU": 1.0} if self.use_gpu else {}), **given}
        return {name: float(amount) for name, amount in named.items() if amount}

    def _of_trainer(self) -> dict[str, float]:
        given = {"CPU": 1.0} if self.trainer_resources is None else self.trainer_resources
        return {name: float(amount) for name, amount in given.items() if amount}

    def _searched(self) -> dict[str, Any]:
        """The fields that hold a search space of ``lockstep.tune``: a Tuner makes a configuration for each trial."""
        return {name: value for name, value in vars(self).items() if _is_searched(value)}

    def _to_core(self) -> _core.ScalingConfig:
        none = type(self.num_workers) is int and self.num_workers == 0
        return _core.ScalingConfig(self, num_workers=1) if none else _core.ScalingConfig(self)

    def _least_and_most(self) -> tuple[int, int]:
        """The smallest and the largest number of workers."""
        if isinstance(self.num_workers, int):
            return self.num_workers, self.num_workers
        least, most = self.num_workers
        return least, most

    def _count_text(self) -> str:
        least, most = self._least_and_most()
        return str(most) if least == most else f"{least} to {most}"

    def _fixed(self, where: str, why: str) -> int:
        """The number of workers. Raises ConfigError, with the reason `why`, if the run is elastic."""
        least, most = self._least_and_most()
        if least != most:
            raise ConfigError(f"[{where}] num_workers is {self.num_workers!r}; it must be an int {why}")
        return most

    @classmethod
    def _from_core(cls, core: _core.ScalingConfig) -> ScalingConfig:
        return cls(**_values(core))


def _is_searched(value: object) -> bool:
    if isinstance(value, Mapping):
        return set(value) == {"grid_search"} or any(map(_is_searched, value.values()))
    return type(value).__module__ == "lockstep.tune.sample"


@dataclass
class FailureConfig(_Checked):
    """How often a run may be retried after a failure.

    >>> FailureConfig(max_failures=-1).max_failures  # no limit
    -1
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    """Accepted as in Ray, with ``max_failures=0`` only, which already ends the run at the first failure."""
    count_node_failures: bool = False
    """Whether a node that is lost counts, too. The machine on which ``fit()`` runs always does."""

    def validate(self) -> None:
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
class CheckpointConfig(_Checked):
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
    persist_every: int = 1
    """Every n-th checkpoint goes to disk, and the last one. The newest two of the others stay in memory, where a
    restart finds them."""
    when_busy: str = "wait"
    """What a report does that is faster than the disk: ``"wait"``, or ``"skip"``: it takes the place of an older
    checkpoint that waits to be written."""

    def validate(self) -> None:
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
class EngineConfig(_Checked):
    """On which nodes the workers of a run are, and what starts agents there. A kind alone can be given as its name.

    >>> EngineConfig("ssh", hosts="a:8,b:8").hosts
    'a:8,b:8'
    """

    kind: str = "auto"
    """``"local"``: this machine. ``"slurm"``, ``"ray"``, ``"ssh"``: nodes of such a cluster. ``"join"``: agents that
    arrive by themselves. ``"auto"``: what LOCKSTEP_ENGINE says; else Slurm, inside an allocation of more than one node;
    else local."""
    nodes: int | None = None
    """How many nodes, with the driver's own if it takes workers. None: all there are; for ``"join"`` 2."""
    hosts: str | Sequence[str] | None = None
    """For ``"ssh"``: ``"a:8,b:8"`` or ``["a:8", "b:8"]``, with the room for workers behind the colon."""
    hostfile: str | os.PathLike[str] | None = None
    """For ``"ssh"``: the same as a file, with a line such as ``a slots=8`` for each host."""
    address: str | None = None
    """For ``"ray"``: the cluster's. None: RAY_ADDRESS, or else the cluster on this machine."""
    port: int | None = None
    """Where the driver's agent listens. None: 29400 for ``"join"``, otherwise one that the system chooses."""
    secret_file: str | os.PathLike[str] | None = None
    """For ``"join"``: the file with the run's secret; it is made if it does not exist. None: a new file."""
    head_works: bool | None = None
    """Whether the driver's node takes workers. None: as the engine decides; with ``"join"`` it does."""
    network_interface: str | None = None
    """The interface for everything between nodes. None: that by which they reach each other."""
    node_timeout: float | timedelta = 5.0
    """In seconds: a node without a sign of life for this long is lost."""
    start_timeout: float | timedelta = 300.0
    """In seconds: for all nodes to join."""
    replace_timeout: float | timedelta = 30.0
    """In seconds: for a node to come in place of a lost one. Then the run goes on with those there are."""

    def _to_core(self) -> _core.EngineConfig:
        hosts = self.hosts
        if isinstance(hosts, str):
            hosts = [host.strip() for host in hosts.split(",") if host.strip()]
        paths = {name: _absolute(getattr(self, name)) for name in ("hostfile", "secret_file")}
        return _core.EngineConfig(self, hosts=hosts, **paths)

    @classmethod
    def _from_core(cls, core: _core.EngineConfig) -> str | EngineConfig:
        made = cls(**_values(core))
        return made.kind if made == cls(made.kind) else made


def _absolute(path: object) -> object:
    return os.path.abspath(os.path.expanduser(path)) if isinstance(path, (str, os.PathLike)) and path else path


@dataclass
class DataConfig(_Checked):
    """How the data sets of a trainer reach its workers.

    >>> DataConfig(datasets_to_split=["train", "unlabeled"]).equal
    True
    """

    datasets_to_split: str | Sequence[str] | None = ("train",)
    """The data sets of which every rank gets its part, or ``"all"``. Of the others every rank gets all rows."""
    datasets_to_shuffle: str | Sequence[str] | None = None
    """The data sets whose rows come in another order in each epoch, or ``"all"``. The others keep their order.
    ``None``: ``train``, or none if the data sets were made by the alias for Ray."""
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
class RunConfig(_Checked):
    """One run: its place on disk and its policies.

    >>> RunConfig(name="night", hang_timeout=timedelta(minutes=5)).failure_config is None
    True
    """

    name: str | None = None
    """One path component. None: <Trainer>_<Y-m-d_H-M-S>."""
    storage_path: str | os.PathLike[str] | None = None
    """Where run directories are made: a directory, or an address in an object store, as in ``s3://bucket/prefix``.
    None: LOCKSTEP_STORAGE_PATH, or else ~/lockstep_results."""
    callbacks: Sequence[Callback] | None = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    verbose: int = 1
    """0: silent. 1: start and end, progress, warnings and what workers print. 2 and 3 mean the same as 1,
    but a Tuner then also tells the end of each trial."""
    hang_timeout: float | timedelta | None = None
    """In seconds: a rank without progress for this long hangs, and the attempt fails. None: no limit."""
    heartbeat_timeout: float | timedelta = 10.0
    """In seconds: a worker without a heartbeat for this long counts as dead, and the attempt fails."""
    max_report_size: int = 16_000_000
    """Maximum size of the metrics in one report, in bytes, up to 2**30. Put larger values into a checkpoint."""
    local_dir: str | os.PathLike[str] | None = None
    """Another spelling of storage_path."""
    stop: Mapping[str, float] | Stop | Sequence[Stop] | None = None
    """When the run ends early: once a metric is at least this large, ``{"training_iteration": 10}``, or once a function
    of the trial's id and rank 0's metrics returns True. Stoppers of ``lockstep.tune`` are such functions; of several,
    the first ends the run. None: when the training function returns."""
    validation_config: ValidationConfig | None = None
    """How checkpoints are checked beside the training; another place for the trainer's argument of that name."""
    sync_config: Any = None
    """Accepted as in Ray, without effect: trials write straight to storage_path."""
    progress_reporter: Any = None
    """Called by an experiment, as in Ray: ``report(trials, done)`` whenever ``should_report(trials, done)`` is True."""
    log_to_file: Any = False
    """Accepted as in Ray, without effect: what workers print is always in the run directory."""
    log_to_console: str = "rank0"
    """Whose output is shown: ``"rank0"``, ``"all"`` or ``"none"``. The log files have the output of every rank."""
    resume: str | os.PathLike[str] = "never"
    """``"auto"``: continue the run of that name if there is one, so that a script can just be started again. A path, or
    a name in the default storage path: continue that run. ``"never"``: the name must be new."""
    wait_for_resources: bool = True
    """Whether a run waits for resources that other runs of this process hold. False: it raises EngineError at once."""
    preemption: str | os.PathLike[str] | Sequence[str] | None = None
    """What tells that the machine will be taken away: a file that appears, or a command that ends with 0, such as
    ``["curl", "-sf", ADDRESS]``. SIGUSR1 always does; SIGTERM does if this is set, and in Slurm and Kubernetes."""
    preemption_grace: float | timedelta = 30.0
    """How many seconds after such a notice the run must be over."""
    engine: str | EngineConfig = "auto"
    """On which nodes the workers are: ``"auto"``, ``"local"``, ``"slurm"``, ``"ray"``, ``"ssh"``, ``"join"``, or an
    EngineConfig with options."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for callback in self.callbacks or ():
            warn_of_unknown_hooks(callback, Callback, stacklevel=4)

    def validate(self) -> None:
        where = "RunConfig"
        if self.local_dir is not None and self.storage_path is not None and self.local_dir != self.storage_path:
            _refuse(
                where,
                "local_dir",
                self.local_dir,
                f"it is another spelling of storage_path, which is {self.storage_path!r}; give one",
            )
        self._to_core()
        if self.progress_reporter is not None and not callable(getattr(self.progress_reporter, "report", None)):
            _refuse(where, "progress_reporter", self.progress_reporter, "it must have should_report() and report()")
        _check_callbacks(where, self.callbacks)
        if self.validation_config is not None:
            from lockstep.validation import check

            check(self.validation_config, where)
        for config in (self.failure_config, self.checkpoint_config):
            if config is not None:
                config.validate()

    def _to_core(self, **instead: object) -> _core.RunConfig:
        """`instead`: values that replace those of fields."""
        field = "local_dir" if self.storage_path is None else "storage_path"
        path = getattr(self, field)
        given = {
            "storage_path": None if path is None else storage_path(path, f"[RunConfig] {field}"),
            "stop": None if self._stop_functions() else self.stop,
            "resume": os.fspath(self.resume) if isinstance(self.resume, os.PathLike) else self.resume,
            "preemption": _notice(self.preemption),
            "engine": self._engine(),
        }
        return _core.RunConfig(self, **{**given, **instead})

    def _engine(self) -> object:
        """The engine as an EngineConfig; what is neither that nor a kind stays, and is refused."""
        known = isinstance(self.engine, str) and self.engine in ENGINES
        return EngineConfig(str(self.engine)) if known else self.engine

    def _stop_functions(self) -> list[Stop]:
        """The functions of `stop`, if it is one or several."""
        given: Sequence[Any] = self.stop if isinstance(self.stop, (list, tuple)) else [self.stop]
        return list(given) if given and all(callable(each) and not isinstance(each, type) for each in given) else []

    @classmethod
    def _from_core(cls, core: _core.RunConfig) -> RunConfig:
        failure = FailureConfig(**_values(core.failure_config))
        checkpoint = CheckpointConfig(**_values(core.checkpoint_config))
        nested = {"failure_config": failure, "checkpoint_config": checkpoint}
        return cls(**{**_values(core), **nested, "engine": EngineConfig._from_core(core.engine)})


def _notice(given: object) -> object:
    """RunConfig.preemption as the core has it: ``"file:PATH"`` or a line for the shell, which has a space."""
    if isinstance(given, os.PathLike):
        return f"file:{os.path.abspath(os.path.expanduser(given))}"
    if isinstance(given, (list, tuple)) and given and all(isinstance(word, str) for word in given):
        return "exec " + shlex.join(given)
    return given


def seconds(value: float | timedelta, what: str) -> float:
    """A duration in seconds. Raises ConfigError unless it is positive and finite."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not (0 < number < math.inf):
        raise ConfigError(f"{what} is {value!r}; it must be a positive number of seconds or a timedelta")
    return float(number)


def _refuse(where: str, field: str, value: object, rule: str) -> NoReturn:
    raise ConfigError(f"[{where}] {field} is {value!r}; {rule}")


def _names(names: str | Sequence[str] | None, name: str) -> bool:
    return name in (("train",) if names is None else (name,) if names == "all" else names)


def _check_bool(where: str, field: str, value: object) -> None:
    if not isinstance(value, bool):
        _refuse(where, field, value, "it must be True or False")


def _values(
    core: _core.ScalingConfig | _core.FailureConfig | _core.CheckpointConfig | _core.EngineConfig | _core.RunConfig,
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
