"""The warm process that workers are forked from: ``python -m lockstep._fork_server MODULE...``.

The agent starts it (``src/agent/fork_server.h`` has the protocol). It imports the modules once, and then forks one
worker per request. A module whose name ends with ``?`` may be missing. A child of a process with threads can hang, so a
module that starts threads is imported by each worker instead (``!`` marks it).
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT_MODULES = ("cloudpickle", "numpy?")
_SAME_VERSION = ("torch", "tensorflow", "jax", "horovod")
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_MAX_PACKET = 64 << 10


def main(modules: Sequence[str]) -> NoReturn:
    """Serves the agent at the other end of the socket named by the environment, until the agent closes it."""
    agent = socket.socket(fileno=int(os.environ.pop("LOCKSTEP_FORK_SERVER_FD")))
    agent.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_PR_SET_NAME, b"lockstep-forks")
    own = [module.rstrip("?!") for module in modules if module.endswith("!")]
    try:
        _import([module for module in modules or _DEFAULT_MODULES if not module.endswith("!")], agent)
    except BaseException:
        agent.send(b"failed\n" + traceback.format_exc().encode(errors="replace")[: _MAX_PACKET - 16])
        os._exit(1)
    # From here on a closed socket shows that the agent is gone; then the workers' process groups are killed too.
    _prctl(_PR_SET_PDEATHSIG, 0)
    gc.enable()
    gc.freeze()
    _flush()
    agent.send(b"\n".join([b"ready", *_versions()]))
    _serve(agent, own)


def _import(modules: Sequence[str], agent: socket.socket) -> None:
    # With more than one thread, libraries start thread pools at import or at their first operation, and forked children
    # hang in them. Workers set their own number of threads.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # pyarrow's jemalloc, which it does not use by default, would start one at once.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    # Large frameworks make millions of objects that stay alive; garbage collection takes a sixth of their import time.
    gc.disable()
    for module in modules:
        try:
            importlib.import_module(module.removesuffix("?"))
        except ImportError:
            if not module.endswith("?"):
                raise
        if _threads() > 1:
            _start_over(agent, without=module)
    importlib.import_module("lockstep._worker")


def _versions() -> list[bytes]:
    """What must be the same on all nodes of a run, as NAME=VERSION."""
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in _SAME_VERSION}
    versions = {"Python": sys.version.split()[0], **{name: str(found) for name, found in loaded.items() if found}}
    return [f"{name}={version}".encode(errors="replace") for name, version in versions.items()]


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _start_over(agent: socket.socket, without: str) -> None:
    """Replaces this process by a new fork server, whose workers import that module themselves."""
    sys.stderr.write(
        f"lockstep: importing {without} starts threads, so every worker imports it by itself and starts later\n"
    )
    _flush()
    os.environ["LOCKSTEP_FORK_SERVER_FD"] = str(agent.fileno())
    agent.set_inheritable(True)
    given = sys.argv[1:] or _DEFAULT_MODULES
    command = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    os.execv(sys.executable, [*command, *(f"{module}!" if module == without else module for module in given)])


def _serve(agent: socket.socket, own: Sequence[str]) -> NoReturn:
    workers: dict[int, int] = {}  # pid by pidfd
    events = select.poll()
    events.register(agent, select.POLLIN)
    while True:
        for fd, _ in events.poll():
            if fd != agent.fileno():
                events.unregister(fd)
                _report_exit(agent, fd, workers.pop(fd))
                continue
            packet, fds = _receive(agent)
            if not packet:
                _end(workers)
            ticket = packet.split()[1].decode()
            try:
                pidfd = _fork(agent, workers, fds, own)
            except OSError as error:
                agent.send(f"refused {ticket} {error}".encode())
                continue
            finally:
                for passed in fds:
                    os.close(passed)
            events.register(pidfd, select.POLLIN)
            socket.send_fds(agent, [f"started {ticket} {workers[pidfd]}".encode()], [pidfd])


def _receive(agent: socket.socket) -> tuple[bytes, Sequence[int]]:
    # Not socket.recv_fds: it drops the flags that it is given.
    packet, control, _, _ = agent.recvmsg(_MAX_PACKET, socket.CMSG_SPACE(4 * 4), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, data in control:
        fds.frombytes(data)
    return packet, fds


def _fork(agent: socket.socket, workers: dict[int, int], fds: Sequence[int], own: Sequence[str]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become_worker(parent, agent, workers, own, *fds)
        finally:
            os._exit(1)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    workers[pidfd] = pid
    return pidfd


def _become_worker(
    parent: int,
    agent: socket.socket,
    siblings: dict[int, int],
    own: Sequence[str],
    channel: int,
    payload: int,
    log: int,
    stacks: int,
) -> NoReturn:
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        os.close(log)
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # What it starts stays its own while it lives: the agent kills the orphans that come to it.
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        agent.close()
        for pidfd in siblings:
            os.close(pidfd)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Python reseeds its own generator after a fork; numpy's would be the same on every rank.
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        for module in own:
            importlib.import_module(module)
        from lockstep import _worker

        _worker.main(channel, payload, stacks)
    except BaseException:
        traceback.print_exc()
        _flush()
        os._exit(1)


def _report_exit(agent: socket.socket, pidfd: int, pid: int) -> None:
    end = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    os.close(pidfd)
    assert end is not None
    code, number = (end.si_status, 0) if end.si_code == os.CLD_EXITED else (0, end.si_status)
    # If the agent is gone, its closed socket is handled elsewhere.
    with contextlib.suppress(OSError):
        agent.send(f"exited {pid} {code} {number}".encode())


def _end(workers: dict[int, int]) -> NoReturn:
    for pid in workers.values():
        # Every worker leads its own process group, and has not been reaped yet.
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            os.kill(pid, signal.SIGKILL)
    # The driver may be gone too; then nobody else finds daemons.
    from lockstep import _core

    _core.kill_leftovers()
    os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _prctl(option: int, value: int | bytes) -> None:
    zero = ctypes.c_ulong(0)
    ctypes.CDLL(None).prctl(option, value if isinstance(value, bytes) else ctypes.c_ulong(value), zero, zero, zero)


if __name__ == "__main__":
    main(sys.argv[1:])
