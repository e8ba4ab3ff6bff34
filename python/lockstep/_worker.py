"""One worker process, from the fork to its end."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import mmap
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from types import FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep import _core, _pickling, _run_data, _sources, _worker_imports, session
from lockstep._calls import answer
from lockstep._exception_classes import type_name
from lockstep.errors import Failure, LockstepError, SerializationError, StopTraining, StorageError

if TYPE_CHECKING:
    from lockstep.backend import BackendConfig

_CAUSE_COMES_WITHIN = 2.0
"""An error that looks like another rank's death is reported after this many seconds, so that the death itself is seen
first."""
_OTHERS_FAIL_WITHIN = 0.5
"""A kept worker waits this many seconds for the others to fail too, so that the reports before are complete."""


_OWN_FILES = (__file__, _pickling.__file__, os.path.join(os.path.dirname(__file__), "_script.py"), "<frozen runpy>")
"""Files whose functions come before the user's own."""


class _PayloadError(LockstepError):
    """The training function could not be loaded; the cause is what went wrong."""


_backend: BackendConfig | None = None
"""The backend that this worker has started; a kept worker uses it in later runs too."""


def main(socket_fd: int, payload_fd: int, stacks_fd: int) -> NoReturn:
    """Runs the training function and ends the process; a kept worker runs several, one after the other.

    The descriptors come from the agent: messages, the pickled function, and where to write stacks.
    """
    code: int | None = 1
    worker = os.getpid()
    try:
        _forget_parent()
        _prepare_helpers(payload_fd)
        core = _core.WorkerSession(socket_fd)
        code = _run(core, worker, payload_fd, stacks_fd)
        while code is None:
            following = core.wait_for_next()
            if following is None:
                code = 0
                break
            core, payload = following
            code = _run(core, worker, payload)
    except BaseException:
        # The top of the process: the agent gets the exit code, the log has the rest.
        traceback.print_exc()
    finally:
        _flush()
        os._exit(1 if code is None else code)


