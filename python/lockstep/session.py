"""What a training function sees of the run, called inside it, on every worker. In a function that is called on its own,
without a run, reports are printed, and the other answers are those of a single worker::

from lockstep import Checkpoint, session

def train_func(config):
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    for epoch in range(start, config["num_epochs"]):
        loss = ...
        session.report({"epoch": epoch, "loss": loss}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lockstep import _core
from lockstep.checkpoint import Checkpoint
from lockstep.config import seconds
from lockstep.errors import ConfigError, LockstepError, SerializationError, StopTraining

if TYPE_CHECKING:
    T = TypeVar("T")

MEETING_TIMEOUT = 1800.0
"""How long barrier() and broadcast_from_rank_zero() wait by default."""


class _Session:
    """The worker's end of the run, with what never changes at hand."""

    def __init__(self, core: _core.WorkerSession | _NoRun, before: _Session | None = None) -> None:
        begin = core.begin
        self.core = core
        self.rank: int = begin["rank"]
        self.world_size: int = begin["world_size"]
        self.local_rank: int = begin["local_rank"]
        self.local_world_size: int = begin["local_world_size"]
        self.node_rank: int = begin["node_rank"]
        self.attempt: int = begin["attempt"]
        self.experiment_name: str = begin["experiment_name"]
        self.trial_name: str = begin["trial_name"]
        self.trial_id: str = begin["trial_id"]
        self.run_dir: str = begin["run_dir"]
        self.keeps_checkpoints: bool = self.rank == 0 or begin["keep_all_ranks"]
        self.unwraps_models: bool = before is not None and before.unwraps_models
        """Whether checkpoints hold models without DistributedDataParallel or torch.compile around them."""
        self.checkpoint_type: type[Checkpoint] = Checkpoint if before is None else before.checkpoint_type
        """What get_checkpoint() gives."""
        self._dropped: _core.Checkpoint | None = None

    def contents(self, checkpoint: Checkpoint) -> _core.DictParts | _core.Checkpoint:
        """What the core needs of a checkpoint. One that nobody will write is not taken apart."""
        if checkpoint._data is None:
            return checkpoint._as_handle()
        if self.keeps_checkpoints:
            return checkpoint._as_parts(unwrap=self.unwraps_models)
        if self._dropped is None:
            self._dropped = _core.Checkpoint.from_parts(_core.DictParts("{}", [], None))
        return self._dropped


class _NoRun:
    """What stands for the core in a process that is no worker."""

    begin: ClassVar[dict[str, Any]] = {
        "rank": 0,
        "world_size": 1,
        "local_rank": 0,
        "local_world_size": 1,
        "node_rank": 0,
        "attempt": 0,
        "experiment_name": "",
        "trial_name": "",
        "trial_id": "",
        "run_dir": ".",
        "keep_all_ranks": False,
    }
    stopping = False

    def report(self, metrics: dict[str, Any] | None, checkpoint: object) -> bool:
        words = [f"{name}={value!r}" for name, value in _core.plain_metrics(metrics or {}).items()]
        print("report:", *words, *(["with a checkpoint"] if checkpoint is not None else []), flush=True)
        return False

    def checkpoint(self) -> None:
        return None

    def meet(self, value: bytes, timeout: float) -> bytes:
        return value

    def request_stop(self) -> None:
        pass

    def should_stop(self) -> bool:
        return False


_session: _Session | None = None
"""The one of this process; set by lockstep._worker before the training function runs."""


def _get(function: str) -> _Session:
    """The session of this worker, for what makes sense there only."""
    if _session is None:
        raise LockstepError(
            f"[session] {function}() was called outside a worker; it works inside the training function, "
            "which DataParallelTrainer(train_func, ...).fit() runs on every worker"
        )
    return _session


def _own() -> _Session:
    return _session or _Session(_NoRun())


