"""The example, and the programs in the page about TensorFlow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)  # three trainings, of which one on more workers than cores

ROOT = Path(__file__).parents[3]


def run(program: Path, tmp_path: Path) -> str:
    """Checks the output, which must contain nothing from TensorFlow."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    environment = {**plain, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs")}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert "absl" not in done.stderr and "oneDNN" not in done.stderr
    return done.stdout


def test_the_example(tmp_path: Path) -> None:
    printed = run(ROOT / "examples" / "python" / "tensorflow_digits.py", tmp_path)
    assert printed.splitlines()[-2:] == ["loss as in one process: True", "accuracy above 90 %: True"], printed


def test_the_programs_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tensorflow.md").read_text()
    programs = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert programs
    for number, text in enumerate(programs):
        program = tmp_path / f"program_{number}.py"
        program.write_text(text)
        assert "array(" in run(program, tmp_path)
