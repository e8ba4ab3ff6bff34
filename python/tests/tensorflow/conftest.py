"""What the tests of lockstep.tensorflow share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from lockstep import Callback, Result
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
def tf_trainer(make_trainer: Callable[..., TensorflowTrainer]) -> Callable[..., TensorflowTrainer]:
    """As make_trainer, of a TensorflowTrainer."""
    return functools.partial(make_trainer, trainer=TensorflowTrainer)


@pytest.fixture
def tf_fit(fit: Callable[..., Result]) -> Callable[..., Result]:
    """As fit, of a TensorflowTrainer."""
    return functools.partial(fit, trainer=TensorflowTrainer)


@pytest.fixture
def rows_of(tf_fit: Callable[..., Result]) -> Callable[..., list[dict[str, Any]]]:
    """As tf_fit; returns the first report of each rank."""

    def run(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        rows = AllRanks()
        tf_fit(*arguments, callbacks=[rows], **options)
        return rows.first

    return run
