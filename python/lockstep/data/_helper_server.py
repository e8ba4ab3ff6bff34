"""A warm process that the helpers of a worker's data sets are forked from.

A worker forks it from itself before it has threads, if its data sets ask for helpers. It has the modules of the fork
server that the worker came from, so a helper costs a fork instead of a new interpreter and its imports. It ends with
the worker, and its helpers end with it. Where there is none, as in plain scripts, helpers are new processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from multiprocessing.connection import Connection
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_ANSWER_SECONDS = 10.0  # then helpers are new processes
_MAX_PACKET = 64

_server: Server | None = None


def start(serve: Callable[[Connection], None]) -> None:
    """Forks the server, whose helpers call `serve`; not if this process has threads, whose locks it would inherit."""
    global _server
    if len(os.listdir("/proc/self/task")) > 1:
        return
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.getpid()
    if os.fork() == 0:
        try:
            _become_server(its, worker)
            _run(its, serve)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    its.close()
    _server = Server(ours)


def fork(connection: Connection) -> Process | None:
    """A helper at the other end of `connection`, or None if there is no server to fork it from."""
    return None if _server is None else _server.fork(connection)


class Server:
    """The worker's end. Any thread may call."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._channel.settimeout(_ANSWER_SECONDS)
        self._lock = threading.Lock()
        self._worker = os.getpid()

    def fork(self, connection: Connection) -> Process | None:
        """See :func:`fork`."""
        if self._worker != os.getpid():  # a child of the worker would share the channel with it
            return None
        with contextlib.suppress(OSError), self._lock:
            socket.send_fds(self._channel, [b"fork"], [connection.fileno()])
            answer, fds, *_ = socket.recv_fds(self._channel, _MAX_PACKET, 1)
            if fds:
                return Process(self, int(answer), fds[0])
        return None

    def exit_code(self, pid: int) -> int:
        """Of a helper that has ended; negative: the signal that killed it."""
        with contextlib.suppress(OSError, ValueError), self._lock:
            self._channel.send(str(pid).encode())
            return int(self._channel.recv(_MAX_PACKET))
        return -signal.SIGKILL  # the server is gone, and its helpers with it


class Process:
    """A helper, with what is used of :class:`subprocess.Popen`."""

    def __init__(self, server: Server, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._server = server
        self._pidfd = pidfd
        self._code: int | None = None

    def __del__(self) -> None:
        os.close(self._pidfd)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        if self._code is None:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("a helper process", timeout or 0)
            self._code = self._server.exit_code(self.pid)
        return self._code

    def kill(self) -> None:
        """Kills it, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def surroundings() -> bytes:
    """What a helper takes over from the worker, which may have changed it since the server was forked."""
    return pickle.dumps((sys.path, os.getcwd(), dict(os.environ)))


# ---------------------------------------------------------------------- in the server


def _become_server(channel: socket.socket, worker: int) -> None:
    # New stream objects: the fork server's are configured for where it wrote, perhaps a file.
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    os.setsid()  # Ctrl-C is for the worker
    _die_with(worker)
    # The worker's descriptors are not ours: its peers must see that they are closed when it ends.
    faulthandler.unregister(signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.closerange(3, channel.fileno())
    os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX"))


def _stream(fd: int) -> TextIOWrapper:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _run(channel: socket.socket, serve: Callable[[Connection], None]) -> NoReturn:
    while True:
        packet, fds, *_ = socket.recv_fds(channel, _MAX_PACKET, 1)
        if not packet:
            os._exit(0)
        if not fds:
            channel.send(str(os.waitstatus_to_exitcode(os.waitpid(int(packet), 0)[1])).encode())
            continue
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # too many processes
            channel.send(b"refused")
            os.close(fds[0])
            continue
        if pid == 0:
            channel.close()
            _die_with(server)
            _become_helper(fds[0], serve)
        os.close(fds[0])
        pidfd = os.pidfd_open(pid)
        socket.send_fds(channel, [str(pid).encode()], [pidfd])
        os.close(pidfd)


def _become_helper(descriptor: int, serve: Callable[[Connection], None]) -> NoReturn:
    code = 1
    try:
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # else the same numbers in every helper
        connection = Connection(descriptor)
        sys.path[:], directory, environment = pickle.loads(connection.recv_bytes())
        os.chdir(directory)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        serve(connection)
        code = 0
    except EOFError:  # nobody is at the other end any more
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with(parent: int) -> None:
    zero = ctypes.c_ulong(0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), zero, zero, zero)
    if os.getppid() != parent:
        os._exit(1)
