"""The training function's view of the run. Call these functions inside it, on every worker. If the function is called
directly, without a trainer, reports are printed and everything else behaves as with a single worker::

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
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lockstep import _core
from lockstep.checkpoint import Checkpoint
from lockstep.config import seconds
from lockstep.errors import ConfigError, LockstepError, SerializationError, StopTraining

if TYPE_CHECKING:
    from lockstep._run_data import WorkerData
    from lockstep.data import DataIterator
    from lockstep.validation import ValidationTaskConfig

    T = TypeVar("T")

MEETING_TIMEOUT = 1800.0
"""How long barrier() and broadcast_from_rank_zero() wait by default."""


class _Session:
    """The worker's session, with the values that never change as attributes."""

    def __init__(self, core: _core.WorkerSession | _NoRun, before: _Session | None = None) -> None:
        begin = core.begin
        self.core = core
        self.rank: int = begin.rank
        self.world_size: int = begin.world_size
        self.local_rank: int = begin.local_rank
        self.local_world_size: int = begin.local_world_size
        self.node_rank: int = begin.node_rank
        self.attempt: int = begin.attempt
        self.experiment_name: str = begin.experiment_name
        self.trial_name: str = begin.trial_name
        self.trial_id: str = begin.trial_id
        self.run_dir: str = begin.run_dir or "."
        self.keeps_checkpoints: bool = core.keeps_checkpoints
        self.unwraps_models: bool = before is not None and before.unwraps_models
        """Whether checkpoints hold models without DistributedDataParallel or torch.compile around them."""
        self.checkpoint_type: type[Checkpoint] = Checkpoint if before is None else before.checkpoint_type
        """The type that get_checkpoint() returns."""
        self.data: WorkerData | None = None
        self.pickled_file: str = ""
        """Dict checkpoints also hold the pickled dict in a file of this name, as those of RaySGD's trials do."""

    def contents(self, checkpoint: Checkpoint) -> _core.EncodedDict | _core.Checkpoint | bool:
        """What the core needs of a checkpoint: True if this rank does not keep it, and it is not encoded then."""
        if not self.keeps_checkpoints:
            return True
        if self.data is not None:
            self.data.keep_positions()
            self.data.keep_preprocessor(checkpoint._dumped_preprocessor() or self.data.preprocessor)
        if checkpoint._data is None:
            return checkpoint._as_handle()
        parts = checkpoint._as_parts(unwrap=self.unwraps_models)
        return _with_file(parts, self.pickled_file, checkpoint._data) if self.pickled_file else parts


def _with_file(parts: _core.EncodedDict, name: str, data: dict[Any, Any]) -> _core.Checkpoint:
    """The checkpoint with the pickled dict as one more file."""
    import tempfile

    import cloudpickle

    with tempfile.TemporaryDirectory(prefix="lockstep_checkpoint_") as place:
        _core.Checkpoint.from_parts(parts).to_directory(place)
        with open(os.path.join(place, name), "wb") as file:
            cloudpickle.dump(data, file)
        return _core.Checkpoint.from_bytes(_core.Checkpoint.from_directory(place).to_bytes())


class _NoRun:
    """Stands in for the core in a process that is not a worker."""

    begin: ClassVar[_core.Begin] = _core.Begin()
    keeps_checkpoints = True
    stopping = False
    should_checkpoint = False
    time_left: float | None = None

    def __init__(self) -> None:
        self._stop_requested = False
        self._stops = False

    def node_address(self, rank: int) -> str:
        if rank != 0:
            raise ConfigError(f"[session] there is no rank {rank}; world_size is 1")
        return _core.LOOPBACK

    def node_ip(self) -> str:
        return _core.node_ip()

    def report(self, metrics: dict[str, Any] | None, checkpoint: object) -> bool:
        words = [f"{name}={value!r}" for name, value in _core.plain_metrics(metrics or {}).items()]
        print("report:", *words, *(["with a checkpoint"] if checkpoint is not None else []), flush=True)
        self._stops, self._stop_requested = self._stop_requested, False
        return False

    def checkpoint(self) -> None:
        return None

    def keep_file(self, name: str, data: bytes) -> None:
        pass

    def meet(self, value: bytes, timeout: float) -> bytes:
        return value

    def request_stop(self) -> None:
        self._stop_requested = True

    def should_stop(self) -> bool:
        return self._stops


_no_run = _NoRun()
_session: _Session | None = None
"""The session of this process; lockstep._worker sets it before the training function runs."""


class _Step(threading.local):
    name = ""


