"""What scripts for Ray Tune use and Lockstep has under other names, or with other defaults."""

from __future__ import annotations

import copy
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lockstep
from lockstep import _core, tune
from lockstep._places import local_path
from lockstep.as_ray._tune_loggers import callbacks_of
from lockstep.errors import ConfigError
from lockstep.tune import search
from lockstep.tune.search import GPSearch, TPESearch
from lockstep.tune.sync_config import SyncConfig
from lockstep.tune.trainable import get_trainable, register_trainable

__all__ = ["SyncConfig", "register_trainable"]

LEGACY_RNG = False
ENV_CREATOR = "env_creator"


# ---------------------------------------------------------------------- running


@dataclass
class TuneConfig(tune.TuneConfig):
    """Lockstep's, except that trials of functions and classes work in their own directory, as in Ray."""

    chdir_to_trial_dir: bool = True


class Tuner(tune.Tuner):
    """Lockstep's, with the defaults of Ray."""

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: tune.TuneConfig | None = None,
        run_config: lockstep.RunConfig | None = None,
        _tuner_kwargs: Any = None,
        **_: Any,
    ) -> None:
        tune_config = TuneConfig() if tune_config is None else tune_config
        super().__init__(trainable, param_space=param_space, tune_config=tune_config, run_config=run_config)

    def fit(self) -> tune.ResultGrid:
        if self._again is None:
            _make_room(self._run.storage_path or self._run.local_dir, self._run.name)
        return super().fit()


def _make_room(storage: Any, name: str | None) -> None:
    """Ray runs an experiment again under a name that was used; here the older one gets another name."""
    place = Path(_core.default_storage_path() if storage is None else local_path(storage, "[tune] path")) / (name or "")
    if name is None or not (place / "experiment.sqlite").exists():
        return
    made = time.localtime((place / "experiment.sqlite").stat().st_mtime)
    older = f"{place}_{time.strftime('%Y-%m-%d_%H-%M-%S', made)}"
    free = next(path for number in itertools.count() if not os.path.exists(path := older + f"_{number}" * (number > 0)))
    place.rename(free)
    print(f"lockstep: {place} was used before; what it held is in {free}", file=sys.stderr)


def run(run_or_experiment: Any, name: str | None = None, **options: Any) -> tune.ExperimentAnalysis:
    """Lockstep's ``tune.run`` with the defaults of Ray: trials work in their own directory."""
    options.setdefault("chdir_to_trial_dir", True)
    if isinstance(run_or_experiment, tune.Experiment):
        each = run_or_experiment
        _make_room(each.storage_path or each.local_dir, None if options.get("resume") else each.name)
    elif not options.get("resume"):
        _make_room(options.get("storage_path") or options.get("local_dir"), name)
    if loggers := options.pop("loggers", None):
        options["callbacks"] = [*(options.get("callbacks") or ()), *callbacks_of(loggers)]
    return tune.run(run_or_experiment, name, **options)


def run_experiments(experiments: Any, **options: Any) -> list[tune.Trial]:
    """The same for ``tune.run_experiments``."""
    options.setdefault("chdir_to_trial_dir", True)
    if isinstance(experiments, Mapping):
        experiments = [tune.Experiment.from_json(name, spec) for name, spec in experiments.items()]
    if not options.get("resume"):
        for each in experiments if isinstance(experiments, (list, tuple)) else [experiments]:
            if isinstance(each, tune.Experiment):
                _make_room(each.storage_path or each.local_dir, each.name)
    return tune.run_experiments(experiments, **options)


def get_trial_resources() -> tune.PlacementGroupFactory:
    """The resources of the trial that runs in this process."""
    return tune.PlacementGroupFactory([{"CPU": 1.0, **tune.function_api.get_trial_resources()}])


def durable(trainable: Any) -> Any:
    """Accepted as in Ray 1.7, without effect: trials are on disk in any case."""
    return trainable


class Syncer:
    """The base of classes that would upload: they can be defined, and are never called."""


class Resources(dict[str, float]):
    """Resources of a trial, as in Ray 1.7: ``Resources(cpu=1, gpu=0)``."""

    def __init__(self, cpu: float = 0, gpu: float = 0, **more: Any) -> None:
        super().__init__({"cpu": cpu, "gpu": gpu, **(more.get("custom_resources") or {})})


# ---------------------------------------------------------------------- registered names


class _Registry:
    """Objects by category and name."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Any] = {}

    def register(self, category: str, key: str, value: Any) -> None:
        self._made[category, key] = value

    def contains(self, category: str, key: str) -> bool:
        return (category, key) in self._made

    def get(self, category: str, key: str) -> Any:
        return self._made[category, key]


_global_registry = _Registry()


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Makes an environment known by a name; a training function may look it up in the registry."""
    if not callable(env_creator):
        raise ConfigError(f"[tune] register_env() got {env_creator!r}; it must be a function")
    _global_registry.register(ENV_CREATOR, name, env_creator)


