"""What the tests of the alias share. Each runs in processes of its own: the alias stays once it is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_AS_RAY")}
    return {**kept, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs")}


@pytest.fixture
def script(tmp_path: Path, environment: dict[str, str]) -> Script:
    """Runs a script whose first line is the alias; more environment by keyword. It must end well unless `fails`."""

    def run(code: str, fails: bool = False, first: str = "import lockstep.as_ray", **env: str) -> object:
        path = tmp_path / "script.py"
        path.write_text(f"{first}\n{code}")
        done = subprocess.run(
            [sys.executable, str(path)],
            env={**environment, **env},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done

    return run  # type: ignore[return-value]
