"""The compiled core. Internal: the public names are those of ``lockstep``."""

from collections.abc import Sequence
from typing import Any

__version__: str

def set_error_types(config: type, storage: type, engine: type, timeout: type, internal: type) -> None: ...
def check_run_name(name: str) -> None: ...
def check_hosts(hosts: Sequence[str]) -> None: ...
def node_resources() -> dict[str, float]: ...

class Checkpoint:
    """A handle on a directory or on files in memory; see include/lockstep/checkpoint.h."""

    @staticmethod
    def from_directory(path: str) -> Checkpoint: ...
    @staticmethod
    def from_bytes(data: bytes) -> Checkpoint: ...
    @staticmethod
    def from_parts(parts: DictParts) -> Checkpoint: ...
    @property
    def path(self) -> str | None: ...
    def files(self) -> list[str]: ...
    def read(self, file: str) -> bytes: ...
    def tensors(self) -> list[tuple[str, str, tuple[int, ...], memoryview]]:
        """(name, safetensors dtype word, shape, read-only bytes)."""
    def metadata(self) -> dict[str, Any] | None: ...
    def verify(self) -> None: ...
    def to_bytes(self) -> bytes: ...
    def to_directory(self, path: str) -> None: ...

class DictParts:
    """A dict checkpoint taken apart by Python; borrows the buffers until it is reported or made into a Checkpoint."""

    def __init__(
        self,
        data: str,
        tensors: Sequence[tuple[str, str, Sequence[int], Any]],
        objects: bytes | None,
    ) -> None: ...

class WorkerSession:
    """One per worker process; see src/worker/worker_session.h."""

    def __init__(self, fd: int) -> None:
        """Reads the first message and starts beating the heart."""
    @property
    def begin(self) -> dict[str, Any]:
        """The fields of Begin (env, python_path, cwd, ranks, names, extra), without checkpoint contents."""
    def start(self) -> None:
        """Tells the driver that the function is about to run."""
    def report(self, metrics: dict[str, Any] | None, checkpoint: DictParts | Checkpoint | None) -> bool:
        """Without metrics: a checkpoint alone, which is no result of the run. Whether the function is to end here."""
    def checkpoint(self) -> Checkpoint | None: ...
    def meet(self, value: bytes, timeout: float) -> bytes: ...
    def finish(self, value: bytes) -> None: ...
    def wait_for_next(self) -> tuple[WorkerSession, bytes] | None:
        """After finish() of a kept worker: its next session and payload; None when the agent is gone."""
    def fail(self, failure: dict[str, Any]) -> None: ...
    @property
    def stopping(self) -> bool: ...
    def request_stop(self) -> None: ...
    def should_stop(self) -> bool: ...
    @property
    def keeps_checkpoints(self) -> bool: ...

def install_native_stacks(fd: int) -> None:
    """On SIGUSR2, writes the native stack of the interrupted thread there."""

class RunOutcome:
    """What run() came to; from_path() reads the same from a run directory."""

    path: str
    state: str
    metrics: dict[str, Any]
    config: dict[str, Any]
    checkpoint: Checkpoint | None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]]
    failures: list[dict[str, Any]]
    error: str
    trainer: str

def read_run(path: str) -> RunOutcome: ...
def find_run(name: str) -> str | None: ...
def check_owner(path: str) -> None:
    """Raises StorageError unless the run directory and what runs write in it are this user's alone."""

def read_function(path: str) -> tuple[bytes, list[str]]:
    """A run's function.pkl and the SHA-256 that run.json says it has: none, one, or two while it was being replaced."""

def read_json(run: str, name: str) -> Any: ...
def default_storage_path() -> str:
    """Where runs lie unless they say otherwise: LOCKSTEP_STORAGE_PATH, or lockstep_results in the home directory."""

def run(
    options: dict[str, Any],
    payload: bytes,
    callbacks: list[Any],
    resume_from: Checkpoint | None,
    handle_signals: bool,
    agent: AgentSlot | None = None,
) -> tuple[RunOutcome, int, list[bytes]]:
    """Runs to the end, the GIL released. A failed or interrupted run is an outcome like any other.

    The number is that of the signal that interrupted it, or 0; the list is what the functions returned, pickled, with
    the option keep_workers. Without an agent of its own a run has the process's.
    """

def end_by_signal(number: int) -> None:
    """Lets the process die of this signal when Python has ended, atexit functions included."""

class AgentSlot:
    """An agent that stays between runs, with the workers that they keep; see src/train/launch.h."""

    def __init__(self) -> None: ...
    def stop(self) -> None:
        """Ends it with all its workers, in the middle of a run too."""
    def kept(self) -> tuple[int, str]:
        """How many workers a run has kept that still live, and how others ended, in words."""
    @property
    def in_run(self) -> bool:
        """Whether the calling thread is in a run on this agent."""

def plain_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics as they arrive in the driver; TypeError for what cannot be sent."""

class EarlyStopping:
    """See include/lockstep/early_stopping.h."""

    def __init__(self, metric: str, patience: int, mode: str, min_delta: float) -> None: ...
    def reset(self) -> None: ...
    def should_stop(self, metrics: dict[str, Any]) -> bool: ...
    @property
    def best(self) -> float | None: ...

class ReportSink:
    """A place where results go, in the format of the run's own files; see src/metrics/sink.h."""

    @staticmethod
    def json(directory: str, name: str) -> ReportSink: ...
    @staticmethod
    def csv(directory: str) -> ReportSink: ...
    @staticmethod
    def tensorboard(directory: str) -> ReportSink: ...
    def start(self, config: dict[str, Any]) -> None: ...
    def write(self, result: dict[str, Any], step: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

def as_in_files(value: Any) -> Any:
    """`value`, which may be reported, as files hold it: with the summaries of arrays."""
