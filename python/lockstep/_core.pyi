"""The compiled core. Internal: the public names are those of ``lockstep``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import lockstep._hooks
import lockstep._validation
import lockstep.callbacks
import lockstep.config
import lockstep.errors

__version__: str
LOOPBACK: str
"""The address by which a machine reaches itself, and no other machine does."""

def node_ip() -> str:
    """The address at which others would reach this machine."""

def set_error_types(config: type, storage: type, engine: type, timeout: type, internal: type) -> None: ...
def check_hosts(hosts: Sequence[str]) -> None: ...
def total_resources() -> dict[str, float]: ...
def available_resources() -> dict[str, float]: ...
def start_nodes(engine: EngineConfig) -> list[dict[str, Any]]:
    """Lets the engine start its agents. Of each node: `name`, `address`, `resources`, and whether it `works`."""

def declare_resources(declared: dict[str, float]) -> None: ...
def leases() -> int: ...

class Checkpoint:
    """A handle on a directory or on files in memory; see include/lockstep/checkpoint.h."""

    @staticmethod
    def from_directory(path: str) -> Checkpoint: ...
    @staticmethod
    def from_bytes(data: bytes) -> Checkpoint: ...
    @staticmethod
    def from_parts(parts: EncodedDict) -> Checkpoint: ...
    @property
    def path(self) -> str | None: ...
    def files(self) -> list[str]: ...
    def read(self, file: str) -> bytes: ...
    def tensors(self) -> list[tuple[str, str, tuple[int, ...], memoryview]]:
        """(name, safetensors' name of the dtype, shape, read-only bytes)."""
    def metadata(self) -> dict[str, Any] | None: ...
    def verify(self) -> None: ...
    def to_bytes(self) -> bytes: ...
    def to_directory(self, path: str) -> None: ...

class EncodedDict:
    """A dict checkpoint encoded by Python; borrows the buffers until it is reported or made into a Checkpoint."""

    def __init__(
        self,
        data: str,
        tensors: Sequence[tuple[str, str, Sequence[int], Any]],
        objects: bytes | None,
    ) -> None: ...

def kill_leftovers() -> None:
    """For a fork server whose agent is gone: kills what its workers have left behind; see src/worker/zygote.h."""

class Begin:
    """What a worker is told at its start; see src/wire/messages.h. A new one is that of a lone worker."""

    attempt: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    experiment_name: str
    trial_name: str
    trial_id: str
    run_dir: str
    env: dict[str, str]
    cwd: str
    python_path: list[str]
    argv: list[str]
    keep: bool
    services: dict[str, Any]

class WorkerSession:
    """One per worker process; see src/worker/worker_session.h."""

    def __init__(self, fd: int) -> None:
        """Reads the first message and starts the heartbeat."""
    @property
    def begin(self) -> Begin: ...
    def node_address(self, rank: int) -> str: ...
    def node_ip(self) -> str: ...
    def start(self) -> None:
        """Tells the driver that the function is about to run."""
    def report(self, metrics: dict[str, Any] | None, checkpoint: EncodedDict | Checkpoint | bool | None) -> bool:
        """Without metrics: a checkpoint alone, which is not a result. Returns whether the function must end now.

        `checkpoint` is True if there is one that this rank does not keep.
        """
    def checkpoint(self) -> Checkpoint | None: ...
    def saved_position(self, dataset: str) -> str | None:
        """The JSON that set_position() got before the checkpoint that this attempt resumes from."""
    def set_position(self, dataset: str, position: str) -> None:
        """What rank 0's checkpoints hold for this data set from now on, as JSON."""
    def keep_file(self, name: str, contents: bytes) -> None:
        """Rank 0's checkpoints hold this file from now on; empty contents: no longer."""
    def meet(self, value: bytes, timeout: float) -> bytes: ...
    def serve_calls(self, answer: Callable[[bytes], bytes]) -> None:
        """Answers the driver's calls until no more come; does nothing if none will come."""
    def finish(self, value: bytes) -> None: ...
    def wait_for_next(self) -> tuple[WorkerSession, bytes] | None:
        """After finish() of a kept worker: its next session and payload; None if the agent is gone."""
    def fail(self, kind: str, type: str, message: str, traceback: str) -> None: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def should_checkpoint(self) -> bool: ...
    @property
    def time_left(self) -> float | None: ...
    def request_stop(self) -> None: ...
    def should_stop(self) -> bool: ...
    @property
    def keeps_checkpoints(self) -> bool: ...

def install_native_stacks(fd: int) -> None:
    """Makes SIGUSR2 write the native stack of the interrupted thread to this descriptor."""

class RunOutcome:
    """What a run came to; read_run() reads the same from a run directory."""

    path: str
    state: str
    metrics: dict[str, Any]
    config: dict[str, Any]
    checkpoint: Checkpoint | None
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]]
    failures: list[lockstep.errors.Failure]
    world_sizes: list[int]
    error: str
    trainer: str

