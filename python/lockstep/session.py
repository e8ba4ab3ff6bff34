"""What a training function sees of the run, called inside it, on every worker::

from lockstep import Checkpoint, session

def train_func(config):
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
    for epoch in range(start, config["num_epochs"]):
        loss = ...
        session.report({"epoch": epoch, "loss": loss}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep import _core
from lockstep.checkpoint import Checkpoint
from lockstep.config import seconds
from lockstep.errors import ConfigError, LockstepError, SerializationError

if TYPE_CHECKING:
    T = TypeVar("T")

MEETING_TIMEOUT = 1800.0
"""How long barrier() and broadcast_from_rank_zero() wait by default."""


class _Session:
    """The worker's end of the run, with what never changes at hand."""

    def __init__(self, core: _core.WorkerSession, before: _Session | None = None) -> None:
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


_session: _Session | None = None
"""The one of this process; set by lockstep._worker before the training function runs."""


def _get(function: str) -> _Session:
    if _session is None:
        raise LockstepError(
            f"[session] {function}() was called outside a worker; it works inside the training function, "
            "which DataParallelTrainer(train_func, ...).fit() runs on every worker"
        )
    return _session


def report(metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None) -> None:
    """Hands metrics, and maybe a checkpoint, to the driver. Call it on every rank; rank 0's metrics are the run's::

        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"epoch": 3, "weights": weights}))

    Metrics are plain values, arrays and tensors, lists and dicts of them. An array of one element counts as its number,
    others reach callbacks as numpy arrays. Metrics go into a queue and the call returns at once; a checkpoint is copied
    first, and written to disk while the function goes on. Other ranks' checkpoints count only with
    ``CheckpointConfig(keep_all_ranks=True)``. Raises SerializationError for a metric that is none of these, ConfigError
    when they take more than ``RunConfig(max_report_size=...)``.
    """
    session = _get("session.report")
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
    session = _get("train.save_checkpoint")
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
        session.core.report(metrics, contents)
    except TypeError as error:  # a metric that is not plain
        raise SerializationError(f"[session] report() cannot send its metrics: {error}") from None


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to go on from: the newest committed one, or None on a fresh start.

    After this rank has reported a checkpoint, waits until that one is committed, on other ranks until rank 0's is.
    """
    session = _get("session.get_checkpoint")
    handle = session.core.checkpoint()
    return None if handle is None else session.checkpoint_type._from_handle(handle)


def get_world_size() -> int:
    """How many workers there are."""
    return _get("session.get_world_size").world_size


def get_world_rank() -> int:
    """This worker's number among all, from 0."""
    return _get("session.get_world_rank").rank


def get_local_rank() -> int:
    """This worker's number on its node, from 0."""
    return _get("session.get_local_rank").local_rank


def get_local_world_size() -> int:
    """How many workers run on this worker's node."""
    return _get("session.get_local_world_size").local_world_size


def get_node_rank() -> int:
    """The number of this worker's node, from 0."""
    return _get("session.get_node_rank").node_rank


def get_attempt() -> int:
    """How often the workers were started before, in this run: 0 at first, one more after every failure."""
    return _get("session.get_attempt").attempt


def get_experiment_name() -> str:
    """The run's name."""
    return _get("session.get_experiment_name").experiment_name


def get_trial_name() -> str:
    """The name of the run's one trial."""
    return _get("session.get_trial_name").trial_name


def get_trial_id() -> str:
    """The id of the run's one trial, as in ``result.metrics["trial_id"]``."""
    return _get("session.get_trial_id").trial_id


def get_trial_dir() -> str:
    """The run directory."""
    return _get("session.get_trial_dir").run_dir


def stopping() -> bool:
    """True once the run is being stopped (Ctrl-C): return soon."""
    return _get("session.stopping").core.stopping


def barrier(timeout: float | timedelta = MEETING_TIMEOUT) -> None:
    """Waits until every rank has called it.

    Raises LockstepTimeoutError naming the ranks that are missing after `timeout` (seconds or timedelta).
    """
    _get("session.barrier").core.meet(b"", seconds(timeout, "[session] timeout"))


def broadcast_from_rank_zero(obj: T, timeout: float | timedelta = MEETING_TIMEOUT) -> T:
    """Gives every rank what rank 0 passed; what the others pass is ignored. Waits and fails as barrier() does::

    seed = session.broadcast_from_rank_zero(random.random())
    """
    import pickle

    import cloudpickle

    session = _get("session.broadcast_from_rank_zero")
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
