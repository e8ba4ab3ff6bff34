"""``@ray.remote``: tasks and actors in processes of this machine.

A task runs in a worker that stays warm, as many at once as there are CPUs. An actor has a process of its own, which
makes its calls one after the other. In a worker there are no more processes: what it starts runs in it, at once.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import Any, NoReturn

from lockstep import _core, session
from lockstep._failed_error import failed_type
from lockstep.as_ray._cluster import ObjectRef, init
from lockstep.errors import ConfigError, EngineError, LockstepTimeoutError, NotAvailableError, TrainingFailedError

_ACCEPTED = {
    *("num_cpus", "num_returns", "name", "num_gpus", "resources", "max_retries", "max_restarts", "max_task_retries"),
    *("max_calls", "max_concurrency", "memory", "runtime_env", "scheduling_strategy", "lifetime", "namespace"),
    *("retry_exceptions", "get_if_exists", "object_store_memory", "accelerator_type", "label_selector"),
}


def remote(*args: Any, **options: Any) -> Any:
    """``@ray.remote`` and ``@ray.remote(num_cpus=2)``, for functions and classes."""
    if len(args) == 1 and callable(args[0]) and not options:
        return _Remote(args[0], {})
    _check(options)
    return lambda wrapped: _Remote(wrapped, options)


def method(*args: Any, **options: Any) -> Any:
    """A decorator of an actor's methods: ``@ray.method(num_returns=2)``."""
    if args and callable(args[0]):
        return args[0]

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, "__ray_num_returns__", options.get("num_returns", 1))  # noqa: B010
        return function

    return mark


def _check(options: dict[str, Any]) -> None:
    if wrong := [name for name in options if name not in _ACCEPTED]:
        raise ConfigError(f"[ray.remote] unknown option {wrong[0]}; there are {', '.join(sorted(_ACCEPTED))}")
    if options.get("num_gpus"):
        raise NotAvailableError(
            "[ray.remote] num_gpus: tasks and actors get no GPU of their own here; "
            "ScalingConfig(use_gpu=True) gives one to each worker of a trainer"
        )


class _Remote:
    """A function or class whose ``remote()`` runs it in another process."""

    def __init__(self, wrapped: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, wrapped, updated=())
        self._wrapped, self._options = wrapped, options

    def options(self, **options: Any) -> _Remote:
        """The same with other options."""
        _check(options)
        return _Remote(self._wrapped, {**self._options, **options})

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Starts a task and returns its reference, or an actor and returns its handle."""
        init(ignore_reinit_error=True)
        if isinstance(self._wrapped, type):
            return _start_actor(self._wrapped, args, kwargs, self._options)
        number = self._options.get("num_returns", 1)
        cpus = self._options.get("num_cpus")
        task = _Job(_call, (self._wrapped,), args, kwargs, 1.0 if cpus is None else float(cpus))
        if session._session is not None:
            _run_inline(task)
        else:
            _tasks.submit(task)
        return _refs(task.future, number)

    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises NotAvailableError."""
        raise NotAvailableError("[ray.remote] bind() makes graphs of Ray, which Lockstep does not have; use remote()")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = getattr(self._wrapped, "__qualname__", "it")
        raise TypeError(f"[ray.remote] {name} is remote and cannot be called; write {name}.remote(...)")

    def __reduce__(self) -> Any:
        return _Remote, (self._wrapped, self._options)


# ---------------------------------------------------------------- jobs


@dataclass
class _Job:
    """One call in another process."""

    function: Callable[..., Any]
    first: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    cpus: float = 0.0
    future: Future[Any] = field(default_factory=Future)

    def refs(self) -> list[ObjectRef]:
        """The references among the arguments."""
        return [each for each in (*self.args, *self.kwargs.values()) if isinstance(each, ObjectRef)]

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """With values for references; raises the error of a reference."""

        return arguments(self.args, self.kwargs)


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With values for references; raises the error of a reference."""

    def value(given: Any) -> Any:
        return given._wait(None) if isinstance(given, ObjectRef) else given

    return tuple(map(value, args)), {name: value(given) for name, given in kwargs.items()}


def references(*given: Any) -> list[ObjectRef]:
    """The references among these values and in their lists, tuples, sets and dicts."""
    found: list[ObjectRef] = []
    seen: set[int] = set()
    left = list(given)
    while left:
        value = left.pop()
        if isinstance(value, ObjectRef):
            found.append(value)
        elif isinstance(value, (list, tuple, set, frozenset, dict)) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value.values() if isinstance(value, dict) else value)
    return found


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In the worker."""
    made = function(*args, **kwargs)
    if inspect.iscoroutine(made):
        import asyncio

        return asyncio.run(made)
    return list(made) if inspect.isgenerator(made) else made


def _run_inline(job: _Job) -> None:
    try:
        args, kwargs = job.arguments()
        job.future.set_result(job.function(*job.first, args, kwargs))
    except Exception as error:
        job.future.set_exception(task_error(error))


