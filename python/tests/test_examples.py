"""Every program in examples/python runs, and prints what its header promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = ("horovod_", "tensorflow_")
"""Examples of frameworks with environments of their own, which run beside those frameworks' tests."""
EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.py"))
    if not path.name.startswith(ELSEWHERE)
]

PRINTED = {
    "first_run.py": ["{'epoch': 4, 'loss': 0.2}", "checkpoint: 4"],
    "quickstart.py": ["loss", "look further:"],
    "torch_mixed_precision.py": ["learned: True", "bit-equal: True"],
    "torch_fsdp.py": ["parts that ranks wrote: 2", "three workers went on at epoch: 3", "learned: True"],
    "elastic.py": ["workers of each attempt: [1, 3]", "steps: 100, each made once: True"],
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

RUNS = {"elastic.py": 2, "torch_mixed_precision.py": 2, "torch_fsdp.py": 2}
"""How many there are, where it is not one."""


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
    assert len(list(tmp_path.glob("*/run.json"))) == RUNS.get(example.name, 1)


def test_the_quickstart_learns_and_can_be_resumed(tmp_path: Path) -> None:
    environment = {**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path)}

    def run(*arguments: str) -> str:
        program = [sys.executable, str(EXAMPLES[0].with_name("quickstart.py")), *arguments]
        return subprocess.run(program, env=environment, check=True, capture_output=True, text=True, timeout=100).stdout

    def accuracy(printed: str) -> float:
        return float(next(line for line in printed.splitlines() if line.startswith("test accuracy:")).split()[-1][:-1])

    first = run()
    assert accuracy(first) > 95
    path = next(line for line in first.splitlines() if line.startswith("run directory:")).split()[-1]
    assert len(list(Path(path).glob("checkpoint_??????"))) <= 3
    assert f"tensorboard --logdir {path}" in first and f"--resume {path}" in first
    again = run("--epochs", "10", "--resume", path)
    rows = [line.split() for line in again.splitlines() if line[:5].strip().isdecimal()]
    assert [int(row[0]) for row in rows] == list(range(10)), "it went on where it had stopped"
    assert accuracy(again) > 95
