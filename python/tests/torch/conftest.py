"""What the tests of lockstep.torch share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Result, RunConfig, ScalingConfig
from lockstep.torch import TorchTrainer, _context, prepare_data_loader
from lockstep.torch.loader import PreparedDataLoader
from torch.utils.data import DataLoader


@pytest.fixture
def torch_trainer(tmp_path: Path) -> Callable[..., TorchTrainer]:
    """A TorchTrainer of `function` on `workers` workers that keeps its runs below the test's directory, silently."""

    def make(
        function: Callable[..., Any], workers: int = 2, config: dict[str, Any] | None = None, **run: Any
    ) -> TorchTrainer:
        options = {name: run.pop(name) for name in ("resume_from_checkpoint", "torch_config") if name in run}
        return TorchTrainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **run}),
            **options,
        )

    return make


@pytest.fixture
def torch_fit(torch_trainer: Callable[..., TorchTrainer]) -> Callable[..., Result]:
    """As torch_trainer, and runs it."""

    def run(*arguments: Any, **options: Any) -> Result:
        return torch_trainer(*arguments, **options).fit()

    return run


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PreparedDataLoader[Any]]:
    """prepare_data_loader() as on `rank` of `world` workers."""

    def on(rank: int, world: int, loader: DataLoader[Any], **options: Any) -> PreparedDataLoader[Any]:
        monkeypatch.setattr(_context, "rank", lambda: rank)
        monkeypatch.setattr(_context, "world_size", lambda: world)
        return prepare_data_loader(loader, **options)

    return on
