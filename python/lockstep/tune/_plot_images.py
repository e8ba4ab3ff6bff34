"""The plots of lockstep.tune.plot as pictures, drawn by matplotlib from the values that the core computes."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

from lockstep.errors import LockstepError


def png_of(kind: str, read: Callable[[], dict[str, Any]]) -> bytes:
    """The picture of a kind of plot. matplotlib is looked for before the values are computed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LockstepError(
            "[tune.plot] a .png needs the package matplotlib, which is not installed: pip install matplotlib; "
            "a path that ends with .html needs nothing"
        ) from error
    value = read()
    figure = Figure(figsize=(9.6, 5.4), dpi=120, layout="constrained")
    _DRAW[kind](figure.add_subplot(), value)
    figure.suptitle(f"{value['title']}: {kind}")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _metric(value: dict[str, Any], index: int) -> tuple[str, list[float], bool]:
    """Its name, its value in each trial (NaN: none), and whether more is better."""
    metric = value["metrics"][index]
    numbers = [_number(trial["values"][index]) for trial in value["trials"]]
    return f"{metric['name']} ({'max' if metric['maximize'] else 'min'})", numbers, metric["maximize"]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _history(axes: Any, value: dict[str, Any]) -> None:
    name, numbers, maximize = _metric(value, value["metric"])
    so_far: list[float] = []
    for number in numbers:
        known = [each for each in [*so_far[-1:], number] if not math.isnan(each)]
        so_far.append((max(known) if maximize else min(known)) if known else math.nan)
    axes.scatter(range(len(numbers)), numbers, s=16, alpha=0.7, label="trial")
    axes.step(range(len(numbers)), so_far, where="post", color="tab:red", label="best so far")
    axes.set(xlabel="trial", ylabel=name)
    axes.legend()


def _place(dimension: dict[str, Any], value: float | None) -> float:
    """Where a value is on its axis, from 0 to 1."""
    if value is None:
        return math.nan
    if dimension["kind"] == "category":
        return (value + 0.5) / max(1, len(dimension["labels"]))
    low, high = dimension["lower"], dimension["upper"]
    if dimension["log"]:
        low, high, value = math.log(low), math.log(high), math.log(value) if value > 0 else math.nan
    return (value - low) / (high - low) if high > low else 0.5


def _bounded(value: dict[str, Any], index: int) -> dict[str, Any]:
    """A dimension whose bounds are finite: those of the trials, where the domain has none."""
    dimension = value["dimensions"][index]
    if dimension["kind"] != "normal":
        return dict(dimension)
    points = [trial["point"][index] for trial in value["trials"] if trial["point"][index] is not None] or [0.0]
    return {**dimension, "lower": min(points), "upper": max(points)}


def _parallel(axes: Any, value: dict[str, Any]) -> None:
    from matplotlib import cm, colors

    name, numbers, maximize = _metric(value, value["metric"])
    known = [number for number in numbers if math.isfinite(number)] or [0.0]
    scale = colors.Normalize(min(known), max(known))
    mapped: Any = cm.ScalarMappable(scale, "viridis" if maximize else "viridis_r")
    dimensions = [_bounded(value, index) for index in range(len(value["dimensions"]))]
    for trial, number in zip(value["trials"], numbers, strict=True):
        if math.isfinite(number):
            places = [_place(each, at) for each, at in zip(dimensions, trial["point"], strict=True)]
            last = float(scale(number)) if max(known) > min(known) else 0.5
            axes.plot([*places, last], color=mapped.to_rgba(number), alpha=0.6, marker=".", linewidth=1)
    for at, each in enumerate(dimensions):
        axes.axvline(at, color="grey", linewidth=0.8)
        marks = enumerate(each["labels"]) if each["labels"] else ((end, f"{end:.4g}") for end in _ends(each))
        for mark, text in marks:
            axes.annotate(text, (at, _place(each, mark)), fontsize=8, xytext=(3, 0), textcoords="offset points")
    axes.set_xticks(range(len(dimensions) + 1), [*(each["name"] for each in dimensions), name])
    axes.set_yticks([])
    axes.figure.colorbar(mapped, ax=axes, label=name)


def _ends(dimension: dict[str, Any]) -> tuple[float, float]:
    return dimension["lower"], dimension["upper"]


def _importance(axes: Any, value: dict[str, Any]) -> None:
    shares = sorted(zip(value["dimensions"], value["importance"], strict=True), key=lambda pair: pair[1]["total"])
    names = [dimension["name"] for dimension, _ in shares]
    axes.barh(names, [share["total"] for _, share in shares], color="tab:blue", alpha=0.35, label="with interactions")
    axes.barh(names, [share["alone"] for _, share in shares], color="tab:blue", label="alone")
    axes.set(xlabel=f"share of the variation of {value['metrics'][value['metric']]['name']}", xlim=(0, 1))
    axes.legend(loc="lower right")


def _contour(axes: Any, value: dict[str, Any]) -> None:
    name, _, maximize = _metric(value, value["metric"])
    grid = value["grid"]
    rows = [[_number(each) for each in row] for row in grid["values"]]
    mesh = axes.pcolormesh(grid["x"], grid["y"], rows, shading="nearest", cmap="viridis" if maximize else "viridis_r")
    axes.figure.colorbar(mesh, ax=axes, label=f"{name}, expected")
    for which in ("x", "y"):
        dimension = value["dimensions"][value[which]]
        getattr(axes, f"set_{which}label")(dimension["name"])
        if dimension["labels"]:
            getattr(axes, f"set_{which}ticks")(range(len(dimension["labels"])), dimension["labels"])
        elif dimension["log"]:
            getattr(axes, f"set_{which}scale")("log")
    points = [trial["point"] for trial in value["trials"]]
    xs = [_number(point[value["x"]]) for point in points]
    axes.scatter(xs, [_number(point[value["y"]]) for point in points], s=12, color="white", edgecolors="black")


def _pareto(axes: Any, value: dict[str, Any]) -> None:
    x_name, xs, _ = _metric(value, value["x"])
    y_name, ys, _ = _metric(value, value["y"])
    axes.scatter(xs, ys, s=16, alpha=0.5, label="trial")
    front = value["front"]
    axes.plot([xs[at] for at in front], [ys[at] for at in front], "o-", color="tab:red", label="front")
    axes.set(xlabel=x_name, ylabel=y_name)
    axes.legend()


_DRAW: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "history": _history,
    "parallel": _parallel,
    "importance": _importance,
    "contour": _contour,
    "pareto": _pareto,
}
