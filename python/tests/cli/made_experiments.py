"""Experiments made through the engine, without trials that run; imported by tests that look at experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockstep._core import tune

SPACE = {
    "train_loop_config": {
        "lr": {"$domain": {"kind": "loguniform", "lower": 1e-4, "upper": 1e-1}},
        "momentum": {"$domain": {"kind": "uniform", "lower": 0.0, "upper": 1.0}},
        "net": {"$domain": {"kind": "choice", "values": ["small", "large"]}},
        "epochs": 3,
    }
}


def settings_of(name: str, **changes: Any) -> Any:
    settings = tune.ExperimentSettings()
    settings.name = name
    settings.param_space = SPACE
    settings.num_samples = 8
    settings.metrics = ["loss"]
    settings.modes = ["min"]
    settings.seed = 1
    for key, value in changes.items():
        setattr(settings, key, value)
    return settings


def report_of(config: dict[str, Any]) -> dict[str, float]:
    given = config["train_loop_config"]
    loss = (given["momentum"] - 0.5) ** 2 + given["lr"]
    return {"loss": loss, "accuracy": 1 - loss, "size": 1.0 if given["net"] == "small" else 2.0}


def make_experiment(path: Path, ended: int = 8, fail: int | None = None, **changes: Any) -> Any:
    """An experiment of 8 trials, of which `ended` ran; trial `fail` failed after its report. Returns it open."""
    experiment = tune.Experiment.create(path, settings_of(path.name, **changes))
    for _ in range(ended):
        start = experiment.next()
        assert start is not None
        experiment.on_report(start.trial, {**report_of(start.config), "training_iteration": 1})
        traceback = "Traceback (most recent call last):\n  ...\nValueError: no such net\n"
        experiment.on_ended(start.trial, traceback if start.trial == fail else "")
    experiment.sync()
    return experiment
