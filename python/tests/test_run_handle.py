"""start(): runs that go on while the program does something else."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    DataParallelTrainer,
    LockstepError,
    LockstepTimeoutError,
    Result,
    RunConfig,
    RunHandle,
    ScalingConfig,
    TrainingFailedError,
    _core,
    session,
)

Make = Callable[..., DataParallelTrainer]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert _core.leases() == 0
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("lockstep ")])


def steps(config: dict[str, Any]) -> None:
    """Reports and saves steps, for ever unless config["steps"] says how many."""
    checkpoint = session.get_checkpoint()
    step = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    while step < config.get("steps", 1 << 30):
        session.report({"step": step, "pid": os.getpid()}, checkpoint=Checkpoint.from_dict({"step": step}))
        step += 1
        time.sleep(0.01)


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_handle_gives_the_reports_and_the_result(make_trainer: Make, tmp_path: Path) -> None:
    handle = make_trainer(steps, config={"steps": 5}, name="mine").start()
    assert isinstance(handle, RunHandle)
    assert handle.name == "mine" and handle.path == tmp_path / "runs" / "mine"
    assert [metrics["step"] for metrics in handle] == [0, 1, 2, 3, 4]
    result = handle.wait()
    assert result.state == handle.state == "finished"
    assert result.metrics["step"] == handle.metrics["step"] == 4
    assert handle.wait(timeout=0).path == handle.path, "it can be asked again"
    assert list(handle) == [], "each report comes once"
    assert repr(handle) == '<RunHandle of run "mine": finished>'


def test_a_run_without_a_name_has_one(make_trainer: Make) -> None:
    first, second = make_trainer(steps, config={"steps": 1}).start(), make_trainer(steps, config={"steps": 1}).start()
    assert first.path != second.path
    assert first.wait().path == first.path and second.wait().path == second.path


def test_wait_with_a_timeout(make_trainer: Make) -> None:
    handle = make_trainer(steps, config={}).start()
    with pytest.raises(TimeoutError, match=r"has not ended after 0\.1 s; it continues"):
        handle.wait(timeout=0.1)
    assert issubclass(LockstepTimeoutError, TimeoutError)
    wait_for(lambda: handle.metrics)
    assert handle.state == "running"
    handle.stop()
    handle.wait()


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True])
def test_a_timeout_that_is_none_is_refused(make_trainer: Make, timeout: Any) -> None:
    done = make_trainer(steps, config={"steps": 1}).fit()
    with pytest.raises(ConfigError, match="it must be a number of seconds, a timedelta or None"):
        DataParallelTrainer.restore(done.path).start().wait(timeout)


def test_a_timeout_is_seconds_or_a_timedelta(make_trainer: Make) -> None:
    handle = make_trainer(steps, config={}).start()
    with pytest.raises(LockstepTimeoutError, match=r"has not ended after 0\.1 s; it continues"):
        handle.wait(timedelta(milliseconds=100))
    handle.stop()
    assert handle.wait(timeout=float("inf")).state == "stopped"


def test_a_run_does_not_wait_for_itself(make_trainer: Make) -> None:
    class Waiting(Callback):
        handle: RunHandle
        ready = threading.Event()
        errors: ClassVar[list[str]] = []

        def on_result(self, metrics: dict[str, Any]) -> None:
            self.ready.wait(60)
            for call in (self.handle.wait, lambda: list(self.handle)):
                with pytest.raises(LockstepError) as caught:
                    call()
                self.errors.append(str(caught.value))

    callback = Waiting()
    callback.handle = make_trainer(steps, config={"steps": 1}, callbacks=[callback], name="run").start()
    callback.ready.set()
    assert callback.handle.wait(timeout=60).state == "finished"
    message = 'run "run" cannot end while its own callback waits for it'
    assert callback.errors == [f"[wait] {message}", f"[iterating] {message}"]


def test_what_a_handle_shows_can_be_changed(make_trainer: Make) -> None:
    handle = make_trainer(steps, config={"steps": 1}).start()
    handle.wait(timeout=60)
    handle.metrics["step"] = "changed"
    assert handle.metrics["step"] == 0
    assert [metrics["step"] for metrics in handle] == [0]
    with pytest.raises(KeyError, match="'loss' was not reported; reported: 'step'"):
        handle.metrics["loss"]


def test_stop_takes_the_newest_checkpoint(make_trainer: Make) -> None:
    handle = make_trainer(steps, config={}, name="run").start()
    for metrics in handle:
        if metrics["step"] >= 3:
            handle.stop()
    result = handle.wait()
    assert result.state == "stopped" and result.error is None and not result.failures
    assert json.loads((result.path / "run.json").read_text())["state"] == "stopped"
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == result.metrics["step"] >= 3
    assert not os.path.exists(f"/proc/{result.metrics['pid']}")
    assert Result.from_path(result.path).state == "stopped"
    last = result.metrics["step"]
    again = DataParallelTrainer.restore(result.path, train_loop_config={"steps": last + 3}).fit()
    assert again.state == "finished" and again.metrics["step"] == last + 2


def test_a_run_that_reports_without_pause_can_be_stopped(make_trainer: Make) -> None:
    def train_func() -> None:
        step = 0
        while True:
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
            step += 1

    handle = make_trainer(train_func, checkpoint_config=CheckpointConfig(num_to_keep=1)).start()
    next(iter(handle))
    handle.stop()
    assert handle.wait(timeout=60).state == "stopped"


def test_stop_without_checkpoint_is_at_once(make_trainer: Make) -> None:
    def train_func() -> None:
        session.report({"x": 1})
        time.sleep(600)

    handle = make_trainer(train_func).start()
    next(iter(handle))
    began = time.monotonic()
    handle.stop(checkpoint=False)
    handle.stop(checkpoint=False)
    assert handle.wait(timeout=60).state == "stopped"
    assert time.monotonic() - began < 30
    handle.stop()  # it is over


def test_a_failure_is_raised_by_wait(make_trainer: Make) -> None:
    def train_func() -> None:
        session.report({"x": 1})
        session.barrier()  # a rank that fails first would take rank 0 with it, before it has reported
        raise ValueError("boom")

    handle = make_trainer(train_func).start()
    assert [metrics["x"] for metrics in handle] == [1]
    for _ in range(2):
        with pytest.raises(TrainingFailedError, match="boom") as caught:
            handle.wait()
        assert isinstance(caught.value.__cause__, ValueError)
    assert handle.state == "failed"


def test_what_is_wrong_is_raised_by_start(make_trainer: Make, tmp_path: Path) -> None:
    make_trainer(steps, config={"steps": 1}, name="taken").fit()
    with pytest.raises(ConfigError, match="taken"):
        make_trainer(steps, config={"steps": 1}, name="taken").start()
    with pytest.raises(ConfigError, match="has 0"):
        DataParallelTrainer(steps, scaling_config=ScalingConfig(1, resources_per_worker={"licence": 1})).start()


def test_reports_that_nobody_takes_are_dropped(make_trainer: Make) -> None:
    def train_func() -> None:
        for step in range(10_003):
            session.report({"step": step})

    handle = make_trainer(train_func, workers=1, name="run").start()
    handle.wait(timeout=60)
    with pytest.warns(
        UserWarning, match='3 reports of run "run" were dropped because they were not read in time'
    ) as told:
        taken = [metrics["step"] for metrics in handle]
    assert taken == list(range(3, 10_003)) and len(told) == 1


def test_a_run_and_what_its_callbacks_hold_are_freed(make_trainer: Make) -> None:
    class Holding(Callback):
        handle: RunHandle | None = None

    callback = Holding()
    callback.handle = make_trainer(steps, config={"steps": 1}, callbacks=[callback]).start()
    callback.handle.wait(timeout=60)
    freed = weakref.ref(callback)
    del callback
    wait_for(lambda: gc.collect() is not None and freed() is None)


def test_the_handle_of_a_finished_run(make_trainer: Make) -> None:
    done = make_trainer(steps, config={"steps": 2}).fit()
    handle = DataParallelTrainer.restore(done.path).start()
    assert handle.state == "finished" and handle.wait().metrics == done.metrics == handle.metrics
    assert list(handle) == []


def test_callbacks_are_called_in_the_runs_thread(make_trainer: Make) -> None:
    class Where(Callback):
        thread: threading.Thread | None = None

        def on_result(self, metrics: dict[str, Any]) -> None:
            self.thread = threading.current_thread()

    where = Where()
    make_trainer(steps, config={"steps": 1}, callbacks=[where], name="run").start().wait()
    assert where.thread is not None and where.thread.name == "lockstep run"


def test_a_run_that_waits_for_resources_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"licence": 1}')

    def start(name: str | None) -> RunHandle:
        return DataParallelTrainer(
            steps,
            train_loop_config={},
            scaling_config=ScalingConfig(1, resources_per_worker={"licence": 1}),
            run_config=RunConfig(name=name, storage_path=tmp_path, verbose=0),
        ).start()

    first = start("first")
    wait_for(lambda: first.metrics)
    second = start(None)
    time.sleep(0.2)
    assert second.state == "waiting" and second.path.exists()
    second.stop()
    assert second.wait(timeout=60).state == "stopped"
    assert not second.path.exists(), "nothing began"
    first.stop()
    assert first.wait().state == "stopped"


SCRIPT = """
import os, signal, sys, time
from lockstep import *

