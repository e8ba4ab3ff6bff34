"""What the tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import DataParallelTrainer, Result, RunConfig, ScalingConfig

# A shell that starts a job in the background makes it ignore Ctrl-C; the programs under test must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., DataParallelTrainer]:
    """A trainer of `function` on `workers` workers that keeps its runs below the test's own directory, silently."""

    def make(
        function: Callable[..., Any], workers: int = 2, config: dict[str, Any] | None = None, **run: Any
    ) -> DataParallelTrainer:
        resume = run.pop("resume_from_checkpoint", None)
        run_config = RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **run})
        return DataParallelTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=run_config,
            resume_from_checkpoint=resume,
        )

    return make


@pytest.fixture
def fit(make_trainer: Callable[..., DataParallelTrainer]) -> Callable[..., Result]:
    """As make_trainer, and runs it."""

    def run(*arguments: Any, **options: Any) -> Result:
        return make_trainer(*arguments, **options).fit()

    return run
