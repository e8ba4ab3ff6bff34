"""The searchers of the core."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep import _core
from lockstep.errors import ConfigError
from lockstep.tune._space import ParamSpace
from lockstep.tune.search._searcher import Searcher, check_mode, check_points, take_objective
from lockstep.tune.tune_config import check_seed

_NAN = float("nan")


class NativeSearcher(Searcher):
    """A searcher of the core. In a ``TuneConfig`` it needs no arguments. Alone, it has a space and is asked::

    searcher = TPESearch(space={"x": tune.uniform(0, 1)}, metric="loss", mode="min", seed=0)
    for _ in range(100):
        id, config = searcher.ask()
        searcher.tell(id, loss(config["x"]))
    searcher.best  # (id, config, value)
    """

    kind = ""

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        *,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        check_mode(mode)
        check_seed(seed, f"tune.search] [{type(self).__name__}")
        self._metric = metric
        self._mode = mode
        self.space = space
        self.seed = None if seed is None else int(seed)
        self.points_to_evaluate = check_points(points_to_evaluate)
        self.options = {name: value for name, value in options.items() if value is not None}
        self._searcher: Any = None
        self._given: Mapping[str, Any] | None = None
        """The experiment's space, for one inside a wrapper that is not the core's."""
        self._usual_seed: int | None = None
        """The experiment's seed."""
        self._best: tuple[float, int, dict[str, Any], float] | None = None
        _core.tune.make_searcher(self.description(), _core.tune.Space({}), 0, self._objectives)
        if space is not None:
            ParamSpace(space)

    @property
    def _objectives(self) -> int:
        return 1 if self._metric is None or isinstance(self._metric, str) else len(self._metric)

    def description(self) -> dict[str, Any]:
        """For the core."""
        return {"kind": self.kind, **self.options}

    @property
    def is_native(self) -> bool:
        return True

    @property
    def _needs_metric(self) -> bool:
        return self.kind not in ("random", "grid", "sobol")

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Inside a wrapper that is not the core's."""
        take_objective(self, metric, mode)
        self._searcher = None
        self._given = config
        return self.space is None or not config

    def _use_seed(self, seed: int) -> None:
        self._usual_seed = seed

    # ------------------------------------------------------------------ alone

    def ask(self) -> tuple[int, dict[str, Any]]:
        """An id and a configuration to try. Raises StopIteration when there is nothing more to try, or nothing until
        the next tell()."""
        if self._searcher is None:
            self._begin()
        trial = self._next
        point = [_NAN] * self._dimensions
        if trial < len(self.points_to_evaluate):
            point = self._core_space.point(self._param_space.to_core(self.points_to_evaluate[trial]))
        elif self._grid_size > 1:
            grid = self._core_space.grid_point((trial - len(self.points_to_evaluate)) % self._grid_size)
            point = [given if value != value else value for given, value in zip(point, grid, strict=True)]
        asked = self._searcher.ask(trial, point)
        if asked.kind != _core.tune.Searcher.Asked.Kind.point:
            waits = asked.kind == _core.tune.Searcher.Asked.Kind.wait
            raise StopIteration("nothing until the next tell()" if waits else "every point was tried")
        self._next += 1
        config = self._param_space.config(self._core_space.config(asked.point))
        self._asked[trial] = config
        return trial, config

    def tell(self, id: int, value: float | Sequence[float] | Mapping[str, Any] | None) -> None:
        """The value of an asked configuration: a number, one for each metric, or a dict of metrics. None: it failed."""
        if id not in self._asked:
            raise ConfigError(f"[tune.search] tell() got the id {id!r}; it must be one that ask() returned, told once")
        values = self._values(value)
        config = self._asked.pop(id)
        self._searcher.tell(id, [sign * each for sign, each in zip(self._signs, values, strict=True)] if values else [])
        if len(values) > 1:
            self._told.append((id, config, values))
        elif values and values[0] == values[0]:
            score = self._signs[0] * values[0]
            if self._best is None or score < self._best[0]:
                self._best = (score, id, config, values[0])

    @property
    def best(self) -> tuple[int, dict[str, Any], float] | None:
        """Id, configuration and value of the best so far, for one metric. Without a mode, lower is better."""
        return None if self._searcher is None or self._best is None else self._best[1:]

    def get_pareto_front(self) -> list[tuple[int, dict[str, Any], list[float]]]:
        """Id, configuration and values of those that no other one beats in every metric, for several metrics."""
        told = [] if self._searcher is None else [each for each in self._told if all(map(math.isfinite, each[2]))]
        scores = [[sign * value for sign, value in zip(self._signs, each[2], strict=True)] for each in told]
        return [told[index] for index in _core.tune.pareto_front(scores)]

    def _begin(self) -> None:
        space = self._given if self.space is None else self.space
        if space is None:
            raise ConfigError(f"[tune.search] {type(self).__name__}.ask() needs a space; give space={{...}}")
        self._param_space = ParamSpace(space)
        self._core_space = _core.tune.Space(self._param_space.value)
        self._dimensions = len(self._core_space.dimensions)
        self._grid_size = self._core_space.grid_size()
        seed = self._usual_seed if self.seed is None else self.seed
        seed = random.getrandbits(63) if seed is None else seed
        self._searcher = _core.tune.make_searcher(self.description(), self._core_space, seed, self._objectives)
        modes = [self._mode] * self._objectives if self._mode is None or isinstance(self._mode, str) else self._mode
        if len(modes) != self._objectives:
            raise ConfigError(f"[tune.search] mode is {self._mode!r}; it must have one entry for each metric")
        self._signs = [-1 if mode == "max" else 1 for mode in modes]
        self._next = 0
        self._asked: dict[int, dict[str, Any]] = {}
        self._told: list[tuple[int, dict[str, Any], list[float]]] = []
        self._best = None

    def _values(self, value: Any) -> list[float]:
        if value is None:
            return []
        if isinstance(value, Mapping):
            names = [self._metric] if isinstance(self._metric, str) else list(self._metric or ())
            if not names:
                name = type(self).__name__
                raise ConfigError(f"[tune.search] tell() got a dict, but there is no metric: {name}(space, metric=...)")
            found = dict(value)
            value = [_core.number_at(found, name) for name in names]
            if None in value or not value:
                raise ConfigError(f"[tune.search] tell() got no number for each metric of {names}: {found!r}")
        try:
            values = [float(value)] if _is_number(value) else [float(each) for each in value]
        except (TypeError, ValueError):
            raise ConfigError(
                f"[tune.search] tell() got the value {value!r}; it must be a number, one for each metric, or a dict"
            ) from None
        if len(values) != self._objectives:
            raise ConfigError(f"[tune.search] tell() got {len(values)} values; there are {self._objectives} metrics")
        return values

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        try:
            id, config = self.ask()
        except StopIteration as nothing:
            return None if "until" in str(nothing) else self.FINISHED
        self.__dict__.setdefault("_suggested", {})[trial_id] = id
        return config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        id = self.__dict__.setdefault("_suggested", {}).pop(trial_id, None)
        if id is not None:
            self.tell(id, None if error else result)


