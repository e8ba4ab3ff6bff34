"""Creates the modules of the table on first import, and each of their names on first access."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from lockstep import _worker_imports
from lockstep.as_ray._entries import At, Later, Names, PerRelease, Shared, Value
from lockstep.as_ray._errors import NoSuchPartError, NotAvailableError, RealRayError
from lockstep.as_ray._table import MODULES, RELEASES
from lockstep.errors import ConfigError

DEFAULT_RELEASE = "2.6"
NEWEST_RELEASE = "2.60"
_NEWER = re.compile(
    r"get_context\(|ray\.train\.(?:v2|Checkpoint|ScalingConfig|RunConfig|report\()|ray\.train\.lightning"
    r"|ray\.train\.huggingface\.transformers|ray\.tune\.(?:RunConfig|get_context)"
    r"|from ray\.train import [^\n]*\b(?:ScalingConfig|RunConfig|Checkpoint|FailureConfig|CheckpointConfig)\b"
    r"|\btrain\.(?:ScalingConfig|RunConfig|Checkpoint)\b"
)
_OLDER = re.compile(r"ray\.air|from ray import air|ray\.util\.sgd|range_table|DatasetPipeline|from_dict\(|iter_epochs")
"""What scripts for releases up to 2.6 use, also beside the names above, which came with 2.7."""


def install() -> str:
    """Puts the alias in front of all other import finders for ``ray``, and returns its release. Workers and child
    processes inherit it.

    A second call changes nothing.
    """
    there = next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None)
    if there is not None:
        return _hand_down(there.release)
    release = _chosen_release()
    if "lockstep._worker" not in sys.modules:  # in a worker, the process that called fit() has already checked
        _refuse_real_ray()
    sys.meta_path.insert(0, Finder(release))
    for name, content in MODULES.items():
        if isinstance(content, Shared) and content.module in sys.modules:
            _complete(sys.modules[content.module], name, content.added, release)
    return _hand_down(release)


def _hand_down(release: str) -> str:
    """Lets workers and child processes have the alias too."""
    os.environ["LOCKSTEP_AS_RAY"] = release
    _worker_imports.add("lockstep.as_ray", preload=(__name__, "lockstep.as_ray._table"))
    return release


def _chosen_release() -> str:
    chosen = os.environ.get("LOCKSTEP_AS_RAY", "").strip().lower()
    if chosen in ("", "0", "1", "false", "true"):
        return release_for(_script())
    if chosen not in RELEASES:
        raise ConfigError(f"[as_ray] LOCKSTEP_AS_RAY is {chosen!r}; it must be one of {', '.join(RELEASES)}, or 1")
    return chosen


def release_for(script: str) -> str:
    """The release that a script's text was written for: a later one if it uses names that only later ones have.

    >>> release_for("from ray.air import session"), release_for("ray.train.get_context()")
    ('2.6', '2.60')
    """
    return NEWEST_RELEASE if _NEWER.search(script) and not _OLDER.search(script) else DEFAULT_RELEASE


def _script() -> str:
    """The text of the program; empty if it is not a file."""
    path = getattr(sys.modules.get("__main__"), "__file__", None) or (sys.argv[0] if sys.argv else "")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except (OSError, ValueError):
        return ""


def _refuse_real_ray() -> None:
    """Raises RealRayError if ``import ray`` would find a real Ray, unless LOCKSTEP_AS_RAY_SHADOW is set."""
    if "ray" in sys.modules:
        where = f"it has been imported from {getattr(sys.modules['ray'], '__file__', None)}"
    else:
        spec = importlib.util.find_spec("ray")
        if spec is None or spec.origin is None:  # a plain directory of that name is not a package
            return
        where = f"it is installed: {spec.origin}"
    if os.environ.get("LOCKSTEP_AS_RAY_SHADOW", "0") not in ("", "0"):
        for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
            del sys.modules[name]
        return
    raise RealRayError(
        f"[as_ray] `ray` would be Lockstep, but there is a real one: {where}; run the script without lockstep.as_ray, "
        "use an environment without Ray, or set LOCKSTEP_AS_RAY_SHADOW=1 to have Lockstep hide it"
    )


class Finder:
    """Finds and loads ``ray`` and its submodules; runs before the other finders."""

    def __init__(self, release: str) -> None:
        self.release = release

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A spec for a name of the table; None for modules that are not Ray's.

        Raises ModuleNotFoundError for other names of Ray: below a module that is Lockstep's own, Lockstep's files
        would be found and loaded a second time.
        """
        if name.partition(".")[0] != "ray":
            return None
        if name in MODULES:
            return ModuleSpec(name, self, origin="lockstep.as_ray", is_package=True)  # type: ignore[arg-type]
        raise ModuleNotFoundError(
            f"No module named {name!r}: Lockstep stands in for Ray (lockstep.as_ray) and does not have this part; "
            "docs/coming-from-ray.md lists those that it has",
            name=name,
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """A plain module, which is pickled by name."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fills the module, or replaces it by the module of Lockstep that it stands for."""
        name = module.__name__
        content = MODULES[name]
        if isinstance(content, Shared):
            shared = importlib.import_module(content.module)
            _complete(shared, name, content.added, self.release)
            sys.modules[name] = shared
            return
        module.__doc__ = f"``{name}``, by Lockstep."
        module.__getattr__ = _attributes(module, content, self.release)  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted({*module.__dict__, *_public(name, content)})  # type: ignore[method-assign]


def _complete(shared: ModuleType, name: str, added: Names, release: str) -> None:
    """Adds the names to a module of Lockstep that Ray's has in addition."""
    for attribute, entry in added.items():
        if not hasattr(shared, attribute):
            setattr(shared, attribute, _object(name, attribute, entry, release))


def _public(name: str, names: Names) -> list[str]:
    below = (other.removeprefix(name + ".") for other in MODULES if other.startswith(name + "."))
    return [*names, *(part for part in below if "." not in part)]


def _attributes(module: ModuleType, names: Names, release: str) -> Callable[[str], Any]:
    """The module's ``__getattr__``: looks up a name once and stores it."""
    name = module.__name__

    def find(attribute: str) -> Any:
        if attribute == "__all__":
            return [each for each in names if _is_there(module, each)]
        if attribute in names:
            found = _object(name, attribute, names[attribute], release)
            setattr(module, attribute, found)
            return found
        if f"{name}.{attribute}" in MODULES:
            return importlib.import_module(f"{name}.{attribute}")
        later = [entry for entry in names.values() if isinstance(entry, Later)]
        # In modules that are mostly missing, an unknown name is probably one of the missing ones.
        if 2 * len(later) > len(names) and not attribute.startswith("_"):
            raise NoSuchPartError(_why(name, attribute, later[0]))
        raise AttributeError(
            f"module {name!r} has no attribute {attribute!r} in Lockstep, which knows the releases "
            f"{', '.join(RELEASES)} (names of Ray 1.7 to 2.6, and what Ray Train and Tune have had since 2.7); "
            "docs/coming-from-ray.md lists them",
            name=attribute,
            obj=module,
        )

    return find


def _is_there(module: ModuleType, attribute: str) -> bool:
    try:
        getattr(module, attribute)
    except ImportError:
        return False
    return True


def _object(module: str, name: str, entry: At | Later | PerRelease | Value, release: str) -> Any:
    """The object for the table's entry ``module.name``."""
    if isinstance(entry, PerRelease):
        return entry.by_release[release]
    if isinstance(entry, Value):
        return entry.value
    if isinstance(entry, Later):
        return _placeholder(module, name, entry)
    return _found(module, name, entry)


def _found(module: str, name: str, entry: At) -> Any:
    try:
        return getattr(importlib.import_module(entry.module), entry.name or name)
    except ModuleNotFoundError as error:
        if error.name is None or not entry.module.startswith(error.name):
            raise
        missing = f"there is no {error.name}"
    except AttributeError:
        missing = f"{entry.module} has no {entry.name or name}"
    raise ImportError(
        f"cannot import name {name!r} from {module!r}: it is not in this version of Lockstep yet ({missing})",
        name=module,
    )


def _why(module: str, name: str, entry: Later) -> str:
    return f"[{module}.{name}] {entry.topic.what}; {entry.topic.instead}"


class _Unmade(type):
    """The metaclass of missing classes: they can be used in isinstance(), in annotations and as a base, but not
    created."""

    _lockstep_why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotAvailableError(cls._lockstep_why)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoSuchPartError(cls._lockstep_why)


def _placeholder(module: str, name: str, entry: Later) -> Any:
    why = _why(module, name, entry)
    if entry.is_class:
        return _Unmade(name, (), {"__module__": module, "__doc__": why, "_lockstep_why": why})

    def unmade(*args: Any, **kwargs: Any) -> Any:
        raise NotAvailableError(why)

    unmade.__module__, unmade.__name__, unmade.__qualname__, unmade.__doc__ = module, name, name, why
    return unmade