def train_func():
    session.report({"pid": os.getpid()}, checkpoint=Checkpoint.from_dict({"x": 1}))
    time.sleep(600)

run_config = RunConfig(name="run", storage_path=sys.argv[1], verbose=0)
handle = DataParallelTrainer(train_func, run_config=run_config).start()
print(next(iter(handle))["pid"], flush=True)
"""


def scripted(tmp_path: Path, more: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """How the script ends that starts a run, and the run's state then."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + more, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert not os.path.exists(f"/proc/{done.stdout.split()[0]}"), "a worker is left"
    return done, json.loads((tmp_path / "run" / "run.json").read_text())["state"]


def test_the_end_of_the_program_stops_its_runs(tmp_path: Path) -> None:
    done, state = scripted(tmp_path, "del handle\n")
    assert done.returncode == 0, done.stderr
    assert state == "stopped"
    assert Result.from_path(tmp_path / "run").checkpoint is not None


@pytest.mark.parametrize("wait", ["handle.wait", "lambda: list(handle)"])
def test_the_program_may_end_while_threads_wait(tmp_path: Path, wait: str) -> None:
    more = f"""
import threading
for _ in range(8):
    threading.Thread(target={wait}, daemon=True).start()
"""
    done, state = scripted(tmp_path, more)
    assert done.returncode == 0, done.stderr
    assert state == "stopped"