class RunView:
    """A run as its directory shows it; see src/store/run_view.h."""

    @staticmethod
    def read(path: str) -> RunView: ...
    @staticmethod
    def read_leniently(path: str) -> RunView:
        """Fields of run.json that have another type than Lockstep writes keep their defaults."""
    @property
    def state(self) -> str: ...
    @property
    def created(self) -> float:
        """In seconds since 1970; 0: unknown."""

def number_at(metrics: dict[str, Any], key: str) -> float | None:
    """The number at `key`, or at that path of nested dicts (``"validation/loss"``); True is 1, NaN is a number."""

def read_run(path: str) -> RunOutcome: ...
def find_run(name: str) -> str | None: ...
def run_exists(name: str) -> bool: ...
def check_address(text: str) -> str: ...
def local_path(given: str) -> str: ...
def address_of(path: str) -> str | None: ...
def fetch_checkpoint(address: str) -> str | None: ...
def upload_directory(path: str, address: str) -> None: ...
def set_arrow_directory(path: str) -> None: ...
def run_to_resume(run: RunConfig) -> str | None: ...
def check_owner(path: str) -> None:
    """Raises StorageError unless the run directory and what runs write in it are this user's alone."""

def read_function(path: str) -> tuple[bytes, list[str]]:
    """A run's function.pkl and the SHA-256 that run.json says it has: none, one, or two while it was being replaced."""

def read_json(run: str, name: str) -> Any: ...
def default_storage_path() -> str:
    """LOCKSTEP_STORAGE_PATH, or else lockstep_results in the home directory."""

