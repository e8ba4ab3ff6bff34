"""Failures: each kind is reported, and the run is retried if possible."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    FailureConfig,
    Result,
    TrainingFailedError,
    session,
)

Fit = Callable[..., Result]


def failed(fit: Fit, function: Callable[..., Any], **options: Any) -> TrainingFailedError:
    with pytest.raises(TrainingFailedError) as caught:
        fit(function, **options)
    return caught.value


# ---------------------------------------------------------------------- kinds


def test_an_exception(fit: Fit) -> None:
    def train_func() -> None:
        def inner() -> None:
            raise ValueError("boom")

        print("before the end")
        session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"epoch": 1}))
        session.get_checkpoint()  # waits until it is committed
        session.barrier()
        if session.get_world_rank() == 1:
            inner()
        time.sleep(30)

    error = failed(fit, train_func)
    first = error.failures[0]
    assert (first.kind, first.rank, first.type, first.message, first.attempt) == (
        "exception",
        1,
        "ValueError",
        "boom",
        0,
    )
    assert first.node == os.uname().nodename
    assert "in inner" in first.traceback and "raise ValueError" in first.traceback
    assert "_worker.py" not in first.traceback and "_pickling.py" not in first.traceback
    assert any("before the end" in line for line in first.log_lines)
    assert isinstance(error.__cause__, ValueError) and str(error.__cause__) == "boom"
    assert str(error).startswith("[trainer] rank 1 failed")
    assert error.result is not None and error.result.error is error
    assert error.result.state == "failed"
    assert error.result.checkpoint is not None and error.result.checkpoint.to_dict()["epoch"] == 1
    assert error.result.metrics["x"] == 1
    assert "in inner" in (error.result.path / "logs" / "rank_1.log").read_text()


def test_the_same_exception_on_all_ranks_is_told_once(fit: Fit) -> None:
    def train_func() -> None:
        session.barrier()
        raise KeyError("missing")

    error = failed(fit, train_func, workers=3)
    assert str(error).count("Traceback (most recent call last)") == 1
    assert isinstance(error.__cause__, KeyError)


def test_an_exception_of_the_users_own_class(fit: Fit) -> None:
    class OutOfCheese(Exception):
        def __init__(self, much: int, more: int) -> None:
            super().__init__(f"{much} and {more}\nsecond line")

    def train_func() -> None:
        raise OutOfCheese(1, 2)

    error = failed(fit, train_func, workers=1)
    assert type(error.__cause__).__name__.endswith("OutOfCheese")
    assert error.failures[0].message == "1 and 2 ..."
    assert "second line" in error.failures[0].traceback


def test_a_chained_exception_keeps_its_chain(fit: Fit) -> None:
    def train_func() -> None:
        try:
            raise OSError("disk")
        except OSError as error:
            raise RuntimeError("wrapped") from error

    traceback = failed(fit, train_func, workers=1).failures[0].traceback
    assert "OSError: disk" in traceback and "direct cause" in traceback


@pytest.mark.parametrize("code", [3, "words"])
def test_sys_exit(fit: Fit, code: Any) -> None:
    first = failed(fit, lambda: sys.exit(code), workers=1).failures[0]
    assert first.kind == "exit"
    assert repr(code) in first.message


@pytest.mark.parametrize("code", [0, None])
def test_sys_exit_zero_is_a_normal_end(fit: Fit, code: Any) -> None:
    def train_func() -> None:
        session.report({"x": 1})
        sys.exit(code)

    assert fit(train_func).metrics["x"] == 1


@pytest.mark.parametrize("code", [0, 4])
def test_a_process_that_ends_by_itself(fit: Fit, code: int) -> None:
    first = failed(fit, lambda: os._exit(code), workers=1).failures[0]
    assert first.kind == "exit"
    assert str(code) in first.message


def test_a_killed_worker(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_world_rank() == 1:
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)

    start = time.monotonic()
    first = failed(fit, train_func).failures[0]
    assert (first.kind, first.rank) == ("signal", 1)
    assert "SIGKILL" in first.message
    assert "last words" in "".join(first.log_lines)
    assert time.monotonic() - start < 10, "the other rank is not waited for"


def test_a_native_crash(fit: Fit) -> None:
    def train_func() -> None:
        import ctypes

        def deeper(more: int) -> None:
            if more:
                deeper(more - 1)
            ctypes.string_at(0)

        deeper(39)

    error = failed(fit, train_func, workers=1)
    assert error.failures[0].kind == "signal"
    assert "SIGSEGV" in error.failures[0].message
    traceback = error.failures[0].traceback
    assert traceback.startswith("Fatal Python error: Segmentation fault")
    assert traceback.count("in deeper") == 40 and "in train_func" in traceback, "not only the last lines"
    assert str(error).count("Segmentation fault") == 1


def test_a_stopped_worker_has_no_heartbeat(fit: Fit) -> None:
    def train_func() -> None:
        session.report({})
        if session.get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(30)

    first = failed(fit, train_func, heartbeat_timeout=1.5).failures[0]
    assert (first.kind, first.rank) == ("heartbeat", 1)


def test_a_hanging_rank_is_named_with_its_stack(fit: Fit) -> None:
    def train_func() -> None:
        def stuck() -> None:
            time.sleep(30)

        for i in range(1000):
            if session.get_world_rank() == 1 and i == 3:
                stuck()
            time.sleep(0.05)
            session.report({"i": i})

    error = failed(fit, train_func, hang_timeout=1.0)
    first = error.failures[0]
    assert (first.kind, first.rank) == ("hang", 1)
    assert "stuck" in first.traceback


def test_a_function_that_never_lets_go_of_the_interpreter_still_has_a_heart(fit: Fit) -> None:
    def train_func() -> None:
        import ctypes

        start = time.monotonic()
        ctypes.PyDLL(None).usleep(1_500_000)  # a PyDLL's functions keep the GIL
        session.report({"held": time.monotonic() - start})

    assert fit(train_func, workers=1, heartbeat_timeout=0.6).metrics["held"] > 0.7


LARGE_FILES = {
    "result.json": (50_000, [{"text": "x" * 100_000}]),
    # A row has a comma for each of its columns, a line of result.json only what was reported.
    "progress.csv": (200_000, [dict.fromkeys(map(str, range(8_000)), "x"), *[{}] * 40]),
    # The full name of a nested metric is written with each of its values.
    "events.out.tfevents": (100_000, [{"x" * 100: dict.fromkeys(map(str, range(500)), 1)}] * 4),
}


@pytest.mark.parametrize("name", LARGE_FILES)
def test_a_result_file_that_cannot_be_written_at_the_end_is_a_failure_of_the_run(fit: Fit, name: str) -> None:
    limit, reports = LARGE_FILES[name]

    def train_func() -> None:
        for metrics in reports:
            session.report({**metrics, "last": False})
        session.report({"last": True})

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    class CutFiles(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            if metrics["last"]:  # run.json is small enough now, and so are the other files
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))

    try:
        error = failed(fit, train_func, workers=1, callbacks=[CutFiles()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.failures[0].kind == "storage" and os.strerror(errno.EFBIG) in error.failures[0].message
    assert error.result is not None
    again = Result.from_path(error.result.path)
    assert again.state == "failed" and name in str(again.error)
    assert not any(other in str(again.error) for other in LARGE_FILES if other != name)


def test_a_module_that_workers_do_not_have(fit: Fit) -> None:
    import types

    gone = types.ModuleType("module_that_is_nowhere")
    exec("def helper():\n    pass\n", gone.__dict__)
    sys.modules["module_that_is_nowhere"] = gone
    try:
        helper = gone.__dict__["helper"]
        error = failed(fit, lambda: helper(), workers=1)
    finally:
        del sys.modules["module_that_is_nowhere"]
    assert error.failures[0].type == "ModuleNotFoundError"
    assert "module_that_is_nowhere" in error.failures[0].message and "sys.path" in error.failures[0].message


def test_a_message_that_is_not_understood_fails_the_rank_that_sent_it(fit: Fit) -> None:
    def train_func() -> None:
        import socket
        import stat

        if session.get_attempt() == 0:
            for entry in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.stat(int(entry)).st_mode):
                        socket.socket(fileno=os.dup(int(entry))).send(b"\x03\0\0\0abc")
            time.sleep(30)

    seen: list[str] = []

    class Keep(Callback):
        def on_attempt_failed(self, failures: list[Any], again: bool) -> None:
            seen.extend(f"{failure.rank} {failure.message}" for failure in failures)

    fit(train_func, workers=1, callbacks=[Keep()], failure_config=FailureConfig(max_failures=1))
    assert len(seen) == 1 and seen[0].startswith("0 the worker sent an invalid message: [wire]")


# ---------------------------------------------------------------------- going on


def test_max_failures(fit: Fit) -> None:
    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, 6):
            session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
            if epoch in (1, 3) and session.get_attempt() < epoch:
                session.get_checkpoint()  # waits until it is committed
                session.barrier()
                if session.get_world_rank() == 1:
                    raise ValueError(f"at {epoch}")
                time.sleep(30)

    result = fit(train_func, failure_config=FailureConfig(max_failures=2))
    assert result.metrics["epoch"] == 5 and result.metrics["start"] == 4
    assert result.metrics["training_iteration"] == 6
    assert [(f.attempt, f.rank, f.message) for f in result.failures] == [(0, 1, "at 1"), (1, 1, "at 3")]
    assert result.error is None


def test_max_failures_is_a_limit(fit: Fit) -> None:
    def train_func() -> None:
        raise ValueError(f"attempt {session.get_attempt()}")

    error = failed(fit, train_func, workers=1, failure_config=FailureConfig(max_failures=2))
    assert error.failures[0].message == "attempt 2"
    assert "Before, in attempt 0" in str(error)
    assert error.result is not None and len(error.result.failures) == 3


def test_max_failures_for_ever(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_attempt() < 8:
            os.kill(os.getpid(), signal.SIGKILL)
        session.report({"attempt": session.get_attempt()})

    assert fit(train_func, workers=1, failure_config=FailureConfig(max_failures=-1)).metrics["attempt"] == 8


def test_children_of_workers_are_gone_after_a_failure(fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, str]) -> None:
        child = subprocess.Popen(["sleep", "60"], start_new_session=True)
        Path(config["place"], str(session.get_world_rank())).write_text(str(child.pid))
        session.barrier()
        raise ValueError("boom")

    failed(fit, train_func, config={"place": str(tmp_path)})
    for rank in range(2):
        pid = int((tmp_path / str(rank)).read_text())
        assert not Path(f"/proc/{pid}").exists(), "a grandchild was left"
