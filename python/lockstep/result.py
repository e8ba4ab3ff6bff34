"""What a run came to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core
from lockstep.checkpoint import Checkpoint
from lockstep.config import run_path
from lockstep.errors import (
    ConfigError,
    Failure,
    LockstepError,
    StorageError,
    failed_error,
    last_attempt,
)

if TYPE_CHECKING:
    import pandas

AUTOFILLED_KEYS = frozenset(
    {
        "training_iteration",
        "time_this_iter_s",
        "time_total_s",
        "time_since_restore",
        "iterations_since_restore",
        "timestamp",
        "date",
        "pid",
        "hostname",
        "node_ip",
        "trial_id",
        "experiment_id",
        "experiment_tag",
        "config",
        "done",
        "episodes_total",
        "timesteps_total",
        "timesteps_since_restore",
        "warmup_time",
        "_timestamp",
        "_time_this_iter_s",
        "_training_iteration",
        "_date",
        "_hostname",
        "_node_ip",
        "_pid",
        "_time_total_s",
    }
)
"""What the driver adds to reported metrics."""


class Metrics(dict[str, Any]):
    """A dict whose KeyError names the keys there are."""

    def __missing__(self, key: str) -> Any:
        reported = [name for name in self if name not in AUTOFILLED_KEYS]
        names = ", ".join(map(repr, reported)) or "nothing"
        raise KeyError(f"{key!r} was not reported; reported: {names}; there are also the autofilled keys")


class Result:
    """What a run came to. Everything in it can be read again from the run directory::

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
    """Those that CheckpointConfig keeps, with their metrics: worst first, best last."""
    error: Exception | None
    """Why the run failed; None if it did not."""
    failures: list[Failure]
    """Of all attempts, also of a run that ended well."""
    path: Path
    """The run directory."""
    state: str
    """finished, failed, interrupted, running or died."""

    def __init__(
        self,
        *,
        path: str | os.PathLike[str],
        state: str = "finished",
        metrics: Mapping[str, Any] | None = None,
        checkpoint: Checkpoint | None = None,
        best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None,
        failures: list[Failure] | None = None,
        error: Exception | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.state = state
        self.metrics = Metrics(metrics or {})
        self.checkpoint = checkpoint
        self.best_checkpoints = list(best_checkpoints or [])
        self.failures = list(failures or [])
        self.error = error
        if config is not None:
            self.config = config

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Result:
        """Reads a run by its directory, or by its name in the default storage path::

            Result.from_path("digits-1").metrics

        Raises StorageError when there is none.

        Checkpoints are of the type that the run's trainer gives, where the module of that trainer has been imported.
        """
        return cls._from_outcome(_core.read_run(run_path(path, "[result] path")))

    @property
    def log_dir(self) -> Path:
        """The same as ``path``."""
        return self.path

    @cached_property
    def config(self) -> dict[str, Any]:
        """``train_loop_config``; read from ``params.json`` it has the repr of what JSON cannot hold."""
        return read_dict(self.path, "params.json") if (self.path / "params.json").exists() else {}

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best by CheckpointConfig's score; without one the latest."""
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
            value = _number(metrics, metric)
            if value is None:
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
        """Every report of rank 0, one a row; nested keys are joined by slashes. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("metrics_dataframe needs pandas: pip install pandas (or read result.json)") from error
        columns: dict[str, list[Any]] = {}
        texts: dict[str, str] = {}  # names of hosts, dates and the like come again and again
        for count, row in enumerate(_rows(self.path / "result.json")):
            leaves = _leaves(row, texts)
            if not leaves.keys() <= columns.keys():
                for key in leaves:
                    columns.setdefault(key, [math.nan] * count)
            for key, column in columns.items():
                column.append(leaves.get(key, math.nan))
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        reported = {key: value for key, value in self.metrics.items() if key not in AUTOFILLED_KEYS}
        lines = [f"state={self.state!r}", f"metrics={reported!r}", f"path={str(self.path)!r}"]
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
        where: str = "fit",
    ) -> Result:
        """From what the core returns; a failed run's ``error`` is made here.

        `function` is the training function, where there is one: it may reach the class that it raised. `where` is what
        the user called; only what ``fit()`` ran can be restored.
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
            failures=[Failure.from_dict(failure) for failure in outcome.failures],
            config=config,
        )
        if result.state == "failed":
            from lockstep._failure_message import failure_message

            path = str(result.path) if where == "fit" else ""
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
    """What the results of a trainer of that name hold, also when they are read again; asked when it is needed."""
    _checkpoint_types[trainer] = type_of_checkpoints


def _checkpoint_type_of(trainer: str) -> type[Checkpoint]:
    """What the trainer's own results hold, where the trainer has been imported."""
    find = _checkpoint_types.get(trainer)
    return Checkpoint if find is None else find()


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    """The number under `name`, or at that path of nested dicts; None for anything else, NaN too."""
    found: Any = metrics
    for key in [name] if name in metrics else name.split("/"):
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    if isinstance(found, bool) or not isinstance(found, (int, float)) or math.isnan(found):
        return None
    return float(found)


def read_dict(path: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """What the run directory's file of that name holds; StorageError when that is no dict."""
    value = _core.read_json(os.fspath(path), name)
    if not isinstance(value, dict):
        raise StorageError(f"[run] {Path(path, name)} is not what Lockstep writes: it holds no JSON object")
    return value


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The reports in a result.json; StorageError names the line that is none."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"[result] {path} cannot be read: {error}") from error
    with file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line.decode())
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):  # a driver that was killed may leave half a line
                    return
                raise StorageError(f"[result] line {number} of {path} is not what Lockstep writes: {error}") from error
            if not isinstance(row, dict):
                raise StorageError(
                    f"[result] line {number} of {path} is not what Lockstep writes: it is no JSON object"
                )
            yield row


def _leaves(row: dict[str, Any], texts: dict[str, str], prefix: str = "") -> dict[str, Any]:
    """What is in nested dicts, by its path; equal texts become one."""
    leaves: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            leaves.update(_leaves(value, texts, f"{prefix}{key}/"))
        else:
            leaves[prefix + key] = texts.setdefault(value, value) if isinstance(value, str) else value
    return leaves
