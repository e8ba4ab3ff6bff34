"""A training function and its configuration; the tests of integrations import it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lockstep import Result, session

Fit = Callable[..., Result]
CONFIG = {"lr": 0.1, "optimizer": {"name": "sgd", "betas": [0.9, 0.99]}, "what?": "x" * 7000}


def three_reports() -> Callable[..., None]:
    """A training function, made inside a function so that workers do not import this module and MLflow."""

    def train_func(config: dict[str, Any]) -> None:
        for epoch in range(3):
            loss = 1 / (epoch + 1) if epoch < 2 else math.nan
            metrics = {"epoch": epoch, "validation": {"loss": loss}, "good": epoch == 2, "note": "text", "gone": None}
            session.report(metrics)

    return train_func
