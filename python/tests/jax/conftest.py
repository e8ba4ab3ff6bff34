"""What the tests of lockstep.jax share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Checkpoint, Result, RunConfig, ScalingConfig
from lockstep.jax import JaxTrainer


@pytest.fixture
def jax_fit(tmp_path: Path) -> Callable[..., Result]:
    """Runs `function` on `workers` workers below the test's directory, silently."""

    def run(
        function: Callable[..., Any],
        workers: int = 2,
        config: dict[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        **run: Any,
    ) -> Result:
        return JaxTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            resume_from_checkpoint=resume_from_checkpoint,
            run_config=RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **run}),
        ).fit()

    return run
