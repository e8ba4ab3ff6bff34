"""The console output of a run, and the contents of the log files."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lockstep import DataParallelTrainer, FailureConfig, Result, session

Fit = Callable[..., Result]

SCRIPT = """
import sys, time
from pathlib import Path
from lockstep import DataParallelTrainer, RunConfig, ScalingConfig, session

def train_func(config):
    if session.get_world_rank() == 1:
        print("the other one", flush=True)
    else:
        print("waiting", end="", flush=True)
        while not (Path(config["place"]) / "go").exists():
            time.sleep(0.01)
        print(" over")
        for percent in (50, 100):
            print(f"\\r{percent}%", end="", flush=True)
        print("\\n\\x1b]0;owned\\x07\\x1b[2J\\x1b[31mred\\x1b[0m", flush=True)
    session.report({"loss": 0.5, "val": {"loss": 0.25}})
    while config["wait"]:
        time.sleep(0.01)

place, shows, wait = sys.argv[1:]
DataParallelTrainer(
    train_func, train_loop_config={"place": place, "wait": wait == "wait"}, scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(name="run", storage_path=place, log_to_console=shows),
).fit()
"""


class Program:
    """The script, with a terminal or a pipe for its outputs."""

    def __init__(self, place: Path, shows: str, terminal: bool, wait: bool = False) -> None:
        self.outer, inner = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(place), shows, "wait" if wait else ""],
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(inner)
        self.seen = b""

    def read(self) -> bool:
        try:
            piece = os.read(self.outer, 65536)
        except OSError:  # how Linux ends a terminal
            piece = b""
        self.seen += piece
        return bool(piece)

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            assert self.read(), self.seen

    def end(self) -> bytes:
        while self.read():
            pass
        self.process.wait(timeout=60)
        return self.seen


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def make(*arguments: str, **options: bool) -> Program:
        started.append(Program(tmp_path, *arguments, **options))
        return started[-1]

    yield make
    for program in started:
        program.process.kill()
        program.process.wait()
        os.close(program.outer)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_lines_are_shown_before_they_end(start: Callable[..., Program], tmp_path: Path, terminal: bool) -> None:
    program = start("rank0", terminal=terminal)
    program.wait_for(b"[rank 0] waiting")
    program.wait_for(b"workers running")
    (tmp_path / "go").touch()
    seen = program.end().replace(b"\r\n", b"\n")  # a terminal's line ends
    assert program.process.returncode == 0, seen
    assert b"waiting over\n" in seen
    assert b"[rank 0] \r[rank 0] 50%\r[rank 0] 100%\n" in seen, "the prefix follows every return"
    assert b"[rank 0] ?]0;owned?red\n" in seen, "what workers write does not command the terminal"
    assert not re.search(rb"\r(?!\[rank 0\] |\x1b\[2K)", seen), "nothing but a line of ours that is drawn anew"
    assert re.search(rb"#1  \S+ reports/s  [^=]+s  loss=0.5  val/loss=0.25", seen)
    assert re.search(rb"lockstep: 2 workers running \(pids \d+, \d+\)\n", seen)
    assert b"lockstep: 2 workers finished\n" in seen
    assert not re.search(rb"rank \d (running|finished)", seen)
    assert b"the other one" not in seen, "rank 0's lines are shown, and everybody's kept"
    log = (tmp_path / "run/logs/rank_0.log").read_bytes()
    assert b"\r50%\r100%\n\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\n" in log
    assert "the other one" in (tmp_path / "run/logs/rank_1.log").read_text()
    assert json.loads((tmp_path / "run/run.json").read_text())["config_run"]["log_to_console"] == "rank0"
    assert DataParallelTrainer.restore(tmp_path / "run").run_config.log_to_console == "rank0"


def test_all_ranks_are_shown_and_interrupted_ones_are_not_called_finished(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    program = start("all", terminal=False, wait=True)
    program.wait_for(b"[rank 1] the other one\n")
    program.wait_for(b"red\n")
    program.process.send_signal(signal.SIGINT)
    seen = program.end()
    assert b"lockstep: 2 workers stopped\n" in seen and b"finished" not in seen
    assert DataParallelTrainer.restore(tmp_path / "run").run_config.log_to_console == "all"


def test_no_output_is_shown_on_request(fit: Fit, capfd: pytest.CaptureFixture[str]) -> None:
    fit(lambda: print("printed"), verbose=1, log_to_console="none")
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "2 workers finished" in shown.err


def test_logs_mark_attempts_with_their_time(fit: Fit) -> None:
    def train_func() -> None:
        print("attempt", session.get_attempt())
        if session.get_attempt() == 0:
            print("no end", end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    before = time.time()
    result = fit(train_func, workers=1, failure_config=FailureConfig(max_failures=1))
    log = (result.path / "logs" / "rank_0.log").read_text()
    mark = r"==== attempt {}, (\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d) ====\n"
    found = re.fullmatch(mark.format(0) + "attempt 0\nno end\n" + mark.format(1) + "attempt 1\n", log)
    assert found is not None, log
    for text in found.groups():
        assert before - 1 <= time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S")) <= time.time()
    assert result.failures[0].log_lines == ("attempt 0", "no end"), "a mark is no line that the rank printed"
