"""Generated data with missing values."""

from __future__ import annotations

import numpy
import pandas
import pytest


@pytest.fixture
def frame() -> pandas.DataFrame:
    """Numbers of very different size, categories, texts; a tenth of `a`, `b` and `kind` is missing. Larger than one
    batch of a fit."""
    rows = 70_001
    random = numpy.random.default_rng(3)
    made = pandas.DataFrame(
        {
            "a": random.normal(1e9, 2.0, rows),
            "b": random.exponential(3.0, rows),
            "n": random.integers(-50, 50, rows),
            "kind": random.choice(["red", "green", "blue", "ä ö"], rows, p=[0.4, 0.3, 0.2, 0.1]),
        }
    )
    for column in ("a", "b", "kind"):
        made.loc[random.random(rows) < 0.1, column] = None
    return made
