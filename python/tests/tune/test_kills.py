"""Experiments whose driver was killed end as undisturbed ones: the same trials, the same reports, the same best.

benchmarks/tune_kills.py does it with 100 experiments of 200 trials per kind; this is its short form.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import tune_kills


@pytest.mark.parametrize("kind", ["random", "cmaes", "asha", "hyperband", "pbt", "trainer"])
def test_a_killed_experiment_ends_like_an_undisturbed_one(kind):
    trials = 8 if kind == "trainer" else 40
    assert tune_kills.differences(kind, trials, rounds=1, kills=4, seed=sum(map(ord, kind))) == []
