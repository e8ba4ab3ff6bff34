"""The example, and the programs in the page about Horovod."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(program: Path, tmp_path: Path) -> str:
    environment = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs")}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example(tmp_path: Path) -> None:
    example = ROOT / "examples" / "python" / "horovod_digits.py"
    printed = run(example, tmp_path).splitlines()[-3:]
    assert printed == ["died: [2], attempts: 1", "survivors kept their processes: True", "accuracy above 90 %: True"]
    assert all(line in example.read_text() for line in printed)


def test_the_programs_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "horovod.md").read_text()
    programs = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = []
    for number, text in enumerate(programs):
        program = tmp_path / f"program_{number}.py"
        program.write_text(text)
        printed.append(run(program, tmp_path).splitlines()[-1])
    assert printed == ["epochs done: 5", "steps done: 100"]
