"""Every program in examples/python runs, and prints what its header promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.py"))

PRINTED = {
    "quickstart.py": ["{'epoch': 4, 'loss': 0.2}", "checkpoint: 4"],
    "resume_after_failure.py": [
        "attempt 0 ended: rank 1 (signal); another one follows: True",
        "attempt 1 ended: rank 0 (exception); another one follows: False",
        "failed at step 5: RuntimeError('step 5 always fails here')",
        "restored and finished: step 7, attempts with failures: [0, 1]",
    ],
    "custom_callback.py": [
        "epoch 0: loss from 1.00 to 1.50",
        "epoch 1: loss from 0.50 to 0.75",
        "epoch 2: loss from 0.33 to 0.50",
        "logged 3 results, the last loss is 0.33",
    ],
}


def test_every_example_is_known() -> None:
    assert {path.name for path in EXAMPLES} == set(PRINTED)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example(example: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(example)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # Workers print to standard output too, behind the rank.
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[rank ")]
    assert [line for line in lines if line in PRINTED[example.name]] == PRINTED[example.name], done.stdout
    assert f"python examples/python/{example.name}" in example.read_text()
    assert len(list(tmp_path.glob("*/run.json"))) == 1
