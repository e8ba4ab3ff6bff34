"""`lockstep runs`: JSON, limits and states; runs by their names; `lockstep run` with options before the script."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from lockstep import ConfigError, DataParallelTrainer, Result, StorageError
from made_runs import Cli, MakeRun


def refuse_word(word: str) -> Any:
    raise AssertionError(f"{word} is no JSON")


def listed(cli: Cli, *arguments: str | Path) -> list[dict[str, Any]]:
    done = cli("runs", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    runs = json.loads(done.stdout, parse_constant=refuse_word)
    assert isinstance(runs, list)
    return runs


def names(cli: Cli, *arguments: str | Path) -> list[str]:
    return [run["name"] for run in listed(cli, *arguments)]


def test_json_has_what_run_json_says(cli: Cli, make_run: MakeRun) -> None:
    driver = {"pid": 7, "start_ticks": 1, "hostname": "elsewhere"}
    failed = make_run("bad", state="failed", attempt=2, failures=[{}] * 3, error="rank 1: ValueError", driver=driver)
    assert listed(cli) == [
        {
            "name": "bad",
            "path": str(failed),
            "state": "failed",
            "trainer": "DataParallelTrainer",
            "num_workers": 2,
            "attempts": 3,
            "failures": 3,
            "iterations": 7,
            "created": 1700000000.5,
            "updated": 1700000060.0,
            "finished": 1700000065.5,
            "duration": 65.0,
            "checkpoints": 0,
            "metrics": {"epoch": 6, "loss": 0.25},
            "error": "rank 1: ValueError",
            "driver": {"hostname": "elsewhere", "pid": 7},
        }
    ]


def test_json_is_valid_whatever_the_runs_are(cli: Cli, make_run: MakeRun, storage: Path) -> None:
    assert listed(cli) == []
    make_run("nan", metrics={"loss": math.nan, "deep": [{"x": -math.inf}], "text": 'quo"te\u0001'})
    make_run("odd", state=5, created="then", metrics=[1], failures="x", attempt=None, driver=3, error={"a": 1})
    for index, text in enumerate((b"", b"null", b"[" * 100000, b'{"state": "\xff"}')):
        (make_run(f"broken{index}") / "run.json").write_bytes(text)
    runs = {run["name"]: run for run in listed(cli)}
    assert len({tuple(run) for run in runs.values()}) == 1, "all have the same keys"
    assert runs["nan"]["metrics"] == {"loss": None, "deep": [{"x": None}], "text": 'quo"te\u0001'}
    assert (runs["odd"]["created"], runs["odd"]["error"], runs["odd"]["metrics"]) == (None, None, {})
    assert runs["broken1"]["state"] == "unreadable"
    assert runs["broken1"]["error"] and runs["broken1"]["iterations"] is None


def test_limit_and_state(cli: Cli, make_run: MakeRun) -> None:
    states = ["finished", "failed", "running", "interrupted", "finished"]
    for index, state in enumerate(states):  # what says that it runs has died: its driver is no process
        make_run(f"run{index}", state=state, created=1700000000.0 + index)
    assert names(cli) == ["run4", "run3", "run2", "run1", "run0"]
    assert names(cli, "--limit", "2") == ["run4", "run3"], "the newest"
    assert names(cli, "--limit", "0") == []
    assert names(cli, "--state", "failed,died") == ["run2", "run1"]
    assert names(cli, "--state", "failed", "--state", "died", "--limit", "1") == ["run2"]
    assert names(cli, "--state", "running") == []
    assert cli("runs", "--state", "running").stdout.startswith("no running runs in ")
    table = cli("runs", "--limit", "1").stdout.splitlines()
    assert len(table) == 2 and table[1].startswith("run4")
    for wrong in (["--state", "sleeping"], ["--limit", "-1"], ["--limit", "few"]):
        done = cli("runs", *wrong)
        assert (done.returncode, done.stdout) == (2, "")


def test_a_clock_that_went_back_is_no_duration(cli: Cli, make_run: MakeRun) -> None:
    make_run("measured", finished=1600000000.0, time_total_s=42.0)
    make_run("unknown", finished=1600000000.0, time_total_s=0)
    assert {run["name"]: run["duration"] for run in listed(cli)} == {"measured": 42.0, "unknown": None}
    lines = cli("runs").stdout.splitlines()
    assert "42.0s" in lines[1] and " ? " in lines[2] and "0.0s" not in lines[2]


def test_names_stand_for_runs(cli: Cli, make_run: MakeRun, storage: Path, tmp_path: Path) -> None:
    digits = make_run("digits", size=3)
    make_run("other", size=0)
    assert [run["path"] for run in listed(cli, "digits")] == [str(digits)]
    assert names(cli, digits) == ["digits"]
    assert names(cli, "storage") == ["digits", "other"], "a directory of runs"
    (tmp_path / "digits").mkdir()
    assert [run["path"] for run in listed(cli, "digits")] == [str(digits)], "an empty directory is no run"
    here = make_run("digits", place=tmp_path / "here").rename(tmp_path / "digits")
    assert [run["path"] for run in listed(cli, "digits")] == [str(here)], "a path wins"
    done = cli("runs", "nobody")
    assert done.returncode == 1
    assert 'no run "nobody"' in done.stderr
    assert cli("logs", "other").returncode == 0
    assert cli("checkpoint", "list", "other").returncode == 0
    assert cli("checkpoint", "verify", "other").returncode == 0


def test_names_in_python(make_run: MakeRun, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_STORAGE_PATH", str(storage))
    monkeypatch.chdir(tmp_path)
    run = make_run("digits", config_run={"num_workers": 3})
    assert Result.from_path("digits").path == run
    assert Result.from_path(Path("storage/digits/")).path == run
    assert DataParallelTrainer.can_restore("digits")
    assert DataParallelTrainer.restore("digits").scaling_config.num_workers == 3
    assert DataParallelTrainer.restore("digits").fit().path == run, "it is finished"
    assert not DataParallelTrainer.can_restore("nobody")
    assert not DataParallelTrainer.can_restore("../storage/nobody")
    with pytest.raises(ConfigError, match="nobody holds no run, and the storage path has none of that name"):
        DataParallelTrainer.restore("nobody")
    with pytest.raises(StorageError, match="holds no run"):
        Result.from_path("nobody")


@pytest.mark.parametrize("option", ["--num-workers", "--nproc", "-q"])
def test_run_names_unknown_options(cli: Cli, tmp_path: Path, option: str) -> None:
    (tmp_path / "train.py").touch()
    done = cli("run", option, "4", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"unknown option {option}" in done.stderr
    assert "usage: lockstep run" in done.stderr
    assert "ScalingConfig(num_workers=4)" in done.stderr


def test_run_a_module(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("import sys; print(__name__, sys.argv[1:]); sys.exit(7)")
    done = cli("run", "-m", "package.train", "-n", "--help", "-m")
    assert (done.returncode, done.stdout) == (7, "__main__ ['-n', '--help', '-m']\n")
    done = cli("run", "-m")
    assert done.returncode == 2
    assert "-m needs a module" in done.stderr
