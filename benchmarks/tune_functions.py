"""Functions that measure searchers: a space in Lockstep's form, and the value of a configuration, to be minimised.

Plain Python, because Optuna's environment reads them too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Function(NamedTuple):
    space: dict[str, Any]
    value: Callable[[dict[str, Any]], float]


def domain(kind: str, **options: Any) -> dict[str, Any]:
    return {"$domain": {"kind": kind, **options}}


def uniform_space(dimensions: int, lower: float, upper: float) -> dict[str, Any]:
    return {f"x{n}": domain("uniform", lower=lower, upper=upper) for n in range(dimensions)}


def branin(config: dict[str, Any]) -> float:
    """The least value is 0.397887."""
    x, y = config["x0"], config["x1"]
    curve = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return float(curve * curve + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


HEIGHTS = (1, 1.2, 3, 3.2)
SCALES = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
CENTRES = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def hartmann(config: dict[str, Any]) -> float:
    """The least value is -3.32237."""
    x = [config[f"x{n}"] for n in range(6)]
    total = 0.0
    for height, scales, centres in zip(HEIGHTS, SCALES, CENTRES, strict=True):
        distance = sum(scale * (a - centre) ** 2 for scale, a, centre in zip(scales, x, centres, strict=True))
        total -= height * math.exp(-distance)
    return total


def rosenbrock(config: dict[str, Any]) -> float:
    """The least value is 0."""
    x = [config[f"x{n}"] for n in range(5)]
    return float(sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x)))


def conditional(config: dict[str, Any]) -> float:
    """A choice of two models with parameters of their own. The least value is 0."""
    model = config["model"]
    total = (math.log10(config["rate"]) + 3) ** 2
    if model["kind"] == "tree":
        return float(0.5 + total + ((model["depth"] - 6) / 5) ** 2 + (model["share"] - 0.5) ** 2)
    total += (math.log2(model["width"]) - 7) ** 2 / 4 + 4 * (model["drop"] - 0.2) ** 2
    return float(total + (0 if model["bias"] else 0.3))


CONDITIONAL_SPACE = {
    "rate": domain("loguniform", lower=1e-5, upper=1),
    "model": domain(
        "choice",
        values=[
            {
                "kind": "tree",
                "depth": domain("randint", lower=1, upper=21),
                "share": domain("quniform", lower=0, upper=1, q=0.05),
            },
            {
                "kind": "net",
                "width": domain("lograndint", lower=4, upper=1024),
                "drop": domain("uniform", lower=0, upper=1),
                "bias": domain("choice", values=[True, False]),
            },
        ],
    ),
}

FUNCTIONS = {
    "branin": Function(
        {"x0": domain("uniform", lower=-5, upper=10), "x1": domain("uniform", lower=0, upper=15)}, branin
    ),
    "hartmann6": Function(uniform_space(6, 0, 1), hartmann),
    "rosenbrock5": Function(uniform_space(5, -5, 10), rosenbrock),
    "conditional": Function(CONDITIONAL_SPACE, conditional),
}
