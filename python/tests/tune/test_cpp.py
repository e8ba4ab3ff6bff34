"""Experiments of the C++ Tuner are read as those of Python are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lockstep
import pytest
from lockstep.errors import StorageError
from lockstep.tune import Tuner
from lockstep.tune.result_grid import ResultGrid

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what was tried. A missing program is a failure: the development build makes it."""
    place = tmp_path_factory.mktemp("cpp")
    agent = Path(lockstep.__file__).parent / "bin" / "lockstep-agent"
    program = [str(ROOT / "build" / "examples" / "cpp" / "example_tune"), str(place)]
    done = subprocess.run(
        program, env={**os.environ, "LOCKSTEP_AGENT": str(agent)}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return {path.name.split("_")[0]: path for path in place.iterdir()}


def test_the_command_shows_it(experiments: dict[str, Path]) -> None:
    command = [str(ROOT / ".venv" / "bin" / "lockstep"), "tune", "show", str(experiments["function"])]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "finished, 100 trials: 100 terminated" in shown.stdout


def test_a_result_grid_reads_it(experiments: dict[str, Path]) -> None:
    functions = ResultGrid._open(experiments["function"])
    assert len(functions) == 100
    assert set(functions.get_best_result().config) == {"x", "y"}
    runs = ResultGrid._open(experiments["DataParallelTrainer"])
    best = runs.get_best_result()
    assert best.metrics["training_iteration"] == 9
    assert best.checkpoint is not None
    assert best.checkpoint.to_dict()["epoch"] == 8


def test_python_does_not_continue_it(experiments: dict[str, Path]) -> None:
    with pytest.raises(StorageError, match="cannot be continued"):
        Tuner.restore(str(experiments["function"]), lambda config: None)
