"""Shared by the tests of lockstep.horovod. They need a real Horovod: scripts/environments.sh horovod installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import FailureConfig, Result
from lockstep.horovod import HorovodConfig, HorovodTrainer

sys.path.insert(0, str(Path(__file__).parent))  # rows


@pytest.fixture
def horovod_trainer(make_trainer: Callable[..., HorovodTrainer]) -> Callable[..., HorovodTrainer]:
    """As make_trainer, of a HorovodTrainer; more options are those of its HorovodConfig."""

    def make(
        function: Callable[..., Any],
        workers: int = 2,
        config: dict[str, Any] | None = None,
        max_failures: int = 0,
        **horovod: Any,
    ) -> HorovodTrainer:
        return make_trainer(
            function,
            workers,
            config,
            trainer=HorovodTrainer,
            horovod_config=HorovodConfig(**horovod),
            failure_config=FailureConfig(max_failures=max_failures),
        )

    return make


@pytest.fixture
def horovod_fit(horovod_trainer: Callable[..., HorovodTrainer]) -> Callable[..., Result]:
    """As horovod_trainer, and runs it."""

    def run(*arguments: Any, **options: Any) -> Result:
        return horovod_trainer(*arguments, **options).fit()

    return run
