"""What the tests of lockstep.torch share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Result
from lockstep.torch import TorchTrainer, _context, prepare_data_loader
from lockstep.torch.loader import PreparedDataLoader
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))  # made_loaders, round_trips

from made_loaders import Loaders, Make, Prepare, PrepareAll


@pytest.fixture
def torch_trainer(make_trainer: Callable[..., TorchTrainer]) -> Callable[..., TorchTrainer]:
    """As make_trainer, of a TorchTrainer."""
    return functools.partial(make_trainer, trainer=TorchTrainer)


@pytest.fixture
def torch_fit(fit: Callable[..., Result]) -> Callable[..., Result]:
    """As fit, of a TorchTrainer."""
    return functools.partial(fit, trainer=TorchTrainer)


@pytest.fixture
def be_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Makes the process `rank` of `world` workers, as lockstep.torch sees it."""

    def be(rank: int, world: int) -> None:
        monkeypatch.setattr(_context, "rank", lambda: rank)
        monkeypatch.setattr(_context, "world_size", lambda: world)

    return be


@pytest.fixture
def prepare(be_rank: Callable[[int, int], None]) -> Prepare:
    """prepare_data_loader() as on `rank` of `world` workers."""

    def on(rank: int, world: int, loader: DataLoader[Any], **options: Any) -> PreparedDataLoader[Any]:
        be_rank(rank, world)
        return prepare_data_loader(loader, **options)

    return on


@pytest.fixture
def prepare_all(be_rank: Callable[[int, int], None], prepare: Prepare) -> PrepareAll:
    """The prepared loaders of all ranks; each is made on its rank."""

    def on_all(world: int, make: Make, **options: Any) -> Loaders:
        loaders = []
        for rank in range(world):
            be_rank(rank, world)
            loaders.append(prepare(rank, world, make(), **options))
        return loaders

    return on_all
