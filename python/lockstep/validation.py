"""Checkpoints that are checked beside the training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.errors import ConfigError, SerializationError

VALIDATION_FILE = "lockstep_validation.json"
"""The file of a checkpoint that was reported with ``validate=``: the arguments of the function."""


@dataclass
class ValidationTaskConfig:
    """Arguments for one checkpoint: ``session.report(..., validate=ValidationTaskConfig(fn_kwargs={"epoch": 3}))``."""

    fn_kwargs: Mapping[str, Any] | None = None
    """Keyword arguments besides the checkpoint; plain values."""

    def __post_init__(self) -> None:
        if self.fn_kwargs is not None and not isinstance(self.fn_kwargs, Mapping):
            raise ConfigError(f"[ValidationTaskConfig] fn_kwargs is {self.fn_kwargs!r}; it must be a dict or None")


@dataclass
class ValidationConfig:
    """A function that checks checkpoints in a worker of its own, while the training goes on::

        def validate(checkpoint):
            model.load_state_dict(checkpoint.to_dict()["model"])
            return {"accuracy": accuracy(model)}

        trainer = TorchTrainer(train_func, validation_config=ValidationConfig(validate))

    It is called for checkpoints that were reported with ``session.report(..., checkpoint=..., validate=True)``, one
    after the other. The numbers that it returns join the metrics of that checkpoint, in its manifest, its score and
    ``Result.best_checkpoints``. A checkpoint is not deleted before. The end of the run waits for those that are left.
    """

    fn: Callable[..., Mapping[str, Any]]
    """Called with the checkpoint and the keyword arguments; returns metrics. It is pickled when ``fit()`` is called."""
    task_config: ValidationTaskConfig | None = None
    """Arguments for every checkpoint; those of a report are added."""
    ray_remote_kwargs: Mapping[str, Any] | None = None
    """As in Ray: ``num_cpus`` and ``num_gpus`` of the worker; others have no effect."""
    resources: Mapping[str, float] | None = None
    """What the worker gets, as in ScalingConfig.resources_per_worker."""

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ConfigError(f"[ValidationConfig] fn is {self.fn!r}; it must be a function of a checkpoint")
        if not isinstance(self.task_config, (ValidationTaskConfig, type(None))):
            raise ConfigError(
                f"[ValidationConfig] task_config is {self.task_config!r}; it must be a ValidationTaskConfig or None"
            )


def check(config: object, where: str) -> None:
    """Raises ConfigError unless it is a ValidationConfig or None."""
    if not isinstance(config, (ValidationConfig, type(None))):
        raise ConfigError(f"[{where}] validation_config is {config!r}; it must be a ValidationConfig or None")


def request(validate: bool | Mapping[str, Any] | ValidationTaskConfig) -> bytes:
    """The file of a checkpoint that is to be checked."""
    if isinstance(validate, ValidationTaskConfig):
        validate = validate.fn_kwargs or {}
    if not isinstance(validate, (bool, Mapping)):
        raise ConfigError(
            f"[session] report() got a {type(validate).__name__} as validate; it must be True, a dict of keyword "
            "arguments, or a ValidationTaskConfig"
        )
    try:
        return json.dumps({"fn_kwargs": {} if isinstance(validate, bool) else dict(validate)}).encode()
    except TypeError as error:
        raise SerializationError(f"[session] the arguments in validate cannot be sent: {error}") from None
