"""`setup_mlflow`, `setup_wandb`, and the callbacks of Comet and Aim, with the real packages."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockstep import Result, session

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


def test_comet_offline(fit: Fit, tmp_path: Path) -> None:
    pytest.importorskip("comet_ml")
    from lockstep.integrations.comet import CometLoggerCallback

    def function() -> None:
        session.report({"loss": 0.25})

    result = fit(function, 1, callbacks=[CometLoggerCallback(online=False, tags=["digits"], project_name="digits")])
    (archive,) = result.path.glob("*.zip")
    told = "".join(zipfile.ZipFile(archive).read(name).decode() for name in zipfile.ZipFile(archive).namelist())
    assert "loss" in told
    assert "0.25" in told


def test_aim(fit: Fit, tmp_path: Path) -> None:
    aim = pytest.importorskip("aim")
    from lockstep.integrations.aim import AimLoggerCallback

    def function(config: dict[str, Any]) -> None:
        session.report({"loss": 0.25})

    fit(function, 1, {"lr": 0.1}, callbacks=[AimLoggerCallback(repo=tmp_path, experiment_name="digits")])
    (chunk,) = (tmp_path / ".aim/meta/chunks").iterdir()
    run = aim.Run(chunk.name, repo=str(tmp_path))
    assert run["hparams"]["lr"] == 0.1
    assert [list(metric.values.values_list()) for metric in run.metrics() if metric.name == "loss"] == [[0.25]]
