"""Loggers that write files elsewhere, MLflow and Weights & Biases: the real packages, and a real MLflow server."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
import wandb
from lockstep import (
    Callback,
    Checkpoint,
    ConfigError,
    DataParallelTrainer,
    LockstepError,
    Result,
    RunConfig,
    TrainingFailedError,
    TrainingInterrupted,
    session,
)
from lockstep.callbacks import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, RunInfo, TBXLoggerCallback, Trial
from lockstep.integrations import mlflow as our_mlflow
from lockstep.integrations._tracking import numbers
from lockstep.integrations.mlflow import MLflowLoggerCallback
from lockstep.integrations.wandb import WandbLoggerCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

Fit = Callable[..., Result]

CONFIG = {"lr": 0.1, "optimizer": {"name": "sgd", "betas": [0.9, 0.99]}, "what?": "x" * 7000}


def three_reports() -> Callable[..., None]:
    """A training function. It is made here because workers would import this module, and MLflow, for one of its own."""

    def train_func(config: dict[str, Any]) -> None:
        for epoch in range(3):
            loss = 1 / (epoch + 1) if epoch < 2 else math.nan
            metrics = {"epoch": epoch, "validation": {"loss": loss}, "good": epoch == 2, "note": "text", "gone": None}
            session.report(metrics)

    return train_func


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("named", [False, True], ids=["default", "the run directory itself"])
def test_loggers_of_files_write_nothing_twice(fit: Fit, tmp_path: Path, named: bool) -> None:
    place = tmp_path / "runs" / "once" if named else None
    loggers = [TBXLoggerCallback(place), JsonLoggerCallback(place), CSVLoggerCallback(place)]
    assert all(isinstance(logger, LoggerCallback) for logger in loggers)
    path = fit(three_reports(), name="once", config=CONFIG, callbacks=loggers).path
    assert len((path / "result.json").read_text().splitlines()) == 3
    assert len((path / "progress.csv").read_text().splitlines()) == 4
    assert len(list(path.glob("events.out.tfevents.*"))) == 1


def test_loggers_of_files_write_the_same_elsewhere(fit: Fit, tmp_path: Path) -> None:
    place = tmp_path / "else" / "where"
    loggers = [TBXLoggerCallback(place), JsonLoggerCallback(place, "mine.json"), CSVLoggerCallback(place)]
    path = fit(three_reports(), config=CONFIG, callbacks=loggers).path
    assert (place / "mine.json").read_bytes() == (path / "result.json").read_bytes()
    assert (place / "progress.csv").read_bytes() == (path / "progress.csv").read_bytes()
    ours, theirs = EventAccumulator(str(path)), EventAccumulator(str(place))
    ours.Reload(), theirs.Reload()
    assert "validation/loss" in theirs.Tags()["scalars"] and ours.Tags() == theirs.Tags()
    assert [(event.step, event.value) for event in theirs.Scalars("epoch")] == [(1, 0), (2, 1), (3, 2)]
    assert place.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in place.iterdir()} == {0o600}


def test_a_json_logger_with_another_name_in_the_run_directory(fit: Fit) -> None:
    path = fit(lambda: session.report({"loss": 0.5}), callbacks=[JsonLoggerCallback(filename="again.json")]).path
    assert (path / "again.json").read_bytes() == (path / "result.json").read_bytes()


@pytest.mark.parametrize("filename", ["", "a/b.json", "..", "/x"])
def test_a_json_logger_refuses_paths(filename: str) -> None:
    with pytest.raises(ConfigError, match="a name without a path"):
        JsonLoggerCallback(filename=filename)


def test_loggers_whose_run_never_started_end_quietly(fit: Fit, tmp_path: Path, database: str) -> None:
    class Refuses(Callback):
        refuse = False

        def on_start(self, run: RunInfo) -> None:
            if self.refuse:
                raise ValueError("not today")

    class Ends(LoggerCallback):
        trials: list[str]

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            self.trials.append(trial.logdir)

    refuses, ends, tracker = Refuses(), Ends(), MLflowLoggerCallback(database)
    ends.trials = []
    loggers = [refuses, ends, CSVLoggerCallback(tmp_path / "else"), tracker, WandbLoggerCallback("p", mode="offline")]
    path = fit(lambda: session.report({"loss": 0.5}), workers=1, callbacks=loggers).path
    refuses.refuse = True
    with pytest.raises(TrainingFailedError, match="not today") as caught:
        fit(lambda: session.report({"loss": 0.5}), workers=1, callbacks=loggers)
    assert len(caught.value.failures) == 1
    assert ends.trials == [str(path)]
    assert tracker.run_id is not None
    status = mlflow.MlflowClient(database).get_run(tracker.run_id).info.status
    assert status == "FINISHED", "the run before is not touched"


# ---------------------------------------------------------------------- MLflow


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """No calls to the world outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("DO_NOT_TRACK", "true")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("WANDB_SILENT", "true")
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MLflow server on a port that the system chose."""
    place = tmp_path_factory.mktemp("mlflow")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", "0", "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{place}/mlflow.db", "--artifacts-destination", f"{place}/artifacts"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, env=environment, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    deadline = threading.Timer(80, lambda: os.killpg(process.pid, signal.SIGKILL))  # ends the reading below
    deadline.start()
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line.decode(errors="replace"))
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", lines[-1]):
                break
        else:
            pytest.fail("the MLflow server did not start:\n" + "".join(lines))
        deadline.cancel()
        reader = threading.Thread(target=process.stdout.read, daemon=True)  # so that it never waits for a full pipe
        reader.start()
        yield found[1]
    finally:
        deadline.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MLflow store without a server; it takes MLflow seconds to make one."""
    return f"sqlite:///{tmp_path_factory.mktemp('database')}/mlflow.db"


