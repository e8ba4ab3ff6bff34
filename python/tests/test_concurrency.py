"""Several runs of one process at once: threads, callbacks, resources, Ctrl-C."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    ConfigError,
    DataParallelTrainer,
    EngineError,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    _core,
    session,
)
from lockstep.callbacks import RunInfo

Make = Callable[..., DataParallelTrainer]
Fit = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_lease_is_left() -> Iterator[None]:
    yield
    assert _core.leases() == 0


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """What the functions return, each in a thread of its own."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(function) for function in functions]]


def meet(config: dict[str, Any]) -> None:
    """Ends when as many runs have come as there are."""
    place = Path(config["place"])
    (place / str(config["me"])).touch()
    deadline = time.monotonic() + 60
    while len(list(place.iterdir())) < config["runs"]:
        assert time.monotonic() < deadline, "the other runs do not run at the same time"
        time.sleep(0.01)
    session.report({"me": config["me"], "fork_server": os.getppid()})


def start_of(pid: int) -> str:
    """When the process began, which tells it from a later one with the same number; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


# ---------------------------------------------------------------------- side by side


def test_runs_of_several_threads_run_side_by_side(make_trainer: Make, tmp_path: Path) -> None:
    place = tmp_path / "here"
    place.mkdir()
    trainers = [
        make_trainer(meet, workers=1, config={"place": str(place), "me": me, "runs": 3}, name=f"run-{me}")
        for me in range(3)
    ]
    results = in_threads(*(trainer.fit for trainer in trainers))
    assert [result.metrics["me"] for result in results] == [0, 1, 2]
    assert [result.path.name for result in results] == ["run-0", "run-1", "run-2"]
    assert len({result.metrics["fork_server"] for result in results}) == 1, "one agent serves all of them"


def test_a_failing_run_does_not_touch_another(make_trainer: Make, tmp_path: Path) -> None:
    def slow() -> None:
        for step in range(20):
            session.report({"step": step})
            time.sleep(0.05)

    def dying() -> None:
        if session.get_checkpoint() is None:
            session.report({}, checkpoint=Checkpoint.from_dict({"n": 1}))
            session.get_checkpoint()
            os.kill(os.getpid(), signal.SIGKILL)

    again = make_trainer(dying, workers=2, failure_config=FailureConfig(max_failures=1))
    first, second = in_threads(make_trainer(slow, workers=2).fit, again.fit)
    assert first.metrics["step"] == 19 and not first.failures
    assert second.state == "finished" and second.failures


def test_fifty_runs_in_eight_threads_with_random_kills(make_trainer: Make, tmp_path: Path) -> None:
    def train_func(config: dict[str, int]) -> None:
        marker = tmp_path / f"killed-{config['me']}"
        (pids / f"{os.getpid()}-{start_of(os.getpid())}").touch()  # the next line may kill it
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(start, 5):
            if step == config["kill_at"] and session.get_world_rank() == config["who"] and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            saved = Checkpoint.from_dict({"step": step, "me": config["me"]})
            session.report({"me": config["me"], "step": step}, checkpoint=saved)

    pids = tmp_path / "pids"
    pids.mkdir()
    seed = random.randrange(1000)
    print("seed", seed)
    chance = random.Random(seed)
    settings = [{"me": me, "kill_at": chance.choice([-1, 0, 2, 4]), "who": chance.choice([0, 1])} for me in range(50)]

    def run(config: dict[str, int]) -> Result:
        return make_trainer(
            train_func, config=config, name=f"run-{config['me']}", failure_config=FailureConfig(max_failures=3)
        ).fit()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, settings))
    for config, result in zip(settings, results, strict=True):
        assert result.state == "finished"
        assert (result.metrics["me"], result.metrics["step"]) == (config["me"], 4)
        assert result.checkpoint is not None
        saved = result.checkpoint.to_dict()
        assert (saved["me"], saved["step"]) == (config["me"], 4)
        assert bool(result.failures) == (config["kill_at"] >= 0), config
    ran = [path.name.split("-") for path in pids.iterdir()]
    assert len(ran) >= 100, "every rank of every attempt"
    assert [pid for pid, started in ran if start_of(int(pid)) == started] == [], "a worker is left"
    assert _core.available_resources() == _core.total_resources()


def test_a_callback_may_start_a_run(fit: Fit) -> None:
    class Nested(Callback):
        inner: Result | None = None

        def on_result(self, metrics: dict[str, Any]) -> None:
            if self.inner is None:
                self.inner = fit(lambda: session.report({"inner": 1}), workers=1)

    nested = Nested()
    result = fit(lambda: session.report({"outer": 1}), callbacks=[nested])
    assert result.metrics["outer"] == 1
    assert nested.inner is not None and nested.inner.metrics["inner"] == 1


def test_a_fork_runs_on_its_own(fit: Fit, tmp_path: Path) -> None:
    script = f"""
