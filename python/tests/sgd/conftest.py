"""What the tests of RaySGD's Trainer share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lockstep.backend import BackendConfig
from lockstep.sgd import Trainer

sys.path.insert(0, str(Path(__file__).parent))  # recorded

from recorded import MakeTrainer


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeTrainer]:
    """A trainer of two workers without a framework, which ends with the test."""
    made: list[Trainer] = []

    def trainer(**settings: Any) -> Trainer:
        made.append(Trainer(**{"backend": BackendConfig(), "num_workers": 2, "logdir": tmp_path / "logs", **settings}))
        return made[-1]

    yield trainer
    for each in made:
        if each._group.is_started:
            each.shutdown()


@pytest.fixture
def trainer(make: MakeTrainer) -> Trainer:
    made = make()
    made.start()
    return made