def history(client: mlflow.MlflowClient, run_id: str, metric: str) -> list[tuple[int, float]]:
    return [(entry.step, entry.value) for entry in client.get_metric_history(run_id, metric)]


def test_mlflow_has_params_metrics_tags_and_artifacts(fit: Fit, server: str) -> None:
    report = three_reports()

    def train_func(config: dict[str, Any]) -> None:
        report(config)
        session.report({"epoch": 3}, checkpoint=Checkpoint.from_dict({"epoch": 3}))

    tracker = MLflowLoggerCallback(server, experiment_name="digits", tags={"team": "blue"}, save_artifact=True)
    result = fit(train_func, name="first", config=CONFIG, callbacks=[tracker])

    client = mlflow.MlflowClient(server)
    assert tracker.run_id is not None
    run = client.get_run(tracker.run_id)
    assert client.get_experiment(run.info.experiment_id).name == "digits"
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.info.end_time >= run.info.start_time
    assert run.data.params == {
        "lr": "0.1",
        "optimizer/name": "sgd",
        "optimizer/betas": "[0.9, 0.99]",
        "what_": "x" * 6000,
    }
    assert run.data.tags["team"] == "blue"
    assert history(client, tracker.run_id, "epoch") == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert history(client, tracker.run_id, "good") == [(1, 0), (2, 0), (3, 1)]
    losses = history(client, tracker.run_id, "validation/loss")
    assert losses[:2] == [(1, 1.0), (2, 0.5)] and losses[2][0] == 3 and math.isnan(losses[2][1])
    assert set(run.data.metrics) == {
        "epoch",
        "good",
        "validation/loss",
        "training_iteration",
        "iterations_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "time_since_restore",
        "warmup_time",
    }
    artifacts = {file.path for file in client.list_artifacts(tracker.run_id)}
    assert {"result.json", "progress.csv", "params.json", "logs", "checkpoint_000000"} <= artifacts
    files = {file.path for file in client.list_artifacts(tracker.run_id, "checkpoint_000000")}
    assert "checkpoint_000000/manifest.json" in files
    saved = client.download_artifacts(tracker.run_id, "result.json")
    assert Path(saved).read_bytes() == (result.path / "result.json").read_bytes()


def test_mlflow_status_of_a_failed_run(fit: Fit, server: str) -> None:
    def train_func() -> None:
        session.report({"loss": 0.5})
        raise ValueError("boom")

    tracker = MLflowLoggerCallback(server)
    with pytest.raises(TrainingFailedError, match="boom"):
        fit(train_func, workers=1, callbacks=[tracker])
    assert tracker.run_id is not None
    run = mlflow.MlflowClient(server).get_run(tracker.run_id)
    assert (run.info.status, run.data.metrics["loss"], run.info.experiment_id) == ("FAILED", 0.5, "0")


