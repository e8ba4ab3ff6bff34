"""What the tests of Lightning, Transformers, Accelerate, XGBoost and LightGBM share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest
from lockstep import Result
from lockstep.torch import TorchTrainer

# None of these libraries may ask a hub for anything.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def torch_fit(fit: Callable[..., Result]) -> Callable[..., Result]:
    """As fit, of a TorchTrainer."""
    return functools.partial(fit, trainer=TorchTrainer)
