"""What a training function saved."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import _core, _encoding, _preprocessors
from lockstep._places import is_address, place_of
from lockstep.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from typing_extensions import Self


PREPROCESSOR_KEY = "_preprocessor"
"""Where a dict has it."""
METADATA_FILE = ".metadata.json"
"""The file of a checkpoint with the user's metadata."""
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

    _SERIALIZED_ATTRS: ClassVar[tuple[str, ...]] = ()
    """For subclasses: attributes that from_checkpoint() and pickling keep; in scripts written for Ray also directories,
    dicts, bytes and reports."""

    def __init__(
        self,
        local_path: str | os.PathLike[str] | None = None,
        data_dict: dict[Any, Any] | None = None,
        uri: str | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        _data: dict[Any, Any] | None = None,
        _handle: _core.Checkpoint | None = None,
    ) -> None:
        """As in Ray: a path is as from_directory(), `data_dict` as from_dict()."""
        paths = [each for each in (local_path, path, uri) if each is not None]
        if len(paths) + (data_dict is not None) > 1:
            raise ConfigError("[checkpoint] Checkpoint() takes one of local_path, data_dict and uri")
        if data_dict is not None:
            _data = _checked(data_dict)
        elif paths:
            _handle = _handle_at(paths[0])
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
        return cls(_data=_checked(data))._with_attributes()

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Self:
        """A checkpoint of the files in a directory; they stay where they are. For an address in an object store, the
        same as from_uri()."""
        return cls(_handle=_handle_at(path))._with_attributes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of to_bytes(). Unpickles nothing."""
        return cls(_handle=_core.Checkpoint.from_bytes(data))._with_attributes()

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """As from_directory(), for an address in an object store (``s3://bucket/...``), a ``file://`` address or path.
        What is in a store is copied into the local cache, and verified, if it is not there yet."""
        return cls(_handle=_handle_at(uri))._with_attributes()

    @classmethod
    def from_checkpoint(cls, other: Checkpoint) -> Self:
        """The same contents as a checkpoint of this class; nothing is copied::

        TorchCheckpoint.from_checkpoint(result.checkpoint).get_model(Net())
        """
        if not isinstance(other, Checkpoint):
            raise ConfigError(f"[checkpoint] from_checkpoint got a {type(other).__name__}; it must be a Checkpoint")
        same = cls(_data=other._data, _handle=other._handle)._with_attributes()
        same._preprocessor = other._preprocessor
        for name in (*cls._SERIALIZED_ATTRS, *type(other)._SERIALIZED_ATTRS):
            if name in other.__dict__:
                setattr(same, name, other.__dict__[name])
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
        if (attributes := self._attributes()) and (changes := _changing_kinds()) is not None:
            data[changes.ATTRIBUTES_KEY] = attributes
        return data

    def _saved(self) -> dict[Any, Any]:
        """The dict as it was saved, without added keys."""
        if self._data is not None:
            return dict(self._data)
        files = self._as_handle().files()
        if (changes := _changing_kinds()) is not None:
            return dict(changes.as_dict(self))
        if "data.json" not in files:
            held = ", ".join(files[:5]) + (", ..." if len(files) > 5 else "")
            raise ConfigError(
                f"[checkpoint] {self!r} was made from a directory ({held or 'empty'}), not from a dict; "
                "read it with as_directory()"
            )
        return self._decoded()

    def _decoded(self) -> dict[Any, Any]:
        """The dict in its files."""
        handle = self._as_handle()
        data = _encoding.decode(handle.read("data.json"), handle.tensors, lambda: handle.read("objects.pkl"))
        if not isinstance(data, dict):
            raise ConfigError(f"[checkpoint] {self!r} holds a {type(data).__name__}, not a dict")
        return data

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Writes the files to `path` (created if needed; None: a new temporary directory) and returns it."""
        import tempfile

        place = tempfile.mkdtemp(prefix="lockstep_checkpoint_") if path is None else place_of(path, "[checkpoint] path")
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
        """As to_directory(), to an address in an object store (``s3://bucket/...``), a ``file://`` address or a plain
        path."""
        if not is_address(uri):
            self.to_directory(uri)
            return uri
        import tempfile

        place_of(uri, "[checkpoint] uri")
        with tempfile.TemporaryDirectory(prefix="lockstep_checkpoint_") as place:
            _core.upload_directory(self.to_directory(place), uri)
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
        """Its address: that in the object store for a checkpoint of a run there, otherwise ``path`` as a ``file://``
        address. None while it is in memory only."""
        return None if self.path is None else _core.address_of(self.path) or Path(self.path).as_uri()

    @property
    def filesystem(self) -> Any:
        """pyarrow's file system in which ``path`` is."""
        from pyarrow import fs

        return fs.LocalFileSystem()

    @property
    def metadata(self) -> dict[str, Any]:
        """The contents of its manifest (seq, attempt, metrics, world_size, created); empty unless a run committed
        it."""
        return (self._handle.metadata() if self._handle is not None else None) or {}

    def get_metadata(self) -> dict[str, Any]:
        """What set_metadata() stored; otherwise the same as ``metadata``."""
        if self._handle is not None and METADATA_FILE in self._handle.files():
            return dict(json.loads(self._handle.read(METADATA_FILE)))
        return self.metadata

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores plain values in the directory, in a file of its own. Only before it is reported: a run's checkpoints
        do not change."""
        if self.path is None:
            raise ConfigError(f"[checkpoint] set_metadata() needs a directory; {self!r} has none")
        if self.metadata:
            raise ConfigError(f"[checkpoint] {self!r} belongs to a run and cannot be changed; set it before report()")
        with open(os.path.join(self.path, METADATA_FILE), "w", encoding="utf-8") as file:
            json.dump(metadata, file)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to what set_metadata() stored."""
        self.set_metadata({**self.get_metadata(), **metadata})

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
        state = self._attributes() or None
        if self._preprocessor is not None:
            state = {**(state or {}), "_preprocessor": self._preprocessor}
        if self._data is not None:
            return type(self).from_dict, (self._data,), state
        if self.path is not None:
            return type(self).from_directory, (self.path,), state
        return type(self).from_bytes, (self.to_bytes(),), state

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
        return cls(_handle=handle)._with_attributes()

    def _attributes(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self._SERIALIZED_ATTRS if name in self.__dict__}

    def _with_attributes(self) -> Self:
        """This checkpoint, with the attributes that are stored in it."""
        if self._SERIALIZED_ATTRS and (changes := _changing_kinds()) is not None:
            changes.take_attributes(self)
        return self

    def _as_handle(self) -> _core.Checkpoint:
        """The core's handle; a dict is encoded and copied for it."""
        if self._attributes() and (changes := _changing_kinds()) is not None:
            whole: _core.Checkpoint = changes.whole_handle(self)
            return whole
        if self._handle is not None:
            return self._handle
        if self._data is not None and (changes := _changing_kinds()) is not None:
            made: _core.Checkpoint | None = changes.handle_of(self._data)
            if made is not None:
                return made
        return _core.Checkpoint.from_parts(self._as_parts())

    def _as_parts(self, unwrap: bool = False) -> _core.EncodedDict:
        """A dict encoded with its arrays borrowed; `unwrap` removes the wrappers of models."""
        data, changes = self._data, _changing_kinds()
        if data is not None and changes is not None and (attributes := self._attributes()):
            data = {**data, changes.ATTRIBUTES_KEY: attributes}
        encoded = _encoding.encode(data, unwrap)
        return _core.EncodedDict(encoded.data, encoded.tensors, encoded.objects)


def _checked(data: dict[Any, Any]) -> dict[Any, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"[checkpoint] from_dict got a {type(data).__name__}; it must be a dict")
    return data


def _changing_kinds() -> Any:
    """For scripts written for Ray: how dicts become directories and the reverse."""
    if "lockstep.as_ray" not in sys.modules:
        return None
    from lockstep.as_ray import _checkpoint

    return _checkpoint


def _handle_at(path: str | os.PathLike[str]) -> _core.Checkpoint:
    """The checkpoint in a directory, or at an address, from where it is copied."""
    place = place_of(path, "[checkpoint] path")
    if is_address(path) and _core.fetch_checkpoint(os.fspath(path)) is None:
        raise StorageError(f"[checkpoint] there is nothing at {path!s}")
    return _core.Checkpoint.from_directory(place)


def _keys(data: dict[Any, Any]) -> str:
    names = [repr(key) for key in list(data)[:5]] + ["..."] * (len(data) > 5)
    return ", ".join(names) or "nothing"
