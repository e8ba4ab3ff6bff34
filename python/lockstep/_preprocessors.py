"""Preprocessors as bytes: in ``function.pkl`` and in the checkpoints of a run.

Always JSON. The ones of Lockstep are data: class, arguments, statistics. Classes and functions of the user's own can
only be pickled, and nothing else is; only :func:`load` unpickles them. The name of a class of the user's own has its
module. For example::

    {"class": "MinMaxScaler", "arguments": {"columns": ["x"]}, "statistics": {"min(x)": 0.0, "max(x)": 30.0}}
    {"class": "BatchMapper", "arguments": {"fn": {"$pickle": "gAWV..."}, "batch_format": "pandas", "batch_size": 4}}
    {"class": "__main__.Centred", "pickle": "gAWV..."}

Imports no pyarrow, unless there is one of Lockstep.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any

from lockstep import _pickling
from lockstep.errors import StorageError

_FORMAT = "lockstep.preprocessor"
_VERSION = 1


def dump(preprocessor: Any) -> bytes:
    """JSON; see above. SerializationError if something in it can be neither written as JSON nor pickled."""
    document = {"format": _FORMAT, "version": _VERSION, **to_dict(preprocessor)}
    return json.dumps(document, allow_nan=False).encode()


def load(data: bytes | str) -> Any:
    """What was dumped. Unpickles the user's own classes and functions, if there are any: :func:`is_pickled` tells."""
    return from_dict(_document(data))


def is_pickled(data: bytes | str) -> bool:
    """Whether :func:`load` would unpickle something of this, which runs code."""
    return _has_pickle(_document(data))


def dump_plain(value: Any) -> str | None:
    """The JSON of a preprocessor of Lockstep without code of the user's own; None if `value` is something else."""
    if not _is_preprocessor(value):
        return None
    state = to_dict(value)
    return None if _has_pickle(state) else json.dumps({"format": _FORMAT, "version": _VERSION, **state})


def load_plain(data: str) -> Any:
    """What dump_plain() gave. Unpickles nothing: StorageError if it would have to."""
    if is_pickled(data):
        raise StorageError("[preprocessor] there is a pickle where the data of a preprocessor of Lockstep should be")
    return load(data)


def to_dict(preprocessor: Any) -> dict[str, Any]:
    """Values that JSON can hold."""
    if _is_preprocessor(preprocessor):
        from lockstep.data.preprocessors import _store

        state = _store.to_dict(preprocessor)
        if state is not None:
            return state
    cls = type(preprocessor)
    return {"class": f"{cls.__module__}.{cls.__qualname__}", "pickle": pickled(preprocessor, "the preprocessor")}


def from_dict(state: Mapping[str, Any]) -> Any:
    """The opposite of :func:`to_dict`."""
    if "pickle" not in state:
        from lockstep.data.preprocessors import _store

        return _store.from_dict(state)
    if "." not in str(state.get("class")):
        raise StorageError(
            f"[preprocessor] there is a pickle where the data of a {state.get('class')} should be; it is not opened"
        )
    return unpickled(state["pickle"])


def pickled(value: Any, what: str) -> str:
    """A class or function of the user's own, as text."""
    advice = "give it functions and values that can be pickled"
    return base64.b64encode(_pickling.dump_part(value, what, advice)).decode()


def unpickled(text: str) -> Any:
    """The opposite of :func:`pickled`. Runs code."""
    import pickle

    return pickle.loads(base64.b64decode(text))


def _is_preprocessor(value: Any) -> bool:
    module = sys.modules.get("lockstep.data.preprocessor")
    return module is not None and isinstance(value, module.Preprocessor)


def _document(data: bytes | str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise StorageError(f"[preprocessor] these {len(data)} bytes are no stored preprocessor: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise StorageError(f"[preprocessor] these {len(data)} bytes are no stored preprocessor")
    if document.get("version") != _VERSION:
        raise StorageError(
            f"[preprocessor] it has version {document.get('version')!r}, but this Lockstep reads version {_VERSION}"
        )
    return document


def _has_pickle(state: Mapping[str, Any]) -> bool:
    if "pickle" in state or any(map(_has_pickle, state.get("preprocessors", ()))):
        return True
    return any(isinstance(form, dict) and "$pickle" in form for form in state.get("arguments", {}).values())
