"""The trainable and what belongs to it, in ``function.pkl`` of an experiment. The database has the SHA-256 of the file:
a file that was replaced is not unpickled. Only ``Tuner.restore()`` unpickles it."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lockstep import _core, _pickling
from lockstep.config import RunConfig
from lockstep.errors import ConfigError, SerializationError, StorageError
from lockstep.trainer import DataParallelTrainer
from lockstep.tune.sample import Domain
from lockstep.tune.tune_config import TuneConfig

_FILE = "function.pkl"


@dataclass
class Stored:
    """What the file holds."""

    trainable: Any
    space: Mapping[str, Any]
    tune: TuneConfig
    run: RunConfig


def dump(trainable: Any, space: Mapping[str, Any], tune: TuneConfig, run: RunConfig) -> bytes:
    """Raises SerializationError, which names what cannot be pickled. Callbacks that cannot be pickled are left out,
    with a warning."""
    if isinstance(trainable, DataParallelTrainer):
        trainable.run_config, kept = replace(trainable.run_config, callbacks=None), trainable.run_config
        try:
            function = _pickling.dump_part(trainable, "the trainer", "make it inside the training function")
        finally:
            trainable.run_config = kept
    else:
        function = _pickling.dump_function(trainable)
    try:
        rest = _pickling.dump_part((dict(space), tune, run), "an argument", "leave it out")
    except SerializationError:
        given = list(run.callbacks or ())
        stored = [each for each in given if _is_picklable(each)]
        rest = _pickling.dump_part(
            (dict(space), tune, replace(run, callbacks=stored)), "param_space or tune_config", "give plain values"
        )
        lost = ", ".join(type(each).__name__ for each in given if each not in stored)
        what = f"[Tuner] these callbacks cannot be pickled, so they are not stored: {lost}"
        warnings.warn(f"{what}; give them again: Tuner.restore(path, callbacks=...)", UserWarning, stacklevel=2)
    return _pickling.pack(function, rest, b"")


def _is_picklable(callback: Any) -> bool:
    try:
        _pickling.dump_part(callback, "a callback", "leave it out")
    except SerializationError:
        return False
    return True


def marks(payload: bytes) -> dict[str, Any]:
    """For the database."""
    return {"function_sha256": hashlib.sha256(payload).hexdigest()}


def write(path: Path, payload: bytes) -> None:
    """The file is complete before the database names it."""
    _core.replace_file(str(path / _FILE), payload)


def load(path: Path, trainable: Any) -> Stored:
    """What an experiment stored; `trainable` replaces its own."""
    if not (path / "experiment.sqlite").is_file():
        raise ConfigError(
            f"[Tuner] {path} holds no experiment; give the directory that ResultGrid.experiment_path names"
        )
    _core.check_owner(str(path))
    extra = _core.tune.Experiment.open(path, read_only=True).settings().extra
    expected = extra.get("function_sha256", "")
    try:
        payload = (path / _FILE).read_bytes()
    except OSError as error:
        raise StorageError(
            f"[Tuner] {path / _FILE} cannot be read: {error}; the experiment cannot be continued"
        ) from error
    found = hashlib.sha256(payload).hexdigest()
    if found != expected:
        raise StorageError(
            f"[Tuner] {path / _FILE} is not the file of this experiment: its SHA-256 is {found}, but the database has "
            f"{expected or 'none'}. The file was damaged or replaced, so it is not used"
        )
    function, rest, *_ = _pickling.unpack(payload)
    space, tune, run = pickle.loads(rest)
    return Stored(pickle.loads(function) if trainable is None else trainable, space, tune, run)


def shape(value: Any) -> Any:
    """A space without its objects, to compare."""
    if isinstance(value, Domain):
        return repr(value) if value.kind not in ("choice", "sample_from") else value.kind
    if isinstance(value, Mapping):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__