import os, sys, threading
from lockstep import *
def fit():
    run_config = RunConfig(storage_path={str(tmp_path)!r}, verbose=0)
    return DataParallelTrainer(lambda: session.report({{"ppid": os.getppid()}}), run_config=run_config).fit()
before = fit().metrics["ppid"]
child = os.fork()
if child == 0:
    os._exit(0 if fit().metrics["ppid"] != before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert fit().metrics["ppid"] == before, "the parent's agent is as it was"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- resources


def scaled(function: Callable[..., Any], scaling: ScalingConfig, tmp_path: Path, **run: Any) -> Result:
    run_config = RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **run})
    return DataParallelTrainer(function, scaling_config=scaling, run_config=run_config).fit()


def test_runs_never_share_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"GPU": 3}')
    place = tmp_path / "held"
    place.mkdir()

    def train_func() -> None:
        for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
            taken = place / gpu
            os.close(os.open(taken, os.O_CREAT | os.O_EXCL))  # fails when another run has it
            time.sleep(0.05)
            taken.unlink()
        session.report({"gpus": os.environ["CUDA_VISIBLE_DEVICES"]})

    def run(number: int) -> str:
        each = {"GPU": 1 + number % 2}
        result = scaled(train_func, ScalingConfig(1, use_gpu=True, resources_per_worker=each), tmp_path)
        assert len(result.metrics["gpus"].split(",")) == each["GPU"]
        return str(result.metrics["gpus"])

    with ThreadPoolExecutor(6) as pool:
        assert len(list(pool.map(run, range(12)))) == 12


def test_a_run_waits_for_what_others_hold_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"licence": 2}')
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"licence": 1})
    go_on = tmp_path / "go on"

    def first() -> None:
        while not go_on.exists():
            time.sleep(0.01)

    class Began(Callback):
        came = threading.Event()

        def on_attempt_started(self, attempt: int) -> None:
            self.came.set()

    began = Began()
    thread = threading.Thread(target=lambda: scaled(first, scaling, tmp_path, name="first", callbacks=[began]))
    thread.start()
    assert began.came.wait(60)
    try:
        assert _core.available_resources()["licence"] == 0
        with pytest.raises(EngineError, match='needs 2 licence, held by run "first"'):
            scaled(lambda: None, scaling, tmp_path, name="now", wait_for_resources=False)
        assert not (tmp_path / "runs" / "now").exists()
        threading.Timer(0.5, go_on.touch).start()
        second = scaled(lambda: session.report({"x": 1}), scaling, tmp_path, name="second", verbose=1)
    finally:
        go_on.touch()
        thread.join()
    assert second.metrics["x"] == 1
    assert 'lockstep: run "second" waits for 2 licence, held by run "first"' in capfd.readouterr().err
    assert _core.available_resources()["licence"] == 2


