"""Search spaces: values of a configuration that are chosen by a searcher. For example::

param_space = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "layers": tune.grid_search([1, 2, 3]),
    "head": tune.choice([{"kind": "linear"}, {"kind": "mlp", "width": tune.randint(8, 256)}]),
    "width": tune.sample_from(lambda spec: 2 * spec.config.layers),
}
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from lockstep import _core
from lockstep.errors import ConfigError


class Domain:
    """A set of values; ``sample()`` draws one."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.kind = kind
        self.options = options
        if kind not in ("choice", "sample_from"):
            self._check()

    def _check(self) -> None:
        for name, value in self.options.items():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ConfigError(f"[tune] {self.kind}: {name} is {value}; it must fit into 64 bits")
        _core.tune.Space({self.kind: self.to_value()})

    def to_value(self) -> dict[str, Any]:
        """As the core describes it."""
        given = {name: value for name, value in self.options.items() if value is not None}
        return {"$domain": {"kind": self.kind, **given}}

    def cast(self, value: Any) -> Any:
        """As a value of the set."""
        return value

    def is_valid(self, value: Any) -> bool:
        """Whether it belongs to the set, as far as that is known."""
        return True

    @property
    def domain_str(self) -> str:
        """The set as text."""
        return "(unknown)"

    def sample(self, spec: Any = None, size: int = 1, random_state: Any = None, *, config: Any = None) -> Any:
        """One value, or a list of `size` values. `random_state`: a seed, or a generator of numpy. `config` is another
        name of `spec`."""
        seed = random.getrandbits(63) if random_state is None else _seed(random_state)
        space = _core.tune.Space({"x": self.to_value()})
        searcher = _core.tune.make_searcher({"kind": "random"}, space, seed, 1)
        fixed = [float("nan")] * len(space.dimensions)
        drawn = [space.config(searcher.ask(number, fixed).point)["x"] for number in range(size)]
        return drawn[0] if size == 1 else drawn

    def is_grid(self) -> bool:
        """Whether every value is tried."""
        return False

    def is_function(self) -> bool:
        """Whether the values are computed from others."""
        return False

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def _seed(random_state: Any) -> int:
    draw = getattr(random_state, "integers", None) or getattr(random_state, "randint", None)
    return int(random_state if draw is None else draw(2**31 - 1))


class _Range(Domain):
    """Numbers between two bounds, or of a normal distribution. The class itself is the uniform one; its methods make
    the others: ``Float(1e-4, 1).loguniform().quantized(1e-4)``."""

    _kinds: ClassVar[Mapping[str, str]] = {}
    """The core's kind for each distribution."""

    def __init__(self, lower: float, upper: float, kind: str | None = None, **options: Any) -> None:
        self.lower = lower
        self.upper = upper
        kind = kind or self._kinds["uniform"]
        bounds = {} if "randn" in kind else {"lower": lower, "upper": upper}
        super().__init__(kind, **bounds, **options)

    def _as(self, kind: str, **options: Any) -> Any:
        return type(self)(self.lower, self.upper, kind, **options)

    def uniform(self) -> Any:
        """Every number is equally likely."""
        return self._as(self._kinds["uniform"])

    def loguniform(self, base: float = 10) -> Any:
        """Every logarithm is equally likely; `base` makes no difference."""
        return self._as(self._kinds["loguniform"])

    def quantized(self, q: float) -> Any:
        """The same, rounded to multiples of `q`."""
        return self._as("q" + self.kind.removeprefix("q"), q=q, **self._shape())

    def _shape(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name in ("mean", "sd")}

    def is_valid(self, value: Any) -> bool:
        """Whether it is a number between the bounds, both included."""
        return isinstance(value, (int, float)) and self.lower <= value <= self.upper

    @property
    def domain_str(self) -> str:
        """The bounds."""
        return f"({self.lower}, {self.upper})"


class Float(_Range):
    """A float in [lower, upper)."""

    _kinds: ClassVar[Mapping[str, str]] = {"uniform": "uniform", "loguniform": "loguniform"}

    def __init__(self, lower: float | None, upper: float | None, kind: str | None = None, **options: Any) -> None:
        low = float("-inf") if lower is None else lower
        super().__init__(low, float("inf") if upper is None else upper, kind, **options)

    def _check(self) -> None:
        if not (math.isinf(self.lower) or math.isinf(self.upper)) or "randn" in self.kind:
            super()._check()

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        """A normal distribution; the bounds must be infinite."""
        if not (math.isinf(self.lower) and math.isinf(self.upper)):
            raise ConfigError(
                f"[tune] Float{self.domain_str}.normal(): the numbers have no bounds; use Float(None, None)"
            )
        return Float(None, None, "randn", mean=mean, sd=sd)

    def cast(self, value: Any) -> float:
        """As a float."""
        return float(value)