def test_mlflow_status_of_an_interrupted_run_and_of_the_restored_one(
    make_trainer: Callable[..., DataParallelTrainer], server: str
) -> None:
    class Interrupts(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    def train_func(config: dict[str, Any]) -> None:
        if session.get_checkpoint() is None:
            session.report({"epoch": 0}, checkpoint=Checkpoint.from_dict({"epoch": 0}))
            session.get_checkpoint()
            threading.Event().wait(60)
        session.report({"epoch": 1})

    client = mlflow.MlflowClient(server)
    tracker = MLflowLoggerCallback(server, run_name="mine")
    trainer = make_trainer(train_func, workers=1, config={"lr": 1}, callbacks=[tracker, Interrupts()])
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    assert tracker.run_id is not None and caught.value.result is not None
    run = client.get_run(tracker.run_id)
    assert (run.info.status, run.info.run_name) == ("KILLED", "mine")

    again = MLflowLoggerCallback(server)
    restored = DataParallelTrainer.restore(
        caught.value.result.path,
        train_loop_config={"lr": 2, "new": True},
        run_config=RunConfig(callbacks=[again], verbose=0),
    )
    with pytest.warns(RuntimeWarning, match="lr changed: MLflow keeps a param as it was first written"):
        restored.fit()
    assert again.run_id == tracker.run_id
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"lr": "1", "new": "True"}
    assert history(client, tracker.run_id, "epoch") == [(1, 0), (2, 1)]


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_mlflow_without_a_server(
    fit: Fit, tmp_path: Path, database: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = database if scheme == "sqlite" else (tmp_path / "mlruns").as_uri()
    tracker = MLflowLoggerCallback(uri, experiment_name="local", log_params_on_trial_end=True)
    fit(three_reports(), config={"lr": 0.1}, callbacks=[tracker])
    client = mlflow.MlflowClient(uri)
    assert tracker.run_id is not None
    run = client.get_run(tracker.run_id)
    assert (run.info.status, run.data.params) == ("FINISHED", {"lr": "0.1"})
    assert history(client, tracker.run_id, "epoch") == [(1, 0), (2, 1), (3, 2)]


def test_an_mlflow_server_that_is_down_is_named_at_the_start(fit: Fit) -> None:
    started = []

    def train_func() -> None:
        started.append(1)

    with socket.socket() as taken:  # bound, but nobody listens: the port refuses
        taken.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(TrainingFailedError, match=re.escape(uri)) as caught:
            fit(train_func, callbacks=[MLflowLoggerCallback(uri)])
    assert isinstance(caught.value.__cause__, LockstepError)
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


def test_mlflow_that_fails_later_is_a_warning(fit: Fit, database: str) -> None:
    class Breaks(MLflowLoggerCallback):
        def on_start(self, run: RunInfo) -> None:
            super().on_start(run)
            self._client.log_batch = self.refuse

        def refuse(self, *arguments: Any, **options: Any) -> None:
            raise ConnectionError("the server is gone")

    tracker = Breaks(database)
    with pytest.warns(RuntimeWarning, match="metrics were not written to sqlite.*the server is gone") as told:
        result = fit(three_reports(), callbacks=[tracker])
    assert len([warning for warning in told if "metrics were not written" in str(warning.message)]) == 1
    assert result.state == "finished"


def test_the_mlflow_token_is_there_for_the_run_alone(fit: Fit, database: str) -> None:
    seen = []

    class Looks(Callback):
        def on_result(self, metrics: dict[str, Any]) -> None:
            seen.append((os.environ.get("MLFLOW_TRACKING_TOKEN"), metrics["workers"]))

    def train_func() -> None:
        session.report({"workers": os.environ.get("MLFLOW_TRACKING_TOKEN")})

    tracker = MLflowLoggerCallback(database, tracking_token="secret")
    fit(train_func, workers=1, callbacks=[tracker, Looks()])
    assert seen == [("secret", None)]
    assert "MLFLOW_TRACKING_TOKEN" not in os.environ


def test_metrics_that_wait_go_together() -> None:
    calls: list[list[int]] = []
    busy, free = threading.Event(), threading.Event()

    def send(items: list[int]) -> None:
        calls.append(items)
        busy.set()
        assert free.wait(30)

    sender = our_mlflow._Sender(send)
    sender.put([0])
    assert busy.wait(30)
    for number in range(1, 5):
        sender.put([number])
    free.set()
    sender.close(30)
    assert [item for call in calls for item in call] == [0, 1, 2, 3, 4]
    assert [call for call in calls if call] == [[0], [1, 2, 3, 4]]
    assert sender.error is None


def test_a_sender_keeps_its_first_error_and_goes_on() -> None:
    sent = []

    def send(items: list[int]) -> None:
        if 0 in items:
            raise OSError("first")
        sent.extend(items)

    sender = our_mlflow._Sender(send)
    sender.put([0])
    while sender.error is None and sender._thread.is_alive():  # until the first call has failed
        sender._thread.join(0.001)
    sender.put([1])
    sender.close(30)
    assert (str(sender.error), sent) == ("first", [1])


def test_a_sender_that_is_stuck_is_left() -> None:
    stuck = threading.Event()
    sender = our_mlflow._Sender(lambda items: stuck.wait(30) and None)
    sender.put([0])
    sender.close(0.01)
    assert "not sent within 0.01 s" in str(sender.error)
    stuck.set()


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("validation/loss", "validation/loss"),
        ("acc@5 (macro)", "acc_5 _macro_"),
        ("/a//../b/", "a/b"),
        ("..", "_"),
        ("é: x-1.0", "é: x-1.0"),
        ("k" * 300, "k" * 250),
    ],
)
def test_names_that_mlflow_takes(key: str, name: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    assert our_mlflow._name(key) == name
    _validate_metric_name(name)


def test_what_has_a_curve() -> None:
    result = {
        "loss": 1,
        "deep": {"er": {"x": True}, "no": "text"},
        "list": [1],
        "none": None,
        "pid": 7,
        "config": {"a": 1},
    }
    assert numbers({**result, "time_total_s": 2.5}) == {"loss": 1.0, "deep/er/x": 1.0, "time_total_s": 2.5}


@pytest.mark.parametrize(("make", "package"), [(MLflowLoggerCallback, "mlflow"), (WandbLoggerCallback, "wandb")])
def test_a_missing_package_is_named(make: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LockstepError, match=f"pip install {package}"):
        make()


def test_importing_the_integrations_imports_no_tracker() -> None:
    program = """
import sys, lockstep.integrations.mlflow, lockstep.integrations.wandb
print("mlflow" in sys.modules, "wandb" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_two_names_for_one_experiment_are_refused() -> None:
    with pytest.raises(ConfigError, match="both given"):
        MLflowLoggerCallback(experiment_name="a", experiment_id="1")


# ---------------------------------------------------------------------- Weights & Biases


def wandb_records(path: Path) -> list[Any]:
    """What an offline run holds: a seven byte header, then records in blocks of 32 KiB, as in LevelDB's log."""
    data, records, part, at = path.read_bytes(), [], b"", 7
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            records.append(wandb_internal_pb2.Record.FromString(part))
            part = b""
    return records


def offline_run(result: Result) -> Path:
    wandb.teardown()  # its process writes the last records after finish() has returned
    (found,) = (result.path / "wandb").glob("offline-run-*/run-*.wandb")
    return found


def rows(records: list[Any]) -> list[dict[str, str]]:
    histories = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): item.value_json for item in row.item} for row in histories]


