"""What a training function saved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core, _encoding
from lockstep.config import local_path
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


class Checkpoint:
    """What a training function saved: a dict, or a directory of files.

    Make one with ``from_dict`` or ``from_directory`` and pass it to ``session.report``; get it back from
    ``session.get_checkpoint()`` or from a ``Result``.

        >>> checkpoint = Checkpoint.from_dict({"epoch": 3})
        >>> checkpoint.to_dict()
        {'epoch': 3}

    A dict may hold anything that can be pickled. Plain values, numpy arrays and torch tensors are stored in files that
    other programs read (``data.json``, ``tensors.safetensors``); only the rest is pickled, and only ``to_dict()``
    unpickles it.
    """

    def __init__(self, *, _data: dict[Any, Any] | None = None, _handle: _core.Checkpoint | None = None) -> None:
        if _data is None and _handle is None:
            raise ConfigError(
                "[checkpoint] Checkpoint() has no contents; use Checkpoint.from_dict({...}) or from_directory(path)"
            )
        self._data = _data
        self._handle = _handle

    # ------------------------------------------------------------------ making

    @classmethod
    def from_dict(cls, data: dict[Any, Any]) -> Self:
        """A checkpoint of a dict, which is kept as it is (not copied) until it is reported or written."""
        if not isinstance(data, dict):
            raise ConfigError(f"[checkpoint] from_dict got a {type(data).__name__}; it must be a dict")
        return cls(_data=data)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """A checkpoint of the files in a directory; they stay where they are."""
        return cls(_handle=_core.Checkpoint.from_directory(local_path(path, "[checkpoint] path")))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of to_bytes(). Opens no pickle."""
        return cls(_handle=_core.Checkpoint.from_bytes(data))

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """As from_directory(), of a ``file://`` address or plain path."""
        return cls.from_directory(uri)

    @classmethod
    def from_checkpoint(cls, other: Checkpoint) -> Self:
        """The same contents as a checkpoint of this class; nothing is copied::

        TorchCheckpoint.from_checkpoint(result.checkpoint).get_model(Net())
        """
        if not isinstance(other, Checkpoint):
            raise ConfigError(f"[checkpoint] from_checkpoint got a {type(other).__name__}; it must be a Checkpoint")
        return cls(_data=other._data, _handle=other._handle)

    # ------------------------------------------------------------------ reading

    def to_dict(self) -> dict[Any, Any]:
        """The dict; arrays in it are the caller's own to change.

        One that a run committed has ``_timestamp``, ``_preprocessor`` and ``_current_checkpoint_id`` added. Unpickles
        ``objects.pkl`` where there is one: call it only on checkpoints that you trust.
        """
        data = self._saved()
        metadata = None if self._data is not None else self._as_handle().metadata()
        if metadata is not None:
            data["_timestamp"] = int(metadata.get("created") or 0)
            data["_preprocessor"] = None
            data["_current_checkpoint_id"] = metadata.get("seq")
        return data

    def _saved(self) -> dict[Any, Any]:
        """The dict as it was saved, nothing added."""
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
        """Writes the files to `path` (made if needed; None: a new temporary directory) and returns it."""
        import tempfile

        place = (
            tempfile.mkdtemp(prefix="lockstep_checkpoint_") if path is None else local_path(path, "[checkpoint] path")
        )
        self._as_handle().to_directory(place)
        return place

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The checkpoint as a directory: its own where it lies on disk (do not change it), else a temporary one::

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
        """All files in one string of bytes."""
        return self._as_handle().to_bytes()

    def to_uri(self, uri: str) -> str:
        """As to_directory(), to a ``file://`` address or plain path."""
        self.to_directory(uri)
        return uri

    # ------------------------------------------------------------------ about it

    @property
    def path(self) -> str | None:
        """Where it lies; None while it is in memory only."""
        return self._handle.path if self._handle is not None else None

    @property
    def dir_or_data(self) -> str | dict[Any, Any]:
        """Where it lies, or the dict: the name that Ray Tune's trials have for it. ``value`` is the same."""
        return self.path if self.path is not None else self.to_dict()

    value = dir_or_data

    @property
    def uri(self) -> str | None:
        """``path`` as a ``file://`` address."""
        return None if self.path is None else Path(self.path).as_uri()

    @property
    def metadata(self) -> dict[str, Any]:
        """What the run wrote about it (seq, attempt, metrics, world_size, created); empty unless a run committed it."""
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

    def verify(self) -> None:
        """Raises StorageError naming the first file whose size or hash is not what the run wrote down."""
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

    @classmethod
    def _from_handle(cls, handle: _core.Checkpoint) -> Self:
        return cls(_handle=handle)

    def _as_handle(self) -> _core.Checkpoint:
        """The core's handle; a dict is taken apart and copied for it."""
        if self._handle is not None:
            return self._handle
        return _core.Checkpoint.from_parts(self._as_parts())

    def _as_parts(self, unwrap: bool = False) -> _core.DictParts:
        """A dict taken apart, its arrays borrowed; `unwrap` takes models out of their wrappers."""
        encoded = _encoding.encode(self._data, unwrap)
        return _core.DictParts(encoded.data, encoded.tensors, encoded.objects)


def _keys(data: dict[Any, Any]) -> str:
    names = [repr(key) for key in list(data)[:5]] + ["..."] * (len(data) > 5)
    return ", ".join(names) or "nothing"
