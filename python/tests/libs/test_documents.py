"""The first program of the page about libraries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_program_of_the_page(tmp_path: Path) -> None:
    program = re.findall(r"^```py\n(.*?)^```$", (ROOT / "docs" / "libraries.md").read_text(), re.MULTILINE | re.DOTALL)[
        0
    ]
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs")}
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1:][0].startswith("2 "), done.stderr