def task_error(error: BaseException) -> BaseException:
    """What ``get()`` raises: a RayTaskError that is also what the task raised, or the loss of its process."""
    if isinstance(error, TrainingFailedError) and error.result is not None:  # of the run on the process
        lost = error.failures[0].summary if error.failures else str(error)
        return EngineError(f"[ray.remote] the process of the task or actor ended: {lost}")
    if not isinstance(error, Exception) or isinstance(error, (EngineError, TrainingFailedError)):
        return error
    made = failed_type(type(error))(str(error))
    made.__cause__ = error
    return made


def ref_of(future: Future[Any]) -> ObjectRef:
    """A reference to what the future will have."""
    return ObjectRef._later(future)


def _refs(future: Future[Any], number: Any) -> Any:
    """One reference, or several to the parts of what the function returns."""
    if number in (1, None, "dynamic", "streaming"):
        return ObjectRef._later(future)
    if number == 0:
        return None
    parts: list[Future[Any]] = [Future() for _ in range(int(number))]

    def deal(done: Future[Any]) -> None:
        error: BaseException | None = done.exception()
        values = [] if error is not None else list(done.result())
        if error is None and len(values) != len(parts):
            error = ConfigError(f"[ray.remote] num_returns is {len(parts)}, but {len(values)} values were returned")
        for index, part in enumerate(parts):
            part.set_exception(error) if error is not None else part.set_result(values[index])

    future.add_done_callback(deal)
    return [ObjectRef._later(part) for part in parts]


# ---------------------------------------------------------------- processes


