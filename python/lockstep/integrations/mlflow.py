"""Results into MLflow."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lockstep._nested import leaves
from lockstep.callbacks import LoggerCallback, RunInfo, Trial
from lockstep.errors import ConfigError, LockstepError
from lockstep.integrations._tracking import Warner, numbers, require

if TYPE_CHECKING:
    from lockstep.result import Result

_WHERE = "MLflowLoggerCallback"
_RUN_TAG = "lockstep.experiment_id"
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}

# Limits of a tracking server: entries in one call, and lengths of names and values.
_METRICS_PER_CALL = 1000
_PARAMS_PER_CALL = 100
_LONGEST_NAME = 250
_LONGEST_PARAM = 6000

_LAST_METRICS_TIMEOUT = 60.0
"""The end of a run waits at most this many seconds for the last metrics to be sent."""


class MLflowLoggerCallback(LoggerCallback):
    """Writes a run into MLflow: its configuration as params, its results as metrics, how it ended as the status::

        from lockstep.integrations.mlflow import MLflowLoggerCallback

        RunConfig(callbacks=[MLflowLoggerCallback("http://localhost:5000", experiment_name="digits")])

    A metric's step is its ``training_iteration``. A thread sends the metrics, so a slow server does not slow down the
    run. If the server cannot be reached or refuses at the start, the run ends; later failures are warnings. A restored
    run continues its MLflow run.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        experiment_id: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        """`tracking_uri`: a server, or a path such as ``sqlite:///mlflow.db``; None: MLflow's own default.

        `experiment_name` is created if it is new. The default, without `experiment_id` too, is
        ``MLFLOW_EXPERIMENT_NAME`` or ``MLFLOW_EXPERIMENT_ID``, else MLflow's "Default". `run_name` defaults to the
        run's name. `tracking_token` is set in the environment of this process, not of the workers, during the run.
        `save_artifact` uploads the run directory with its checkpoints at the end. `log_params_on_trial_end` writes
        params at the end instead of the start.
        """
        require("mlflow", _WHERE)
        if experiment_name is not None and experiment_id is not None:
            raise ConfigError(f"[{_WHERE}] experiment_name and experiment_id are both given; give one of them")
        self.tracking_uri = tracking_uri
        self.registry_uri = registry_uri
        self.experiment_name = experiment_name
        self.experiment_id = experiment_id
        self.run_name = run_name
        self.tags = {str(key): str(value) for key, value in (tags or {}).items()}
        self.tracking_token = tracking_token
        self.save_artifact = save_artifact
        self.log_params_on_trial_end = log_params_on_trial_end
        self.run_id: str | None = None
        """The id of the MLflow run, once it has started."""
        self._sender: _Sender | None = None
        self._is_in_run = False
        self._trial_runs: dict[Any, str] = {}
        """By hand: the ids of the MLflow runs."""

    def setup(self, **info: Any) -> None:
        """For programs that drive the callback by hand, as Ray Tune does: connects, and makes the experiment::

            callback.setup()
            callback.log_trial_start(trial)  # anything with config, logdir and a name as its str()
            callback.log_trial_result(1, trial, {"loss": 0.5})
            callback.log_trial_end(trial)

        Each trial has an MLflow run of its own. Raises ValueError if there is no such experiment.
        """
        import mlflow

        self._warn = Warner(_WHERE)
        if self.tracking_token is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self.tracking_token
        self._client = mlflow.MlflowClient(self.tracking_uri, self.registry_uri)
        try:
            self._experiment_of_trials = self._experiment()
        except Exception as error:
            raise ConfigError(f"[{_WHERE}] the experiment cannot be used: {error}") from error

    def on_start(self, run: RunInfo) -> None:
        import mlflow

        self.run_id = None
        self._warn = Warner(_WHERE)
        self._environment = contextlib.ExitStack()
        if self.tracking_token is not None:
            self._environment.enter_context(_environment(MLFLOW_TRACKING_TOKEN=self.tracking_token))
        try:
            self._client = mlflow.MlflowClient(self.tracking_uri, self.registry_uri)
            with _impatient():
                self.run_id = self._open(run)
        except Exception as error:
            self._environment.close()
            uri = self.tracking_uri or mlflow.get_tracking_uri()
            raise LockstepError(
                f"[{_WHERE}] no run can be started at {uri}: {error}; see that it can be reached and takes runs, "
                "or correct tracking_uri"
            ) from error
        self._sender = _Sender(self._send)
        self._is_in_run = True
        super().on_start(run)

    def log_trial_start(self, trial: Trial) -> None:
        self._take_by_hand(trial)
        if not self.log_params_on_trial_end:
            self._log_params(trial.config)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        by_hand = self._take_by_hand(trial)
        if by_hand and "training_iteration" in result:
            iteration = int(result["training_iteration"])
        metrics = [Metric(_name(key), value, now, iteration) for key, value in numbers(result).items()]
        if by_hand:
            self._send(metrics)
            return
        assert self._sender is not None
        self._sender.put(metrics)
        self._tell(self._sender)

    def _take_by_hand(self, trial: Any) -> bool:
        """Whether no run drives the callback; then the trial's MLflow run is the current one, and is made if it is
        new."""
        if self._is_in_run:
            return False
        if trial not in self._trial_runs:
            tags = {**self.tags, "trial_name": str(trial)}
            made = self._client.create_run(self._experiment_of_trials, tags=tags, run_name=self.run_name or str(trial))
            self._trial_runs[trial] = made.info.run_id
        self.run_id = self._trial_runs[trial]
        return True

    def on_end(self, result: Result) -> None:
        sender, self._sender = self._sender, None
        if sender is None:  # it never started
            return
        with self._environment:
            sender.close(_LAST_METRICS_TIMEOUT)
            self._tell(sender)
            # If the server has just failed, do not wait for it again in each of the following calls.
            with _impatient() if sender.error is not None else contextlib.nullcontext():
                super().on_end(result)
                self._finish(_STATUS.get(result.state, "FAILED"))
        self._is_in_run = False

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        by_hand = self._take_by_hand(trial)
        assert self.run_id is not None
        if self.log_params_on_trial_end:
            self._log_params(trial.config)
        if self.save_artifact:
            try:
                self._client.log_artifacts(self.run_id, trial.logdir)
            except Exception as error:
                self._warn(f"the artifacts in {trial.logdir} were not uploaded", error)
        if by_hand:
            self._finish("FAILED" if failed else "FINISHED")

    # ------------------------------------------------------------------ calls

    def _open(self, run: RunInfo) -> str:
        """The id of a new MLflow run, or of the one that a restored run continues."""
        experiment = self._experiment()
        earlier = self._client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{run.experiment_id}'", max_results=1)
        if earlier:
            run_id: str = earlier[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        tags = {"trial_name": f"{run.trainer or run.name}_{run.trial_id}", **self.tags, _RUN_TAG: run.experiment_id}
        made: str = self._client.create_run(experiment, tags=tags, run_name=self.run_name or run.name).info.run_id
        return made

    def _experiment(self) -> str:
        name, identity = self.experiment_name, self.experiment_id
        if name is None and identity is None:
            name, identity = os.environ.get("MLFLOW_EXPERIMENT_NAME"), os.environ.get("MLFLOW_EXPERIMENT_ID")
        if name is None:
            return str(self._client.get_experiment(identity or "0").experiment_id)
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _log_params(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        try:
            assert self.run_id is not None
            known = self._client.get_run(self.run_id).data.params
            params = {_name(key): str(value)[:_LONGEST_PARAM] for key, value in leaves(config)}
            changed = sorted(key for key, value in params.items() if known.get(key, value) != value)
            if changed:
                self._warn(f"{', '.join(changed)} changed", ValueError("MLflow keeps a param as it was first written"))
            new = [Param(key, value) for key, value in params.items() if key not in known]
            for start in range(0, len(new), _PARAMS_PER_CALL):
                self._client.log_batch(self.run_id, params=new[start : start + _PARAMS_PER_CALL], synchronous=True)
        except Exception as error:
            self._warn("params were not written", error)

    def _send(self, metrics: list[Any]) -> None:
        for start in range(0, len(metrics), _METRICS_PER_CALL):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + _METRICS_PER_CALL], synchronous=True)

    def _tell(self, sender: _Sender) -> None:
        if sender.error is not None:
            self._warn(f"metrics were not written to {self._client.tracking_uri}", sender.error)

    def _finish(self, status: str) -> None:
        try:
            self._client.set_terminated(self.run_id, status)
        except Exception as error:
            self._warn(f"the status {status} was not written", error)


