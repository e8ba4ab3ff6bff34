"""Runs trials of plain functions and classes on warm workers: a trial is a message."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lockstep import _core, _pickling
from lockstep._program import backend_needs, process_plan
from lockstep.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import EngineError
from lockstep.trainer import DataParallelTrainer
from lockstep.tune import _frames, _pool_worker
from lockstep.tune._output import Output
from lockstep.tune._trial import Ended, Job, Reported, Taken

_GO_ON = _core.tune.Decision.Kind.go_on
PIPE_SIZE = 1 << 20
"""Reports that nobody waits for fit in there while the driver is busy."""
WRITE_EVERY = 0.5
"""Seconds after which the files of running trials are written."""


class Worker:
    """One process of the pool, which is a run of one worker."""

    def __init__(self, pool: Pool, number: int) -> None:
        self._pool = pool
        self.job: Job | None = None
        self.record: Any = None
        self.pid = 0
        self.is_ready = False
        self.is_killed = False
        self.last_sign = 0.0
        """When the trial began or last reported."""
        self.ending = ""
        """What ended the process."""
        down, self._write = os.pipe()
        self.read, up = os.pipe()
        self._theirs = [down, up]
        with suppress(OSError):  # a user's pipes have a limit in all, and it is only for speed
            for fd in (down, self.read):
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        self.reader = _frames.Reader(self.read)
        self.output = Output(pool.directory, pool.tell)
        config = {"driver": os.getpid(), "read": down, "write": up, "output": self.output.fd, "reuse": pool.reuse}
        payload = _pickling.dump(_pool_worker.serve, config)
        self._run = _core.Run(pool.plan(number), _core.Function(payload), [], None, claims_signals=False, observed=True)
        self.thread = threading.Thread(target=self._work, name=f"lockstep trial worker {number}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            self._run.run()
            outcome, _, _ = self._run.wait()
            failures = outcome.failures
            self.ending = failures[-1].message if failures else outcome.error or f"its run {outcome.state}"
        except BaseException as error:
            self.ending = str(error)
        self._pool.post(self)

    def greet(self, pid: int) -> None:
        """The worker has opened its ends of the pipes: from now on, they are the only ones."""
        self.pid = pid
        self.is_ready = True
        self.close_theirs()
        with suppress(BrokenPipeError):  # the end of its run says why
            _frames.send(self._write, _frames.FUNCTION, self._pool.trainable)
        if self.job is not None:
            self._send_trial()

    def start(self, job: Job, record: Any) -> None:
        self.job, self.record = job, record
        if self.is_ready:
            self._send_trial()

    def _send_trial(self) -> None:
        job = self.job
        assert job is not None
        self.last_sign = time.monotonic()
        self.record.begin(job.attempt, self.pid, job.iterations)
        with suppress(BrokenPipeError):  # the end of its run says why
            _frames.send(self._write, _frames.TRIAL, self._pool.message(job))

    def answer(self, stop: bool) -> None:
        with suppress(BrokenPipeError):
            _frames.send(self._write, _frames.ANSWER, _frames.STOP if stop else _frames.GO_ON)

    def kill(self) -> None:
        self.is_killed = True
        self._run.stop(checkpoint=False)

    def quit(self) -> None:
        """Asks it to end."""
        self.close_theirs()
        ends, self._write, self.read = (self._write, self.read), -1, -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        self.quit()
        self.output.close()

    def copy_output(self, is_over: bool = False) -> None:
        """What its trial has printed so far, to the trial's log."""
        copy = self.output.finish if is_over else self.output.copy
        if self.job is None:
            copy(f"worker {self.pid}", None)
        else:
            copy(str(self.job.trial), self.job.trial.logdir)

    def close_theirs(self) -> None:
        """While they are open here too, the pipe does not end with the worker."""
        while self._theirs:  # an interrupt may come in between: none is closed twice
            os.close(self._theirs.pop())


