"""One worker process, from the moment it was forked until it ends."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
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

from lockstep import _core, _pickling, _sources, session
from lockstep.errors import LockstepError, StopTraining, StorageError, type_name

if TYPE_CHECKING:
    from lockstep.backend import BackendConfig

_CAUSE_COMES_WITHIN = 2.0
"""How long an error that looks like another rank's death waits for that death to be seen, in seconds."""


class _PayloadError(LockstepError):
    """The training function could not be loaded; the cause is what went wrong."""


class WorkerReplaced(LockstepError):
    """A run meant for a worker that was there already found a new one: the other has died meanwhile."""


_joined: BackendConfig | None = None
"""The backend that a worker which is kept has started, for its later runs."""


def main(socket_fd: int, payload_fd: int, stacks_fd: int) -> NoReturn:
    """Runs the training function and ends the process; a worker that is kept runs one after the other.

    The descriptors come from the agent: messages, the pickled function, a place for stacks.
    """
    code: int | None = 1
    worker = os.getpid()
    try:
        _forget_parent()
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
        # The top of the process: the agent has the exit code, the log has the rest.
        traceback.print_exc()
    finally:
        _flush()
        os._exit(1 if code is None else code)


def _run(core: _core.WorkerSession, worker: int, payload: int | bytes, stacks_fd: int = -1) -> int | None:
    """One run: the exit code, or None when the worker is kept. A new worker gets its payload as a descriptor."""
    global _joined
    running = True

    def interrupted(number: int, frame: FrameType | None) -> None:
        if running and core.stopping:
            raise KeyboardInterrupt
        if running:
            raise KeyboardInterrupt("this worker got SIGINT, but the run is not being stopped")

    keep: bool = core.begin["keep"]
    backend: BackendConfig | None = _joined
    try:
        signal.signal(signal.SIGINT, interrupted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if isinstance(payload, int):
            _enter(core.begin, stacks_fd)
            if (core.begin["extra"] or {}).get("joined"):
                raise WorkerReplaced("a worker of the group has died since its last run")
        function, config, own_backend = _load(_mapped(payload) if isinstance(payload, int) else payload)
        session._session = session._Session(core, session._session)
        core.start()
        if own_backend is not None:
            backend = own_backend
            backend.on_worker_start()
        if backend is not None:
            backend.on_function_start()
        value = _call(function, config, keep)
        if os.getpid() != worker:
            return 0
        if keep:
            _joined = backend
            packed = _pickling.dump_value(value)
            _flush()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            core.finish(packed)
            return None
        if backend is not None:
            backend.on_worker_end()
        # All that the user's code still does comes before the last message: after it the run may be over.
        _end_python()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        core.finish(b"")
        return 0
    except BaseException as error:
        running = False  # before anything is called: a signal that came with the error must not raise here
        if os.getpid() != worker:
            return _end_of_child(error)
        if not core.stopping and backend is not None and backend.is_consequence(error):
            time.sleep(_CAUSE_COMES_WITHIN)  # this process is ended meanwhile, unless there is no other cause
        return _end_badly(core, error)


def _call(function: Callable[..., Any], config: Any, keep: bool) -> Any:
    """Runs it. ``sys.exit()`` without an error ends a script well, but one who should stay has left."""
    try:
        return _pickling.call(function, config)
    except StopTraining:
        return None
    except SystemExit as error:
        if keep or error.code not in (None, 0):
            raise
        return None


def _end_of_child(error: BaseException) -> int:
    """A fork that the training function made came back here: it ends as a script would, and the run is not its own."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    traceback.print_exception(error)
    return 1


def _end_badly(core: _core.WorkerSession, error: BaseException) -> int:
    if not core.stopping:
        return _fail(core, error)
    if not isinstance(error, KeyboardInterrupt):  # a barrier that Ctrl-C broke up, or what came of that
        sys.stderr.write(describe(error)["traceback"])
    # What was reported comes first: the run waits for this process only so long.
    _flush()
    core.finish(b"")
    _end_python()
    return 0


def _fail(core: _core.WorkerSession, error: BaseException) -> int:
    _sources.hide_changed(error, _sources.created(core.begin["run_dir"]))
    failure = {key: text.encode("utf-8", "backslashreplace").decode() for key, text in describe(error).items()}
    sys.stderr.write(failure["traceback"])
    _flush()
    core.fail(failure)
    _end_python()
    code = error.code if isinstance(error, SystemExit) else 1
    return code if isinstance(code, int) and 0 < code < 256 else 1


def describe(error: BaseException) -> dict[str, Any]:
    """The fields of a Failure that a worker can know."""
    if isinstance(error, _PayloadError) and error.__cause__ is not None:
        message, error = str(error), error.__cause__
    else:
        message = str(error)
    if isinstance(error, SystemExit):
        kind, name, message = "exit", "", f"the training function called sys.exit({error.code!r})"
    else:
        kind = "storage" if isinstance(error, StorageError) else "exception"
        name = type_name(type(error))
    first_line, *more = message.strip().splitlines() or [""]
    return {
        "kind": kind,
        "type": name,
        "message": first_line + (" ..." if more else ""),
        "traceback": "".join(traceback.format_exception(type(error), error, _users_frames(error.__traceback__))),
    }


def _enter(begin: Mapping[str, Any], stacks_fd: int) -> None:
    """Makes the process look like the one that called fit()."""
    # New ones: the fork server's believe that they write where it did, to a file perhaps.
    sys.stdout = sys.__stdout__ = _stream(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2)  # type: ignore[misc]
    faulthandler.enable(file=sys.stderr, all_threads=True)
    _core.install_native_stacks(stacks_fd)
    faulthandler.register(signal.SIGUSR2, file=stacks_fd, all_threads=True, chain=True)  # then the native one
    _set_environment(begin["env"])
    os.chdir(begin["cwd"])
    sys.path[:] = begin["python_path"]
    sys.argv[:] = begin["argv"]
    sys.path_importer_cache.clear()
    _set_blas_threads()
    if os.environ.get("LOCKSTEP_AS_RAY"):
        importlib.import_module("lockstep.as_ray")


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


def _load(payload: bytes | mmap.mmap) -> tuple[Callable[..., Any], Any, BackendConfig | None]:
    try:
        loaded = _pickling.load(memoryview(payload))
        _fill_main(loaded[0])
        return loaded
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        advice = "workers import with the sys.path of the process that called fit()"
        raise _PayloadError(f"the training function cannot be loaded on the worker: {error}; {advice}") from error


_main: ModuleType | None = None
"""What stands for the user's script."""


def _fill_main(function: Callable[..., Any]) -> None:
    """Makes what the user's script defines, and the function uses, importable from ``__main__``, as it is there.

    Otherwise torch.save() or multiprocessing could not pickle objects of the script's classes.
    """
    global _main
    if _main is None:
        _main = sys.modules["__main__"] = ModuleType("__main__")
    for name, value in getattr(function, "__globals__", {}).items():
        if getattr(value, "__module__", None) == "__main__":
            setattr(_main, name, value)


def _forget_parent() -> None:
    """Drops what modules registered for the end of the fork server; registers what is due at the end of this one."""
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
    """What the interpreter does at its end, as far as users notice: joins threads, runs atexit functions, flushes."""
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
    while found is not None and found.tb_frame.f_code.co_filename in (__file__, _pickling.__file__):
        found = found.tb_next
    return found or frames
