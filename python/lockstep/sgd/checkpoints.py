"""The checkpoints of a run of ``lockstep.sgd.Trainer``: writes the files in ``checkpoints/`` and removes old ones."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep import _core
from lockstep._places import local_path
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig
from lockstep.errors import ConfigError
from lockstep.sgd.names import TIMESTAMP
from lockstep.sgd.paths import refused

__all__ = ["CheckpointConfig", "CheckpointFiles", "CheckpointStrategy", "plain_dict", "read_checkpoint"]

CheckpointStrategy = CheckpointConfig
"""RaySGD's name for it: ``CheckpointStrategy(num_to_keep=2, checkpoint_score_attribute="loss")``."""

_RAY_DICT_FILE = "dict_checkpoint.pkl"
"""Ray's name of the pickled dict in a checkpoint directory."""


@dataclass
class _Entry:
    id: int
    score: float | None
    path: Path | None
    """None: in memory only."""
    handle: Checkpoint | None
    """None: on disk only."""


class CheckpointFiles:
    """Writes the checkpoints of one run as they are committed, and removes those that `strategy` does not keep::

        files = CheckpointFiles(run / "checkpoints", CheckpointStrategy(num_to_keep=2), as_file=True, resume_from=None)
        files.add(checkpoint, metrics)
        files.latest_path  # .../checkpoints/checkpoint_000001

    `as_file`: each checkpoint is a file with the pickled dict, as in RaySGD; otherwise it is a directory that
    ``Checkpoint.from_directory`` reads. `directory` is created with the first checkpoint. Use it from one thread. Every
    method raises StorageError, with the path, if the disk refuses.
    """

    directory: Path

    def __init__(
        self, directory: Path, strategy: CheckpointConfig, *, as_file: bool, resume_from: Checkpoint | None
    ) -> None:
        self.directory = Path(directory)
        self._strategy = strategy
        self._as_file = as_file
        self._resume_from = resume_from
        self._entries: list[_Entry] = []
        self._best: _Entry | None = None
        self._count = 0

    def add(self, checkpoint: Checkpoint, metrics: Mapping[str, Any]) -> None:
        """Adds a checkpoint that the run committed, with the metrics of its report. It becomes the latest."""
        number = self._count + 1
        score = self._score(checkpoint, metrics)
        path = None
        if self._strategy.num_to_keep != 0:
            path = self.directory / f"checkpoint_{number:06}"
            self._write(checkpoint, path)
        for entry in self._entries:
            if entry.path is not None:
                entry.handle = None
        self._count = number
        self._entries.append(_Entry(number, score, path, checkpoint))
        self._retire()

    @property
    def latest(self) -> dict[Any, Any] | None:
        """The contents of the newest checkpoint; before the first, what the run started from."""
        return None if self.latest_handle is None else plain_dict(self.latest_handle)

    @property
    def latest_handle(self) -> Checkpoint | None:
        """The newest checkpoint itself; before the first, the one that the run started from."""
        return self._entries[-1].handle if self._entries else self._resume_from

    @property
    def latest_path(self) -> Path | None:
        """The path of the newest checkpoint; None if nothing is written to disk."""
        return self._entries[-1].path if self._entries else None

    @property
    def best(self) -> dict[Any, Any] | None:
        """The contents of the checkpoint with the best score; the same as `latest` if none has a score."""
        if self._best is None:
            return self.latest
        return plain_dict(self._best.handle or read_checkpoint(self._best.path))

    @property
    def best_path(self) -> Path | None:
        """The path of the best checkpoint; None if nothing is written to disk."""
        return None if self._best is None else self._best.path

    def _score(self, checkpoint: Checkpoint, metrics: Mapping[str, Any]) -> float | None:
        attribute = self._strategy.checkpoint_score_attribute
        if attribute is None:
            return None
        score = _core.score_of(checkpoint._as_handle(), dict(metrics), attribute)
        return time.time() if score is None and attribute == TIMESTAMP else score

    def _write(self, checkpoint: Checkpoint, path: Path) -> None:
        if self._as_file:
            import cloudpickle

            _core.replace_file(str(path), cloudpickle.dumps(plain_dict(checkpoint)))
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise refused(self.directory, "made", error) from error
        checkpoint.to_directory(path)

    def _retire(self) -> None:
        """Keeps the num_to_keep best and the latest; of checkpoints in memory only the best and the latest."""
        keep = self._strategy.num_to_keep
        entries = {entry.id: entry for entry in self._entries}
        remove, best = _core.decide_retention(
            [(entry.id, entry.score) for entry in self._entries],
            None if keep is None else max(keep, 1),
            self._strategy.checkpoint_score_order,
        )
        self._best = entries[best[-1]]
        self._entries = [entry for entry in self._entries if entry.id not in remove]
        for path in (entries[number].path for number in remove):
            if path is not None:
                _remove(path)


def read_checkpoint(value: Any) -> Checkpoint:
    """The checkpoint that ``run(checkpoint=...)`` was given: a dict, a Checkpoint, or the path of one that a run or Ray
    wrote.

    A file is unpickled, which can run code: use only files that you trust. Raises ConfigError for anything else.

        >>> read_checkpoint({"epoch": 3}).to_dict()
        {'epoch': 3}
    """
    if isinstance(value, Checkpoint):
        return value
    if isinstance(value, dict):
        return Checkpoint.from_dict(value)
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(
            f"[sgd] checkpoint is a {type(value).__name__}; it must be a dict, a Checkpoint, or the path of one"
        )
    path = Path(local_path(value, "[sgd] checkpoint"))
    if path.is_dir():
        inside = path / _RAY_DICT_FILE
        return _read_pickle(inside) if inside.is_file() else Checkpoint.from_directory(path)
    return _read_pickle(path)


def plain_dict(checkpoint: Checkpoint) -> dict[Any, Any]:
    """The dict that was saved: ``to_dict()`` without the keys that it adds."""
    return checkpoint._saved()


def _read_pickle(path: Path) -> Checkpoint:
    try:
        with open(path, "rb") as file:
            data = pickle.load(file)
    except FileNotFoundError:
        raise ConfigError(f"[sgd] checkpoint is {str(path)!r}; there is no such file or directory") from None
    except OSError as error:
        raise refused(path, "read", error) from error
    except Exception as error:  # unpickling may run any code
        raise ConfigError(f"[sgd] checkpoint {path} is not a pickled dict that can be read here: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"[sgd] checkpoint {path} holds a {type(data).__name__}; it must hold a dict")
    return Checkpoint.from_dict(data)


def _remove(path: Path) -> None:
    """Renames it first, so that a partly removed checkpoint does not look like a whole one."""
    try:
        gone = path.with_name(f".{path.name}.removed")
        os.replace(path, gone)
        if gone.is_dir():
            shutil.rmtree(gone)
        else:
            gone.unlink()
    except FileNotFoundError:  # the user has removed it already
        return
    except OSError as error:
        raise refused(path, "removed", error) from error