class _Sender:
    """Passes lists to `send` in its own thread; what arrives while it is busy goes with the next call.

    Keeps the first error and continues with later items.
    """

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        self.error: Exception | None = None
        self._send = send
        self._waiting: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="lockstep-mlflow", daemon=True)
        self._thread.start()

    def put(self, items: list[Any]) -> None:
        """Returns at once."""
        self._waiting.put(items)

    def close(self, timeout: float) -> None:
        """Waits until everything has been sent; `error` is set if that takes longer than `timeout` seconds."""
        self._waiting.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive() and self.error is None:
            self.error = LockstepError(f"the last ones were not sent within {timeout:g} s")

    def _run(self) -> None:
        open_ = True
        while open_:
            batch: list[Any] = []
            items = self._waiting.get()
            while items is not None:
                batch += items
                if len(batch) >= _METRICS_PER_CALL or self._waiting.empty():
                    break
                items = self._waiting.get()
            open_ = items is not None
            try:
                self._send(batch)
            except Exception as error:
                self.error = self.error or error


def _name(key: str) -> str:
    """`key` as a name that MLflow accepts: a path of allowed characters."""
    parts = re.sub(r"[^/\w.\- :]", "_", key).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:_LONGEST_NAME].rstrip("/") or "_"


@contextlib.contextmanager
def _environment(**wanted: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _impatient() -> contextlib.AbstractContextManager[None]:
    """MLflow's client retries for minutes. Inside this context it gives up soon, unless the user has set its
    variables."""
    ours = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    return _environment(**{name: value for name, value in ours.items() if name not in os.environ})


class _Nothing:
    """Stands for the module on ranks that log nothing: every call does nothing."""

    def __getattr__(self, name: str) -> _Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> _Nothing:
        return self

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def setup_mlflow(
    config: Mapping[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = True,
    tags: Mapping[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """MLflow with a run that is active, in the training function; for loops that log by themselves::

        def train_func(config):
            mlflow = setup_mlflow(config, experiment_name="digits")
            mlflow.log_metric("loss", 0.5, step=1)

    Other ranks than 0 get an object whose calls do nothing, unless `rank_zero_only` is False. The run ends with the
    process.
    """
    from lockstep import session

    require("mlflow", "setup_mlflow")
    if session.get_world_rank() != 0 and rank_zero_only:
        return _Nothing()
    import mlflow

    if tracking_token is not None:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token  # the only way; of this worker alone
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri is not None:
        mlflow.set_registry_uri(registry_uri)
    if experiment_id is None:
        name = experiment_name or session.get_experiment_name() or "lockstep"
        if mlflow.get_experiment_by_name(name) is None:
            if not create_experiment_if_not_exists:
                raise ConfigError(f"[setup_mlflow] there is no experiment {name!r}; create it first")
            mlflow.create_experiment(name, artifact_location=artifact_location)
        mlflow.set_experiment(name)
    else:
        mlflow.set_experiment(experiment_id=experiment_id)
    mlflow.start_run(run_name=run_name or session.get_experiment_name() or None, tags=dict(tags or {}))
    mlflow.log_params({key: str(value)[:_LONGEST_PARAM] for key, value in leaves(config or {})})
    return mlflow