_step = _Step()
"""The step of a data set whose function this thread is calling; lockstep.data sets it."""


def _check_place() -> None:
    """Raises LockstepError in a function of a data set's plan. Its rows may be for any rank: the ranks of a node share
    them."""
    if _step.name:
        raise LockstepError(
            f"[session] the step {_step.name} of a data set asks for the session; its rows may go to any rank, so they "
            "must not depend on the one that computes them; do it in the training loop, or in collate_fn"
        )


def _get(function: str) -> _Session:
    """The session of this worker; raises LockstepError outside a worker."""
    _check_place()
    if _session is None:
        raise LockstepError(
            f"[session] {function}() was called outside a worker; it works inside the training function, "
            "which DataParallelTrainer(train_func, ...).fit() runs on every worker"
        )
    return _session


def _own() -> _Session:
    _check_place()
    return _session or _Session(_no_run)


def report(
    metrics: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    *,
    validate: bool | Mapping[str, Any] | ValidationTaskConfig = False,
) -> None:
    """Sends metrics, and optionally a checkpoint, to the driver. Call it on every rank; rank 0's metrics are the
    run's::

        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"epoch": 3, "weights": weights}))

    Metrics are plain values, arrays and tensors, and lists and dicts of them. An array of one element is reported as
    its number; other arrays reach callbacks as numpy arrays. Metrics go into a queue and the call returns at once. A
    checkpoint is copied before the call returns, and written to disk while the function continues. Other ranks'
    checkpoints are kept only with ``CheckpointConfig(keep_all_ranks=True)``. Raises SerializationError for any other
    metric, and ConfigError if the metrics take more than ``RunConfig(max_report_size=...)``.

    `validate`: have the checkpoint checked by the trainer's ValidationConfig, beside the training; a dict has keyword
    arguments for its function.

    In a run that ends early the last report ends the function: see should_stop(). When an elastic run grows, the report
    of a checkpoint does, and the function starts again from that checkpoint; should_stop() stays False.
    """
    session = _own()
    if type(metrics) is not dict:
        metrics = _as_dict(metrics)
    if checkpoint is None:
        if validate is not False:
            raise ConfigError("[session] report() got validate but no checkpoint, which would be checked")
        _send(session, metrics, None)
        return
    if not isinstance(checkpoint, Checkpoint):
        raise ConfigError(
            f"[session] report() got a {type(checkpoint).__name__} as checkpoint; "
            "it must be made with Checkpoint.from_dict({...}) or Checkpoint.from_directory(path)"
        )
    if validate is False:
        _send(session, metrics, session.contents(checkpoint))
        return
    from lockstep.validation import VALIDATION_FILE, request

    session.core.keep_file(VALIDATION_FILE, request(validate))
    try:
        _send(session, metrics, session.contents(checkpoint))
    finally:
        session.core.keep_file(VALIDATION_FILE, b"")


def _save(checkpoint: Checkpoint) -> None:
    """Reports a checkpoint without metrics, which does not count as a result."""
    session = _own()
    _send(session, None, session.contents(checkpoint))


