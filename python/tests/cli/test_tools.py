"""`lockstep doctor`, `bench`, `man`, `new python` and `run --dry-run`."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from lockstep import _doctor, _new_python
from made_runs import Cli

FRAMEWORKS = sorted(_new_python.FRAMEWORKS)
NEEDS = {"torch": "torch", "plain": "lockstep", "tensorflow": "tensorflow", "jax": "jax", "lightning": "lightning"}


def test_doctor_tells_what_is_here(cli: Cli) -> None:
    done = cli("doctor", "--json")
    found = {each["what"]: each for each in json.loads(done.stdout)}
    assert done.returncode == any(each["state"] == "bad" for each in found.values())
    assert {"Lockstep", "agent", "Python", "cores", "ports", "storage"} <= found.keys()
    assert found["agent"]["state"] == found["ports"]["state"] == "ok"
    assert ("PyTorch" in found) == (importlib.util.find_spec("torch") is not None)
    told = cli("doctor").stdout
    assert all(each["found"] in told for each in found.values())


def test_doctor_says_what_to_do(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", LOCKSTEP_AGENT=str(tmp_path / "none"))
    assert done.returncode == 1
    assert " BAD  agent" in done.stdout
    assert "correct LOCKSTEP_AGENT" in done.stdout
    assert "1 thing must be corrected" in done.stdout


def test_a_check_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise OSError("no such thing")

    monkeypatch.setattr(_doctor, "ports", fails)
    assert any("no such thing" in each.found for each in _doctor.findings())


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_new_python_writes_a_program(cli: Cli, tmp_path: Path, framework: str) -> None:
    done = cli("new", "python", "proj", "--framework", framework)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "proj").iterdir()) == sorted(_new_python.files("proj", framework))
    ast.parse((tmp_path / "proj/train.py").read_text())
    assert "lockstep run train.py" in done.stdout
    again = cli("new", "python", "proj")
    assert (again.returncode, again.stdout) == (1, "")
    assert "already holds files" in again.stderr


@pytest.mark.parametrize("framework", ["torch", "plain"])
def test_a_new_project_trains(cli: Cli, tmp_path: Path, framework: str) -> None:
    if importlib.util.find_spec(NEEDS[framework]) is None:
        pytest.skip(f"no {framework}")
    assert cli("new", "python", "proj", "--framework", framework).returncode == 0
    done = cli("run", "proj/train.py", "--epochs", "2", "--name", "first")
    assert done.returncode == 0, done.stderr
    done = cli("run", "proj/train.py", "--epochs", "3", "--name", "first")
    assert done.returncode == 0, done.stderr
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "storage/first/result.json").read_text().splitlines()]
    assert epochs == [0, 1, 2]


def test_new_python_refuses(cli: Cli, tmp_path: Path) -> None:
    assert "cannot be named '3x'" in cli("new", "python", "3x").stderr
    assert cli("new", "python", "x", "--framework", "other").returncode == 2
    assert list(tmp_path.glob("*x")) == []


def test_man_pages(cli: Cli, tmp_path: Path) -> None:
    done = cli("man", "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('.TH "LOCKSTEP-RUN" 1')
    assert "\\-\\-max\\-restarts" in done.stdout
    done = cli("man", "--output", "pages")
    names = {Path(line).name for line in done.stdout.splitlines()}
    assert {"lockstep.1", "lockstep-run.1", "lockstep-checkpoint-list.1", "lockstep-doctor.1"} <= names
    if formatter := shutil.which("groff"):
        pages = list(map(str, (tmp_path / "pages").iterdir()))
        shown = subprocess.run([formatter, "-man", "-Tutf8", "-ww", *pages], capture_output=True, text=True)
        assert (shown.returncode, shown.stderr) == (0, "")
    assert cli("man", "nothing").returncode == 2


def test_bench_measures(cli: Cli) -> None:
    done = cli("bench", "start", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert [each["unit"] for each in figures] == ["s", "s"]
    assert all(each["value"] > 0 for each in figures)
    done = cli("bench", "other")
    assert done.returncode == 2
    assert "there is no part 'other'" in done.stderr


def test_dry_run_of_a_script_that_calls_fit(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(9)")
    done = cli("run", "--dry-run", "train.py", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert f"would run   {tmp_path}/train.py --epochs 3" in done.stdout
    assert "the script starts them" in done.stdout