def get_trainable_cls(name: str) -> Any:
    """What was registered under the name."""
    return get_trainable(name)


# ---------------------------------------------------------------------- searchers under the names of other packages


def _own_space(who: str, space: Any) -> Any:
    if space is None or (isinstance(space, Mapping) and _is_ours(space)):
        return space
    raise ConfigError(f"[{who}] space is not one of ray.tune; give domains of tune, such as tune.uniform(0, 1)")


def _is_ours(space: Mapping[str, Any]) -> bool:
    plain = (bool, int, float, str, type(None), list, tune.Domain)
    return all(_is_ours(each) if isinstance(each, Mapping) else isinstance(each, plain) for each in space.values())


class HyperOptSearch(TPESearch):
    """Lockstep's TPE, which is HyperOpt's method too; HyperOpt itself is not used."""

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
        max_concurrent: int | None = None,
        use_early_stopped_trials: bool | None = None,
    ) -> None:
        super().__init__(
            _own_space("HyperOptSearch", space),
            metric,
            mode,
            points_to_evaluate=points_to_evaluate,
            n_startup=n_initial_points,
            seed=random_state_seed,
        )
        if max_concurrent is not None:
            self.max_concurrent = max_concurrent


class BayesOptSearch(GPSearch):
    """Lockstep's Gaussian process; the package bayesian-optimization is not used. A space of pairs is uniform."""

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: Any = None,
        random_state: int = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        max_concurrent: int | None = None,
        use_early_stopped_trials: bool | None = None,
    ) -> None:
        if space is not None:
            space = {name: tune.uniform(*each) if isinstance(each, tuple) else each for name, each in space.items()}
        super().__init__(
            _own_space("BayesOptSearch", space),
            metric,
            mode,
            points_to_evaluate=points_to_evaluate,
            n_startup=random_search_steps,
            seed=random_state,
        )
        if max_concurrent is not None:
            self.max_concurrent = max_concurrent


class Repeater(search.Repeater):
    """Lockstep's, except that configurations say how often they were tried before, as in Ray."""

    def __init__(self, searcher: search.Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher, repeat, set_index)


# ---------------------------------------------------------------------- functions


def pretty_print(result: Mapping[str, Any]) -> str:
    """A result as lines; keys without a value are left out."""
    return "\n".join(_lines({**result, "config": None}, "")) + "\n"


def _lines(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name in sorted(values):
        value = values[name]
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif value is not None:
            yield f"{indent}{name}: {value}"


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """The inverse of flatten_dict().

    >>> unflatten_dict({"loss/train": 1})
    {'loss': {'train': 1}}
    """
    made: dict[str, Any] = {}
    for name, value in dt.items():
        *above, last = name.split(delimiter)
        place = made
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return made


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """`d1` with the values of `d2`, dict by dict."""
    return deep_update(copy.deepcopy(dict(d1)), d2, new_keys_allowed=True)


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Sequence[str] | None = None,
    override_all_if_type_changes: Sequence[str] | None = None,
    override_all_key_list: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Changes `original`, dict by dict; unknown keys are refused unless they are allowed."""
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise ConfigError(f"[deep_update] unknown key {key!r}; there are {', '.join(map(repr, original))}")
        before = original.get(key)
        replaces = key in (override_all_key_list or ()) or (
            key in (override_all_if_type_changes or ())
            and isinstance(before, Mapping)
            and isinstance(value, Mapping)
            and "type" in value
            and value["type"] != before.get("type")
        )
        if isinstance(before, dict) and isinstance(value, Mapping) and not replaces:
            deep_update(before, value, new_keys_allowed or key in (allow_new_subkey_list or ()))
        else:
            original[key] = value
    return original


def wait_for_gpu(gpu_id: Any = None, target_util: float = 0.01, retry: int = 20, **_: Any) -> bool:
    """Returns at once: a GPU belongs to one trial, and the process that had it before has ended."""
    return True


def validate_save_restore(trainable_cls: type[tune.Trainable], config: Mapping[str, Any] | None = None) -> bool:
    """Makes a step, saves, and goes on in a new object; raises what the class raises."""
    first, second = (trainable_cls(dict(config or {})) for _ in range(2))
    try:
        first.train()
        second.restore(first.save())
        second.train()
        if second.training_iteration != 2:
            raise ConfigError(f"[tune] {trainable_cls.__name__} is at step {second.training_iteration}, not at 2")
    finally:
        first.stop()
        second.stop()
    return True


class Verbosity:
    """The levels of `verbose`."""

    V0_MINIMAL = 0
    V1_EXPERIMENT = 1
    V2_TRIAL_NORM = 2
    V3_TRIAL_DETAILS = 3


def set_verbosity(level: int) -> None:
    """Accepted without effect: `verbose` of RunConfig and tune.run() counts."""
