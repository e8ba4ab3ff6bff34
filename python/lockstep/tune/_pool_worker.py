"""A worker of the pool: runs one trial after the other."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any

from lockstep import _core, _worker, session
from lockstep.errors import ConfigError, LockstepError, StopTraining
from lockstep.tune import _frames
from lockstep.tune.trainable import Trainable, is_class_trainable, run_class, run_function


def serve(config: dict[str, Any]) -> None:
    """The function of the worker's run. `config` names the driver's process and the ends of its pipes."""
    place = f"/proc/{config['driver']}/fd/"
    incoming = os.open(f"{place}{config['read']}", os.O_RDONLY | os.O_CLOEXEC)
    outgoing = os.open(f"{place}{config['write']}", os.O_WRONLY | os.O_CLOEXEC)
    output = os.open(f"{place}{config['output']}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    _worker._flush()
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    _frames.send(outgoing, _frames.HELLO, str(os.getpid()).encode())
    reader = _frames.Reader(incoming)
    trials = _Trials(session._own().core, reader, outgoing, fresh=not config["reuse"])
    before = session._session
    while (message := reader.receive()) is not None and message[0] != _frames.QUIT:
        kind, body = message
        if kind == _frames.FUNCTION:
            trials.load(body)
        elif kind == _frames.TRIAL:
            trials.run(pickle.loads(body))
        session._session = before
    trials.close()


class _Trials:
    def __init__(self, core: Any, reader: _frames.Reader, outgoing: int, fresh: bool) -> None:
        self._core = core
        """The session of the run that this worker is."""
        self._reader = reader
        self._outgoing = outgoing
        self._fresh = fresh
        self._trainable: Any = None
        self._problem: BaseException | None = None
        self._object: Trainable | None = None
        """Of a class that reset_config() can use again."""

    def load(self, pickled: bytes) -> None:
        try:
            self._trainable = pickle.loads(pickled)
            _worker._fill_main(self._trainable)
        except Exception as error:
            self._problem = LockstepError(f"[tune] the trainable cannot be loaded on the worker: {error}")
            self._problem.__cause__ = error

    def run(self, given: dict[str, Any]) -> None:
        """One trial, in a process of its own if it must be fresh."""
        if not self._fresh:
            self._run_here(given)
            return
        done, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(done)
            try:
                self._run_here(given)
                _worker._flush()
                os.write(tell, b"x")
            finally:
                os._exit(1)
        os.close(tell)
        status = _wait_for(child, self._core)
        os.set_blocking(done, False)  # a process that the trial left behind may hold the other end
        try:
            is_told = bool(os.read(done, 1))
        except BlockingIOError:
            is_told = False
        os.close(done)
        if not is_told:
            code = os.waitstatus_to_exitcode(status)
            what = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            message = f"the process of the trial ended {what}"
            kind = "signal" if code < 0 else "exit"
            self._end(given, {"kind": kind, "type": "", "message": message, "traceback": ""})

    def _run_here(self, given: dict[str, Any]) -> None:
        failure, process = None, os.getpid()
        trial = TrialSession(given, self._reader, self._outgoing)
        session._session = session._Session(trial)  # type: ignore[arg-type]
        before = os.getcwd() if given["chdir"] else ""
        try:
            if given["chdir"]:
                os.environ.setdefault("TUNE_ORIG_WORKING_DIR", before)
                os.makedirs(given["directory"], mode=0o700, exist_ok=True)
                os.chdir(given["directory"])
            if self._problem is not None:
                raise self._problem
            if is_class_trainable(self._trainable):
                self._object = run_class(self._trainable, self._object, given)
            else:
                run_function(self._trainable, given["config"])
        except StopTraining:
            self._object = None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self._core.stopping:
                raise  # the driver ends this worker
            self._object = None
            found = _worker.describe(error)
            failure = {
                "kind": found.kind,
                "type": found.type,
                "message": found.message,
                "traceback": found.traceback,
            }
            sys.stderr.write(found.traceback)
        trial.ended = True
        _worker._flush()
        if os.getpid() != process:  # the trial forked, and both came back
            os._exit(0 if failure is None else 1)
        if before:
            os.chdir(before)
        self._end(given, failure)

    def close(self) -> None:
        """At the end of the process."""
        if self._object is not None:
            self._object.cleanup()
            _worker._flush()

    def _end(self, given: dict[str, Any], failure: dict[str, str] | None) -> None:
        body = b"" if failure is None else json.dumps(failure).encode()
        _frames.send(self._outgoing, _frames.END, _frames.JOB.pack(given["number"], given["attempt"]) + body)


def _wait_for(child: int, core: Any) -> int:
    """The exit status of a child. Raises KeyboardInterrupt if the worker was interrupted, also before this call: what a
    signal raises in a hook of os.fork() is lost, and just before os.waitpid() it would not end that."""
    ended = os.pidfd_open(child)
    signalled, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        if core.stopping:
            raise KeyboardInterrupt
        select.select([ended, signalled], [], [])  # a handler that raises does so after it
        return os.waitpid(child, 0)[1]
    finally:
        signal.set_wakeup_fd(before)
        for fd in (ended, signalled, write):
            os.close(fd)


class TrialSession:
    """What the session of a trial asks, in the place of the core's session of a run."""

    keeps_checkpoints = True
    stopping = False

    def __init__(self, given: dict[str, Any], reader: _frames.Reader, outgoing: int) -> None:
        self._reader = reader
        self._outgoing = outgoing
        self._directory: str = given["directory"]
        self._checkpoint: str = given["checkpoint"]
        self._has_written = False
        self._waits: bool = given["waits"]
        self._attempt: int = given["attempt"]
        self._number: int = given["number"]
        self._process = os.getpid()
        self.ended = False
        self.resources: dict[str, float] = given["resources"]
        self._seq: int | None = None
        self._previous = time.monotonic()
        self._must_stop = self._asked = self._requested = False
        self.begin = SimpleNamespace(
            rank=0,
            world_size=1,
            local_rank=0,
            local_world_size=1,
            node_rank=0,
            attempt=given["attempt"],
            experiment_name=given["experiment"],
            trial_name=given["name"],
            trial_id=given["id"],
            run_dir=given["directory"],
        )

    def node_address(self, rank: int) -> str:
        if rank != 0:
            raise ConfigError(f"[session] there is no rank {rank}; world_size is 1")
        return _core.LOOPBACK

    def node_ip(self) -> str:
        return _core.node_ip()

    def report(self, metrics: dict[str, Any] | None, contents: Any) -> bool:
        if self.ended or os.getpid() != self._process:  # it would take an answer that another one waits for
            raise LockstepError(
                "[session] report() was called after the end of its trial, or in a process that it forked; "
                "call it in the trial's own process, before the trial ends"
            )
        now = time.monotonic()
        encoded = b"" if metrics is None else _core.encode_metrics(metrics)
        checkpoint = b"" if contents is None or contents is True else self._write(contents)
        if metrics is not None and self._must_stop and not self._asked:
            return True
        head = _frames.JOB.pack(self._number, self._attempt)
        head += _frames.REPORT.pack(time.time(), now - self._previous, len(encoded))
        self._previous = now
        _frames.send(self._outgoing, _frames.RESULT, head + encoded + checkpoint)
        if metrics is None:
            return False
        if self._waits:
            answer = self._reader.receive()
            if answer is None or answer[1] == _frames.STOP:
                self._must_stop = True
        if self._requested:
            self._must_stop = True
        return self._must_stop and not self._asked

    def _write(self, contents: Any) -> bytes:
        """Writes a checkpoint's files; the driver makes them one."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        if self._seq is None:
            self._seq = _core.next_seq(self._directory)
        seq, self._seq = self._seq, self._seq + 1
        partial = f"checkpoint_{seq:06d}.partial"
        files = _core.write_part(os.path.join(self._directory, partial), contents)
        self._checkpoint = os.path.join(self._directory, f"checkpoint_{seq:06d}")
        self._has_written = True
        return json.dumps({"partial": partial, "seq": seq, "attempt": self._attempt, "files": files}).encode()

    def checkpoint(self) -> _core.Checkpoint | None:
        if not self._checkpoint:
            return None
        deadline = time.monotonic() + 60
        # One that the trial was given is there, and need not be made by Lockstep.
        while self._has_written and not os.path.exists(
            os.path.join(self._checkpoint, "manifest.json")
        ):  # the driver is about to commit it
            if time.monotonic() > deadline:
                raise LockstepError(f"[session] {self._checkpoint} was not committed within 60 s; look at the driver")
            time.sleep(0.002)
        return _core.Checkpoint.from_directory(self._checkpoint)

    def meet(self, value: bytes, timeout: float) -> bytes:
        return value

    def request_stop(self) -> None:
        self._requested = True

    def should_stop(self) -> bool:
        self._asked = True
        return self._must_stop
