"""The variants of a search space, without an experiment, as ``ray.tune.search.variant_generator`` gives them."""

from __future__ import annotations

import copy
import itertools
import logging
import random
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep import _core, tune
from lockstep.errors import ConfigError
from lockstep.tune.sample import Domain
from lockstep.tune.search import BasicVariantGenerator as Native

logger = logging.getLogger("ray.tune.search.variant_generator")
grid_search = tune.grid_search
Path = tuple[Any, ...]


class RecursiveDependencyError(ConfigError):
    """Values of ``sample_from()`` that need each other."""


def generate_variants(
    unresolved_spec: Mapping[str, Any], constant_grid_search: bool = False, random_state: Any = None
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """All points of the grid, with a value for every domain: pairs of what was chosen, by its path, and the spec::

    for chosen, spec in generate_variants({"lr": tune.grid_search([1, 2]), "width": tune.randint(1, 9)}):
        print(chosen[("width",)], spec["lr"])

    With `constant_grid_search`, domains are sampled once for the whole grid.
    """
    generator = random_state if isinstance(random_state, random.Random) else _generator(random_state)
    spec = copy.deepcopy(dict(unresolved_spec))
    chosen: dict[Path, Any] = {}
    if constant_grid_search:
        chosen = _sample(spec, generator)
    for found, variant in _variants(spec, generator):
        yield {**chosen, **found}, variant


def _generator(random_state: Any) -> random.Random:
    """A whole number, a generator of numpy, or None."""
    if random_state is None or isinstance(random_state, int):
        return random.Random(random_state)
    draw = getattr(random_state, "integers", None) or random_state.randint
    return random.Random(int(draw(2**31)))


def _variants(spec: dict[str, Any], generator: random.Random) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    grids = [(path, value["grid_search"]) for path, value in _unresolved(spec) if not isinstance(value, Domain)]
    if not grids:
        made = copy.deepcopy(spec)
        chosen = _sample(made, generator)
        if next(_unresolved(made), None) is None:
            yield chosen, made
            return
        for found, variant in _variants(made, generator):  # a domain had a grid among its values
            yield {**chosen, **found}, variant
        return
    for values in itertools.product(*(values for _, values in reversed(grids))):
        made = copy.deepcopy(spec)
        chosen = {}
        for (path, _), value in zip(grids, reversed(values), strict=True):
            chosen[path] = value
            _assign(made, path, copy.deepcopy(value))
        for found, variant in _variants(made, generator):
            yield {**chosen, **found}, variant


def _sample(spec: dict[str, Any], generator: random.Random) -> dict[Path, Any]:
    """Replaces domains by values, also those within values; functions when what they need is there."""
    chosen: dict[Path, Any] = {}
    while True:
        domains = [(path, value) for path, value in _unresolved(spec) if isinstance(value, Domain)]
        if not domains:
            return chosen
        made = 0
        for path, domain in sorted(domains, key=lambda pair: pair[1].is_function()):
            try:
                value = domain.sample(_Guard(spec), random_state=generator.getrandbits(63))
            except RecursiveDependencyError:
                continue
            chosen[path] = value
            _assign(spec, path, copy.deepcopy(value))
            made += 1
        if made == 0:
            if any(not isinstance(value, Domain) for _, value in _unresolved(spec)):
                return chosen  # they need a grid's value
            names = ", ".join("/".join(map(str, path)) for path, _ in domains)
            raise RecursiveDependencyError(f"[tune] sample_from() of {names} need each other; break the circle")


def _unresolved(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Domain) or _is_grid(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _unresolved(value[key], (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _unresolved(each, (*path, index))


def _is_grid(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"grid_search"}


def _assign(spec: Any, path: Path, value: Any) -> None:
    *above, last = path
    holder = spec
    for key in above:
        if isinstance(holder[key], tuple):
            holder[key] = list(holder[key])
        holder = holder[key]
    holder[last] = value


class _Guard(Mapping[str, Any]):
    """The spec as functions see it: values by attribute or item. A value that is not chosen yet raises."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, Domain) or _is_grid(value):
            raise RecursiveDependencyError(f"[tune] the value of {key!r} is not chosen yet")
        return _Guard(value) if isinstance(value, Mapping) else value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or key not in self._values:
            raise AttributeError(key)
        return self[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def has_unresolved_values(spec: Mapping[str, Any]) -> bool:
    """Whether there is a domain or grid in it."""
    return next(_unresolved(spec), None) is not None


def count_variants(spec: Mapping[str, Any], presets: Any = None) -> int:
    """How many trials it makes: points of the grid times ``num_samples``."""
    grid = 1
    for _, value in _unresolved({key: each for key, each in spec.items() if key != "num_samples"}):
        grid *= len(value["grid_search"]) if not isinstance(value, Domain) else 1
    return grid * int(spec.get("num_samples", 1)) + len(presets or ())


def format_vars(resolved_vars: Mapping[Path, Any]) -> str:
    """What was chosen in one line: ``lr=0.1,width=3``."""
    parts = []
    for path, value in sorted(resolved_vars.items(), key=lambda pair: str(pair[0])):
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        name = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
        parts.append(f"{name}={shown.replace('/', '_')}")
    return ",".join(parts)


def _resolve_nested_dict(nested: Mapping[str, Any]) -> dict[Path, Any]:
    """Nested dicts as one, by paths."""
    made: dict[Path, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            made.update({(key, *path): each for path, each in _resolve_nested_dict(value).items()})
        else:
            made[(key,)] = value
    return made


class BasicVariantGenerator(Native):
    """Lockstep's, which can also be driven by hand::

    generator = BasicVariantGenerator()
    generator.add_configurations({"name": {"run": "trainable", "num_samples": 2, "config": {...}}})
    while trial := generator.next_trial():
        print(trial.config)
    """

    def add_configurations(self, experiments: Any) -> None:
        """Experiments: dicts by name, or a list of tune.Experiment."""
        if isinstance(experiments, Mapping):
            experiments = [tune.Experiment.from_json(name, spec) for name, spec in experiments.items()]
        given = list(experiments) if isinstance(experiments, (list, tuple)) else [experiments]
        before = self.__dict__.get("_made", iter(()))
        self._made = itertools.chain(before, *map(self._trials_of, given))
        self._total = self.total_samples + sum(
            count_variants({"config": each.config or {}, "num_samples": each.num_samples}) for each in given
        )

    @property
    def total_samples(self) -> int:
        """How many trials there are."""
        return int(self.__dict__.get("_total", 0))

    def next_trial(self) -> tune.Trial | None:
        """The next one; None after the last."""
        trial: tune.Trial | None = next(self.__dict__.get("_made", iter(())), None)
        self._is_finished = trial is None
        return trial

    def is_finished(self) -> bool:
        """Whether next_trial() has returned None."""
        return bool(self.__dict__.get("_is_finished", False))

    def _trials_of(self, experiment: Any) -> Iterator[tune.Trial]:
        generator = _generator(self.seed)
        base = experiment.storage_path or experiment.local_dir or _core.default_storage_path()
        name = experiment.run if isinstance(experiment.run, str) else getattr(experiment.run, "__name__", "trainable")
        spec = {"config": dict(experiment.config or {})}
        variants: Iterator[tuple[dict[Path, Any], dict[str, Any]]] = itertools.chain(
            *(
                generate_variants({"config": _with_point(spec["config"], point)}, random_state=generator)
                for point in self.points_to_evaluate
            ),
            *(
                generate_variants(spec, self.constant_grid_search, generator)
                for _ in range(max(0, experiment.num_samples - len(self.points_to_evaluate)))
            ),
        )
        for number, (chosen, variant) in enumerate(variants):
            tag = f"{number}_{format_vars(chosen)}" if chosen else str(number)
            id = uuid.uuid4().hex[:8]
            made = tune.Trial(id, variant["config"], f"{base}/{experiment.name}/{name}_{id}_{tag}", name)
            made.experiment_tag, made.number = tag, number
            made.evaluated_params = {"/".join(map(str, path[1:])): value for path, value in chosen.items()}
            yield made


def _with_point(config: dict[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(config)
    for path, value in _resolve_nested_dict(point).items():
        _assign(made, path, value)
    return made