def test_wandb_offline_holds_metrics_and_configuration(fit: Fit) -> None:
    tracker = WandbLoggerCallback(
        project="digits", group="g", excludes=["secret", "validation"], mode="offline", tags=["a"]
    )
    result = fit(three_reports(), name="first", config={"lr": 0.1, "secret": 1}, callbacks=[tracker])
    records = wandb_records(offline_run(result))
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.run_group, run.display_name, list(run.tags)) == ("digits", "g", "first", ["a"])
    config = {item.key: item.value_json for item in run.config.update}
    assert config["lr"] == "0.1" and "secret" not in config
    logged = rows(records)
    assert [(float(row["epoch"]), float(row["training_iteration"])) for row in logged] == [(0, 1), (1, 2), (2, 3)]
    assert not any("validation" in key or key in ("pid", "config") for row in logged for key in row)
    (end,) = [record.exit for record in records if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 0


def test_wandb_of_a_failed_run_with_checkpoints(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")

    def train_func(config: dict[str, Any]) -> None:
        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"epoch": 0}))
        session.get_checkpoint()
        raise ValueError("boom")

    tracker = WandbLoggerCallback("digits", upload_checkpoints=True, log_config=True)
    with pytest.raises(TrainingFailedError, match="boom") as caught:
        fit(train_func, workers=1, config={"lr": 0.1}, callbacks=[tracker])
    assert caught.value.result is not None
    records = wandb_records(offline_run(caught.value.result))
    (row,) = rows(records)
    assert (float(row["loss"]), float(row["config/lr"])) == (0.5, 0.1)
    (end,) = [record.exit for record in records if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 1
    artifacts = [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    assert "data.json" in {file.path for artifact in artifacts for file in artifact.manifest.contents}


def test_a_wandb_key_file(tmp_path: Path) -> None:
    place = tmp_path / "key"
    with pytest.raises(ConfigError, match="cannot be read"):
        WandbLoggerCallback(api_key_file=place)
    place.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        WandbLoggerCallback(api_key_file=place)
    place.write_text("k" * 40 + "\n")
    assert WandbLoggerCallback(api_key_file=place)._settings(None) == {"console": "off", "api_key": "k" * 40}
    with pytest.raises(ConfigError, match="both given"):
        WandbLoggerCallback(api_key_file=place, api_key="k")


def test_wandb_that_cannot_start_ends_the_run(fit: Fit) -> None:
    with pytest.raises(TrainingFailedError, match=r"wandb\.init\(\) failed"):
        fit(
            lambda: session.report({"loss": 0.5}),
            workers=1,
            callbacks=[WandbLoggerCallback("p", mode="offline", no_such_option=1)],
        )