def report(metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
    """Hands metrics, and maybe a checkpoint, to the driver. Call it on every rank; rank 0's metrics are the run's::

        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"epoch": 3, "weights": weights}))

    Metrics are plain values, arrays and tensors, lists and dicts of them. An array of one element counts as its number,
    others reach callbacks as numpy arrays. Metrics go into a queue and the call returns at once; a checkpoint is copied
    first, and written to disk while the function goes on. Other ranks' checkpoints count only with
    ``CheckpointConfig(keep_all_ranks=True)``. Raises SerializationError for a metric that is none of these, ConfigError
    when they take more than ``RunConfig(max_report_size=...)``.

    In a run that ends early the last report ends the function: see should_stop().
    """
    session = _own()
    if type(metrics) is not dict:
        metrics = _as_dict(metrics)
    if checkpoint is None:
        _send(session, metrics, None)
        return
    if not isinstance(checkpoint, Checkpoint):
        raise ConfigError(
            f"[session] report() got a {type(checkpoint).__name__} as checkpoint; "
            "it must be made with Checkpoint.from_dict({...}) or Checkpoint.from_directory(path)"
        )
    _send(session, metrics, session.contents(checkpoint))


def _save(checkpoint: Checkpoint) -> None:
    """A checkpoint alone: no report of metrics, so no result of the run."""
    session = _own()
    _send(session, None, session.contents(checkpoint))


def _as_dict(metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        given = type(metrics).__name__
        raise ConfigError(f"[session] report() got a {given} as metrics; it must be a dict such as {{'loss': 0.5}}")
    return dict(metrics)


def _send(
    session: _Session, metrics: dict[str, Any] | None, contents: _core.DictParts | _core.Checkpoint | None
) -> None:
    try:
        is_last = session.core.report(metrics, contents)
    except TypeError as error:  # a metric that is not plain
        raise SerializationError(f"[session] report() cannot send its metrics: {error}") from None
    if is_last:
        raise StopTraining


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to go on from: the newest committed one, or None on a fresh start.

    After this rank has reported a checkpoint, waits until that one is committed, on other ranks until rank 0's is.
    """
    session = _own()
    handle = session.core.checkpoint()
    return None if handle is None else session.checkpoint_type._from_handle(handle)


def get_world_size() -> int:
    """How many workers there are."""
    return _own().world_size


def get_world_rank() -> int:
    """This worker's number among all, from 0."""
    return _own().rank


def get_local_rank() -> int:
    """This worker's number on its node, from 0."""
    return _own().local_rank


def get_local_world_size() -> int:
    """How many workers run on this worker's node."""
    return _own().local_world_size


def get_node_rank() -> int:
    """The number of this worker's node, from 0."""
    return _own().node_rank


def get_attempt() -> int:
    """How often the workers were started before, in this run: 0 at first, one more after every failure."""
    return _own().attempt


def get_experiment_name() -> str:
    """The run's name."""
    return _own().experiment_name


def get_trial_name() -> str:
    """The name of the run's one trial."""
    return _own().trial_name


def get_trial_id() -> str:
    """The id of the run's one trial, as in ``result.metrics["trial_id"]``."""
    return _own().trial_id


def get_trial_dir() -> str:
    """The run directory."""
    return os.path.abspath(_own().run_dir)


def request_stop() -> None:
    """Ends the run early, and well. Any rank may ask; all ranks end after the same report::

        if loss < 0.1:
            session.request_stop()
        session.report({"loss": loss}, checkpoint=...)  # the last one, unless another rank is ahead

    See should_stop() for how they end.
    """
    _own().core.request_stop()


def should_stop() -> bool:
    """Whether the run ends early and this rank has made its last report: True on every rank from the same report on.

    A function that asks ends by itself, and may do something more before it returns, report too::

        for epoch in range(100):
            if session.should_stop():
                break
            session.report({"loss": train_epoch()})
        session.report({"loss": evaluate()}, checkpoint=...)

    In a function that has not asked before its last report, that report raises StopTraining, which is no error: the
    function is left, and the run is finished.
    """
    return _own().core.should_stop()


def stopping() -> bool:
    """True once the run is being stopped (Ctrl-C): return soon."""
    return _own().core.stopping


def barrier(timeout: float | timedelta = MEETING_TIMEOUT) -> None:
    """Waits until every rank has called it.

    Raises LockstepTimeoutError naming the ranks that are missing after `timeout` (seconds or timedelta).
    """
    _own().core.meet(b"", seconds(timeout, "[session] timeout"))


def broadcast_from_rank_zero(obj: T, timeout: float | timedelta = MEETING_TIMEOUT) -> T:
    """Gives every rank what rank 0 passed; what the others pass is ignored. Waits and fails as barrier() does::

    seed = session.broadcast_from_rank_zero(random.random())
    """
    import pickle

    import cloudpickle

    session = _own()
    value = b""
    if session.rank == 0:
        try:
            value = cloudpickle.dumps(obj)
        except Exception as error:
            raise SerializationError(
                f"[session] broadcast_from_rank_zero() got a {type(obj).__name__} that cannot be pickled: {error}"
            ) from error
    received = session.core.meet(value, seconds(timeout, "[session] timeout"))
    if session.rank == 0:
        return obj
    if not received:
        raise LockstepError(
            "[session] broadcast_from_rank_zero() met rank 0 in barrier(); all ranks must make the same calls in order"
        )
    return pickle.loads(received)  # type: ignore[no-any-return]
