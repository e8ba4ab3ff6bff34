"""TensorFlow and its Keras: checks that they are installed, and imports them."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lockstep._installed import is_installed
from lockstep.errors import ConfigError

QUIET = "3"
"""``TF_CPP_MIN_LOG_LEVEL`` if the user did not ask for log lines."""
_PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm", "tensorflow-macos", "tf-nightly")
_NEEDED_SINCE = (2, 16)
"""The first TensorFlow with Keras 3, which cannot train on many workers."""


def legacy_keras() -> bool:
    """Whether workers use Keras 2, from the package tf_keras; not with ``TF_USE_LEGACY_KERAS=0``."""
    return os.environ.get("TF_USE_LEGACY_KERAS", "1").lower() in ("1", "true")


def check_installed() -> None:
    """Raises a ConfigError that says what to install if a package is missing. Imports none of them."""
    if not is_installed("tensorflow"):
        raise ConfigError(
            "[TensorflowTrainer] TensorFlow is not installed; pip install tensorflow-cpu==2.21.0, "
            "then pip install --no-deps tf-keras==2.21.0"
        )
    have = _version()
    if legacy_keras() and have >= _NEEDED_SINCE and not is_installed("tf_keras"):
        release = ".".join(map(str, have))
        raise ConfigError(
            f"[TensorflowTrainer] tf_keras is not installed, and the Keras 3 of TensorFlow {release} cannot train on "
            f"many workers; pip install --no-deps tf-keras~={release}.0, or set TF_USE_LEGACY_KERAS=0 to do without"
        )


def keras() -> Any:
    """The module ``tf.keras`` as workers see it, even if this process has imported TensorFlow with another Keras."""
    check_installed()
    with _quiet_first_import():
        if legacy_keras() and _version() >= _NEEDED_SINCE:
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
            return importlib.import_module("tf_keras")
        return importlib.import_module("tensorflow").keras


def _quiet_first_import() -> contextlib.AbstractContextManager[None]:
    """An import of TensorFlow by Lockstep prints nothing, unless the user has set the log level."""
    if "tensorflow" in sys.modules:
        return contextlib.nullcontext()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", QUIET)
    if threading.active_count() > 1:  # whose lines would be lost
        return contextlib.nullcontext()
    return silent_import()


@contextlib.contextmanager
def silent_import() -> Iterator[None]:
    """Suppresses what the libraries write to standard error while they are loaded, before log levels apply.

    It is shown if the import fails, or if the user asked for log lines.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") != QUIET or sys.stderr is None:  # None: standard error is closed
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            error = os.dup(2)
            stack.callback(os.close, error)
            file = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # the descriptor is closed, or the disk is full
            yield
            return
        sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            file.seek(0)
            os.write(error, file.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(error, 2)


def _version() -> tuple[int, int]:
    for package in _PACKAGES:
        try:
            major, minor = version(package).split(".")[:2]
        except PackageNotFoundError:
            continue
        return int(major), int(minor)
    return _NEEDED_SINCE
