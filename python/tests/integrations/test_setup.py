"""`setup_mlflow` and `setup_wandb` with the real packages; the callbacks of Comet and Aim with the interface that their
documents describe."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Checkpoint, Result, TrainingFailedError, session

Fit = Callable[..., Result]


def test_setup_mlflow(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"

    def function(config: dict[str, Any]) -> None:
        from lockstep.integrations.mlflow import setup_mlflow

        tracker = setup_mlflow(config, tracking_uri=uri, experiment_name="digits", tags={"kind": "test"})
        tracker.log_metric("loss", 0.5 + session.get_world_rank(), step=1)
        with tracker.start_run(nested=True):
            pass

    fit(function, 2, {"lr": 0.1}, name="first")
    client = mlflow.MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    (run,) = (each for each in runs if each.info.run_name == "first")
    assert (run.data.params["lr"], run.data.metrics["loss"], run.data.tags["kind"]) == ("0.1", 0.5, "test")


def test_setup_wandb(fit: Fit, tmp_path: Path) -> None:
    pytest.importorskip("wandb")

    def function(config: dict[str, Any]) -> None:
        from lockstep.integrations.wandb import setup_wandb

        run = setup_wandb(config, project="digits", mode="offline")
        run.log({"loss": 0.5})
        assert session.get_world_rank() != 0 or run.config["lr"] == 0.1
        run.finish()

    result = fit(function, 2, {"lr": 0.1})
    assert len(list(result.path.glob("wandb/offline-run-*"))) == 1


class Calls:
    """Stands for an object of a tracker: takes any call and item, and keeps them."""

    def __init__(self, **options: Any) -> None:
        self.options, self.calls, self.items = options, [], {}
        made.append(self)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: self.calls.append((name, *args, *options.items()))

    def __setitem__(self, key: str, value: Any) -> None:
        self.items[key] = value


made: list[Calls] = []


def tracker(monkeypatch: pytest.MonkeyPatch, package: str, *names: str) -> None:
    """A module with the classes of the package's documents."""
    module = types.ModuleType(package)
    module.__spec__ = importlib.machinery.ModuleSpec(package, None)
    for name in names:
        setattr(module, name, type(name, (Calls,), {}))
    monkeypatch.setitem(sys.modules, package, module)
    made.clear()


def save() -> None:
    session.report({"loss": 0.25, "text": "x"}, checkpoint=Checkpoint.from_dict({"epoch": 1}))


def test_comet(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker(monkeypatch, "comet_ml", "Experiment", "OfflineExperiment")
    from lockstep.integrations.comet import CometLoggerCallback

    callback = CometLoggerCallback(online=False, tags=["digits"], save_checkpoints=True, project_name="digits")
    result = fit(save, 1, {"lr": 0.1, "deep": {"x": 2}}, callbacks=[callback])
    (experiment,) = made
    assert type(experiment).__name__ == "OfflineExperiment"
    assert experiment.options["project_name"] == "digits"
    assert experiment.options["offline_directory"] == str(result.path)
    names = [call[0] for call in experiment.calls]
    assert sorted(names[:3]) == ["add_tags", "log_parameters", "set_name"]
    assert sorted(names[3:5]) == ["log_asset_folder", "log_metrics"]
    assert names[5:] == ["log_other", "end"]
    calls = {call[0]: call[1:] for call in experiment.calls}
    assert calls["add_tags"] == (["digits"],)
    assert calls["log_parameters"] == ({"lr": 0.1, "deep/x": 2},)
    metrics, step = calls["log_metrics"]
    assert (metrics["loss"], step, "text" in metrics) == (0.25, ("step", 1), False)
    assert calls["log_other"] == ("state", "finished")
    fit(save, 1, callbacks=[CometLoggerCallback(api_key="x")])
    assert type(made[-1]).__name__ == "Experiment"


def test_aim(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker(monkeypatch, "aim", "Run")
    from lockstep.integrations.aim import AimLoggerCallback

    fit(save, 1, {"lr": 0.1}, callbacks=[AimLoggerCallback(repo=tmp_path, experiment_name="digits", metrics=["loss"])])
    (run,) = made
    assert (run.options["repo"], run.options["experiment"]) == (str(tmp_path), "digits")
    assert run.items["hparams"] == {"lr": 0.1}
    assert run.items["state"] == "finished"
    assert run.calls == [("track", 0.25, ("name", "loss"), ("step", 1)), ("close",)]


@pytest.mark.parametrize(("module", "name"), [("comet", "CometLoggerCallback"), ("aim", "AimLoggerCallback")])
def test_a_tracker_that_cannot_start_ends_the_run(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    package = {"comet": "comet_ml", "aim": "aim"}[module]
    tracker(monkeypatch, package)  # without its classes
    callback = getattr(importlib.import_module(f"lockstep.integrations.{module}"), name)
    with pytest.raises(TrainingFailedError, match="could not start"):
        fit(save, 1, callbacks=[callback()])
