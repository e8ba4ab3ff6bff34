"""Schedulers: what decides whether a trial goes on."""

from __future__ import annotations

from typing import Any

from lockstep.errors import ConfigError
from lockstep.tune.schedulers._native import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from lockstep.tune.schedulers._scheduler import TrialScheduler

_BY_NAME: dict[str, type[TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "asha": ASHAScheduler,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
}


def create_scheduler(scheduler: str, **options: Any) -> TrialScheduler:
    """A scheduler by its name, such as "asha", "hyperband", "median_stopping_rule" or "pbt"."""
    if scheduler not in _BY_NAME:
        raise ConfigError(f"[tune] there is no scheduler {scheduler!r}; there are {', '.join(_BY_NAME)}")
    return _BY_NAME[scheduler](**options)


__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "TrialScheduler",
    "create_scheduler",
]