def _is_number(value: Any) -> bool:
    return not hasattr(value, "__len__") and hasattr(value, "__float__")


class RandomSearch(NativeSearcher):
    """Independent random values, and every grid point."""

    kind = "random"


class GridSearch(NativeSearcher):
    """Every combination of values; a continuous domain is divided into `steps`."""

    kind = "grid"

    def __init__(
        self, space: Any = None, metric: Any = None, mode: Any = None, *, steps: int | None = None, **more: Any
    ):
        super().__init__(space, metric, mode, steps=steps, **more)


class SobolSearch(NativeSearcher):
    """A scrambled Sobol sequence: fills the space more evenly than random values."""

    kind = "sobol"


class TPESearch(NativeSearcher):
    """Tree-structured Parzen estimator, multivariate; the default choice for 30 trials or more. `n_startup` random
    trials come first, `n_candidates` are compared for each further one."""

    kind = "tpe"

    def __init__(
        self,
        space: Any = None,
        metric: Any = None,
        mode: Any = None,
        *,
        n_startup: int | None = None,
        n_candidates: int | None = None,
        prior_weight: float | None = None,
        **more: Any,
    ) -> None:
        more |= {"n_startup": n_startup, "n_candidates": n_candidates, "prior_weight": prior_weight}
        super().__init__(space, metric, mode, **more)


class BOHBSearch(NativeSearcher):
    """TPE that learns from unfinished trials too; use it with HyperBandForBOHB."""

    kind = "bohb"

    def __init__(
        self,
        space: Any = None,
        metric: Any = None,
        mode: Any = None,
        *,
        n_startup: int | None = None,
        n_candidates: int | None = None,
        eta: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(space, metric, mode, n_startup=n_startup, n_candidates=n_candidates, eta=eta, **more)


TuneBOHB = BOHBSearch


class CMAESSearch(NativeSearcher):
    """Covariance matrix adaptation: for continuous parameters and hundreds of trials."""

    kind = "cmaes"

    def __init__(
        self, space: Any = None, metric: Any = None, mode: Any = None, *, population: int | None = None, **more: Any
    ) -> None:
        super().__init__(space, metric, mode, population=population, **more)


class GPSearch(NativeSearcher):
    """A Gaussian process with expected improvement: for few, expensive trials."""

    kind = "gp"

    def __init__(
        self,
        space: Any = None,
        metric: Any = None,
        mode: Any = None,
        *,
        n_startup: int | None = None,
        history: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(space, metric, mode, n_startup=n_startup, history=history, **more)


class NSGA2Search(NativeSearcher):
    """A genetic algorithm for several metrics: ``metric=["loss", "size"], mode=["min", "min"]``. `population` is 50, or
    20 with one metric."""

    kind = "nsga2"

    def __init__(
        self,
        space: Any = None,
        metric: Any = None,
        mode: Any = None,
        *,
        population: int | None = None,
        crossover: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(space, metric, mode, population=population, crossover=crossover, **more)


class BasicVariantGenerator(RandomSearch):
    """Ray's name of RandomSearch."""

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: int | None = None,
    ) -> None:
        super().__init__(points_to_evaluate=points_to_evaluate, seed=random_state)
        self.max_concurrent = max_concurrent
        self.constant_grid_search = constant_grid_search
