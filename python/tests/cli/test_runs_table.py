"""`lockstep runs` as a table: the state of each run, and the output on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import Cli, Hold, MakeRun, driver_of, make_checkpoint, start_ticks, table


def test_runs_tells_how_each_stands(cli: Cli, storage: Path, make_run: MakeRun) -> None:
    metrics = {"epoch": 6, "loss": 0.123456789, "training_iteration": 7, "hostname": "elsewhere", "done": True}
    make_run("old", created=1600000000.0, metrics=metrics)
    failed = make_run("bad", state="failed", attempt=2, failures=[{"kind": "exit"}] * 3, metrics=metrics)
    make_checkpoint(failed, 0)
    make_checkpoint(failed, 2)
    (failed / "checkpoint_000003.partial").mkdir()
    (storage / "no run").mkdir()
    (storage / "a file").touch()
    done = cli("runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert table(done.stdout) == [
        {
            "NAME": "bad",
            "STATE": "failed",
            "ATTEMPTS": "3",
            "FAILURES": "3",
            "ITERATIONS": "7",
            "STARTED": "2023-11-14 22:13:20",
            "DURATION": "1m 05s",
            "CHECKPOINTS": "2",
            "METRICS": "epoch=6 loss=0.1235",
        },
        {
            "NAME": "old",
            "STATE": "finished",
            "ATTEMPTS": "1",
            "FAILURES": "0",
            "ITERATIONS": "7",
            "STARTED": "2020-09-13 12:26:40",
            "DURATION": "27777h 47m",
            "CHECKPOINTS": "0",
            "METRICS": "epoch=6 loss=0.1235",
        },
    ]


def test_runs_of_a_directory_or_of_one_run(cli: Cli, tmp_path: Path, make_run: MakeRun) -> None:
    run = make_run("mine", place=tmp_path / "elsewhere")
    for path in (run.parent, run, "elsewhere/mine/"):
        assert [row["NAME"] for row in table(cli("runs", path).stdout)] == ["mine"]


def test_no_runs(cli: Cli, storage: Path, tmp_path: Path) -> None:
    assert cli("runs").stdout == f"no runs in {storage}\n"
    done = cli("runs", LOCKSTEP_STORAGE_PATH=str(tmp_path / "never"))
    assert (done.returncode, done.stdout) == (0, f"no runs in {tmp_path}/never\n")
    done = cli("runs", tmp_path / "never")
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr


def test_the_default_place_is_below_home(cli: Cli, tmp_path: Path, make_run: MakeRun) -> None:
    make_run("homely", place=tmp_path / "lockstep_results")
    for place in ("", "~/lockstep_results"):
        done = cli("runs", LOCKSTEP_STORAGE_PATH=place, HOME=str(tmp_path))
        assert [row["NAME"] for row in table(done.stdout)] == ["homely"]


def state_of(cli: Cli, run: Path) -> str:
    (row,) = table(cli("runs", run).stdout)
    return row["STATE"]


def test_a_run_is_running_while_its_driver_is(
    cli: Cli, driver: subprocess.Popen[bytes], make_run: MakeRun, hold: Hold
) -> None:
    run = hold(make_run("live", state="running", finished=None, created=time.time() - 3, driver=driver_of(driver)))
    (row,) = table(cli("runs", run).stdout)
    assert row["STATE"] == "running"
    assert 3 <= float(row["DURATION"].removesuffix("s")) < 60
    os.kill(driver.pid, signal.SIGKILL)
    while Path(f"/proc/{driver.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    assert state_of(cli, run) == "died", "a zombie drives nothing"
    driver.wait()
    assert state_of(cli, run) == "died"


def test_a_process_may_outlive_its_run(cli: Cli, driver: subprocess.Popen[bytes], make_run: MakeRun) -> None:
    run = make_run("left", state="running", finished=None, driver=driver_of(driver))
    assert state_of(cli, run) == "died", "nobody holds its lock"


def test_a_reused_pid_is_another_process(cli: Cli, driver: subprocess.Popen[bytes], make_run: MakeRun) -> None:
    other = driver_of(driver, start_ticks=start_ticks(driver.pid) - 1)
    run = make_run("gone", state="running", finished=None, driver=other)
    (row,) = table(cli("runs", run).stdout)
    assert row["STATE"] == "died"
    assert row["DURATION"] == "59.5s", "until the last sign of life"


def test_a_driver_on_another_machine_is_believed(cli: Cli, make_run: MakeRun) -> None:
    far = {"pid": 2**22 + 1, "start_ticks": 1, "hostname": "another-machine"}
    assert state_of(cli, make_run("far", state="running", finished=None, driver=far)) == "running"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100000])
def test_a_broken_run_json_does_not_hide_the_others(cli: Cli, text: str, make_run: MakeRun) -> None:
    make_run("good")
    (make_run("broken") / "run.json").write_text(text)
    done = cli("runs")
    assert done.returncode == 0
    assert {row["NAME"]: row["STATE"] for row in table(done.stdout)} == {"good": "finished", "broken": "unreadable"}


def test_odd_fields_do_no_harm(cli: Cli, make_run: MakeRun) -> None:
    odd: dict[str, Any] = {"metrics": [1], "failures": "x", "attempt": "two", "created": 1e300, "driver": 5}
    make_run("odd", state="running", training_iteration=1e200, finished="soon", updated=None, **odd)
    done = cli("runs")
    assert done.returncode == 0
    assert table(done.stdout)[0]["STATE"] == "died"


def test_metrics_are_shown_short(cli: Cli, make_run: MakeRun) -> None:
    metrics = {"a": 1e-9, "b": True, "c": "word", "d": "x" * 100, "e": None, "f": [1], "g": {"h": 1}, "i": float("nan")}
    make_run("x", metrics=metrics)
    assert table(cli("runs").stdout)[0]["METRICS"] == "a=1e-09 b=true c=word g/h=1 i=nan"


def test_what_stands_in_files_cannot_command_the_terminal(cli: Cli, make_run: MakeRun) -> None:
    make_run("evil\x1b[2J", metrics={"a\n\x9b31mb": "\x1b[31m"}, state="\x1b]0;x\x07")
    text = cli("runs").stdout
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)
    assert len(text.splitlines()) == 2


Terminal = Callable[..., str]


@pytest.fixture
def on_a_terminal(executable: str, environment: dict[str, str]) -> Terminal:
    """What the command prints on a terminal of `columns` columns."""

    def run(*arguments: str, columns: int = 200, **changes: str) -> str:
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([executable, *arguments], stdout=inner, env={**environment, **changes})
        os.close(inner)
        text = b""
        try:
            while piece := os.read(outer, 65536):
                text += piece
        except OSError:  # how Linux ends a terminal
            pass
        os.close(outer)
        assert process.wait() == 0
        return text.decode()

    return run


def test_colours_only_on_a_terminal(cli: Cli, make_run: MakeRun, on_a_terminal: Terminal) -> None:
    make_run("x")
    assert "\x1b" not in cli("runs").stdout
    assert "\x1b[32mfinished\x1b[0m" in on_a_terminal("runs")
    assert "\x1b" not in on_a_terminal("runs", NO_COLOR="1")
    assert "\x1b[" in on_a_terminal("runs", NO_COLOR="")
    assert "\x1b" not in on_a_terminal("runs", TERM="dumb")


def test_lines_fit_a_terminal(make_run: MakeRun, on_a_terminal: Terminal) -> None:
    make_run("ünïcödé", metrics={f"metric_{i}": i for i in range(50)})
    for columns in (10, 47, 100, 120):
        lines = on_a_terminal("runs", columns=columns, NO_COLOR="1").splitlines()
        assert len(lines) == 2
        assert max(map(len, lines)) <= columns
    assert "metric_49=49" in on_a_terminal("runs", columns=2000)