class ScalingConfig:
    """The checked values of a ``lockstep.ScalingConfig``; see include/lockstep/config.h and src/store/settings.h.

    This class and the five like it read the attributes that `names` lists from the object that is given, or from
    `instead`, and raise ConfigError for a wrong one. Without an object they hold the defaults.
    """

    names: ClassVar[tuple[str, ...]]
    def __init__(self, given: lockstep.config.ScalingConfig = ..., **instead: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class FailureConfig:
    names: ClassVar[tuple[str, ...]]
    def __init__(self, given: lockstep.config.FailureConfig = ..., **instead: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class CheckpointConfig:
    names: ClassVar[tuple[str, ...]]
    def __init__(self, given: lockstep.config.CheckpointConfig = ..., **instead: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class EngineConfig:
    names: ClassVar[tuple[str, ...]]
    def __init__(self, given: lockstep.config.EngineConfig = ..., **instead: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class RunConfig:
    names: ClassVar[tuple[str, ...]]
    failure_config: FailureConfig
    checkpoint_config: CheckpointConfig
    engine: EngineConfig
    def __init__(self, given: lockstep.config.RunConfig = ..., **instead: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class DataConfig:
    names: ClassVar[tuple[str, ...]]
    def __init__(self, given: lockstep.config.DataConfig = ..., **instead: object) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class BackendNeeds:
    """What a backend asks of the run; see src/store/run_settings.h."""

    environment: Mapping[str, str]
    preload: Sequence[str]
    backend_cls: str
    services: Mapping[str, Any]
    replace_workers: bool

class RunSettings:
    """How a run was set up, from its run.json."""

    scaling: ScalingConfig
    run: RunConfig
    backend: BackendNeeds | None

def read_settings(path: str) -> RunSettings: ...

class Program:
    """The command line of the fork server, with its whole environment, and the sys.path of workers."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str, python_path: Sequence[str]
    ) -> None: ...

class Function:
    """What workers get (`payload`), and what the run directory keeps for restore() with its SHA-256."""

    def __init__(self, payload: bytes, kept: bytes | None = None, sha256: str = "") -> None: ...

class RunPlan:
    """All that a run needs besides the function and the callbacks; see src/driver/run_plan.h."""

    trainer: str
    scaling: ScalingConfig
    run: RunConfig
    config: Any
    metadata: Any
    resume_from: Checkpoint | None
    restore: bool
    program: Program
    backend: BackendNeeds | None
    record: bool
    keep_workers: bool
    only_deaths: bool

class Run:
    """A run of this process; see src/train/active_run.h."""

    def __init__(
        self,
        plan: RunPlan,
        function: Function,
        callbacks: list[lockstep.callbacks.CallbackAdapter],
        hooks: lockstep._hooks.BackendHooks | None = None,
        *,
        claims_signals: bool,
        agent: AgentSlot | None = None,
        observed: bool = False,
        validations: lockstep._validation.Validator | None = None,
    ) -> None:
        """Prepares it. With `claims_signals`, Ctrl-C is for the run alone until it is over; otherwise Python handles it
        too. Without an agent of its own a run has the process's. An `observed` run goes on in the background, and only
        such a run has metrics and reports."""
    @staticmethod
    def finished(outcome: RunOutcome) -> Run: ...
    def run(self) -> None:
        """Runs to the end in the calling thread, with the GIL released."""
    def give_up(self) -> None:
        """Says that run() will not be called."""
    def wait(self, timeout: float | None = None, claims_signals: bool = False) -> tuple[RunOutcome, int, list[bytes]]:
        """The outcome, which may be a failure; the signal that interrupted the run, or 0; and what the functions
        returned, pickled, if the plan keeps the workers. Raises the error of a run that could not run."""
    def next(self) -> dict[str, Any] | None:
        """Waits for the next report. None: the run is over."""
    def stop(self, checkpoint: bool) -> None: ...
    @property
    def dropped(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def metrics(self) -> dict[str, Any]: ...
    @property
    def path(self) -> str: ...

def stop_runs() -> None:
    """Stops the runs that do not claim signals, and waits for their ends. No such run can begin any more."""

def end_with_code(code: int) -> None:
    """The process ends with this code after everything else that runs at exit."""

def end_by_signal(number: int) -> None:
    """Lets the process die of this signal when Python has ended, atexit functions included."""

class AgentSlot:
    """A connection to the agent that stays open between runs, with the workers that they keep; see
    src/train/agent_slot.h."""

    def __init__(self) -> None: ...
    def stop(self) -> None:
        """Ends its workers, also during a run."""
    def kept(self) -> tuple[int, str]:
        """How many kept workers are alive, and a text that says how the others ended."""
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

AUTOFILLED_KEYS: frozenset[str]
"""The keys that the driver adds to reported metrics."""

def read_reports(path: str) -> dict[str, Any]:
    """The reports in a result.json by column, as numpy arrays or lists; nested keys are joined by slashes. A report
    without the key has NaN. StorageError names a line that is not a report; there are no columns if there is no file.
    """

def as_in_files(value: Any) -> Any:
    """`value`, which may be reported, as files hold it: with the summaries of arrays."""

def score_of(checkpoint: Checkpoint, metrics: dict[str, Any], attribute: str) -> float | None:
    """The number at `attribute` of the checkpoint's dict, else of the metrics; see src/store/score.h."""

def decide_retention(
    scores: Sequence[tuple[int, float | None]], num_to_keep: int | None, order: str
) -> tuple[list[int], list[int]]:
    """Which numbers go, and the best ones, worst first; see src/store/retention.h."""

def replace_file(path: str, contents: bytes) -> None:
    """Makes the file, and the directories above it; readers see the old contents or the new. Raises StorageError."""

def generator_seed(seed: int, epoch: int, part: int | None = None) -> int:
    """A seed of 63 bits made from all numbers: seed 1 in epoch 0 differs from seed 0 in epoch 1."""

class Deal:
    """What one rank takes of an epoch, from a position to the end; see src/data/order.h."""

    def __init__(self, total: int, start: int, rank: int, world: int, batch_size: int, drop_last: bool) -> None: ...
    @property
    def total(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def places(self) -> tuple[range, int | None]:
        """The rank's places, and one more to pad with, which another rank takes too."""
    def __len__(self) -> int:
        """The number of the rank's places, the padding included."""
    def position_after(self, batches: int) -> int:
        """How many places are used when every rank has had this many batches."""

class SampleOrder:
    """The shuffled order of one epoch, which is that of torch.randperm()."""

    def __init__(self, size: int, seed: int, epoch: int) -> None: ...
    @staticmethod
    def name(shuffle: bool, seed: int) -> str:
        """A name that differs between different orders."""
    def __len__(self) -> int: ...
    def samples(self, deal: Deal, first: int, count: int) -> list[int]:
        """At most `count` of the rank's samples, from the `first` on."""

class TrialRecord:
    """The directory of a trial, in the form of a run directory; see python/src/trial_record.cpp."""

    def __init__(self, directory: str, constants: dict[str, Any], config: Any) -> None: ...
    def begin(self, attempt: int, pid: int, iterations: int) -> None: ...
    def report(self, metrics: bytes, timestamp: float, time_this_iter: float) -> dict[str, Any]: ...

    class Taken:
        @property
        def bytes(self) -> int: ...
        @property
        def reports(self) -> int: ...
        @property
        def decision(self) -> tune.Decision.Kind: ...
        @property
        def problem(self) -> str: ...
        @property
        def best(self) -> float | None: ...

    def take(self, experiment: tune.Experiment, trial: int, attempt: int, messages: bytearray) -> Taken: ...
    def last(self) -> dict[str, Any]: ...
    def commit(self, partial: str, seq: int, attempt: int, files: list[dict[str, Any]]) -> str: ...
    def flush(self) -> None: ...
    def end(self, state: str, error: str, failure: dict[str, str] | None = None) -> None: ...

def encode_metrics(metrics: dict[str, Any]) -> bytes: ...
def write_part(directory: str, contents: Any) -> list[dict[str, Any]]: ...
def next_seq(directory: str) -> int: ...
def remove_checkpoint(directory: str, seq: int) -> None: ...
def finish_record(run: str, metrics: dict[str, Any]) -> None: ...
def adopt_checkpoint(directory: str, source: str) -> str: ...

class tune:
    """The module ``_core.tune``; see src/tune/."""

    class Space:
        def __init__(self, param_space: dict[str, Any]) -> None: ...
        @property
        def names(self) -> list[str]: ...
        @property
        def dimensions(self) -> list[dict[str, Any]]: ...
        def grid_size(self) -> int: ...
        def grid_point(self, index: int) -> list[float]: ...
        def is_active(self, point: Sequence[float], dimension: int) -> bool: ...
        def config(self, point: Sequence[float]) -> dict[str, Any]: ...
        def point(self, config: dict[str, Any]) -> list[float]: ...

    class Searcher:
        class Asked:
            class Kind:
                point: ClassVar[tune.Searcher.Asked.Kind]
                wait: ClassVar[tune.Searcher.Asked.Kind]
                exhausted: ClassVar[tune.Searcher.Asked.Kind]

            kind: tune.Searcher.Asked.Kind
            point: list[float]
            def __init__(self, kind: tune.Searcher.Asked.Kind = ..., point: Sequence[float] = ...) -> None: ...

        def __init__(self) -> None: ...
        def ask(self, trial: int, fixed: list[float]) -> tune.Searcher.Asked: ...
        def tell(self, trial: int, values: list[float]) -> None: ...
        def observe(self, trial: int, budget: float, value: float) -> None: ...

    class Decision:
        class Kind:
            go_on: ClassVar[tune.Decision.Kind]
            stop: ClassVar[tune.Decision.Kind]
            pause: ClassVar[tune.Decision.Kind]

        kind: tune.Decision.Kind
        why: str
        def __init__(self, kind: tune.Decision.Kind = ..., why: str = "") -> None: ...

    class Exploit:
        donor: int
        config: dict[str, Any]
        def __init__(self, donor: int, config: dict[str, Any]) -> None: ...

    class Scheduler:
        def __init__(self) -> None: ...
        def may_stop(self) -> bool: ...
        def on_added(self, trial: int, config: dict[str, Any]) -> None: ...
        def on_result(self, trial: int, time: float, value: float, has_checkpoint: bool) -> tune.Decision: ...
        def on_ended(self, trial: int, failed: bool) -> None: ...
        def more_to_come(self, more: bool) -> None: ...
        def choose(self, fresh: list[int], paused: list[int]) -> int | None: ...
        def take_dropped(self) -> list[int]: ...
        def take_exploit(self, trial: int) -> tune.Exploit | None: ...
        def donors(self) -> list[int]: ...

    @staticmethod
    def keys_not_stored() -> list[str]: ...
    class ExperimentSettings:
        name: str
        param_space: dict[str, Any]
        num_samples: int
        metrics: list[str]
        modes: list[str]
        seed: int
        searcher: dict[str, Any]
        scheduler: dict[str, Any]
        points_to_evaluate: list[dict[str, Any]]
        time_attribute: str
        stop: dict[str, Any]
        time_budget: float | None
        max_failures: int
        fail_fast: bool
        extra: dict[str, Any]
        def __init__(self) -> None: ...

    class TrialState:
        pending: ClassVar[tune.TrialState]
        running: ClassVar[tune.TrialState]
        paused: ClassVar[tune.TrialState]
        terminated: ClassVar[tune.TrialState]
        error: ClassVar[tune.TrialState]
        @property
        def name(self) -> str: ...

    class Trial:
        number: int
        id: str
        name: str
        state: tune.TrialState
        iterations: int
        failures: int
        error: str
        checkpoint: str
        started: float
        ended: float
        config: dict[str, Any]
        last_result: dict[str, Any] | None

    class Start:
        trial: int
        checkpoint: str
        attempt: int
        iterations: int
        id: str
        name: str
        config: dict[str, Any]

    class Experiment:
        @staticmethod
        def create(directory: Any, settings: tune.ExperimentSettings) -> tune.Experiment: ...
        @staticmethod
        def open(
            directory: Any, resume_errored: bool = False, restart_errored: bool = False, read_only: bool = False
        ) -> tune.Experiment: ...
        def use(self, adviser: tune.Searcher | tune.Scheduler) -> None: ...
        def next(self) -> tune.Start | None: ...
        def set_name(self, trial: int, name: str) -> None: ...
        def on_report(
            self,
            trial: int,
            metrics: dict[str, Any],
            checkpoint: str = "",
            last: bool = False,
            unstored: frozenset[str] = ...,
        ) -> tune.Decision: ...
        def on_checkpoint(self, trial: int, checkpoint: str, iteration: int) -> None: ...
        def on_ended(self, trial: int, error: str = "") -> bool: ...
        def is_done(self) -> bool: ...
        def stop(self) -> None: ...
        def sync(self) -> None: ...
        def settings(self) -> tune.ExperimentSettings: ...
        def size(self) -> int: ...
        def count(self, state: tune.TrialState) -> int: ...
        def in_state(self, state: tune.TrialState) -> list[int]: ...
        def donors(self) -> list[int]: ...
        def replay_log(self) -> list[dict[str, Any]]: ...
        def policy_files(self) -> list[tuple[str, str]]: ...
        def trial(self, number: int) -> tune.Trial: ...
        def results(self, number: int) -> list[dict[str, Any]]: ...
        def best(self, metric: str, mode: str, scope: str = "last", finite: bool = False) -> int | None: ...
        def pareto_front(self, metrics: list[str], modes: list[str]) -> list[int]: ...

    @staticmethod
    def pareto_front(points: list[list[float]]) -> list[int]: ...
    @staticmethod
    def make_searcher(
        description: dict[str, Any], space: tune.Space, seed: int = 0, objectives: int = 1
    ) -> tune.Searcher: ...
    @staticmethod
    def make_scheduler(description: dict[str, Any], seed: int = 0) -> tune.Scheduler: ...
    @staticmethod
    def read_policy(file: str) -> tuple[dict[str, Any], list[list[Any]]]: ...
    @staticmethod
    def plot_html(
        path: Any, kind: str, metric: str = "", mode: str = "", x: str = "", y: str = "", seed: int = 0
    ) -> str: ...
    @staticmethod
    def plot_value(
        path: Any, kind: str, metric: str = "", mode: str = "", x: str = "", y: str = "", seed: int = 0
    ) -> dict[str, Any]: ...
