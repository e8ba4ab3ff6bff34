"""Shared by the tests of the alias. Each test runs in its own processes, because the alias cannot be removed once it is
loaded."""

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
    """Runs a script whose first line loads the alias; keywords add environment variables. It must succeed unless
    `fails`."""

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
