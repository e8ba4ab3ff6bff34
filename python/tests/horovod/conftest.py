"""What the tests of lockstep.horovod share. They need real Horovod: scripts/environments.sh horovod makes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import FailureConfig, Result, RunConfig, ScalingConfig
from lockstep.horovod import HorovodConfig, HorovodTrainer


@pytest.fixture
def horovod_trainer(tmp_path: Path) -> Callable[..., HorovodTrainer]:
    """A HorovodTrainer of `function` on `workers` workers that keeps its runs below the test's directory, silently."""

    def make(
        function: Callable[..., Any],
        workers: int = 2,
        config: dict[str, Any] | None = None,
        max_failures: int = 0,
        **horovod: Any,
    ) -> HorovodTrainer:
        return HorovodTrainer(
            function,
            train_loop_config=config,
            horovod_config=HorovodConfig(**horovod),
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(
                storage_path=tmp_path / "runs", verbose=0, failure_config=FailureConfig(max_failures=max_failures)
            ),
        )

    return make


@pytest.fixture
def horovod_fit(horovod_trainer: Callable[..., HorovodTrainer]) -> Callable[..., Result]:
    """As horovod_trainer, and runs it."""

    def run(*arguments: Any, **options: Any) -> Result:
        return horovod_trainer(*arguments, **options).fit()

    return run
