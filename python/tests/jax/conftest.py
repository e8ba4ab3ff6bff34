"""What the tests of lockstep.jax share."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from lockstep import Result
from lockstep.jax import JaxTrainer


@pytest.fixture
def jax_fit(fit: Callable[..., Result]) -> Callable[..., Result]:
    """As fit, of a JaxTrainer."""
    return functools.partial(fit, trainer=JaxTrainer)
