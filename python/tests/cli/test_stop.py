"""`lockstep stop`: a run ends as with Ctrl-C, and nothing else is ever signalled."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import Cli, MakeRun, driver_of

Driver = Callable[..., "subprocess.Popen[bytes]"]

TRAIN = """
import sys, threading, time
from lockstep import Checkpoint, DataParallelTrainer, RunConfig, ScalingConfig, session

def train_func():
    session.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
    while True:
        session.report({"step": 1})
        time.sleep(0.05)

def fit(name):
    DataParallelTrainer(
        train_func, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(name=name)
    ).fit()

if __name__ == "__main__":
    others = [threading.Thread(target=fit, args=(name,)) for name in sys.argv[2:]]
    for other in others:
        other.start()
    fit(sys.argv[1])
"""


@pytest.fixture
def start(environment: dict[str, str], storage: Path, tmp_path: Path) -> Iterator[Driver]:
    """A Python program with a run that has a checkpoint and does not end by itself, and others in threads."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    started: list[subprocess.Popen[bytes]] = []

    def run(*names: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, str(script), *names],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        deadline = time.monotonic() + 60
        while not all((storage / name / "checkpoint_000000").exists() for name in names):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def state_of(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["state"])


def iteration_of(run: Path) -> int:
    return int(json.loads((run / "run.json").read_text())["training_iteration"])


def test_a_run_ends_as_by_ctrl_c(cli: Cli, start: Driver, storage: Path) -> None:
    process = start("digits")
    done = cli("stop", "digits")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"process {process.pid}" in done.stdout
    assert "digits: interrupted after" in done.stdout and "its last checkpoint is checkpoint_000000" in done.stdout
    assert state_of(storage / "digits") == "interrupted"
    assert process.wait(timeout=30) != 0
    again = cli("stop", storage / "digits")
    assert again.returncode == 1
    assert "is not running: it is interrupted" in again.stderr
    assert cli("prune", "digits", "--yes").returncode == 0


def test_kill(cli: Cli, start: Driver, storage: Path) -> None:
    process = start("digits")
    process.send_signal(signal.SIGSTOP)
    done = cli("stop", "digits", "--timeout", "0.3")
    assert done.returncode == 1
    assert "still runs after 0.3s" in done.stderr and "--kill" in done.stderr
    done = cli("stop", "digits", "--kill")
    assert done.returncode == 0
    assert "digits: died after" in done.stdout
    assert process.wait(timeout=30) == -signal.SIGKILL


def test_the_other_runs_of_the_process_go_on(cli: Cli, start: Driver, storage: Path) -> None:
    process = start("main", "other", "third")
    done = cli("stop", "other")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"asked process {process.pid} to end other" in done.stdout
    assert "other: interrupted after" in done.stdout
    assert not (storage / "other" / "stop_request").exists()
    iteration = iteration_of(storage / "main")
    deadline = time.monotonic() + 30
    while iteration_of(storage / "main") == iteration:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    assert state_of(storage / "main") == state_of(storage / "third") == "running"
    done = cli("stop", "main", "--kill")
    assert f"killed process {process.pid}, the driver of main; this also ends third;" in done.stdout
    assert process.wait(timeout=30) == -signal.SIGKILL


def test_a_driver_that_takes_no_request_is_signalled(cli: Cli, make_run: MakeRun) -> None:
    deaf = """
import fcntl, json, os, signal, sys
def end(*_):
    path = sys.argv[1] + "/run.json"
    run = {**json.load(open(path)), "state": "interrupted"}
    with open(path + ".new", "w") as file:
        json.dump(run, file)
    os.rename(path + ".new", path)
    sys.exit(0)
signal.signal(signal.SIGINT, end)
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print(flush=True)
signal.pause()
"""
    run = make_run("deaf", state="running", finished=None)
    process = subprocess.Popen([sys.executable, "-c", deaf, str(run)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "driver": driver_of(process)}))
    done = cli("stop", "deaf")
    assert done.returncode == 0, done.stderr
    assert f"interrupted process {process.pid}, the driver of deaf;" in done.stdout
    assert "deaf: interrupted" in done.stdout
    assert process.wait(timeout=30) == 0 and not (run / "stop_request").exists()
    process.stdout.close()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that must not be signalled."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    assert process.poll() is None, "it was signalled"
    process.kill()
    process.wait()


def test_nothing_else_is_signalled(cli: Cli, make_run: MakeRun, bystander: subprocess.Popen[bytes]) -> None:
    def why(name: str, **fields: Any) -> str:
        run = make_run(name, state="running", finished=None, **fields)
        descriptor = os.open(run, os.O_RDONLY)
        if name != "left":
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        done = cli("stop", name, "--kill")
        os.close(descriptor)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    assert "its driver has died" in why("reused", driver=driver_of(bystander, start_ticks=1))
    assert 'driven from "elsewhere"' in why("far", driver=driver_of(bystander, hostname="elsewhere"))
    assert "left it without a final state" in why("left", driver=driver_of(bystander)), "nobody holds its lock"
    assert "its driver has died" in why("unknown", driver=driver_of(bystander, start_ticks=None))
    assert "its driver has died" in why("none", driver={})
    make_run("done", driver=driver_of(bystander))
    assert "is not running: it is finished" in cli("stop", "done").stderr
    done = cli("stop", "nobody")
    assert done.returncode == 1
    assert 'no run "nobody"' in done.stderr
    assert cli("stop", "done", "--timeout", "soon").returncode == 2
