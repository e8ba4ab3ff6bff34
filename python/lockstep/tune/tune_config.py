"""How an experiment searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from numbers import Integral
from typing import Any

from lockstep.config import seconds
from lockstep.errors import ConfigError


@dataclass
class TuneConfig:
    """What is searched for, by what, and how much at once."""

    metric: str | Sequence[str] | None = None
    """The metric to optimise; nested keys are joined by "/". Several are for searchers that can (NSGA2Search)."""
    mode: str | Sequence[str] | None = None
    """"min" or "max", one for each metric. Without it, nothing that compares trials can be used."""
    search_alg: Any = None
    """Of ``tune.search``. None: random values, and every grid point."""
    scheduler: Any = None
    """Of ``tune.schedulers``. None: trials run to their end."""
    num_samples: int = 1
    """Trials for each grid point. -1: until the time budget is used up."""
    max_concurrent_trials: int | None = None
    """None: as many as the resources allow."""
    time_budget_s: float | timedelta | None = None
    reuse_workers: bool = True
    """False: every trial of a plain function gets a fresh process."""
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    seed: int | None = None
    """None: a different one every time. It is stored with the experiment."""
    reuse_actors: bool | None = None
    """Ray's name of reuse_workers."""
    chdir_to_trial_dir: bool = False
    """Whether a function or class works in the directory of its trial, which ``session.get_trial_dir()`` names. The
    workers of a trainer never do."""

    def __post_init__(self) -> None:
        if self.reuse_actors is not None:
            self.reuse_workers = bool(self.reuse_actors)
        given = self.metric
        for name in [given] if isinstance(given, str) or not isinstance(given, Sequence) else given:
            if given is not None and (not isinstance(name, str) or not name):
                raise ConfigError(f"[TuneConfig] metric is {given!r}; it must be the name of a metric, or several")
        metrics, modes = self.metrics, self.modes
        if len(modes) != len(metrics):
            raise ConfigError(f"[TuneConfig] mode is {self.mode!r}; it must have one entry for each of {metrics}")
        for mode in modes:
            if mode not in ("min", "max"):
                raise ConfigError(f"[TuneConfig] mode is {mode!r}; it must be 'min' or 'max'")
        _check_number("num_samples", self.num_samples, -1)
        if self.max_concurrent_trials is not None:
            _check_number("max_concurrent_trials", self.max_concurrent_trials, 0)
        check_seed(self.seed, "TuneConfig")
        for field in ("trial_name_creator", "trial_dirname_creator"):
            if (value := getattr(self, field)) is not None and not callable(value):
                raise ConfigError(f"[TuneConfig] {field} is {value!r}; it must be a function of the trial")
        if not isinstance(self.reuse_workers, bool):
            raise ConfigError(f"[TuneConfig] reuse_workers is {self.reuse_workers!r}; it must be True or False")
        if self.num_samples == -1 and self.time_budget_s is None and self.search_alg is None:
            raise ConfigError("[TuneConfig] num_samples is -1 without time_budget_s: the experiment would never end")

    @property
    def metrics(self) -> list[str]:
        """The metrics as a list."""
        return [] if self.metric is None else [self.metric] if isinstance(self.metric, str) else list(self.metric)

    @property
    def modes(self) -> list[str]:
        """The modes as a list; "max" stands for those that are missing."""
        if self.mode is None:
            return ["max"] * len(self.metrics)
        if isinstance(self.mode, str):
            if self.mode not in ("min", "max"):
                raise ConfigError(f"[TuneConfig] mode is {self.mode!r}; it must be 'min' or 'max'")
            return [self.mode] * len(self.metrics)
        return list(self.mode)

    @property
    def time_budget(self) -> float | None:
        """In seconds."""
        return None if self.time_budget_s is None else seconds(self.time_budget_s, "[TuneConfig] time_budget_s")


def check_seed(seed: object, where: str) -> None:
    """Raises ConfigError unless it is None or a seed."""
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63):
        raise ConfigError(f"[{where}] seed is {seed!r}; it must be a whole number from 0 to 2**63 - 1, or None")


def _check_number(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least or (least < 0 and value == 0):
        raise ConfigError(f"[TuneConfig] {name} is {value!r}; it must be a whole number, at least {max(least, 0) or 1}")
