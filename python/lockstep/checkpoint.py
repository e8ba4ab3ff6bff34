"""What a training function saved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core, _encoding, _preprocessors
from lockstep.config import local_path
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


PREPROCESSOR_KEY = "_preprocessor"
"""Where a dict has it."""
PREPROCESSOR_FILE = "lockstep_preprocessor.json"
"""The file of a checkpoint that holds the preprocessor of the run's data."""


class Checkpoint:
    """What a training function saved: a dict, or a directory of files.

    Make one with ``from_dict`` or ``from_directory`` and pass it to ``session.report``; get it back from
    ``session.get_checkpoint()`` or from a ``Result``.

        >>> checkpoint = Checkpoint.from_dict({"epoch": 3})
        >>> checkpoint.to_dict()
        {'epoch': 3}

    A dict may hold anything that can be pickled. Plain values, numpy arrays and torch tensors are stored in files that
    other programs can read (``data.json``, ``tensors.safetensors``). Only the rest is pickled, and only ``to_dict()``
    unpickles it.
    """

    def __init__(self, *, _data: dict[Any, Any] | None = None, _handle: _core.Checkpoint | None = None) -> None:
        if _data is None and _handle is None:
            raise ConfigError(
                "[checkpoint] Checkpoint() has no contents; use Checkpoint.from_dict({...}) or from_directory(path)"
            )
        self._data = _data
        self._handle = _handle
        self._preprocessor: Any = None
        """Of files; a dict has its own under a key."""

    # ------------------------------------------------------------------ making

    @classmethod
    def from_dict(cls, data: dict[Any, Any]) -> Self:
        """A checkpoint of a dict, which is not copied until it is reported or written."""
        if not isinstance(data, dict):
            raise ConfigError(f"[checkpoint] from_dict got a {type(data).__name__}; it must be a dict")
        return cls(_data=data)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """A checkpoint of the files in a directory; they stay where they are."""
        return cls(_handle=_core.Checkpoint.from_directory(local_path(path, "[checkpoint] path")))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of to_bytes(). Unpickles nothing."""
        return cls(_handle=_core.Checkpoint.from_bytes(data))

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """As from_directory(), for a ``file://`` address or plain path."""
        return cls.from_directory(uri)

    @classmethod
    def from_checkpoint(cls, other: Checkpoint) -> Self:
        """The same contents as a checkpoint of this class; nothing is copied::

        TorchCheckpoint.from_checkpoint(result.checkpoint).get_model(Net())
        """
        if not isinstance(other, Checkpoint):
            raise ConfigError(f"[checkpoint] from_checkpoint got a {type(other).__name__}; it must be a Checkpoint")
        same = cls(_data=other._data, _handle=other._handle)
        same._preprocessor = other._preprocessor
        return same

    # ------------------------------------------------------------------ reading

    def to_dict(self) -> dict[Any, Any]:
        """The dict. The caller may change the arrays in it.

        If a run committed it, ``_timestamp``, ``_preprocessor`` and ``_current_checkpoint_id`` are added. Unpickles
        ``objects.pkl`` if there is one: call it only on checkpoints that you trust.
        """
        data = self._saved()
        metadata = None if self._data is not None else self._as_handle().metadata()
        if metadata is not None:
            data["_timestamp"] = int(metadata.get("created") or 0)
            if data.get(PREPROCESSOR_KEY) is None:
                data[PREPROCESSOR_KEY] = self._stored_preprocessor()
            data["_current_checkpoint_id"] = metadata.get("seq")
        return data

    def _saved(self) -> dict[Any, Any]:
        """The dict as it was saved, without added keys."""
        if self._data is not None:
            return dict(self._data)
        handle = self._as_handle()
        files = handle.files()
        if "data.json" not in files:
            held = ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
            raise ConfigError(
                f"[checkpoint] {self!r} was made from a directory ({held or 'empty'}), not from a dict; "
                "read it with as_directory()"
            )
        data = _encoding.decode(handle.read("data.json"), handle.tensors, lambda: handle.read("objects.pkl"))
        if not isinstance(data, dict):
            raise ConfigError(f"[checkpoint] {self!r} holds a {type(data).__name__}, not a dict")
        return data

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Writes the files to `path` (created if needed; None: a new temporary directory) and returns it."""
        import tempfile

        place = (
            tempfile.mkdtemp(prefix="lockstep_checkpoint_") if path is None else local_path(path, "[checkpoint] path")
        )
        self._as_handle().to_directory(place)
        return place

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The checkpoint as a directory: its own if it is on disk (do not change it), otherwise a temporary one::

        with checkpoint.as_directory() as path:
            model.load(os.path.join(path, "model.bin"))
        """
        if self.path is not None:
            yield self.path
            return
        import shutil

        place = self.to_directory()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def to_bytes(self) -> bytes:
        """All files in one byte string."""
        return self._as_handle().to_bytes()

    def to_uri(self, uri: str) -> str:
        """As to_directory(), to a ``file://`` address or plain path."""
        self.to_directory(uri)
        return uri

    # ------------------------------------------------------------------ about it

    @property
    def path(self) -> str | None:
        """Its directory; None while it is in memory only."""
        return self._handle.path if self._handle is not None else None

    @property
    def dir_or_data(self) -> str | dict[Any, Any]:
        """Its directory, or the dict, under the name that Ray Tune's trials use. ``value`` is the same."""
        return self.path if self.path is not None else self.to_dict()

    value = dir_or_data

    @property
    def uri(self) -> str | None:
        """``path`` as a ``file://`` address."""
        return None if self.path is None else Path(self.path).as_uri()

    @property
    def metadata(self) -> dict[str, Any]:
        """The contents of its manifest (seq, attempt, metrics, world_size, created); empty unless a run committed
        it."""
        return (self._handle.metadata() if self._handle is not None else None) or {}

    def get_metadata(self) -> dict[str, Any]:
        """The same as ``metadata``."""
        return self.metadata

    def get_internal_representation(self) -> tuple[str, Any]:
        """``("local_path", path)``, ``("data_dict", dict)``, or ``("data_bytes", bytes)`` (files in memory)."""
        if self._data is not None:
            return "data_dict", self._data
        if self.path is not None:
            return "local_path", self.path
        is_dict = "data.json" in self._as_handle().files()
        return ("data_dict", self.to_dict()) if is_dict else ("data_bytes", self.to_bytes())

    def get_preprocessor(self) -> Any:
        """The preprocessor of the data that the run was trained with, fitted; None if there was none.

            batch = result.checkpoint.get_preprocessor().transform_batch(batch)

        One of Lockstep is plain data. Classes and functions of your own are unpickled: call it only on checkpoints
        that you trust.
        """
        if self._preprocessor is not None:
            return self._preprocessor
        if self._data is not None:
            return self._data.get(PREPROCESSOR_KEY)
        stored = self._stored_preprocessor()
        if stored is not None or "data.json" not in self._as_handle().files():
            return stored
        return self._saved().get(PREPROCESSOR_KEY)

    def set_preprocessor(self, preprocessor: Any) -> None:
        """What get_preprocessor() returns from now on, also of what is reported later."""
        if self._data is not None:
            self._data = {**self._data, PREPROCESSOR_KEY: preprocessor}
        else:
            self._preprocessor = preprocessor

    def verify(self) -> None:
        """Raises StorageError, which names the files that differ from the manifest."""
        if self._handle is not None:
            self._handle.verify()

    def __fspath__(self) -> str:
        if self.path is None:
            raise ConfigError(f"[checkpoint] {self!r} is in memory only; use as_directory() or to_directory()")
        return self.path

    def __repr__(self) -> str:
        if self._data is not None:
            return f"{type(self).__name__}(dict with {_keys(self._data)})"
        return f"{type(self).__name__}({'in memory' if self.path is None else f'path={self.path!r}'})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is not None:
            return type(self).from_dict, (self._data,)
        if self.path is not None:
            return type(self).from_directory, (self.path,)
        return type(self).from_bytes, (self.to_bytes(),)

    # ------------------------------------------------------------------ for Lockstep itself

    def _stored_preprocessor(self) -> Any:
        """Of the file that a run wrote."""
        handle = self._as_handle()
        is_there = PREPROCESSOR_FILE in handle.files()
        return _preprocessors.load(handle.read(PREPROCESSOR_FILE)) if is_there else None

    def _dumped_preprocessor(self) -> bytes:
        """Its own one, unless it is in the dict; empty if there is none."""
        return b"" if self._preprocessor is None else _preprocessors.dump(self._preprocessor)

    @classmethod
    def _from_handle(cls, handle: _core.Checkpoint) -> Self:
        return cls(_handle=handle)

    def _as_handle(self) -> _core.Checkpoint:
        """The core's handle; a dict is encoded and copied for it."""
        if self._handle is not None:
            return self._handle
        return _core.Checkpoint.from_parts(self._as_parts())

    def _as_parts(self, unwrap: bool = False) -> _core.EncodedDict:
        """A dict encoded with its arrays borrowed; `unwrap` removes the wrappers of models."""
        encoded = _encoding.encode(self._data, unwrap)
        return _core.EncodedDict(encoded.data, encoded.tensors, encoded.objects)


def _keys(data: dict[Any, Any]) -> str:
    names = [repr(key) for key in list(data)[:5]] + ["..."] * (len(data) > 5)
    return ", ".join(names) or "nothing"