class _Process:
    """A process, and the thread that calls it."""

    def __init__(self, ended: Callable[[_Process, _Job], None]) -> None:
        from lockstep.worker_group import WorkerGroup

        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.is_dead = False
        self._group = WorkerGroup(num_workers=1, trainer="ray.remote")
        self._ended = ended
        self.thread = threading.Thread(target=self._serve, name="ray.remote", daemon=True)
        _processes.add(self)
        self.thread.start()

    def stop(self) -> None:
        """Kills the process; its jobs fail."""
        self.is_dead = True
        self._group.stop()
        self.jobs.put(None)

    def _serve(self) -> None:
        while (job := self.jobs.get()) is not None:
            self._run(job)
            self._ended(self, job)
            del job
        while not self.jobs.empty():
            if (left := self.jobs.get()) is not None:
                left.future.set_exception(EngineError("[ray.remote] the actor was killed, or its process has ended"))
        if not self.is_dead:
            self._group.shutdown()
        _processes.discard(self)

    def _run(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            args, kwargs = job.arguments()
            if self.is_dead:
                raise EngineError("[ray.remote] the actor was killed, or its process has ended")
            if not self._group.is_started:
                self._group.start()
            value = self._group.execute(job.function, *job.first, args, kwargs)[0]
        except BaseException as error:
            dead = isinstance(error, TrainingFailedError) and error.failures
            self.is_dead = self.is_dead or bool(dead)
            job.future.set_exception(task_error(error))
        else:
            job.future.set_result(value)


_processes: set[_Process] = set()


class _Tasks:
    """Tasks that wait for their arguments, then for CPUs."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._ready: deque[_Job] = deque()
        self._idle: list[_Process] = []
        self._used = 0.0

    def submit(self, task: _Job) -> None:
        total = _core.total_resources().get("CPU", 1.0)
        if task.cpus > total:
            raise ConfigError(f"[ray.remote] the task asks for {task.cpus:g} CPUs, but there are {total:g}")
        waits = [ref._future for ref in task.refs() if ref._future is not None]
        left = [len(waits) + 1]

        def one_less(_: Any = None) -> None:
            with self._lock:
                left[0] -= 1
                if left[0] == 0:
                    self._ready.append(task)
                    self._start()

        for future in waits:
            future.add_done_callback(one_less)
        one_less()

    def _start(self) -> None:
        total = _core.total_resources().get("CPU", 1.0)
        while self._ready and self._used + self._ready[0].cpus <= total:
            task = self._ready.popleft()
            self._used += task.cpus
            process = self._idle.pop() if self._idle else _Process(self._ended)
            process.jobs.put(task)

    def _ended(self, process: _Process, task: _Job) -> None:
        with self._lock:
            self._used -= task.cpus
            process.is_dead = False  # the next task starts another process
            self._idle.append(process)
            self._start()


_tasks = _Tasks()


@atexit.register
def _end_processes() -> None:
    """No thread may be in the core when the interpreter ends."""
    for process in list(_processes):
        process.stop()
    for process in list(_processes):
        process.thread.join(10)


# ---------------------------------------------------------------- actors

_named: dict[str, weakref.ReferenceType[ActorHandle]] = {}
_instance: Any = None
"""In the process of an actor."""


def _create(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    global _instance
    _instance = kind(*args, **kwargs)


def _invoke(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _instance is None:
        raise EngineError("[ray.remote] the actor was not made, or its process has ended")
    return _call(getattr(_instance, name), args, kwargs)


class ActorHandle:
    """An actor: ``handle.method.remote(...)`` calls it. It ends with its last handle."""

    def __init__(self, kind: type, process: _Process | None, local: Any = None) -> None:
        self._kind, self._process, self._local = kind, process, local

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_") or not hasattr(self._kind, name):
            raise AttributeError(f"{self._kind.__name__} has no method {name!r}")
        return _Method(self, name, getattr(getattr(self._kind, name), "__ray_num_returns__", 1))

    def __repr__(self) -> str:
        return f"Actor({self._kind.__name__})"

    def __reduce__(self) -> NoReturn:
        raise NotAvailableError(
            "[ray.remote] the handle of an actor cannot be passed to another process here; "
            "call the actor in this program and pass what it returns"
        )

    def __del__(self) -> None:
        process = self.__dict__.get("_process")
        if process is not None:
            process.jobs.put(None)


class _Method:
    def __init__(self, handle: ActorHandle, name: str, number: Any) -> None:
        self._handle, self._name, self._number = handle, name, number

    def options(self, num_returns: int | None = None, **_: Any) -> _Method:
        return _Method(self._handle, self._name, self._number if num_returns is None else num_returns)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        handle = self._handle
        if handle._process is None:
            job = _Job(_call, (getattr(handle._local, self._name),), args, kwargs)
            _run_inline(job)
        else:
            job = _Job(_invoke, (self._name,), args, kwargs)
            if handle._process.is_dead:
                job.future.set_exception(EngineError(f"[ray.remote] {handle!r} was killed, or its process has ended"))
            else:
                handle._process.jobs.put(job)
        return _refs(job.future, self._number)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"[ray.remote] methods of actors cannot be called; write {self._name}.remote(...)")


def _start_actor(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> ActorHandle:
    name = options.get("name")
    if name is not None and (there := _named.get(name, lambda: None)()) is not None:
        if options.get("get_if_exists"):
            return there
        raise ConfigError(f"[ray.remote] there is an actor named {name!r} already; choose another name")
    if session._session is not None:
        made = ActorHandle(kind, None, kind(*args, **kwargs))
    else:
        process = _Process(lambda *_: None)
        made = ActorHandle(kind, process)
        process.jobs.put(_Job(_create, (kind,), args, kwargs))
    if name is not None:
        _named[name] = weakref.ref(made)
    return made


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """The actor of that name."""
    there = _named.get(name, lambda: None)()
    if there is None:
        raise ConfigError(f"[ray.get_actor] there is no actor named {name!r} in this program")
    return there


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once; its calls fail."""
    if not isinstance(actor, ActorHandle):
        raise ConfigError(f"[ray.kill] got a {type(actor).__name__}; it takes the handle of an actor")
    if actor._process is not None:
        actor._process.stop()


# ---------------------------------------------------------------- references


def get(refs: Any, *, timeout: float | None = None) -> Any:
    """The value of a reference, or the list of values of a list of them; raises what a task raised.

    Raises GetTimeoutError if a value is not there within `timeout` seconds.
    """
    init(ignore_reinit_error=True)
    deadline = None if timeout is None else time.monotonic() + timeout
    return _get(refs, deadline)


def _get(refs: Any, deadline: float | None) -> Any:
    if isinstance(refs, ObjectRef):
        try:
            return refs._wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except TimeoutError as error:
            if isinstance(error, TrainingFailedError):
                raise
            raise LockstepTimeoutError("[ray.get] the value is not there within the timeout") from None
    if isinstance(refs, (list, tuple)):
        return [_get(ref, deadline) for ref in refs]
    raise ConfigError(
        f"[ray.get] got a {type(refs).__name__}; it takes an ObjectRef, as ray.put() gives, or a list of them"
    )


def wait(
    refs: Iterable[ObjectRef], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """The first `num_returns` references whose values are there, and the others."""
    given = list(refs)
    if not all(isinstance(ref, ObjectRef) for ref in given):
        raise ConfigError("[ray.wait] it takes a list of ObjectRefs")
    if not 1 <= num_returns <= len(given):
        raise ConfigError(f"[ray.wait] num_returns is {num_returns}; it must be from 1 to {len(given)}")
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        ready = [ref for ref in given if ref._is_there()]
        left = [ref._future for ref in given if ref._future is not None and not ref._is_there()]
        remaining = None if deadline is None else deadline - time.monotonic()
        if len(ready) >= num_returns or not left or (remaining is not None and remaining <= 0):
            break
        wait_for(left, remaining, FIRST_COMPLETED)
    ready = ready[:num_returns]
    return ready, [ref for ref in given if ref not in ready]


def cancel(ref: ObjectRef, *, force: bool = False, recursive: bool = True) -> None:
    """Takes back a task that has not begun. One that runs goes on."""
    if ref._future is not None:
        ref._future.cancel()
