"""`lockstep checkpoint`: the checkpoints of a run, and whether they are intact."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import DATA, Cli, MakeRun, make_checkpoint, table


def test_checkpoint_list(cli: Cli, make_run: MakeRun) -> None:
    run = make_run("saved")
    make_checkpoint(run, 0)
    make_checkpoint(run, 12, attempt=1)
    (make_checkpoint(run, 13) / "manifest.json").write_text("{")
    (make_checkpoint(run, 14) / "manifest.json").unlink()
    done = cli("checkpoint", "list", "saved")
    assert done.returncode == 0
    rows = table(done.stdout)
    assert rows[1] == {
        "NAME": "checkpoint_000012",
        "CREATED": "2023-11-14 22:13:42",
        "ATTEMPT": "1",
        "ITERATION": "13",
        "FILES": "2",
        "SIZE": "2.1 kB",
        "METRICS": "loss=0.5 val/loss=0.25",
    }
    assert [row["NAME"] for row in rows] == ["checkpoint_000000", "checkpoint_000012", "checkpoint_000013"]
    assert "broken" in rows[2]["CREATED"]


def test_checkpoint_list_of_nothing(cli: Cli, make_run: MakeRun) -> None:
    run = make_run("bare")
    assert cli("checkpoint", "list", "bare").stdout == f"no checkpoints in {run}\n"
    assert cli("checkpoint", "list", "nobody").returncode == 1


def test_checkpoint_verify_whole(cli: Cli, tmp_path: Path, make_run: MakeRun) -> None:
    run = make_run("saved")
    first, second = make_checkpoint(run, 0), make_checkpoint(run, 1)
    for name in ("saved", run):
        done = cli("checkpoint", "verify", name)
        assert done.returncode == 0
        assert done.stdout == f"{first}: ok, 2 files, 2.1 kB\n{second}: ok, 2 files, 2.1 kB\n"
    alone = shutil.copytree(first, tmp_path / "copy")
    for path in ("copy", alone, "saved/checkpoint_000000"):
        assert cli("checkpoint", "verify", path).returncode == 0


def flip(path: Path) -> None:
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


@pytest.mark.parametrize(
    ("harm", "file"),
    [
        (lambda path: flip(path / "deep/weights.bin"), "deep/weights.bin"),
        (lambda path: (path / "data.json").unlink(), "data.json"),
        (lambda path: (path / "data.json").write_bytes(DATA + b" "), "data.json"),
        (lambda path: (path / "extra.bin").touch(), "extra.bin"),
        (lambda path: (path / "manifest.json").write_text("{"), "manifest.json"),
    ],
)
def test_checkpoint_verify_names_the_file(
    cli: Cli, harm: Callable[[Path], object], file: str, make_run: MakeRun
) -> None:
    run = make_run("saved")
    make_checkpoint(run, 0)
    broken = make_checkpoint(run, 1)
    harm(broken)
    for name in ("saved", broken):
        done = cli("checkpoint", "verify", name)
        assert done.returncode == 1
        assert f"{broken}: {file} " in done.stdout
        assert done.stdout.count("ok") == (1 if name == "saved" else 0)


def test_checkpoint_verify_of_what_is_none(cli: Cli, tmp_path: Path, make_run: MakeRun) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("checkpoint", "verify", "empty")
    assert done.returncode == 1
    assert "manifest.json" in done.stdout
    done = cli("checkpoint", "verify", "nothing")
    assert done.returncode == 1
    assert "nothing" in done.stderr
    make_run("bare")
    assert cli("checkpoint", "verify", "bare").returncode == 0
