"""What `lockstep new python --framework ...` writes trains with the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lockstep import _new_python


@pytest.mark.parametrize("framework", ["lightning", "transformers", "xgboost"])
def test_a_new_project_trains(tmp_path: Path, framework: str) -> None:
    assert _new_python.main([str(tmp_path / "proj"), "--framework", framework]) == 0
    env = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "train.py", "--epochs", "2", "--name", "first"]
    done = subprocess.run(command, cwd=tmp_path / "proj", env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    state = json.loads((tmp_path / "runs/first/run.json").read_text())
    assert (state["state"], state["num_workers"]) == ("finished", 2)
    assert list((tmp_path / "runs/first").glob("checkpoint_*"))
