"""Ctrl-C and SIGTERM during a run, and drivers that are killed."""

from __future__ import annotations

import os
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
    ConfigError,
    DataParallelTrainer,
    Result,
    RunConfig,
    ScalingConfig,
    TrainingInterrupted,
    session,
)

Fit = Callable[..., Result]


SCRIPT = """
import os, signal, sys, time
from lockstep import *
def train_func():
    session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))
    session.get_checkpoint()  # committed from here on
    try:
        print("running", flush=True)
        while True:
            time.sleep(0.05)
    finally:
        STUBBORN and time.sleep(60)
        print("cleaned up", session.stopping(), flush=True)
try:
    DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=2),
                        run_config=RunConfig(name="run", storage_path=sys.argv[1], log_to_console="all")).fit()
except KeyboardInterrupt as error:
    print("interrupted", type(error).__name__, error.result.state, error.result.metrics["x"],
          error.result.checkpoint.to_dict()["x"], flush=True)
    sys.exit(7)
"""


def start_script(tmp_path: Path, stubborn: bool) -> subprocess.Popen[str]:
    script = SCRIPT.replace("STUBBORN", str(stubborn))
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += "] running" in line
        if seen == 2:
            return process
    raise AssertionError("the workers did not start")


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                found |= {int(entry.name)} | descendants(int(entry.name))
    return found


def wait_until_gone(pids: set[int], seconds: float) -> set[int]:
    deadline = time.monotonic() + seconds
    left = set(pids)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if Path(f"/proc/{pid}").exists() and not is_zombie(pid)}
        time.sleep(0.02)
    return left


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = start_script(tmp_path, stubborn=False)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 7, output
    assert "interrupted TrainingInterrupted interrupted 1 1" in output
    assert output.count("cleaned up True") == 2
    result = Result.from_path(tmp_path / "run")
    assert result.state == "interrupted"


def test_the_second_signal_kills(tmp_path: Path) -> None:
    process = start_script(tmp_path, stubborn=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 7, output
    assert time.monotonic() - start < 5
    assert "cleaned up" not in output


def test_a_run_whose_driver_lives_is_not_restored(tmp_path: Path) -> None:
    process = start_script(tmp_path, stubborn=False)
    before = (tmp_path / "run" / "run.json").stat().st_mtime_ns
    with pytest.raises(ConfigError, match=rf"another process \(pid {process.pid}\)"):
        DataParallelTrainer.restore(tmp_path / "run").fit()
    assert (tmp_path / "run" / "run.json").stat().st_mtime_ns == before
    process.kill()
    process.communicate(timeout=20)


def test_a_killed_driver_leaves_nothing_and_can_be_restored(tmp_path: Path) -> None:
    process = start_script(tmp_path, stubborn=False)
    started = descendants(process.pid)
    assert len(started) >= 4, "agent, fork server and two workers"
    process.kill()
    process.communicate(timeout=20)
    assert wait_until_gone(started, 5) == set()
    assert Result.from_path(tmp_path / "run").state == "died"

    def train_func() -> None:
        checkpoint = session.get_checkpoint()
        session.report({"found": checkpoint and checkpoint.to_dict()["x"]})

    result = DataParallelTrainer.restore(
        tmp_path / "run", train_func, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(verbose=0)
    ).fit()
    assert result.metrics["found"] == 1 and result.state == "finished"


def test_ctrl_c_in_a_barrier_flushes_what_was_reported(fit: Fit) -> None:
    def train_func() -> None:
        if session.get_world_rank() == 0:
            session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"weights": b"x" * (50 << 20)}))
            session.barrier()
        time.sleep(30)

    class PressCtrlC(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(TrainingInterrupted) as caught:
        fit(train_func, callbacks=[PressCtrlC()])
    result = caught.value.result
    assert result is not None and result.checkpoint is not None
    assert "Traceback" not in (result.path / "logs" / "rank_1.log").read_text()


def test_ctrl_c_in_this_process_raises_and_the_next_fit_works(fit: Fit) -> None:
    def train_func() -> None:
        session.report({"x": 1})
        time.sleep(30)

    class PressCtrlC(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(TrainingInterrupted) as caught:
        fit(train_func, callbacks=[PressCtrlC()])
    assert caught.value.result is not None and caught.value.result.metrics["x"] == 1
    assert caught.value.signal == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert fit(lambda: session.report({"y": 2})).metrics["y"] == 2


def test_ctrl_c_in_a_run_of_a_callback_interrupts_the_outer_run(
    make_trainer: Callable[..., Any], tmp_path: Path
) -> None:
    def press_ctrl_c(config: dict[str, Any]) -> None:
        os.kill(config["pid"], signal.SIGINT)
        time.sleep(30)

    def train_func() -> None:
        for step in range(2000):  # some reports while the callback of the first one starts a run
            session.report({"step": step})
            time.sleep(0.002)

    class Inner(Callback):
        calls = 0

        def on_result(self, metrics: dict[str, Any]) -> None:
            self.calls += 1
            make_trainer(press_ctrl_c, workers=1, config={"pid": os.getpid()}).fit()

    inner = Inner()
    with pytest.raises(TrainingInterrupted) as caught:
        make_trainer(train_func, name="outer", callbacks=[inner]).fit()
    assert caught.value.signal == signal.SIGINT
    assert caught.value.result is not None and caught.value.result.path == tmp_path / "runs" / "outer"
    assert Result.from_path(tmp_path / "runs" / "outer").state == "interrupted"
    assert inner.calls > 1, "reports were queued, and their callbacks were interrupted as well"


@pytest.mark.parametrize("hook", ["on_start", "on_result"])
def test_a_keyboard_interrupt_in_a_callback_interrupts_the_run(fit: Fit, hook: str) -> None:
    def interrupted(self: Callback, argument: Any) -> None:
        raise KeyboardInterrupt

    def train_func() -> None:
        session.report({"x": 1})
        time.sleep(30)

    with pytest.raises(TrainingInterrupted) as caught:
        fit(train_func, callbacks=[type("Pressed", (Callback,), {hook: interrupted})()])
    assert caught.value.signal == signal.SIGINT
    assert type(caught.value.__cause__) is KeyboardInterrupt
    assert caught.value.result is not None and caught.value.result.state == "interrupted"


def test_a_keyboard_interrupt_in_on_end_is_raised_and_the_run_stays_finished(fit: Fit, tmp_path: Path) -> None:
    class Pressed(Callback):
        def on_end(self, result: Result) -> None:
            raise KeyboardInterrupt("at the end")

    with pytest.raises(KeyboardInterrupt, match="at the end"):
        fit(lambda: session.report({"x": 1}), name="run", callbacks=[Pressed()])
    assert Result.from_path(tmp_path / "runs" / "run").state == "finished"
