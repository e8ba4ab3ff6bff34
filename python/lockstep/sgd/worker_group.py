"""Workers that stay: one function after the other runs on them, and what they hold is there for the next."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep import _core, _pickling
from lockstep._interrupts import ends_uncaught
from lockstep.backend import BackendConfig, hooks_class
from lockstep.callbacks import CallbackAdapter
from lockstep.checkpoint import Checkpoint
from lockstep.config import RunConfig, ScalingConfig, plain
from lockstep.errors import Failure, LockstepError, TrainingInterrupted, last_attempt
from lockstep.result import Result
from lockstep.trainer import DataParallelTrainer, may_handle_signals, process_options

END_WITHIN = 10.0
"""How long shutdown() waits for workers that end well, in seconds."""
_REPLACED = "lockstep._worker.WorkerReplaced"
_STARTING = "WorkerGroup.start()"
_alive: weakref.WeakSet[WorkerGroup] = weakref.WeakSet()


class WorkerDied(LockstepError):
    """Workers of the group are gone, and with them what they held; the next call starts new ones."""

    def __init__(self, result: Result) -> None:
        super().__init__(str(result.error))
        self.result = result
        self.while_idle = any(failure.type == _REPLACED for failure in last_attempt(result.failures))
        """Nothing of the run was lost: it had not begun."""


class _WorkersGone(LockstepError):
    """A backend that shuts down asked for workers that there are no more."""


@dataclass
class Job:
    """What the workers are to do."""

    function: Callable[..., Any]
    config: dict[str, Any] | None = None
    directory: Path | None = None
    """Of the run; None: work that is no run and leaves nothing behind."""
    callbacks: Sequence[CallbackAdapter] = field(default_factory=tuple)
    resume_from: Checkpoint | None = None
    again: bool = False
    """The directory is there already: the run goes on after a failure."""
    payload: bytes = b""
    """Function and configuration, where they are pickled already."""


class WorkerGroup:
    """`scaling.num_workers` processes, joined by `backend`::

        with WorkerGroup(ScalingConfig(num_workers=2)) as group:
            group.execute(os.getpid)  # [4711, 4712]

    Use it from one thread at a time; ``stop()`` may be called from any.
    """

    def __init__(
        self,
        scaling: ScalingConfig,
        backend: BackendConfig | None = None,
        *,
        trainer: str = "WorkerGroup",
        verbose: int = 1,
    ) -> None:
        self.scaling = scaling
        self.backend = backend
        hooks = hooks_class(backend)
        self._backend_hooks = None if hooks is None else hooks()
        self.doing = _STARTING
        """What failed when start() or begin_training() raises: a hook of the backend, by its name, or the start."""
        self._trainer = trainer
        self._verbose = verbose
        self._agent: _core.AgentSlot | None = None
        self._process: dict[str, Any] = {}
        self._hook: Callable[[], Any] | None = None
        self._up = False
        self._closing = False
        self.num_failures = 0
        """How often workers of the current run were started anew."""
        self.thread: threading.Thread | None = None
        """Of the run that an iterator waits for."""
        self.generation = 0
        """How often workers were started: what older ones held is gone."""
        self._busy = threading.Lock()

    # ------------------------------------------------------------------ its life

    @property
    def is_started(self) -> bool:
        """Between start() and shutdown()."""
        return self._agent is not None

    @property
    def is_in_hook(self) -> bool:
        """Whether it is a hook of the backend that runs, or failed."""
        return self.doing != _STARTING

    def start(self, initialization_hook: Callable[[], Any] | None = None) -> None:
        """Starts the workers and runs the hook on each; on those that replace dead ones too."""
        self.doing = _STARTING
        self._hook = initialization_hook
        self._process = process_options(DataParallelTrainer._preload, self.backend)
        self._agent = _core.AgentSlot()
        _alive.add(self)
        try:
            self.ensure_workers()
        except BaseException:
            self.stop()
            raise

    def ensure_workers(self) -> None:
        """Starts the workers when they are not there. Raises WorkerDied when they do not live through their start."""
        self._notice_deaths()
        if self._up:
            return
        if self._closing:
            raise _WorkersGone("[sgd] the workers have ended; on_shutdown() cannot reach them")
        hook = self._hook or _nothing
        self._do(Job(hook), backend=self.backend, joined=False)
        self.generation += 1
        self._tell("on_start")

    def _notice_deaths(self) -> None:
        """A worker that died since the last run takes the others with it."""
        if not self._up or self._agent is None:
            return
        alive, lost = self._agent.kept()
        if alive == len(self):
            return
        self._up = False
        if not self._closing and self._verbose > 0:
            why = lost or "they are gone"
            print(f"lockstep: workers died since the last run ({why}); starting new ones", file=sys.stderr)

    def shutdown(self) -> None:
        """Ends the workers, well where that is possible within some seconds. Does nothing when there are none."""
        if self._agent is None:
            return
        late = threading.Timer(END_WITHIN, self._agent.stop)
        late.daemon = True
        late.start()
        self._closing = True
        try:
            self._tell("on_shutdown")
            self.doing = "WorkerGroup.shutdown()"
            self._notice_deaths()
            if self._up:
                self._do(Job(_nothing), keep=False)
        except (WorkerDied, _WorkersGone):
            pass  # they were to end
        finally:
            late.cancel()
            self._closing = False
            self.stop()

    def stop(self) -> None:
        """Ends the workers at once, whatever they do. A run on them fails. Any thread may call it."""
        agent, self._agent, self._up = self._agent, None, False
        _alive.discard(self)
        if agent is not None:
            agent.stop()

    def __enter__(self) -> WorkerGroup:
        if not self.is_started:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __len__(self) -> int:
        return self.scaling.num_workers

    # ------------------------------------------------------------------ work

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Calls the function on every worker; what it returned, by rank.

        What it raised on the lowest rank is raised here; the workers stay. Raises WorkerDied when one did not.
        """
        self.ensure_workers()
        return [_value_of(outcome) for outcome in self._do(Job(_Call(function, args, kwargs)))]

    def execute_single(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function on one worker."""
        self.ensure_workers()
        return _value_of(self._do(Job(_Call(function, args, kwargs, rank)))[rank])

    def run(self, job: Job) -> list[Any]:
        """Runs a training function; what it returned, by rank.

        Raises WorkerDied when workers died, the error of the function, TrainingInterrupted after Ctrl-C.
        """
        self.begin_training()
        return self._do(job)

    def _do(
        self, job: Job, *, backend: BackendConfig | None = None, joined: bool = True, keep: bool = True
    ) -> list[Any]:
        payload = job.payload or _pickling.dump(job.function, job.config, backend)
        resume_from = None if job.resume_from is None else job.resume_from._as_handle()
        options = self._options(job)
        outcome, signal, values = self.launch(options, payload, job.callbacks, resume_from, joined=joined, keep=keep)
        if outcome.state == "finished":
            return [pickle.loads(value) if value else None for value in values]
        result = Result._from_outcome(outcome, job.config, self._trainer, function=job.function, where="run")
        if outcome.state == "interrupted":
            raise ends_uncaught(TrainingInterrupted("[run] the run was interrupted", result, signal))
        raised = next((adapter.raised for adapter in job.callbacks if adapter.raised is not None), None)
        if raised is not None:
            raise raised
        if is_death(result.failures):
            raise WorkerDied(result) from result.error
        assert result.error is not None
        raise result.error

    def launch(
        self,
        options: dict[str, Any],
        payload: bytes,
        callbacks: Sequence[Any],
        resume_from: _core.Checkpoint | None,
        *,
        joined: bool = True,
        keep: bool = True,
    ) -> tuple[_core.RunOutcome, int, list[bytes]]:
        """``_core.run`` on these workers. `joined`: on those that are there; `keep`: they stay."""
        agent = self._agent
        if agent is None:
            raise LockstepError("[sgd] the workers are not started; call start() first")
        options = {**options, **self._process, "keep_workers": keep, "extra": {"joined": joined}}
        if agent.in_run or not self._busy.acquire(blocking=False):
            raise LockstepError("[sgd] the workers are in the middle of a run; one runs at a time")
        try:
            self._up = False  # unless all goes well
            answer = _core.run(options, payload, list(callbacks), resume_from, may_handle_signals(), agent)
        finally:
            self._busy.release()
        if self._agent is not agent and not self._closing:
            raise LockstepError("[sgd] shutdown() ended the workers in the middle of a run")
        self._up = keep and answer[0].state == "finished"
        return answer

    def begin_training(self) -> None:
        """Starts the workers when they are not there, and tells the backend that a run follows."""
        self.doing = _STARTING
        self.ensure_workers()
        self._tell("on_training_start")

    def _tell(self, hook: str) -> None:
        if self._backend_hooks is None:
            return
        self.doing = f"{type(self._backend_hooks).__name__}.{hook}()"
        getattr(self._backend_hooks, hook)(self, self.backend)
        self.doing = _STARTING

    def _options(self, job: Job) -> dict[str, Any]:
        place = job.directory
        run = RunConfig(verbose=self._verbose).to_options()
        run["checkpoint"]["num_to_keep"] = 0
        if place is not None:
            run["storage_path"], run["name"] = str(place.parent), place.name
        else:
            run["storage_path"], run["name"] = os.getcwd(), "group"
        return {
            "trainer": self._trainer,
            "config": plain(job.config or {}),
            "metadata": {},
            "scaling": self.scaling.to_options(),
            "run": run,
            "restore": job.again,
            "record": place is not None,
        }

    # ------------------------------------------------------------------ in the words of others

    @property
    def num_workers(self) -> int:
        """``len()`` of it."""
        return len(self)

    @property
    def worker_group(self) -> WorkerGroup:
        """Itself."""
        return self

    @property
    def _num_failures(self) -> int:
        return self.num_failures


def is_death(failures: Sequence[Failure]) -> bool:
    """Whether workers died, rather than the function failing."""
    last = last_attempt(failures)
    return any(f.type == _REPLACED for f in last) or (
        bool(last) and last[0].kind not in ("exception", "callback", "storage", "internal")
    )


@dataclass
class _Raised:
    error: BaseException


@dataclass
class _Value:
    """Pickled apart, so that what cannot be is an answer too."""

    data: bytes


def _value_of(outcome: _Raised | _Value) -> Any:
    if isinstance(outcome, _Raised):
        raise outcome.error
    return pickle.loads(outcome.data)


class _Call:
    """A call on the workers, or on one of them. What it raises is an answer: the worker goes on."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], rank: int | None = None
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.rank = rank

    def __call__(self) -> Any:
        from lockstep import session

        if self.rank not in (None, session.get_world_rank()):
            return None
        try:
            return _Value(_pickling.dump_value(self.function(*self.args, **self.kwargs)))
        except Exception as error:
            return _raised(error)


def _raised(error: Exception) -> _Raised:
    """The error as it can travel, with the worker's traceback as its note."""
    from lockstep import session
    from lockstep._worker import describe
    from lockstep.errors import cause_of

    failure = Failure.from_dict({**describe(error), "rank": session.get_world_rank()})
    try:
        copy = pickle.loads(_pickling.dump_value(error))
        copy.add_note(f"\nTraceback of {failure.who}:\n{failure.traceback.rstrip()}")
        return _Raised(copy)
    except Exception:  # some errors cannot be pickled, others not unpickled
        return _Raised(cause_of(failure) or LockstepError(failure.summary))


def _nothing() -> None:
    pass


@atexit.register
def _end_all() -> None:
    """A thread that waits for a run must not be caught in it by the end of the interpreter."""
    for group in list(_alive):
        group.stop()
        if group.thread is not None:
            group.thread.join()
