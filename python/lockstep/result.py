"""The result of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core
from lockstep._failed_error import failed_error, last_attempt
from lockstep._places import run_path
from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError, Failure, LockstepError, SerializationError, StorageError

if TYPE_CHECKING:
    import pandas

AUTOFILLED_KEYS = _core.AUTOFILLED_KEYS
"""The keys that the driver adds to reported metrics."""


class Metrics(dict[str, Any]):
    """A dict whose KeyError names the existing keys."""

    def __missing__(self, key: str) -> Any:
        reported = [name for name in self if name not in AUTOFILLED_KEYS]
        names = ", ".join(map(repr, reported)) or "nothing"
        raise KeyError(f"{key!r} was not reported; reported: {names}; there are also the autofilled keys")


class NotReturned:
    """Stands for a value that could not be pickled."""

    def __init__(self, why: str) -> None:
        self.why = why


class Result:
    """The result of a run. All of it can be read again from the run directory::

    result = trainer.fit()
    result.metrics["loss"]                      # of rank 0's last report
    result.checkpoint.to_dict()                 # the latest
    result.get_best_checkpoint("loss", "min")
    result.metrics_dataframe                    # of all reports; needs pandas
    Result.from_path(result.path)
    """

    metrics: Metrics
    """Rank 0's last report, with the autofilled keys."""
    checkpoint: Checkpoint | None
    """The latest."""
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]]
    """The checkpoints that CheckpointConfig keeps, with their metrics: worst first, best last."""
    error: Exception | None
    """Why the run failed; None if it did not."""
    failures: list[Failure]
    """The failures of all attempts, also if the run finished."""
    world_sizes: list[int]
    """The number of workers of each attempt; those of elastic runs differ."""
    path: Path
    """The run directory."""
    state: str
    """finished, failed, interrupted, stopped, preempted, running or died."""

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        state: str = "finished",
        metrics: Mapping[str, Any] | None = None,
        checkpoint: Checkpoint | None = None,
        best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None,
        failures: list[Failure] | None = None,
        world_sizes: list[int] | None = None,
        error: Exception | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.state = state
        self.metrics = Metrics(metrics or {})
        self.checkpoint = checkpoint
        self.best_checkpoints = list(best_checkpoints or [])
        self.failures = list(failures or [])
        self.world_sizes = list(world_sizes or [])
        self.error = error
        self._returned: bytes | tuple[Any] = b""
        if config is not None:
            self.config = config

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Result:
        """Reads a run, given its directory or its name in the default storage path::

            Result.from_path("digits-1").metrics

        Raises StorageError if there is none.

        Checkpoints have the type of the run's trainer, if the module of that trainer has been imported.
        """
        return cls._from_outcome(_core.read_run(run_path(path, "[result] path")))

    @property
    def log_dir(self) -> Path:
        """The same as ``path``."""
        return self.path

    @property
    def filesystem(self) -> Any:
        """pyarrow's file system in which ``path`` is."""
        from pyarrow import fs

        return fs.LocalFileSystem()

    @property
    def return_value(self) -> Any:
        """What rank 0's training function returned; None if the run did not finish, or was read from its directory.

        Raises SerializationError if it could not be pickled.
        """
        if isinstance(self._returned, bytes):
            import pickle

            self._returned = (pickle.loads(self._returned),) if self._returned else (None,)
        (value,) = self._returned
        if isinstance(value, NotReturned):
            raise SerializationError(f"[result] return_value: {value.why}")
        return value

    return_values = return_value

    @property
    def uri(self) -> str:
        """The run's address: that in the object store if its storage path is one, otherwise ``path`` as a ``file://``
        address."""
        return _core.address_of(str(self.path)) or self.path.absolute().as_uri()

    @cached_property
    def config(self) -> dict[str, Any]:
        """``train_loop_config``. If it was read from ``params.json``, values that JSON cannot hold are their repr."""
        if not (self.path / "params.json").exists():
            return {}
        value = _core.read_json(str(self.path), "params.json")
        if not isinstance(value, dict):
            raise StorageError(
                f"[result] {self.path / 'params.json'} is not what Lockstep writes: it is not a JSON object"
            )
        return value

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best by CheckpointConfig's score, or the latest if there is no score."""
        return self.best_checkpoints[-1][0] if self.best_checkpoints else self.checkpoint

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """The kept checkpoint whose metrics have the highest (mode "max") or lowest ("min") `metric`; ties: the later.

        A nested metric is named with slashes: ``"validation/loss"``.
        """
        if mode not in ("max", "min"):
            raise ConfigError(f"[result] mode is {mode!r}; it must be 'max' or 'min'")
        if not self.best_checkpoints:
            raise LockstepError(f"[result] the run at {self.path} has no checkpoint")
        sign = 1 if mode == "max" else -1
        best: tuple[float, int, Checkpoint] | None = None
        for checkpoint, metrics in self.best_checkpoints:
            value = _core.number_at(metrics, metric)
            if value is None or math.isnan(value):
                continue
            score = (sign * value, int(checkpoint.metadata.get("seq", 0)))
            if best is None or score > best[:2]:
                best = (*score, checkpoint)
        if best is None:
            names = sorted(
                {key for _, metrics in self.best_checkpoints for key in metrics if key not in AUTOFILLED_KEYS}
            )
            raise ConfigError(
                f"[result] no checkpoint has the metric {metric!r} as a number; there are {', '.join(names)}"
            )
        return best[2]

    @cached_property
    def metrics_dataframe(self) -> pandas.DataFrame:
        """Every report of rank 0, one per row; nested keys are joined by slashes. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("metrics_dataframe needs pandas: pip install pandas (or read result.json)") from error
        return pandas.DataFrame(_core.read_reports(str(self.path / "result.json")), copy=False)

    def __repr__(self) -> str:
        reported = {key: value for key, value in self.metrics.items() if key not in AUTOFILLED_KEYS}
        lines = [f"state={self.state!r}", f"metrics={reported!r}", f"path={str(self.path)!r}"]
        address = _core.address_of(str(self.path))
        if address is not None:
            lines.append(f"uri={address!r}")
        lines.append(f"checkpoint={self.checkpoint!r}")
        if self.error is not None:
            lines.append(f"error={type(self.error).__name__}({str(self.error).splitlines()[0]!r})")
        return "Result(\n  " + ",\n  ".join(lines) + ",\n)"

    @classmethod
    def _from_outcome(
        cls,
        outcome: _core.RunOutcome,
        config: dict[str, Any] | None = None,
        trainer: str | None = None,
        checkpoint_type: type[Checkpoint] | None = None,
        function: Callable[..., Any] | None = None,
        where: str = "trainer",
    ) -> Result:
        """Converts what the core returns, and creates the ``error`` of a failed run.

        `function` is the training function, if there is one: the class of its exception is looked up through it.
        `where` is what the run was started on, for its message; only runs of a trainer can be restored.
        """
        checkpoint_type = checkpoint_type or _checkpoint_type_of(outcome.trainer)
        result = cls(
            path=outcome.path,
            state=outcome.state,
            metrics=outcome.metrics,
            checkpoint=None if outcome.checkpoint is None else checkpoint_type._from_handle(outcome.checkpoint),
            best_checkpoints=[
                (checkpoint_type._from_handle(kept), Metrics(metrics)) for kept, metrics in outcome.best_checkpoints
            ],
            failures=outcome.failures,
            world_sizes=outcome.world_sizes,
            config=config,
        )
        if result.state == "failed":
            from lockstep._failure_message import failure_message

            if where == "trainer" and (result.path.parent / "experiment.sqlite").exists():
                where = "tune"
            path = "" if where == "worker_group" else _core.address_of(str(result.path)) or str(result.path)
            trainer = trainer or outcome.trainer
            message = failure_message(
                result.failures,
                path,
                trainer,
                outcome.error,
                where=where,
                has_checkpoint=result.checkpoint is not None and result.checkpoint.path is not None,
            )
            result.error = failed_error(message, result, last_attempt(result.failures), function)
        return result


_checkpoint_types: dict[str, Callable[[], type[Checkpoint]]] = {}


def register_checkpoint_type(trainer: str, type_of_checkpoints: Callable[[], type[Checkpoint]]) -> None:
    """Registers the checkpoint type of a trainer's results, also for results read from disk. `type_of_checkpoints`
    is called when it is needed."""
    _checkpoint_types[trainer] = type_of_checkpoints


def _checkpoint_type_of(trainer: str) -> type[Checkpoint]:
    """The checkpoint type of the trainer's results, if the trainer has been imported."""
    find = _checkpoint_types.get(trainer)
    return Checkpoint if find is None else find()
