"""The fork server forks from a process without threads, even if a module that it imports starts threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from lockstep import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, session
from lockstep.backend import BackendConfig

THREADED = """
import threading
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
"""


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_a_module_that_starts_threads_is_imported_by_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "starts_a_thread.py").write_text(THREADED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))

    class Backend(BackendConfig):
        preload = ("colorsys", "starts_a_thread", "starts_no_thread?")

    def train_func() -> None:
        if session.get_attempt() == 0 and session.get_world_rank() == 1:
            os._exit(3)
        module = sys.modules["starts_a_thread"]
        session.report(
            {
                "alive": module.thread.is_alive(),
                "shared": "colorsys" in sys.modules,
                "threads of the parent": threads(os.getppid()),
            }
        )

    result = DataParallelTrainer(
        train_func,
        backend_config=Backend(),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=tmp_path, verbose=0, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    assert result.metrics["alive"] is True, "a fork of the module would have lost its thread"
    assert result.metrics["shared"] is True and result.metrics["threads of the parent"] == 1
    assert [failure.attempt for failure in result.failures] == [0]


def test_such_a_module_that_cannot_be_imported_twice_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep import TrainingFailedError

    (tmp_path / "modules").mkdir()
    marker = tmp_path / "imported"
    source = (
        f"import os\nif os.path.exists({str(marker)!r}): raise RuntimeError('only once')\nopen({str(marker)!r}, 'w')\n"
    )
    (tmp_path / "modules" / "starts_a_thread_once.py").write_text(source + THREADED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))

    class Backend(BackendConfig):
        preload = ("starts_a_thread_once",)

    trainer = DataParallelTrainer(
        lambda: None, backend_config=Backend(), run_config=RunConfig(storage_path=tmp_path, verbose=0, name="run")
    )
    with pytest.raises(TrainingFailedError):
        trainer.fit()
    assert "RuntimeError: only once" in (tmp_path / "run" / "logs" / "rank_0.log").read_text()