class Integer(_Range):
    """An integer in [lower, upper)."""

    _kinds: ClassVar[Mapping[str, str]] = {"uniform": "randint", "loguniform": "lograndint"}

    def cast(self, value: Any) -> int:
        """As an integer."""
        return int(value)


class Categorical(Domain):
    """One of several values, which may be of any type and may hold domains."""

    def __init__(self, categories: Sequence[Any]) -> None:
        if isinstance(categories, (str, bytes, Mapping)) or not hasattr(categories, "__iter__"):
            raise ConfigError(f"[tune] choice() got {categories!r}; it must be a list of values")
        self.categories = list(categories)
        if not self.categories:
            raise ConfigError("[tune] choice() got no values; give at least one")
        super().__init__("choice", values=self.categories)

    def uniform(self) -> Categorical:
        """Every value is equally likely, as without this call."""
        return self

    def grid(self) -> dict[str, list[Any]]:
        """Every value is tried."""
        return grid_search(self.categories)

    def is_valid(self, value: Any) -> bool:
        """Whether it is one of the values."""
        return value in self.categories

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]

    @property
    def domain_str(self) -> str:
        """The values."""
        return f"{self.categories}"

    def sample(self, spec: Any = None, size: int = 1, random_state: Any = None, *, config: Any = None) -> Any:
        generator = random if random_state is None else random.Random(_seed(random_state))
        drawn = [generator.choice(self.categories) for _ in range(size)]
        return drawn[0] if size == 1 else drawn


class SampleFrom(Domain):
    """A value computed from the others: `function` gets a spec whose ``config`` has them as attributes and items."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        if not callable(func):
            raise ConfigError(f"[tune] sample_from() got {func!r}; it must be a function of the spec")
        self.function = func
        super().__init__("sample_from")

    def is_function(self) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"{getattr(self.function, '__name__', self.function)}()"

    def sample(self, spec: Any = None, size: int = 1, random_state: Any = None, *, config: Any = None) -> Any:
        spec = config if spec is None else spec
        drawn = [self.function(spec) for _ in range(size)]
        return drawn[0] if size == 1 else drawn


Function = SampleFrom


def grid_search(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Every one of the values is tried, ``num_samples`` times."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise ConfigError(f"[tune] grid_search() got {values!r}; it must be a list of values")
    if not (made := list(values)):
        raise ConfigError("[tune] grid_search() got no values; give at least one")
    return {"grid_search": made}


def choice(categories: Sequence[Any]) -> Categorical:
    """One of the values, all equally likely."""
    return Categorical(categories)


def _bounds(kind: str, lower: Any, upper: Any) -> tuple[float, float]:
    for name, value in (("lower", lower), ("upper", upper)):
        is_number = not isinstance(value, (bool, str)) and hasattr(value, "__float__")
        if not is_number or not math.isfinite(value):
            raise ConfigError(f"[tune] {kind}() got {name}={value!r}; it must be a finite number")
    return lower, upper


def uniform(lower: float, upper: float) -> Float:
    """A float in [lower, upper)."""
    return Float(*_bounds("uniform", lower, upper), "uniform")


def quniform(lower: float, upper: float, q: float) -> Float:
    """The same, rounded to multiples of `q`; `upper` is included."""
    return Float(*_bounds("quniform", lower, upper), "quniform", q=q)


def loguniform(lower: float, upper: float, base: float = 10) -> Float:
    """A float whose logarithm is uniform. `base` makes no difference; it is there as in Ray."""
    return Float(*_bounds("loguniform", lower, upper), "loguniform")


def qloguniform(lower: float, upper: float, q: float, base: float = 10) -> Float:
    """The same, rounded to multiples of `q`; `upper` is included."""
    return Float(*_bounds("qloguniform", lower, upper), "qloguniform", q=q)


def randint(lower: int, upper: int) -> Integer:
    """An integer in [lower, upper)."""
    return Integer(lower, upper, "randint")


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """An integer rounded to multiples of `q`; `upper` is included."""
    return Integer(lower, upper, "qrandint", q=q)


def lograndint(lower: int, upper: int, base: float = 10) -> Integer:
    """An integer in [lower, upper) whose logarithm is uniform."""
    return Integer(lower, upper, "lograndint")


def qlograndint(lower: int, upper: int, q: int, base: float = 10) -> Integer:
    """The same, rounded to multiples of `q`; `upper` is included."""
    return Integer(lower, upper, "qlograndint", q=q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """A float of a normal distribution."""
    return Float(None, None, "randn", mean=mean, sd=sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """The same, rounded to multiples of `q`."""
    return Float(None, None, "qrandn", mean=mean, sd=sd, q=q)


def sample_from(func: Callable[[Any], Any]) -> SampleFrom:
    """A value computed from the others: ``sample_from(lambda spec: spec.config.width * 2)``."""
    return SampleFrom(func)
