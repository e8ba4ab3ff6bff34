"""lockstep.tune.plot: pages and pictures of an experiment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lockstep import _core
from lockstep.errors import ConfigError, LockstepError, StorageError
from lockstep.tune import plot

SPACE = {
    "model": {"lr": {"$domain": {"kind": "loguniform", "lower": 1e-4, "upper": 1e-1}}},
    "momentum": {"$domain": {"kind": "uniform", "lower": 0.0, "upper": 1.0}},
    "noise": {"$domain": {"kind": "randn", "mean": 0.0, "sd": 1.0}},
    "net": {"$domain": {"kind": "choice", "values": ["small", "large"]}},
}
PLOTS = [plot.history, plot.parallel_coordinates, plot.importance, plot.contour, plot.pareto_front]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("storage") / "search-1"
    settings = _core.tune.ExperimentSettings()
    settings.name = "search-1"
    settings.param_space = SPACE
    settings.num_samples = 30
    settings.metrics, settings.modes = ["loss", "size"], ["min", "min"]
    made = _core.tune.Experiment.create(path, settings)
    while (start := made.next()) is not None:
        config = start.config
        loss = (config["momentum"] - 0.5) ** 2 + 0.001 * config["model"]["lr"]
        if start.trial != 5:
            size = 1 if config["net"] == "small" else 2
            made.on_report(start.trial, {"loss": loss, "size": size, "accuracy": 1 - loss})
        made.on_ended(start.trial, "ValueError" if start.trial == 5 else "")
    made.sync()
    return path


@pytest.mark.parametrize("draw", PLOTS, ids=lambda each: each.__name__)
def test_pages(draw: Any, experiment: Path, tmp_path: Path) -> None:
    written = draw(str(experiment), tmp_path / "new" / "plot.html")
    assert written == tmp_path / "new" / "plot.html"
    assert "<svg" in written.read_text()


@pytest.mark.parametrize("draw", PLOTS, ids=lambda each: each.__name__)
def test_pictures(draw: Any, experiment: Path, tmp_path: Path) -> None:
    data = draw(experiment, tmp_path / "plot.png").read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 5000


def test_pictures_show_the_values() -> None:
    from lockstep.tune import _plot_images
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    value = {
        "metric": 0,
        "metrics": [{"name": "loss", "maximize": False}],
        "trials": [{"values": [number]} for number in (3.0, None, 4.0, 1.0)],
    }
    _plot_images._history(axes, value)
    assert list(axes.lines[0].get_ydata()) == [3.0, 3.0, 3.0, 1.0]


def test_a_result_grid_is_known_by_its_path(experiment: Path, tmp_path: Path) -> None:
    grid: Any = SimpleNamespace(experiment_path=str(experiment))
    assert (
        plot.history(grid, tmp_path / "a.html").read_text() == plot.history(experiment, tmp_path / "b.html").read_text()
    )


def test_names_choose_what_is_drawn(experiment: Path, tmp_path: Path) -> None:
    page = plot.contour(experiment, tmp_path / "a.html", x="model/lr", y="net").read_text()
    assert "model/lr" in page and "net" in page
    value = _core.tune.plot_value(experiment, "contour", x="model/lr", y="net")
    names = [dimension["name"] for dimension in value["dimensions"]]
    assert (names[value["x"]], names[value["y"]]) == ("model/lr", "net")
    assert "accuracy" in plot.history(experiment, tmp_path / "a.html", metric="accuracy", mode="max").read_text()
    least = _core.tune.plot_value(experiment, "history", metric="accuracy")
    most = _core.tune.plot_value(experiment, "history", metric="accuracy", mode="max")
    assert [value["metrics"][value["metric"]]["maximize"] for value in (least, most)] == [False, True]


def test_the_important_parameter_is_found(experiment: Path) -> None:
    value = _core.tune.plot_value(experiment, "importance")
    totals = {
        each["name"]: share["total"] for each, share in zip(value["dimensions"], value["importance"], strict=True)
    }
    assert max(totals, key=lambda name: totals[name]) == "momentum"


def test_wrong_arguments(experiment: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end with \.html or \.png"):
        plot.history(experiment, tmp_path / "plot.pdf")
    with pytest.raises(ConfigError, match="'min' or 'max'"):
        plot.history(experiment, tmp_path / "plot.html", mode="best")
    with pytest.raises(ConfigError, match="give a ResultGrid"):
        plot.history(3, tmp_path / "plot.html")  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="no experiment"):
        plot.history(tmp_path, tmp_path / "plot.html")
    with pytest.raises(ConfigError, match='"los"'):
        plot.history(experiment, tmp_path / "plot.html", metric="los")
    with pytest.raises(ConfigError, match='"model"'):
        plot.contour(experiment, tmp_path / "plot.html", x="model")
    assert not list(tmp_path.iterdir())


def test_pages_need_no_package(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plot.history(experiment, tmp_path / "plot.html").exists()
    with pytest.raises(LockstepError, match="pip install matplotlib"):
        plot.history(experiment, tmp_path / "plot.png")


def test_the_import_is_light() -> None:
    code = "import sys, lockstep.tune.plot; assert not {'matplotlib', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
