"""Results into Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep._nested import leaves
from lockstep._places import local_path
from lockstep.callbacks import LoggerCallback, RunInfo, Trial
from lockstep.errors import ConfigError, LockstepError
from lockstep.integrations._tracking import Warner, numbers, require

if TYPE_CHECKING:
    import os

    from lockstep.result import Result

_WHERE = "WandbLoggerCallback"


class WandbLoggerCallback(LoggerCallback):
    """Writes a run into Weights & Biases: its configuration, its results, how it ended::

        from lockstep.integrations.wandb import WandbLoggerCallback

        RunConfig(callbacks=[WandbLoggerCallback(project="digits", mode="offline")])

    The x axis is ``training_iteration``. wandb's local files are in ``wandb/`` of the run directory. If wandb cannot
    start, the run ends; later failures are warnings. A restored run continues its W&B run.
    """

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | os.PathLike[str] | None = None,
        api_key: str | None = None,
        excludes: Sequence[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        **kwargs: Any,
    ) -> None:
        """`api_key`, or `api_key_file` with the key: not needed after ``wandb login`` or with ``mode="offline"``.

        `excludes`: metrics and configuration keys to leave out; a dict's name leaves out all of it. `log_config`: log
        the configuration with every result. `upload_checkpoints`: upload every checkpoint as an artifact. `kwargs` are
        passed to ``wandb.init``: ``mode``, ``name``, ``tags``, ``settings``, ...; they override what is set here.
        """
        require("wandb", _WHERE)
        if api_key is not None and api_key_file is not None:
            raise ConfigError(f"[{_WHERE}] api_key and api_key_file are both given; give one of them")
        self.project = project
        self.group = group
        self.excludes = frozenset(excludes or ())
        self.log_config = log_config
        self.upload_checkpoints = upload_checkpoints
        self.kwargs = kwargs
        self._api_key = api_key if api_key_file is None else _read_key(api_key_file)
        self._run: Any = None

    def on_start(self, run: RunInfo) -> None:
        import wandb

        self._run = None
        self._warn = Warner(_WHERE)
        arguments: dict[str, Any] = {
            "project": self.project,
            "group": self.group,
            "name": run.name,
            "id": run.experiment_id,
            "resume": "allow",
            "dir": str(run.path),
            "config": {key: value for key, value in run.config.items() if key not in self.excludes},
            "allow_val_change": True,
            "reinit": "create_new",
            **self.kwargs,
            "settings": self._settings(self.kwargs.get("settings")),
        }
        try:
            self._run = wandb.init(**arguments)
            self._run.define_metric("*", step_metric="training_iteration")
        except Exception as error:
            raise LockstepError(
                f"[{_WHERE}] wandb.init() failed: {error}; "
                'run `wandb login`, give api_key=, or go without the network by mode="offline"'
            ) from error
        super().on_start(run)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        row: dict[str, Any] = {key: value for key, value in numbers(result).items() if not self._excluded(key)}
        if self.log_config:
            row |= {key: value for key, value in leaves({"config": trial.config}) if not self._excluded(key)}
        try:
            self._run.log({**row, "training_iteration": iteration})
        except Exception as error:
            self._warn("results were not logged", error)

    def log_trial_save(self, trial: Trial) -> None:
        if not self.upload_checkpoints or trial.checkpoint is None:
            return
        import wandb

        try:
            artifact = wandb.Artifact(f"checkpoint_{self._run.id}", "model", metadata=trial.checkpoint.metadata)
            with trial.checkpoint.as_directory() as path:
                artifact.add_dir(path)  # copies the files: the checkpoint may be removed before they are sent
            self._run.log_artifact(artifact)
        except Exception as error:
            self._warn("a checkpoint was not uploaded", error)

    def on_end(self, result: Result) -> None:
        run, self._run = self._run, None
        if run is None:  # it never started
            return
        super().on_end(result)
        try:
            run.finish(exit_code=0 if result.state == "finished" else 1)
        except Exception as error:
            self._warn("the run was not finished", error)

    def _excluded(self, key: str) -> bool:
        parts = key.split("/")
        return any("/".join(parts[:count]) in self.excludes for count in range(1, len(parts) + 1))

    def _settings(self, given: Any) -> Any:
        """The key is passed in the settings: child processes would inherit it from the environment, and a login would
        store it."""
        ours: dict[str, Any] = {"console": "off"}  # workers' output is in logs/
        if self._api_key is not None:
            ours["api_key"] = self._api_key
        if given is None or isinstance(given, Mapping):
            return {**ours, **(given or {})}
        return given.model_copy(update={"api_key": self._api_key}) if self._api_key is not None else given


def setup_wandb(
    config: Mapping[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | os.PathLike[str] | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """A W&B run in the training function, named after Lockstep's; for loops that log by themselves::

        def train_func(config):
            wandb = setup_wandb(config, project="digits")
            wandb.log({"loss": 0.5})

    Other ranks than 0 get a run that does nothing, unless `rank_zero_only` is False: then each rank has its own, in one
    group. `kwargs` are those of ``wandb.init``. wandb finishes the run when the process ends.
    """
    require("wandb", "setup_wandb")
    import wandb

    from lockstep import session

    rank = session.get_world_rank()
    if rank != 0 and rank_zero_only:
        return wandb.init(mode="disabled")
    if api_key is not None and api_key_file is not None:
        raise ConfigError("[setup_wandb] api_key and api_key_file are both given; give one of them")
    name = session.get_experiment_name() or None
    arguments: dict[str, Any] = {
        "config": dict(config or {}),
        "name": name if rank_zero_only or name is None else f"{name}_rank_{rank}",
        "group": None if rank_zero_only else name,
        "dir": session.get_trial_dir(),
        "reinit": "create_new",
        **kwargs,
    }
    key = api_key if api_key_file is None else _read_key(api_key_file)
    if key is not None:
        arguments["settings"] = {**dict(arguments.get("settings") or {}), "api_key": key}
    return wandb.init(**arguments)


def _read_key(path: str | os.PathLike[str]) -> str:
    place = local_path(path, f"[{_WHERE}] api_key_file")
    try:
        key = Path(place).read_text().strip()
    except OSError as error:
        raise ConfigError(f"[{_WHERE}] api_key_file cannot be read: {error}") from error
    if not key:
        raise ConfigError(f"[{_WHERE}] api_key_file {place} is empty; it must hold the key")
    return key