class Pool:
    """At most `capacity` workers, started when there is a trial for them and replaced when they die. For one thread."""

    def __init__(
        self,
        trainable: Any,
        capacity: int,
        *,
        experiment: str,
        directory: Path,
        resources: dict[str, float],
        make_record: Callable[[Job], Any],
        options: dict[str, Any],
        reuse: bool = True,
        waits: bool = True,
        tell: Callable[[str, str], None] | None = None,
        hang_timeout: float | None = None,
        takes: Any = None,
    ) -> None:
        self._takes = takes
        """The experiment, if reports go to it without the loop."""
        self.trainable = _pickling.dump_function(trainable)
        self.capacity = capacity
        self.reuse = reuse
        self._experiment = experiment
        self.directory = directory
        self.tell = tell
        """Shows lines of a trial, which has a name."""
        self._resources = resources
        self._make_record = make_record
        self._options = {**options, "waits": waits}
        self._waits = waits
        self._hang_timeout = hang_timeout
        self._process = process_plan(DataParallelTrainer._preload, backend_needs(None))
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._by_fd: dict[int, Worker] = {}
        self._gone: deque[Worker] = deque()
        self._epoll = select.epoll()
        self._wake_read, self._wake = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._made = 0
        self._failed_starts = 0
        self._next_write = time.monotonic() + WRITE_EVERY

    # ------------------------------------------------------------------ for the loop

    def can_start(self) -> bool:
        """Whether there is a worker for another trial, or may be."""
        return bool(self._idle) or len(self._workers) < self.capacity

    def start(self, job: Job) -> None:
        """Runs a trial."""
        record = self._make_record(job)
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = Worker(self, self._made)
            self._made += 1
            self._workers.append(worker)
            self._by_fd[worker.read] = worker
            self._epoll.register(worker.read, select.EPOLLIN)
        worker.start(job, record)

    def poll(self, timeout: float) -> list[Reported | Taken | Ended]:
        """What happened, or nothing after `timeout` seconds."""
        events: list[Reported | Taken | Ended] = []
        for fd, _ in self._epoll.poll(timeout):
            if fd == self._wake_read:
                os.read(self._wake_read, 4096)
                continue
            worker = self._by_fd.get(fd)
            if worker is not None:
                self._read(worker, events)
        while self._gone:
            self._bury(self._gone.popleft(), events)
        if time.monotonic() > self._next_write:
            for worker in self._workers:
                if worker.record is not None and worker.is_ready:
                    worker.copy_output()
                    worker.record.flush()
            self._next_write = time.monotonic() + WRITE_EVERY
            self._end_hanging()
        return events

    def _end_hanging(self) -> None:
        if self._hang_timeout is None:
            return
        latest = time.monotonic() - self._hang_timeout
        for worker in self._workers:
            job = worker.job
            if job is not None and worker.is_ready and not worker.is_killed and worker.last_sign < latest:
                what = f"it reported nothing for {self._hang_timeout:g} s (hang_timeout)"
                job.problem = f"[tune] the trial hangs: {what}"
                worker.kill()

    def kill(self, job: Job) -> None:
        """Ends the process of a trial."""
        for worker in self._workers:
            if worker.job is job:
                worker.kill()

    def close(self, checkpoints: Collection[str] = ()) -> None:
        """Ends all workers. They remove no checkpoints."""
        for worker in self._workers:
            if worker.job is not None or not worker.is_ready:
                worker.kill()
            else:
                worker.quit()
        for worker in self._workers:
            worker.thread.join(10)
            if worker.thread.is_alive():
                worker.kill()
                worker.thread.join()
            worker.copy_output(is_over=True)
            worker.close()
        self._workers.clear()
        self._by_fd.clear()
        self._takes = None  # the database is closed when nobody refers to the experiment
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake)

    # ------------------------------------------------------------------ for workers

    def post(self, worker: Worker) -> None:
        """The worker's run has ended; called in its thread."""
        self._gone.append(worker)
        with suppress(OSError):  # the pool may be closed
            os.write(self._wake, b"x")

    def message(self, job: Job) -> bytes:
        """A trial for its worker."""
        given = {
            "config": job.trial.config,
            "directory": job.trial.logdir,
            "id": job.trial.trial_id,
            "name": str(job.trial),
            "experiment": self._experiment,
            "checkpoint": job.checkpoint,
            "number": job.number,
            "attempt": job.attempt,
            "iterations": job.iterations,
            **self._options,
        }
        try:
            return pickle.dumps(given)
        except Exception:  # a lambda, or a class of the user's script
            return _pickling.dump_config(given)

    def plan(self, number: int) -> _core.RunPlan:
        """The run of one worker."""
        plan = _core.RunPlan()
        plan.trainer = "Tuner"
        plan.config = {}
        resources = {**self._resources}
        gpus = resources.get("GPU", 0)
        plan.scaling = ScalingConfig(
            num_workers=1, use_gpu=bool(gpus), resources_per_worker=resources or None
        )._to_core()
        plan.run = RunConfig(
            name=f"worker_{number}",
            storage_path=self.directory,
            checkpoint_config=CheckpointConfig(num_to_keep=0),
            failure_config=FailureConfig(max_failures=0),
            verbose=int(self.tell is not None),
            log_to_console="all" if self.tell is not None else "none",
        )._to_core()
        plan.record = False
        plan.only_deaths = False
        plan.keep_workers = False
        plan.program, plan.backend = self._process.program, self._process.backend
        return plan

    # ------------------------------------------------------------------ reading

    def _read(self, worker: Worker, events: list[Reported | Taken | Ended]) -> None:
        try:
            is_there = worker.reader.fill()
        except BlockingIOError:  # its process is gone, but one that a trial left behind holds the pipe
            is_there = False
        if not is_there:
            self._epoll.unregister(worker.read)  # its run says how it ended
            del self._by_fd[worker.read]
            return
        if self._takes is not None and worker.job is not None and worker.is_ready:
            self._take(worker, worker.job, events)
        for kind, body in worker.reader.messages():
            if kind == _frames.HELLO:
                worker.greet(int(body))
                self._failed_starts = 0
                continue
            job, about, body = worker.job, _frames.JOB.unpack_from(body), body[_frames.JOB.size :]
            if job is None or about != (job.number, job.attempt):
                continue  # of a process that an earlier trial left behind
            if kind == _frames.RESULT:
                events.append(self._reported(worker, job, body))
            elif kind == _frames.END:
                events.append(self._ended(worker, job, json.loads(body) if body else None))

    def _take(self, worker: Worker, job: Job, events: list[Reported | Taken | Ended]) -> None:
        """Lets the core handle the reports that come first: it needs a few microseconds for each."""
        if job.stopping or job.loose:
            return
        record = worker.record
        taken = worker.reader.take(partial(record.take, self._takes, job.number, job.attempt))
        if taken.reports:
            worker.last_sign = time.monotonic()
            job.stopping = taken.decision != _GO_ON
            events.append(Taken(job, taken.reports, taken.decision, taken.problem, record.last(), taken.best))

    def _reported(self, worker: Worker, job: Job, body: bytes) -> Reported:
        timestamp, interval, length = _frames.REPORT.unpack_from(body)
        metrics = body[_frames.REPORT.size : _frames.REPORT.size + length]
        rest = body[_frames.REPORT.size + length :]
        worker.last_sign = time.monotonic()
        result = worker.record.report(metrics, timestamp, interval) if length else None
        checkpoint = ""
        if rest:
            written = json.loads(rest)
            checkpoint = worker.record.commit(**written)
        reply = worker.answer if length and self._waits else None
        return Reported(job, result, checkpoint, reply)

    def _ended(self, worker: Worker, job: Job, failure: dict[str, str] | None) -> Ended:
        record = worker.record
        worker.copy_output(is_over=True)
        worker.job = worker.record = None
        if not worker.is_killed:  # else another trial would die with it
            self._idle.append(worker)
        error = "" if failure is None else failure_text(failure)
        record.end("finished" if failure is None else "failed", error, failure)
        return Ended(job, error)

    def _bury(self, worker: Worker, events: list[Reported | Taken | Ended]) -> None:
        fd = worker.read
        worker.close_theirs()
        os.set_blocking(fd, False)
        while fd in self._by_fd:  # what it sent before
            self._read(worker, events)
        if worker in self._idle:
            self._idle.remove(worker)
        self._workers.remove(worker)
        job, record = worker.job, worker.record
        worker.copy_output(is_over=True)
        if not worker.is_ready and (job is None or not job.stopping):
            self._failed_starts += 1
        worker.close()
        if job is not None:
            if job.stopping:
                record.end("stopped", "", None)
                events.append(Ended(job))
            else:
                message = job.problem or worker.ending
                kind = "hang" if job.problem else "exit"
                failure = {"kind": kind, "type": "", "message": message, "traceback": ""}
                record.end("failed", message, failure)
                events.append(Ended(job, message))
        if self._failed_starts >= 3:
            raise EngineError(f"[tune] workers end before their first trial: {worker.ending}")


def failure_text(failure: dict[str, str]) -> str:
    """For the database: the traceback if there is one."""
    first = f"{failure['type']}: {failure['message']}" if failure["type"] else failure["message"]
    return f"{failure['traceback'].rstrip()}\n" if failure["traceback"] else first
