"""Paths and addresses that users give."""

from __future__ import annotations

import os
from functools import cache
from urllib.parse import unquote, urlsplit

from lockstep import _core
from lockstep._plain import is_text
from lockstep.errors import ConfigError


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether it names a place in an object store."""
    return isinstance(path, str) and "://" in path and not path.startswith("file://") and is_text(path)


def storage_path(path: str | os.PathLike[str], what: str) -> str:
    """An address as it is, once it is checked; otherwise as local_path()."""
    if not is_address(path):
        return local_path(path, what)
    _tell_where_arrow_is()
    return _core.check_address(os.fspath(path))


def local_path(path: str | os.PathLike[str], what: str) -> str:
    """The absolute local path that a plain path or a ``file://`` address names; other addresses are refused."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text or not is_text(text):
        raise ConfigError(f"{what} is {path!r}; it must be a path, in UTF-8") from None
    if is_address(text):
        raise ConfigError(f"{what} is {text!r}; only local paths are supported here")
    if "://" in text:
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{what} is {text!r}; only file:///PATH names a local file")
        text = unquote(parts.path)
    return os.path.abspath(os.path.expanduser(text))


def place_of(path: str | os.PathLike[str], what: str) -> str:
    """As local_path(); for an address in an object store, the place in the cache where its contents are kept."""
    return cached_path(path) if isinstance(path, str) and is_address(path) else local_path(path, what)


def cached_path(address: str) -> str:
    """The place of an address in the cache."""
    _tell_where_arrow_is()
    return _core.local_path(address)


@cache
def _tell_where_arrow_is() -> None:
    """The program that reaches object stores uses pyarrow's libraries."""
    from importlib.util import find_spec

    arrow = find_spec("pyarrow")
    if arrow is not None and arrow.submodule_search_locations:
        _core.set_arrow_directory(arrow.submodule_search_locations[0])


def run_path(path: str | os.PathLike[str], what: str) -> str:
    """The directory of the run that a user names: a path, or a name in the default storage path.

    Returns the path if there is no run.
    """
    place = place_of(path, what)
    found = _core.find_run(os.fspath(path))
    return place if found is None else os.path.abspath(found)
