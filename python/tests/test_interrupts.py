"""How a process ends after its run was interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lockstep import TrainingInterrupted, _core, _interrupts

SCRIPT = """
import atexit, os, signal, sys, time
from lockstep import *

def train_func():
    session.report({"x": 1})
    time.sleep(60)

class Stop(Callback):
    def on_result(self, metrics):
        os.kill(os.getpid(), int(sys.argv[2]))

atexit.register(print, "cleaned up")
DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=1),
                    run_config=RunConfig(name="run", storage_path=sys.argv[1], callbacks=[Stop()])).fit()
"""


@pytest.mark.parametrize(
    ("number", "shell"),
    [(signal.SIGINT, "exec"), (signal.SIGTERM, "trap '' INT; exec")],  # as a shell starts what has a "&" behind it
    ids=["SIGINT", "SIGTERM while SIGINT is ignored"],
)
def test_an_uncaught_interrupt_ends_the_process_by_its_signal(tmp_path: Path, number: int, shell: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", shell + ' "$@"', "sh", sys.executable, "-c", SCRIPT, str(tmp_path), str(int(number))],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == -number, ended.stderr
    assert "cleaned up" in ended.stdout
    assert f"TrainingInterrupted: [trainer] the run was interrupted by {signal.Signals(number).name}; there is no" in (
        ended.stderr
    )
    assert "1 worker stopped" in ended.stderr and "finished" not in ended.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"


def test_only_an_uncaught_interrupt_of_a_script_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    shown: list[BaseException] = []
    monkeypatch.setattr(_core, "end_by_signal", ended.append)
    monkeypatch.setattr(_interrupts, "_previous", lambda kind, error, traceback: shown.append(error))
    monkeypatch.delattr(sys, "ps1", raising=False)
    errors = [ValueError(), KeyboardInterrupt(), TrainingInterrupted("", None, signal.SIGTERM)]
    for error in errors:
        _interrupts._hook(type(error), error, None)
    assert ended == [signal.SIGTERM] and shown == errors
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    _interrupts._hook(TrainingInterrupted, errors[2], None)
    assert ended == [signal.SIGTERM], "an interactive session goes on"