def _as_dict(metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        given = type(metrics).__name__
        raise ConfigError(f"[session] report() got a {given} as metrics; it must be a dict such as {{'loss': 0.5}}")
    return dict(metrics)


def _send(
    session: _Session, metrics: dict[str, Any] | None, contents: _core.EncodedDict | _core.Checkpoint | bool | None
) -> None:
    try:
        is_last = session.core.report(metrics, contents)
    except TypeError as error:  # a metric of a type that cannot be sent
        if metrics is None or not session.core.begin.keep:
            raise SerializationError(f"[session] report() cannot send its metrics: {error}") from None
        from lockstep._pickled_metrics import packed

        is_last = session.core.report(packed(metrics), contents)
    if is_last:
        raise StopTraining


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to continue from: the newest committed one, or None on a fresh start.

    After this rank has reported a checkpoint, the call waits until the checkpoint of that report is committed. On ranks
    other than 0 that is rank 0's checkpoint; with ``keep_all_ranks`` it is that of all ranks.
    """
    session = _own()
    handle = session.core.checkpoint()
    return None if handle is None else session.checkpoint_type._from_handle(handle)


def get_dataset_shard(name: str | None = None, *, dataset_name: str | None = None) -> DataIterator:
    """This rank's part of a data set that the trainer was given; see DataConfig for which are divided::

        def train_func(config):
            shard = session.get_dataset_shard("train")
            for epoch in range(config["num_epochs"]):
                for batch in shard.iter_torch_batches(batch_size=256):
                    ...

        TorchTrainer(train_func, datasets={"train": lockstep.data.read_parquet("train/*.parquet")}, ...).fit()

    Calls with one name return one object. Every reported checkpoint holds its position, and a function that starts
    again from the checkpoint goes on there. The name may be left out if there is only one data set; `dataset_name` is
    another spelling of it.
    """
    session = _get("get_dataset_shard")
    if session.data is None:
        raise LockstepError("[session] get_dataset_shard() was called before the training function began")
    return session.data.shard(dataset_name if name is None else name)


def get_world_size() -> int:
    """The number of workers."""
    return _own().world_size


def get_world_rank() -> int:
    """This worker's number among all, from 0."""
    return _own().rank


def get_local_rank() -> int:
    """This worker's number on its node, from 0."""
    return _own().local_rank


def get_local_world_size() -> int:
    """The number of workers on this worker's node."""
    return _own().local_world_size


def get_node_rank() -> int:
    """The number of this worker's node, from 0."""
    return _own().node_rank


def get_node_address(rank: int) -> str:
    """The address by which the workers of all nodes reach the node of `rank`: the loopback on one machine.

    What a rank serves to the others listens there.
    """
    return _own().core.node_address(rank)


def get_node_ip() -> str:
    """The address of this worker's node: that by which the others reach it, if the workers are on several nodes."""
    return _own().core.node_ip()


def _is_on_loopback() -> bool:
    """Whether all workers reach each other by the loopback: they are on one node, or all nodes are one machine."""
    if get_local_world_size() == get_world_size():
        return True
    return all(get_node_address(rank) == _core.LOOPBACK for rank in range(get_world_size()))


def get_attempt() -> int:
    """The number of the attempt: 0 at first, and one more after every restart."""
    return _own().attempt


def get_experiment_name() -> str:
    """The run's name."""
    return _own().experiment_name


def get_trial_name() -> str:
    """The name of the run's only trial."""
    return _own().trial_name


def get_trial_id() -> str:
    """The id of the run's only trial, as in ``result.metrics["trial_id"]``."""
    return _own().trial_id


def get_trial_dir() -> str:
    """The run directory."""
    return os.path.abspath(_own().run_dir)


def request_stop() -> None:
    """Ends the run early and successfully. Any rank may call it; all ranks end after the same report::

        if loss < 0.1:
            session.request_stop()
        session.report({"loss": loss}, checkpoint=...)  # the last one, unless another rank is ahead

    See should_stop() for how they end.
    """
    _own().core.request_stop()


def should_stop() -> bool:
    """Whether the run ends early and this rank has made its last report. Becomes True on every rank after the same
    report.

    A function that calls it must end by itself. It may do more before it returns, including another report::

        for epoch in range(100):
            if session.should_stop():
                break
            session.report({"loss": train_epoch()})
        session.report({"loss": evaluate()}, checkpoint=...)

    If the function has not called it before its last report, that report raises StopTraining. This is not an error: it
    ends the function, and the run has finished.

    Outside a worker it is True after the first report that follows request_stop(), until the next report.
    """
    return _own().core.should_stop()


def stopping() -> bool:
    """True once the run is being stopped by a signal (Ctrl-C): return soon."""
    return _own().core.stopping


def should_checkpoint() -> bool:
    """True once the machine, or one of the run's, is about to be taken away (preemption): the next checkpoint that is
    reported is the last one, and the run ends with it::

        for step in range(steps):
            train_step()
            if step % 100 == 0 or session.should_checkpoint():
                session.report({"step": step}, checkpoint=Checkpoint.from_dict(state()))

    Becomes True on every rank, but not after the same step. It is a hint; a function need not ask.
    """
    return _own().core.should_checkpoint


def get_time_left() -> float | None:
    """How many seconds the run may still last: until its machine is taken away, or its Slurm job ends. None if that is
    not known."""
    return _own().core.time_left


def barrier(timeout: float | timedelta = MEETING_TIMEOUT) -> None:
    """Waits until every rank has called it.

    Raises LockstepTimeoutError, which names the missing ranks, after `timeout` (seconds or timedelta).
    """
    _own().core.meet(b"", seconds(timeout, "[session] timeout"))


def broadcast_from_rank_zero(obj: T, timeout: float | timedelta = MEETING_TIMEOUT) -> T:
    """Returns rank 0's object on every rank; what other ranks pass is ignored. Waits and fails as barrier() does::

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
