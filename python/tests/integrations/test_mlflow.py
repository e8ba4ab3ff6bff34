"""MLflow, with a server and with files."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from lockstep import (
    Callback,
    Checkpoint,
    ConfigError,
    DataParallelTrainer,
    LockstepError,
    RunConfig,
    TrainingFailedError,
    TrainingInterrupted,
    session,
)
from lockstep.callbacks import RunInfo
from lockstep.integrations import mlflow as our_mlflow
from lockstep.integrations.mlflow import MLflowLoggerCallback
from reported import CONFIG, Fit, three_reports


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


def test_two_names_for_one_experiment_are_refused() -> None:
    with pytest.raises(ConfigError, match="both given"):
        MLflowLoggerCallback(experiment_name="a", experiment_id="1")
