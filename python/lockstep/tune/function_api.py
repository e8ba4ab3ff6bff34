"""Functions for function trainables, besides those of ``lockstep.session``."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep import session
from lockstep.checkpoint import Checkpoint

_saved: dict[int, str] = {}
"""By session: the directory that the next report saves."""


def report(_metric: Any = None, checkpoint: Checkpoint | None = None, **values: Any) -> None:
    """Reports metrics: ``tune.report({"loss": 0.5})`` or ``tune.report(loss=0.5)``."""
    if _metric is None and isinstance(values.get("metrics"), Mapping) and len(values) == 1:
        _metric = values.pop("metrics")
    metrics = dict(_metric) if isinstance(_metric, Mapping) else {} if _metric is None else {"_metric": _metric}
    place = _saved.pop(id(session._session), None)
    if place is None:
        session.report({**metrics, **values}, checkpoint=checkpoint)
        return
    held = Checkpoint.from_directory(place).to_bytes()
    shutil.rmtree(place, ignore_errors=True)
    session.report({**metrics, **values}, checkpoint=Checkpoint.from_bytes(held))


def save_pending() -> None:
    """At the end of a function: saves the directory that no report took."""
    place = _saved.pop(id(session._session), None)
    if place is not None:
        held = Checkpoint.from_directory(place).to_bytes()
        shutil.rmtree(place, ignore_errors=True)
        session._save(Checkpoint.from_bytes(held))


def get_trial_resources() -> dict[str, float]:
    """What the trial was given, besides its one CPU."""
    return dict(getattr(session._get("get_trial_resources").core, "resources", {}))


@contextlib.contextmanager
def checkpoint_dir(step: int = 0) -> Iterator[str]:
    """A directory whose files the next ``tune.report()`` saves as a checkpoint::

    with tune.checkpoint_dir(step=epoch) as directory:
        torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
    tune.report(loss=loss)
    """
    before = _saved.pop(id(session._session), None)
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    place = tempfile.mkdtemp(prefix="lockstep_checkpoint_")
    yield place
    if os.listdir(place):
        _saved[id(session._session)] = place
    else:
        os.rmdir(place)


def save_checkpoint(**values: Any) -> None:
    """Saves a checkpoint of the values; ``load_checkpoint()`` gives them back."""
    session._save(Checkpoint.from_dict(values))


def load_checkpoint() -> dict[Any, Any] | None:
    """The values of the last ``save_checkpoint()``; None if the trial starts afresh."""
    checkpoint = session.get_checkpoint()
    return None if checkpoint is None else checkpoint._saved()


def get_trial_id() -> str:
    """The id of the trial."""
    return session.get_trial_id()


def get_trial_name() -> str:
    """The name of the trial."""
    return session.get_trial_name()


def get_trial_dir() -> str:
    """The directory of the trial."""
    return session.get_trial_dir()


def is_session_enabled() -> bool:
    """Whether this process runs a trial."""
    return session._session is not None
