"""Runs at the start of every Python process under ``lockstep run --as-ray``, which puts this directory into PYTHONPATH.

The first ``import ray`` then loads the alias. A process that does not import ``ray`` has no overhead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType


class FirstImport:
    """An import finder that waits for ``ray``, and removes itself once the alias is loaded."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The alias's spec for ``ray``; None for other modules, and if Lockstep is not installed (another
        environment)."""
        if name != "ray" or "lockstep.as_ray" in sys.modules or find_spec("lockstep") is None:
            return None
        import lockstep.as_ray  # noqa: F401

        return find_spec(name)


def run_the_hidden_one() -> None:
    """Runs the ``sitecustomize`` that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if os.path.abspath(place) != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


if os.environ.get("LOCKSTEP_AS_RAY", "").lower() not in ("", "0", "false"):
    sys.meta_path.insert(0, FirstImport)
run_the_hidden_one()
