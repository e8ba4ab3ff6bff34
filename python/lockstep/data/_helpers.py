"""Functions of data sets in processes of their own, so that several of them run at the same time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from multiprocessing.connection import Connection
from typing import Any

import pyarrow

from lockstep.data import _helper_server
from lockstep.errors import EngineError, SerializationError

_END_SECONDS = 2.0  # then a process that still computes is killed
_NUMBER = struct.Struct("<q")
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from lockstep.data._helpers import main; main(int(sys.argv[1]))"


class Helpers:
    """Calls a function of blocks in helper processes, as many at once as there are processes. The processes start with
    the first call, and end with this object, or when this process ends.

    Each thread that calls waits for its own result, so that results come in the order in which they are asked for.
    """

    def __init__(self, call: Any, number: int, name: str) -> None:
        self._call = call
        self._number = number
        self._name = name
        self._lock = threading.Lock()
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._process = 0

    def __call__(self, rows: Any, block: int) -> pyarrow.Table:
        self._start()
        helper = self._free.get()
        try:
            helper.connection.send_bytes(_NUMBER.pack(block) + _packed(pyarrow.table(rows)))
            reply = helper.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise EngineError(
                f"[data] a helper process of {self._name} ended with code {helper.process.wait()}; see what it printed"
            ) from error
        finally:
            self._free.put(helper)  # also if it is lost: others shall not wait for ever
        if reply[:1] == b"t":
            return pyarrow.ipc.open_stream(pyarrow.py_buffer(reply)[1:]).read_all()
        raise _exception(pickle.loads(reply[1:]), self._name)

    def _start(self) -> None:
        with self._lock:
            if self._process == os.getpid():  # a fork needs helpers of its own
                return
            function = _pickled(self._call, self._name)
            self._free = queue.SimpleQueue()
            helpers = [_Helper() for _ in range(self._number)]
            weakref.finalize(self, _end, helpers, os.getpid())
            for helper in helpers:
                helper.connection.send_bytes(function)
                self._free.put(helper)
            self._process = os.getpid()


class _Helper:
    def __init__(self) -> None:
        self.connection, other = multiprocessing.Pipe()
        self.process: _helper_server.Process | subprocess.Popen[bytes]
        with other:
            forked = _helper_server.fork(other)
            if forked is not None:
                self.process = forked
                self.connection.send_bytes(_helper_server.surroundings())
                return
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(other.fileno()), *sys.path],
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C is for the process that waits
            )


def _end(helpers: list[_Helper], process: int) -> None:
    if process != os.getpid():
        return
    for helper in helpers:
        helper.connection.close()
    for helper in helpers:
        try:
            helper.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            helper.process.kill()
            helper.process.wait()


def _packed(table: pyarrow.Table) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _pickled(call: Any, name: str) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(call)  # type: ignore[no-any-return]
    except Exception as error:
        raise SerializationError(f"[data] {name} cannot be sent to helper processes: {error}") from error


def _exception(failure: tuple[Any, str], name: str) -> BaseException:
    error, text = failure
    if error is None:
        return EngineError(f"[data] {name} failed in a helper process:\n{text}")
    if hasattr(error, "add_note"):
        error.add_note(f"in a helper process, where the traceback was:\n{text}")
    return error  # type: ignore[no-any-return]


def prepare() -> None:
    """In a worker that has no threads yet: helpers shall be forked from a warm process."""
    _helper_server.start(_serve)


def _serve(connection: Connection) -> None:
    """What a helper does until nobody is at the other end."""
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _answer(connection)


def _answer(connection: Connection) -> None:
    call: Any = None
    problem: BaseException | None = None
    try:
        call = pickle.loads(connection.recv_bytes())
    except Exception as error:  # told with the first block
        problem = error
    while True:
        message = connection.recv_bytes()
        (block,) = _NUMBER.unpack_from(message)
        try:
            if problem is not None:
                raise problem
            rows = pyarrow.ipc.open_stream(pyarrow.py_buffer(message)[_NUMBER.size :]).read_all()
            reply = b"t" + _packed(call(rows, block))
        except Exception as error:
            reply = b"e" + _failure(error)
        connection.send_bytes(reply)


def _failure(error: Exception) -> bytes:
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    try:
        packed: bytes = cloudpickle.dumps((error, text))
        pickle.loads(packed)
    except Exception:  # an exception that cannot be sent
        return pickle.dumps((None, text))
    return packed


def main(descriptor: int) -> None:
    """The program of a helper."""
    _serve(Connection(descriptor))