def _prepare_helpers(payload_fd: int) -> None:
    """Before the session, which has threads."""
    with contextlib.suppress(OSError, ValueError, LockstepError):  # told when the payload is loaded
        payload = mmap.mmap(payload_fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        _run_data.prepare_helpers(memoryview(payload))


def _run(core: _core.WorkerSession, worker: int, payload: int | bytes, stacks_fd: int = -1) -> int | None:
    """Executes one run. Returns the exit code, or None if the worker is kept. A new worker gets its payload as a
    descriptor."""
    interrupts = _Interrupts(core)
    code: int | None
    try:
        interrupts.start()
        loaded = payload if isinstance(payload, bytes) else _begin_process(core, payload, stacks_fd)
        value = _train(core, loaded)
        code = _end_well(core, value) if os.getpid() == worker else 0
    except BaseException as error:
        interrupts.raising = False  # before any other call: a signal that arrived with the error must not raise here
        code = _end_badly(core, error) if os.getpid() == worker else _end_of_child(error)
    return code


class _Interrupts:
    """Turns SIGINT into KeyboardInterrupt while a run is going on."""

    def __init__(self, core: _core.WorkerSession) -> None:
        self.raising = True
        self._core = core

    def start(self) -> None:
        signal.signal(signal.SIGINT, self._interrupted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.raising and self._core.stopping:
            raise KeyboardInterrupt
        if self.raising:
            raise KeyboardInterrupt("this worker got SIGINT, but the run is not being stopped")


def _begin_process(core: _core.WorkerSession, payload_fd: int, stacks_fd: int) -> mmap.mmap:
    """The first steps of a new worker; returns its payload."""
    _enter(core.begin, stacks_fd)
    return _mapped(payload_fd)


def _train(core: _core.WorkerSession, payload: bytes | mmap.mmap) -> Any:
    """Starts the session and, in a new worker, the backend, and calls the training function; returns its result."""
    global _backend
    is_kept = isinstance(payload, bytes)
    loaded = _load(payload, with_backend=not is_kept)
    own_backend = loaded.backend
    session._session = session._Session(core, session._session)
    rank, world_size = session._session.rank, session._session.world_size
    session._session.data = _run_data.WorkerData(core, rank, world_size, loaded.datasets, loaded.preprocessor)
    core.start()
    if own_backend is not None:
        _backend = own_backend
        _backend.on_worker_start()
    if _backend is not None:
        _backend.on_function_start()
    core.serve_calls(answer)
    return _call(loaded.function, loaded.config, core.begin.keep)


def _call(function: Callable[..., Any], config: Any, keep: bool) -> Any:
    """Calls the function. ``sys.exit()`` without an error ends a script normally, but is an error in a worker that must
    stay."""
    try:
        return _pickling.call(function, config)
    except StopTraining:
        return None
    except SystemExit as error:
        if keep or error.code not in (None, 0):
            raise
        return None


def _end_well(core: _core.WorkerSession, value: Any) -> int | None:
    """Reports the end of the run. Returns the exit code, or None if the worker is kept; only then `value` is sent."""
    if core.begin.keep:
        packed = _pickling.dump_value(value)
        _flush()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        core.finish(packed)
        return None
    packed = _returned(value) if core.begin.rank == 0 else b""
    core.serve_calls(answer)
    if _backend is not None:
        _backend.on_worker_end()
    # Finish everything of the user's code before the last message: after it the run may have ended.
    _end_python()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    core.finish(packed)
    return 0


def _returned(value: Any) -> bytes:
    """For ``Result.return_value``. What cannot be pickled is an error only for those who ask for it."""
    if value is None:
        return b""
    try:
        return _pickling.dump_value(value)
    except SerializationError as error:
        from lockstep.result import NotReturned

        return _pickling.dump_value(NotReturned(str(error)))


def _end_badly(core: _core.WorkerSession, error: BaseException) -> int:
    if not core.stopping and _backend is not None and _backend.is_consequence(error):
        time.sleep(_CAUSE_COMES_WITHIN)  # meanwhile this process is killed, unless there is no other cause
    if not core.stopping and core.begin.keep and core.begin.world_size > 1 and isinstance(error, Exception):
        with contextlib.suppress(LockstepError):
            core.meet(b"", _OTHERS_FAIL_WITHIN)
    if not core.stopping:
        return _fail(core, error)
    if not isinstance(error, KeyboardInterrupt):  # a barrier that Ctrl-C interrupted, or a consequence of it
        sys.stderr.write(describe(error).traceback)
    # Send the reports first: the run waits for this process only for a limited time.
    _flush()
    core.finish(b"")
    _end_python()
    return 0


def _end_of_child(error: BaseException) -> int:
    """A process that the training function forked has returned here: it ends as a script would, without affecting the
    run."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    traceback.print_exception(error)
    return 1


def _fail(core: _core.WorkerSession, error: BaseException) -> int:
    _sources.hide_changed(error, _sources.created(core.begin.run_dir))
    found = describe(error)
    texts = {"kind": found.kind, "type": found.type, "message": found.message, "traceback": found.traceback}
    failure = {key: text.encode("utf-8", "backslashreplace").decode() for key, text in texts.items()}
    sys.stderr.write(failure["traceback"])
    _flush()
    core.fail(**failure)
    _end_python()
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) and 0 < code < 256 else 1


def describe(error: BaseException) -> Failure:
    """The failure, as far as the worker knows it."""
    if isinstance(error, _PayloadError) and error.__cause__ is not None:
        message, error = str(error), error.__cause__
    else:
        try:
            message = str(error)
        except Exception as problem:
            message = f"its text cannot be made: {type(problem).__name__}"
    if isinstance(error, SystemExit):
        kind, name, message = "exit", "", f"the training function called sys.exit({error.code!r})"
    else:
        kind = "storage" if isinstance(error, StorageError) else "exception"
        name = type_name(type(error))
    first_line, *more = message.strip().splitlines() or [""]
    lines = traceback.format_exception(type(error), error, _users_frames(error.__traceback__))
    return Failure(kind, type=name, message=first_line + (" ..." if more else ""), traceback="".join(lines))


def _enter(begin: _core.Begin, stacks_fd: int) -> None:
    """Makes the process look like the one that called fit()."""
    # New stream objects: the fork server's are configured for where it wrote, perhaps a file.
    sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc]
    faulthandler.enable(file=sys.stderr, all_threads=True)
    _core.install_native_stacks(stacks_fd)
    faulthandler.register(signal.SIGUSR2, file=stacks_fd, all_threads=True, chain=True)  # then the native one
    _set_environment(begin.env)
    os.chdir(begin.cwd)
    sys.path[:] = begin.python_path
    sys.argv[:] = begin.argv
    sys.path_importer_cache.clear()
    _set_blas_threads()
    _worker_imports.load()


def _stream(fd: int) -> TextIOWrapper:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _mapped(payload_fd: int) -> mmap.mmap:
    # Private: a sealed memory file cannot be mapped shared on older kernels.
    payload = mmap.mmap(payload_fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    os.close(payload_fd)
    return payload


def _load(payload: bytes | mmap.mmap, *, with_backend: bool) -> _pickling.Loaded:
    try:
        loaded = _pickling.load(memoryview(payload), with_backend=with_backend)
        _fill_main(loaded.function)
        return loaded
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        advice = "workers import with the sys.path of the process that called fit()"
        raise _PayloadError(f"the training function cannot be loaded on the worker: {error}; {advice}") from error


_main: ModuleType | None = None
"""Stands in for the user's script."""


def _fill_main(function: Callable[..., Any]) -> None:
    """Makes objects of the user's script that the function uses importable from ``__main__``.

    Otherwise torch.save() or multiprocessing could not pickle objects of the script's classes.
    """
    global _main
    if _main is None:
        _main = sys.modules["__main__"] = ModuleType("__main__")
    for name, value in getattr(function, "__globals__", {}).items():
        if getattr(value, "__module__", None) == "__main__":
            setattr(_main, name, value)


def _forget_parent() -> None:
    """Drops what modules registered for the exit of the fork server, and registers what must run at the exit of this
    process."""
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    logging = sys.modules.get("logging")
    if logging is not None:
        atexit.register(logging.shutdown)
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing._finalizer_registry.clear()
        atexit.register(multiprocessing._exit_function)


def _end_python() -> None:
    """Does what the interpreter does at exit, as far as users notice: joins threads, runs atexit functions, flushes."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _set_blas_threads() -> None:
    """Tells numpy's OpenBLAS how many threads to use; the fork server imported it with one. Best effort."""
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS", "")
    if "numpy" not in sys.modules or not threads.isdecimal() or int(threads) <= 1:
        return
    import ctypes

    with open("/proc/self/maps") as maps:
        libraries = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    for path in libraries:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            names = (f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", ""))
            for function in filter(None, (getattr(library, name, None) for name in names)):
                function(int(threads))


def _users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from where the user's code begins."""
    found = frames
    while found is not None and found.tb_frame.f_code.co_filename in _OWN_FILES:
        found = found.tb_next
    return found or frames
