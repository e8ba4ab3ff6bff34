"""Searchers: what chooses the configurations of trials."""

from __future__ import annotations

from typing import Any

from lockstep.errors import ConfigError
from lockstep.tune.search._native import (
    BasicVariantGenerator,
    BOHBSearch,
    CMAESSearch,
    GPSearch,
    GridSearch,
    NSGA2Search,
    RandomSearch,
    SobolSearch,
    TPESearch,
    TuneBOHB,
)
from lockstep.tune.search._searcher import SearchAlgorithm, Searcher
from lockstep.tune.search._wrappers import ConcurrencyLimiter, Repeater
from lockstep.tune.search.optuna import OptunaSearch

_BY_NAME: dict[str, type[Searcher]] = {
    "random": RandomSearch,
    "variant_generator": BasicVariantGenerator,
    "grid": GridSearch,
    "sobol": SobolSearch,
    "tpe": TPESearch,
    "hyperopt": TPESearch,
    "cmaes": CMAESSearch,
    "gp": GPSearch,
    "bayesopt": GPSearch,
    "nsga2": NSGA2Search,
    "bohb": BOHBSearch,
    "optuna": OptunaSearch,
}


def create_searcher(search_alg: str, **options: Any) -> Searcher:
    """A searcher by its name: random, grid, sobol, tpe, cmaes, gp, nsga2, bohb or optuna."""
    if search_alg not in _BY_NAME:
        raise ConfigError(f"[tune.search] there is no searcher {search_alg!r}; there are {', '.join(_BY_NAME)}")
    return _BY_NAME[search_alg](**options)


__all__ = [
    "BOHBSearch",
    "BasicVariantGenerator",
    "CMAESSearch",
    "ConcurrencyLimiter",
    "GPSearch",
    "GridSearch",
    "NSGA2Search",
    "OptunaSearch",
    "RandomSearch",
    "Repeater",
    "SearchAlgorithm",
    "Searcher",
    "SobolSearch",
    "TPESearch",
    "TuneBOHB",
    "create_searcher",
]