def test_ctrl_c_while_waiting_is_an_interrupt_of_the_run(tmp_path: Path) -> None:
    more = """
import threading
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    handle.wait()
except TrainingInterrupted as error:
    print(error.result.state)
"""
    done, state = scripted(tmp_path, more)
    assert done.returncode == 0 and done.stdout.split()[1:] == ["interrupted"], done.stderr
    assert state == "interrupted"


def test_ctrl_c_while_the_program_does_something_else(tmp_path: Path) -> None:
    more = """
import threading
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    time.sleep(60)
except KeyboardInterrupt as error:
    print(type(error).__name__)
"""
    done, state = scripted(tmp_path, more)
    assert done.returncode == 0 and done.stdout.split()[1:] == ["KeyboardInterrupt"], done.stderr
    assert state == "interrupted"


@pytest.mark.parametrize("wait", ["handle.wait()", "list(handle)"])
def test_handlers_of_signals_are_called_while_waiting(tmp_path: Path, wait: str) -> None:
    more = f"""
signal.signal(signal.SIGALRM, lambda *_: handle.stop())
signal.setitimer(signal.ITIMER_REAL, 0.3)
{wait}
print(handle.wait().state)
"""
    done, _ = scripted(tmp_path, more)
    assert done.returncode == 0 and done.stdout.split()[1:] == ["stopped"], done.stderr


def test_ctrl_c_ends_an_iteration(tmp_path: Path) -> None:
    more = """
import threading
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    list(handle)
except KeyboardInterrupt as error:
    print(type(error).__name__)
try:
    handle.wait()
except TrainingInterrupted as error:
    print(error.result.state)
"""
    done, state = scripted(tmp_path, more)
    assert done.returncode == 0 and done.stdout.split()[1:] == ["KeyboardInterrupt", "interrupted"], done.stderr
    assert state == "interrupted"


def test_a_run_whose_thread_cannot_start(tmp_path: Path) -> None:
    more = """
import threading
handle.stop()
handle.wait()

def fail(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = fail
try:
    DataParallelTrainer(train_func, run_config=RunConfig(storage_path=sys.argv[1], verbose=0)).start()
except RuntimeError as caught:
    error = caught  # holds on to the run
print(error)
"""
    done, _ = scripted(tmp_path, more)
    assert done.returncode == 0 and "can't start new thread" in done.stdout, done.stderr


def test_a_fork_that_exits_does_not_stop_the_runs(tmp_path: Path) -> None:
    more = """
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
time.sleep(0.5)
assert handle.state == "running"
"""
    done, state = scripted(tmp_path, more)
    assert done.returncode == 0, done.stderr
    assert state == "stopped"


def test_a_fork_cannot_wait_for_a_run_of_its_parent(tmp_path: Path) -> None:
    more = """
child = os.fork()
if child == 0:
    assert handle.state == "running" and handle.metrics["pid"]
    handle.stop()
    for call in (handle.wait, lambda: list(handle)):
        try:
            call()
        except LockstepError as error:
            assert f"belongs to another process, {os.getppid()}" in str(error), error
        else:
            os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
time.sleep(0.5)
assert handle.state == "running"
"""
    done, state = scripted(tmp_path, more)
    assert done.returncode == 0, done.stderr
    assert state == "stopped"
