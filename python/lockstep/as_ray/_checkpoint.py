"""Checkpoints of Ray that change between dicts and directories: what the user adds in between stays.

A directory of files as a dict is ``{"fs_checkpoint": bytes}``, to which keys can be added. A dict as a directory has
Lockstep's files, to which others can be added: ``to_dict()`` then has them under ``_ray_additional_checkpoint_files``.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from lockstep import _core

if TYPE_CHECKING:
    from lockstep.checkpoint import Checkpoint

FILES_KEY = "fs_checkpoint"
ADDED_KEY = "_ray_additional_checkpoint_files"
ATTRIBUTES_KEY = "_serialized_attributes"
"""Of a subclass, those that it names in _SERIALIZED_ATTRS."""
KEYS_DIRECTORY = "fs_checkpoint_keys"
"""Where a directory has the keys that were added to its dict."""
OWN_FILES = ("data.json", "tensors.safetensors", "objects.pkl", "manifest.json", "lockstep.json")
HIDDEN_FILES = ("lockstep_preprocessor.json", "lockstep_validation.json")


def as_dict(checkpoint: Checkpoint) -> dict[Any, Any]:
    """A checkpoint of files as a dict."""
    files = checkpoint._as_handle().files()
    if "data.json" in files:
        data = checkpoint._decoded()
        if added := [name for name in files if name not in (*OWN_FILES, *HIDDEN_FILES)]:
            data[ADDED_KEY] = _packed(checkpoint, added)
        return data
    kept = [name for name in files if name.startswith(KEYS_DIRECTORY + "/")]
    data = {}
    with tempfile.TemporaryDirectory(prefix="lockstep_checkpoint_") as place:
        checkpoint._as_handle().to_directory(place)
        if kept:
            data = type(checkpoint).from_directory(os.path.join(place, KEYS_DIRECTORY))._decoded()
        plain = os.path.join(place, "plain")
        os.mkdir(plain)
        for name in files:
            if name not in kept and name not in ("manifest.json", "lockstep_validation.json"):
                os.makedirs(os.path.dirname(os.path.join(plain, name)), exist_ok=True)
                os.replace(os.path.join(place, name), os.path.join(plain, name))
        data[FILES_KEY] = _core.Checkpoint.from_directory(plain).to_bytes()
    return data


def take_attributes(checkpoint: Checkpoint) -> None:
    """Sets the attributes that are stored in a checkpoint."""
    from lockstep.checkpoint import Checkpoint as Plain

    data, handle = checkpoint._data, checkpoint._handle
    if data is not None:
        stored = data.get(ATTRIBUTES_KEY)
        checkpoint._data = {key: value for key, value in data.items() if key != ATTRIBUTES_KEY}
    elif handle is None:
        return
    else:
        files = handle.files()
        if "data.json" not in files and f"{KEYS_DIRECTORY}/data.json" not in files:
            return
        stored = Plain._from_handle(handle)._saved().get(ATTRIBUTES_KEY)
    for name, value in (stored or {}).items():
        if name in checkpoint._SERIALIZED_ATTRS:
            setattr(checkpoint, name, value)


def whole_handle(checkpoint: Checkpoint) -> _core.Checkpoint:
    """The files of a checkpoint, with its attributes."""
    from lockstep.checkpoint import Checkpoint as Plain

    attributes = {ATTRIBUTES_KEY: checkpoint._attributes()}
    if checkpoint._data is not None:
        return Plain.from_dict({**checkpoint._data, **attributes})._as_handle()
    handle = checkpoint._handle
    assert handle is not None
    if "data.json" in handle.files():
        return Plain.from_dict({**Plain._from_handle(handle)._saved(), **attributes})._as_handle()
    made = handle_of({FILES_KEY: handle.to_bytes(), **attributes})
    assert made is not None
    return made


def _packed(checkpoint: Checkpoint, names: list[str]) -> dict[str, bytes]:
    handle = checkpoint._as_handle()
    return {name: handle.read(name) for name in names}


def handle_of(data: dict[Any, Any]) -> _core.Checkpoint | None:
    """The files of a dict that has some; None for others."""
    from lockstep.checkpoint import Checkpoint

    files, added = data.get(FILES_KEY), data.get(ADDED_KEY)
    if not isinstance(files, bytes) and not isinstance(added, dict):
        return None
    rest = {key: value for key, value in data.items() if key not in (FILES_KEY, ADDED_KEY)}
    with tempfile.TemporaryDirectory(prefix="lockstep_checkpoint_") as place:
        if isinstance(files, bytes):
            _core.Checkpoint.from_bytes(files).to_directory(place)
            if rest:
                Checkpoint.from_dict(rest).to_directory(os.path.join(place, KEYS_DIRECTORY))
        else:
            Checkpoint.from_dict(rest).to_directory(place)
        for name, contents in (added or {}).items():
            path = os.path.normpath(os.path.join(place, name))
            if path.startswith(place + os.sep):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(contents)
        return _core.Checkpoint.from_bytes(_core.Checkpoint.from_directory(place).to_bytes())
