"""Plots of an experiment, saved as a web page (``.html``) or a picture (``.png``)::

from lockstep import tune

grid = tuner.fit()
tune.plot.history(grid, "history.html")
tune.plot.contour("~/lockstep_results/search-1", "contour.png", x="lr", y="momentum")

Pages need no package and load nothing from elsewhere; pictures need matplotlib. An experiment may still run. Names of
nested parameters and metrics are joined by ``/``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core
from lockstep._places import local_path
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

    from lockstep.tune.result_grid import ResultGrid

    Experiment: TypeAlias = ResultGrid | str | os.PathLike[str]

__all__ = ["contour", "history", "importance", "parallel_coordinates", "pareto_front"]


def history(
    results: Experiment, path: str | os.PathLike[str], *, metric: str | None = None, mode: str | None = None
) -> Path:
    """The metric of each trial, and the best so far. `metric` and `mode` are the experiment's unless they are given.
    Returns the file that was written."""
    return _save(results, path, "history", metric=metric, mode=mode)


def parallel_coordinates(
    results: Experiment, path: str | os.PathLike[str], *, metric: str | None = None, mode: str | None = None
) -> Path:
    """One line per trial through its parameters to its metric."""
    return _save(results, path, "parallel", metric=metric, mode=mode)


def importance(
    results: Experiment, path: str | os.PathLike[str], *, metric: str | None = None, mode: str | None = None
) -> Path:
    """How much of the metric's variation each parameter explains, alone and with its interactions (fANOVA)."""
    return _save(results, path, "importance", metric=metric, mode=mode)


def contour(
    results: Experiment,
    path: str | os.PathLike[str],
    *,
    x: str | None = None,
    y: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
) -> Path:
    """The metric to expect over two parameters, by default the most important ones."""
    return _save(results, path, "contour", metric=metric, mode=mode, x=x, y=y)


def pareto_front(
    results: Experiment, path: str | os.PathLike[str], *, x: str | None = None, y: str | None = None
) -> Path:
    """The trials by two metrics, by default the experiment's first ones, and those that no other one beats in both.
    Metrics that the experiment does not know are minimised; those whose name begins with ``-`` are maximised."""
    return _save(results, path, "pareto", x=x, y=y)


def _save(results: Any, path: str | os.PathLike[str], kind: str, mode: str | None = None, **names: str | None) -> Path:
    place = Path(local_path(path, "[tune.plot] path"))
    if place.suffix not in (".html", ".png"):
        raise ConfigError(f"[tune.plot] path is {os.fspath(path)!r}; it must end with .html or .png")
    if mode not in (None, "min", "max"):
        raise ConfigError(f"[tune.plot] mode is {mode!r}; it must be 'min' or 'max'")
    experiment = getattr(results, "experiment_path", results)
    if not isinstance(experiment, (str, os.PathLike)):
        raise ConfigError(
            f"[tune.plot] results is a {type(results).__name__}; give a ResultGrid or an experiment's path"
        )
    source = local_path(experiment, "[tune.plot] results")
    arguments: dict[str, Any] = {key: name for key, name in names.items() if name is not None}
    if mode is not None:
        arguments["mode"] = mode
    contents: bytes
    if place.suffix == ".png":
        from lockstep.tune._plot_images import png_of

        contents = png_of(kind, lambda: _core.tune.plot_value(source, kind, **arguments))
    else:
        contents = _core.tune.plot_html(source, kind, **arguments).encode()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(contents)
    return place