def test_threads_are_shared_between_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"CPU": 8}')
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def train_func() -> None:
        session.report({"threads": os.environ["OMP_NUM_THREADS"]})

    inner: list[Result] = []

    class Nested(Callback):
        def on_start(self, run: RunInfo) -> None:
            if not inner:
                inner.append(scaled(train_func, ScalingConfig(2), tmp_path))

    outer = scaled(train_func, ScalingConfig(2), tmp_path, callbacks=[Nested()])
    asked = scaled(train_func, ScalingConfig(2, resources_per_worker={"CPU": 3}), tmp_path)
    assert inner[0].metrics["threads"] == "2", "half of the cores for two workers"
    assert outer.metrics["threads"] == "4" and asked.metrics["threads"] == "3"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "which is not JSON"),
        ("[1]", "which is not an object"),
        ('{"CPU": "two"}', 'the amount of "CPU" is not a number'),
        ('{"extra": -1}', 'the amount of "extra" must be 0 or more'),
        ('{"GPU": 0.5}', 'the amount of "GPU" must be a whole number'),
    ],
)
def test_resources_that_are_declared_wrongly(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_RESOURCES", text)
    with pytest.raises(ConfigError, match="LOCKSTEP_RESOURCES is") as caught:
        scaled(lambda: None, ScalingConfig(1), tmp_path)
    assert complaint in str(caught.value)


# ---------------------------------------------------------------------- Ctrl-C

INTERRUPTED = """
import os, signal, sys, threading, time
from lockstep import *

def train_func():
    session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))
    time.sleep(60)

came, ended = threading.Semaphore(0), threading.Semaphore(0)

def say(line):  # print() writes text and line break apart, and threads between them
    os.write(1, f"{line}\\n".encode())

class Came(Callback):
    def on_checkpoint(self, *args, **kwargs):
        came.release()

def run(name):
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"licence": 1})
    run_config = RunConfig(name=name, storage_path=sys.argv[1], verbose=0, callbacks=[Came()])
    try:
        DataParallelTrainer(train_func, scaling_config=scaling, run_config=run_config).fit()
    except TrainingInterrupted as error:
        say(f"{name} {error.result.state}")
    ended.release()

threads = [threading.Thread(target=run, args=(f"run-{i}",)) for i in range(2)]
for thread in threads:
    thread.start()
for _ in threads:
    came.acquire()
waiting = threading.Thread(target=run, args=("waiting",))
waiting.start()
time.sleep(0.5)
try:
    os.kill(os.getpid(), int(sys.argv[2]))
    for thread in [*threads, waiting]:
        thread.join()
    time.sleep(60)
except KeyboardInterrupt:
    say("main")
    for _ in [*threads, waiting]:  # join() does not wait for a thread if it was interrupted before
        ended.acquire()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_runs_of_all_threads(number: signal.Signals, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(int(number))],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "LOCKSTEP_RESOURCES": '{"licence": 4}'},
    )
    for name in ("run-0", "run-1"):
        assert json.loads((tmp_path / name / "run.json").read_text())["state"] == "interrupted"
    assert not (tmp_path / "waiting").exists()
    if number == signal.SIGINT:
        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.split("\n")
        assert "main" in lines, "Python's own KeyboardInterrupt comes as always"
        assert {"run-0 interrupted", "run-1 interrupted", "waiting interrupted"} <= set(lines)
    else:
        assert ended.returncode == -signal.SIGTERM, "it dies of the signal once its runs have ended"


# ---------------------------------------------------------------------- the end of the program

EXITING = """
import os, signal, sys, threading, time
from lockstep import *

def train_func():
    session.report({"x": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))
    time.sleep(60)

came = threading.Event()

class Came(Callback):
    def on_checkpoint(self, *args, **kwargs):
        came.set()

def run():
    run_config = RunConfig(name="run", storage_path=sys.argv[1], verbose=0, callbacks=[Came()])
    DataParallelTrainer(train_func, run_config=run_config).fit()

thread = threading.Thread(target=run, daemon=sys.argv[2] == "daemon")
thread.start()
came.wait()
if sys.argv[2] == "joined":
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    thread.join()
"""


@pytest.mark.parametrize(
    ("how", "state", "code"), [("daemon", "stopped", 0), ("joined", "interrupted", -signal.SIGINT)]
)
def test_the_interpreter_does_not_end_before_runs_of_threads(how: str, state: str, code: int, tmp_path: Path) -> None:
    for attempt in range(3):
        place = tmp_path / str(attempt)
        ended = subprocess.run(
            [sys.executable, "-c", EXITING, str(place), how], capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == code, ended.stderr
        assert json.loads((place / "run" / "run.json").read_text())["state"] == state
