"""Machines that are taken away: notices, what the function sees, how the run ends and goes on."""

from __future__ import annotations

import json
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
    Checkpoint,
    ConfigError,
    FailureConfig,
    Result,
    RunConfig,
    TrainingInterrupted,
    TrainingPreempted,
    session,
)

Fit = Callable[..., Result]

SCRIPT = """
import atexit, os, sys, time
from lockstep import *
def train_func():
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    if start:
        session.report({"start": start})
        return
    print("running", flush=True)
    step = 0
    while True:
        hint = session.should_checkpoint()
        session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}) if hint else None)
        step += 1
        time.sleep(0.01)
atexit.register(print, "at exit", flush=True)
run = RunConfig(name="run", storage_path=sys.argv[1], resume="auto", preemption=sys.argv[2] or None)
result = DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
print("start", result.metrics["start"])
"""


def start_script(tmp_path: Path, preemption: str = "", **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), preemption],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "running" in line:
            break
    return process


def check_preempted(process: subprocess.Popen[str], tmp_path: Path) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "TrainingPreempted" in output and "at exit" in output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "preempted"
    return output


def check_goes_on(tmp_path: Path) -> None:
    """Started again without a change, it continues."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), ""], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout.split("start ")[-1].split()[0]) > 0


def test_sigusr1_is_a_notice(tmp_path: Path) -> None:
    process = start_script(tmp_path)
    process.send_signal(signal.SIGUSR1)
    check_preempted(process, tmp_path)
    assert Result.from_path(tmp_path / "run").state == "preempted"
    check_goes_on(tmp_path)


def test_sigterm_is_one_if_the_run_watches_for_preemption(tmp_path: Path) -> None:
    process = start_script(tmp_path, str(tmp_path / "never"))
    process.send_signal(signal.SIGTERM)
    check_preempted(process, tmp_path)


def test_sigterm_interrupts_other_runs(tmp_path: Path) -> None:
    process = start_script(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"


def test_a_file_that_appears_is_one(tmp_path: Path) -> None:
    process = start_script(tmp_path, str(tmp_path / "notice"))
    (tmp_path / "notice").write_text("")
    check_preempted(process, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_slurm_job_is_requeued(tmp_path: Path, number: signal.Signals) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "scontrol").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    (programs / "scontrol").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "1234"}
    process = start_script(tmp_path, **environment)
    process.send_signal(number)
    check_preempted(process, tmp_path)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[-1] == "requeue 1234"
    check_goes_on(tmp_path)


def test_a_cancelled_slurm_job_is_not_requeued(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "scontrol").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho JobState=CANCELLED\n')
    (programs / "scontrol").chmod(0o755)
    process = start_script(tmp_path, PATH=f"{programs}:{os.environ['PATH']}", SLURM_JOB_ID="1234")
    process.send_signal(signal.SIGTERM)
    check_preempted(process, tmp_path)
    assert "requeue" not in (tmp_path / "asked").read_text()


def test_every_rank_sees_the_notice(fit: Fit, tmp_path: Path) -> None:
    driver = os.getpid()

    def train_func() -> None:
        assert session.get_time_left() is None and not session.should_checkpoint()
        session.barrier()
        if session.get_world_rank() == 0:
            os.kill(driver, signal.SIGUSR1)
        while not session.should_checkpoint():
            time.sleep(0.01)
        left = session.get_time_left()
        assert left is not None and 0 < left <= 20
        (tmp_path / str(session.get_world_rank())).write_text(str(left))
        session.barrier()
        session.report({"last": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))
        time.sleep(60)

    with pytest.raises(TrainingPreempted) as caught:
        fit(train_func, preemption_grace=20)
    assert isinstance(caught.value, TrainingInterrupted)
    result = caught.value.result
    assert result is not None and result.state == "preempted" and result.metrics["last"] == 1
    assert result.checkpoint is not None and result.checkpoint.to_dict()["x"] == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["0", "1"]


def test_without_a_new_checkpoint_the_newest_is_the_last(fit: Fit, tmp_path: Path) -> None:
    notice = tmp_path / "notice"

    def train_func() -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"x": 1}))
        notice.write_text("2")  # seconds
        time.sleep(60)

    with pytest.raises(TrainingPreempted) as caught:
        fit(train_func, preemption=notice)
    result = caught.value.result
    assert result is not None and result.checkpoint is not None and result.checkpoint.to_dict()["x"] == 1


def test_a_command_is_watched(fit: Fit, tmp_path: Path) -> None:
    def train_func() -> None:
        (tmp_path / "a notice").write_text("")
        while True:
            session.report({}, checkpoint=Checkpoint.from_dict({"x": 1}))

    with pytest.raises(TrainingPreempted):
        fit(train_func, preemption=["test", "-e", str(tmp_path / "a notice")])


def test_a_function_that_ends_in_time_has_finished(fit: Fit) -> None:
    driver = os.getpid()

    def train_func() -> None:
        os.kill(driver, signal.SIGUSR1)
        while not session.should_checkpoint():
            time.sleep(0.01)

    assert fit(train_func, workers=1).state == "finished"


def test_a_handler_of_the_program_keeps_sigusr1(fit: Fit) -> None:
    driver = os.getpid()
    seen = []

    def train_func() -> None:
        os.kill(driver, signal.SIGUSR1)
        session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))
        session.get_checkpoint()

    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        assert fit(train_func, workers=1).state == "finished"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


@pytest.mark.parametrize(
    ("field", "value"),
    [("preemption", 3), ("preemption", ""), ("preemption", []), ("preemption_grace", 0), ("preemption_grace", "x")],
)
def test_wrong_settings_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        RunConfig(**{field: value})


def test_count_node_failures_is_a_bool() -> None:
    assert FailureConfig().count_node_failures is False
    with pytest.raises(ConfigError, match="count_node_failures"):
        FailureConfig(count_node_failures=1)  # type: ignore[arg-type]
