"""The digits program in C++ trains as the Python quickstart does, and each continues from the other's checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lockstep
import pytest
from lockstep import Result

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "build" / "examples" / "cpp" / "example_torch_digits"


def run(storage: Path, *program: object) -> tuple[str, Result]:
    """What a program printed, and its run. A missing program is a failure: the development build makes it."""
    agent = Path(lockstep.__file__).parent / "bin" / "lockstep-agent"
    environment = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(storage), "LOCKSTEP_AGENT": str(agent)}
    done = subprocess.run([str(each) for each in program], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    path = next(line for line in done.stdout.splitlines() if line.startswith("run directory: ")).split(": ")[1]
    return done.stdout, Result.from_path(path)


def test_the_digits_of_cpp_have_the_losses_of_the_quickstart(tmp_path: Path) -> None:
    _, cpp = run(tmp_path / "cpp", DIGITS, "--epochs", 3)
    _, python = run(tmp_path / "python", sys.executable, ROOT / "examples/python/quickstart.py", "--epochs", 3)
    losses = [list(result.metrics_dataframe["loss"]) for result in (cpp, python)]
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_python_goes_on_with_the_digits_of_cpp_and_cpp_with_those(tmp_path: Path) -> None:
    _, first = run(tmp_path, DIGITS, "--epochs", 2)
    printed, second = run(tmp_path, sys.executable, ROOT / "examples/cpp/torch_go_on_in_python.py", first.path)
    assert f"accuracy of C++'s model in Python: {first.metrics['accuracy']:.2%}" in printed
    assert second.metrics["epoch"] == 2
    _, third = run(tmp_path, DIGITS, "--epochs", 4, "--resume", second.path)
    assert list(third.metrics_dataframe["epoch"]) == [3]
    assert third.metrics["loss"] < first.metrics["loss"]
    assert third.metrics["accuracy"] > 0.9
