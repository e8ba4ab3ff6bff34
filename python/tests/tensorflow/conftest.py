"""What the tests of lockstep.tensorflow share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Callback, Result, RunConfig, ScalingConfig
from lockstep.tensorflow import TensorflowTrainer


class AllRanks(Callback):
    """Every report of every rank."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any] | None]] = []

    def on_report(self, results: list[dict[str, Any] | None]) -> None:
        self.rows.append(results)

    @property
    def first(self) -> list[dict[str, Any]]:
        return [result for result in self.rows[0] if result is not None]


@pytest.fixture
def tf_trainer(tmp_path: Path) -> Callable[..., TensorflowTrainer]:
    """A TensorflowTrainer of `function` that keeps its runs below the test's directory, silently."""

    def make(
        function: Callable[..., Any], workers: int = 2, config: dict[str, Any] | None = None, **run: Any
    ) -> TensorflowTrainer:
        options = {name: run.pop(name) for name in ("resume_from_checkpoint", "tensorflow_config") if name in run}
        return TensorflowTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **run}),
            **options,
        )

    return make


@pytest.fixture
def tf_fit(tf_trainer: Callable[..., TensorflowTrainer]) -> Callable[..., Result]:
    """As tf_trainer, and runs it."""

    def run(*arguments: Any, **options: Any) -> Result:
        return tf_trainer(*arguments, **options).fit()

    return run


@pytest.fixture
def rows_of(tf_fit: Callable[..., Result]) -> Callable[..., list[dict[str, Any]]]:
    """As tf_fit; what the ranks reported first."""

    def run(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        rows = AllRanks()
        tf_fit(*arguments, callbacks=[rows], **options)
        return rows.first

    return run
