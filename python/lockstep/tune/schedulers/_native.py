"""The schedulers of the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lockstep import _core
from lockstep.errors import ConfigError
from lockstep.tune._space import NOT_PLAIN, as_plain
from lockstep.tune.sample import Domain
from lockstep.tune.schedulers._scheduler import TrialScheduler


class NativeScheduler(TrialScheduler):
    """A scheduler of the core. `metric` and `mode` are those of the TuneConfig unless they are given."""

    kind = "fifo"

    def __init__(
        self, time_attr: str | None = None, metric: str | None = None, mode: str | None = None, **options: Any
    ) -> None:
        if mode not in ("min", "max", None):
            raise ConfigError(f"[{type(self).__name__}] mode is {mode!r}; it must be 'min' or 'max'")
        if time_attr is not None and (not isinstance(time_attr, str) or not time_attr):
            raise ConfigError(f"[{type(self).__name__}] time_attr is {time_attr!r}; it must be the name of a metric")
        self._metric = metric
        self._mode = mode
        self._time_attr = time_attr or "training_iteration"
        self.options = {name: value for name, value in options.items() if value is not None}
        _core.tune.make_scheduler(self.description(), 0)

    def description(self) -> dict[str, Any]:
        """For the core."""
        return {"kind": self.kind, **self.options}


class FIFOScheduler(NativeScheduler):
    """Trials run to their end, in the order of their numbers."""

    def __init__(self) -> None:
        super().__init__()


class AsyncHyperBandScheduler(NativeScheduler):
    """ASHA: stops the worse trials at 1, 4, 16, ... iterations, without waiting for others. Of those that reach a rung,
    one in `reduction_factor` goes on."""

    kind = "asha"

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(
            time_attr,
            metric,
            mode,
            max_t=max_t,
            grace_period=grace_period,
            reduction_factor=reduction_factor,
            brackets=brackets,
            stop_last_trials=stop_last_trials,
        )


ASHAScheduler = AsyncHyperBandScheduler


class HyperBandScheduler(NativeScheduler):
    """Successive halving in brackets. Trials pause until their bracket decides, so they need checkpoints."""

    kind = "hyperband"

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        super().__init__(
            time_attr, metric, mode, max_t=max_t, reduction_factor=reduction_factor, stop_last_trials=stop_last_trials
        )


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand with one bracket after the other; use it with BOHBSearch."""

    kind = "hyperband_bohb"


class MedianStoppingRule(NativeScheduler):
    """Stops a trial whose best result is worse than the median of the others' averages at that time."""

    kind = "median"

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(
            time_attr,
            metric,
            mode,
            grace_period=grace_period,
            min_samples_required=min_samples_required,
            min_time_slice=min_time_slice,
            hard_stop=hard_stop,
        )


class PopulationBasedTraining(NativeScheduler):
    """Every `perturbation_interval`, a bad trial goes on from the checkpoint of a good one, with its configuration
    changed. `hyperparam_mutations` has a domain, a list of values or a function for each parameter that changes;
    `custom_explore_fn` gets the changed configuration and returns the final one. Trials need checkpoints."""

    kind = "pbt"

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        if custom_explore_fn is not None and not callable(custom_explore_fn):
            raise ConfigError(f"[PopulationBasedTraining] custom_explore_fn is {custom_explore_fn!r}; give a function")
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ConfigError("[PopulationBasedTraining] give hyperparam_mutations or custom_explore_fn")
        self.custom_explore_fn = custom_explore_fn
        self.log_config = log_config
        super().__init__(
            time_attr,
            metric,
            mode,
            perturbation_interval=perturbation_interval,
            burn_in_period=burn_in_period,
            hyperparam_mutations=_mutations(hyperparam_mutations or {}),
            quantile_fraction=quantile_fraction,
            resample_probability=resample_probability,
            perturbation_factors=list(perturbation_factors),
            synch=synch,
        )


_SAMPLES = 1000


def _mutations(given: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Domain) and value.kind == "choice":
            made[name] = _values(value.categories)  # type: ignore[attr-defined]
        elif isinstance(value, Domain) and value.kind != "sample_from":
            made[name] = value.to_value()
        elif callable(value) or isinstance(value, Domain):
            draw = value.function if isinstance(value, Domain) else None  # type: ignore[attr-defined]
            made[name] = {"$samples": [draw(None) if draw else value() for _ in range(_SAMPLES)]}
        elif isinstance(value, Mapping):
            made[name] = _mutations(value)
        elif isinstance(value, (list, tuple)):
            made[name] = _values(value)
        else:
            what = f"hyperparam_mutations[{name!r}] is {value!r}"
            raise ConfigError(f"[PopulationBasedTraining] {what}; it must be a domain, a list or a function")
    return made


def _values(given: Iterable[Any]) -> list[Any]:
    return [each if (value := as_plain(each)) is NOT_PLAIN else value for each in given]


class PopulationBasedTrainingReplay(NativeScheduler):
    """Repeats the changes of one trial of an earlier population: `policy_file` is its ``pbt_policy_<id>.txt``. Use it
    with ``num_samples=1`` and without a param_space."""

    kind = "pbt_replay"

    def __init__(self, policy_file: str) -> None:
        self.policy_file = policy_file
        self.config, policy = _core.tune.read_policy(os.fspath(policy_file))
        super().__init__(policy=policy)
