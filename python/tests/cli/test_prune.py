"""`lockstep prune`: what is deleted, what never is, and that it asks."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import Cli, Hold, MakeRun

DAY = 86400.0


@pytest.fixture
def aged(make_run: MakeRun) -> Callable[..., Path]:
    """A run that ended `days` ago."""

    def make(name: str, days: float, **fields: object) -> Path:
        end = time.time() - days * DAY
        return make_run(name, **{"created": end - 60, "updated": end, "finished": end, **fields})

    return make


Aged = Callable[..., Path]


def left(storage: Path) -> list[str]:
    return sorted(path.name for path in storage.iterdir())


def test_by_age_number_and_size(cli: Cli, aged: Aged, storage: Path) -> None:
    for days in range(1, 7):
        aged(f"day{days}", days, size=1_000_000)
    done = cli("prune", "--older-than", "5.5d", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split() == ["day6", "finished", "6d", "00h", "1.0", "MB"]
    assert done.stdout.splitlines()[-1] == "deleted 1 run, 1.0 MB"
    assert left(storage) == ["day1", "day2", "day3", "day4", "day5"]
    assert cli("prune", "--keep", "4", "-y").returncode == 0
    assert left(storage) == ["day1", "day2", "day3", "day4"]
    assert cli("prune", "--max-size", "2.5MB", "--yes").returncode == 0
    assert left(storage) == ["day1", "day2"]
    done = cli("prune", "--keep", "2", "--yes")
    assert (done.returncode, done.stdout) == (0, f"nothing to delete in {storage}\n")
    assert cli("prune", "--keep", "0", "--yes").returncode == 0
    assert left(storage) == []


def test_several_criteria_narrow(cli: Cli, aged: Aged, storage: Path) -> None:
    for days in (1, 2, 3, 4):
        aged(f"good{days}", days, size=1000)
        aged(f"bad{days}", days + 0.5, size=1000, state="failed")
    cli("prune", "--state", "failed", "--keep", "1", "--older-than", "3d", "--yes")
    assert left(storage) == ["bad1", "bad2", "good1", "good2", "good3", "good4"]
    cli("prune", "--max-size", "1kB", "--older-than", "3.5d", "--yes")
    assert left(storage) == ["bad1", "bad2", "good1", "good2", "good3"]
    cli("prune", "--state", "failed,died", "--yes")
    assert left(storage) == ["good1", "good2", "good3"]


def test_it_asks_first(cli: Cli, aged: Aged, storage: Path) -> None:
    aged("old", 9)
    done = cli("prune", "--keep", "0", "--dry-run")
    assert done.returncode == 0
    assert "old" in done.stdout and "1 run" in done.stdout and "would be deleted" in done.stdout
    done = cli("prune", "--keep", "0")
    assert done.returncode == 1
    assert "nothing was deleted; --yes" in done.stderr
    done = cli("prune", "--keep", "0", stdin="n\n")
    assert done.returncode == 1
    assert "[y/N]" in done.stdout and "nothing was deleted" in done.stdout
    assert left(storage) == ["old"]
    assert cli("prune", "--keep", "0", stdin="y\n").returncode == 0
    assert left(storage) == []


def test_it_asks_on_a_terminal(executable: str, environment: dict[str, str], aged: Aged, storage: Path) -> None:
    aged("old", 9)
    for answer, code in ((b"\n", 1), (b"yes\n", 0)):
        assert left(storage) == ["old"]
        ours, theirs = pty.openpty()
        process = subprocess.Popen([executable, "prune", "--keep=0"], env=environment, stdin=theirs, stdout=theirs)
        os.close(theirs)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, answer)
        assert process.wait(timeout=30) == code
        os.close(ours)
    assert left(storage) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to delete"),
        (["--older-than", "7"], "is not a duration"),
        (["--older-than", "-7d"], "is not a duration"),
        (["--max-size", "10XB"], "is not a size"),
        (["--max-size", "lots"], "is not a size"),
        (["--keep", "-1"], "--keep"),
        (["--state", "running"], "--state"),
    ],
)
def test_wrong_usage(cli: Cli, aged: Aged, storage: Path, arguments: list[str], message: str) -> None:
    aged("old", 9)
    done = cli("prune", *arguments, "--yes")
    assert done.returncode == 2
    assert message in done.stderr
    assert left(storage) == ["old"]


def test_what_never_goes(cli: Cli, aged: Aged, make_run: MakeRun, hold: Hold, storage: Path, tmp_path: Path) -> None:
    ticks = int(Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19])
    us = {"pid": os.getpid(), "start_ticks": ticks, "hostname": socket.gethostname()}
    hold(aged("running", 9, state="running", driver=us))
    aged("far", 9, state="running", driver={**us, "hostname": "another-machine"})
    locked = aged("locked", 9)
    (storage / "photos").mkdir()
    (storage / "photos" / "1.jpg").touch()
    (aged("unreadable", 9) / "run.json").write_text("{")
    elsewhere = make_run("mine", place=tmp_path / "elsewhere")
    (storage / "link").symlink_to(elsewhere)
    aged("old", 9)
    descriptor = os.open(locked, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    done = cli("prune", "--older-than", "0s", "--yes")
    os.close(descriptor)
    assert done.returncode == 1
    assert "locked" in done.stderr and "is in use" in done.stderr
    assert left(storage) == ["far", "link", "locked", "photos", "running", "unreadable"]
    assert (elsewhere / "run.json").exists() and (storage / "photos" / "1.jpg").exists()
    done = cli("prune", "running", "--yes")
    assert done.returncode == 1
    assert "is running; `lockstep stop` ends it" in done.stderr
    done = cli("prune", "link", "--yes")
    assert done.returncode == 1
    assert "is a link or belongs to another user" in done.stderr
    assert cli("prune", "--state", "unreadable", "--older-than", "0s", "--yes").returncode == 0
    assert left(storage) == ["far", "link", "locked", "photos", "running"]


def test_one_run_by_its_name(cli: Cli, aged: Aged, storage: Path) -> None:
    aged("this", 1)
    aged("that", 1)
    assert cli("prune", "this", "--older-than", "2d", "--yes").returncode == 0
    assert left(storage) == ["that", "this"]
    done = cli("prune", "this", stdin="y\n")
    assert done.returncode == 0
    assert "this" in done.stdout and "that" not in done.stdout
    assert left(storage) == ["that"]
    assert cli("prune", "nobody", "--keep", "0", "--yes").returncode == 1


def test_json(cli: Cli, aged: Aged, storage: Path) -> None:
    for days in (1, 2, 3):
        aged(f"day{days}", days, size=1000)
    done = cli("prune", "--keep", "1", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr and "--dry-run" in done.stderr
    shown = cli("prune", "--keep", "1", "--json", "--dry-run")
    assert shown.returncode == 0 and left(storage) == ["day1", "day2", "day3"]
    runs = json.loads(shown.stdout)
    assert [(run["name"], run["state"], run["deleted"]) for run in runs] == [
        ("day3", "finished", False),
        ("day2", "finished", False),
    ]
    assert runs[0]["path"] == str((storage / "day3").resolve()) and runs[0]["size"] >= 1000
    assert 3 * DAY <= runs[0]["age"] < 3 * DAY + 600
    descriptor = os.open(storage / "day3", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    done = cli("prune", "--keep", "1", "--json", "--yes")
    os.close(descriptor)
    assert done.returncode == 1 and "is in use" in done.stderr
    assert [(run["name"], run["deleted"]) for run in json.loads(done.stdout)] == [("day3", False), ("day2", True)]
    assert left(storage) == ["day1", "day3"]
    done = cli("prune", "--keep", "2", "--json", "--yes")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_another_directory_and_none(cli: Cli, make_run: MakeRun, storage: Path, tmp_path: Path) -> None:
    make_run("here")
    make_run("there", place=tmp_path / "scratch")
    assert cli("prune", tmp_path / "scratch", "--older-than", "1d", "--yes").returncode == 0
    assert (left(storage), left(tmp_path / "scratch")) == (["here"], [])
    done = cli("prune", "--keep", "3", LOCKSTEP_STORAGE_PATH=str(tmp_path / "never"))
    assert (done.returncode, done.stdout) == (0, f"nothing to delete in {tmp_path}/never\n")


def test_a_function_that_no_run_has_any_more_goes_too(cli: Cli, aged: Aged, storage: Path) -> None:
    shared = storage / ".lockstep" / "functions"
    shared.mkdir(parents=True, mode=0o700)
    kept = []
    for name, days in (("old", 10.0), ("new", 0.0)):
        function = shared / f"{name}.pkl"
        function.write_bytes(name.encode())
        function.chmod(0o600)
        (aged(name, days) / "function.pkl").hardlink_to(function)
        kept.append(function)
    assert cli("prune", "--older-than", "7d", "--yes").returncode == 0
    assert [function.exists() for function in kept] == [False, True]
