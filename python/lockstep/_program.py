"""The program that workers are forked from, and what their backend asks of it."""

from __future__ import annotations

import os
import sys

from lockstep import _core, _worker_imports
from lockstep._plain import is_text
from lockstep.backend import BackendConfig, hooks_class
from lockstep.errors import EngineError


def backend_needs(backend: BackendConfig | None) -> _core.BackendNeeds:
    """What the backend asks of the run. run.json keeps it, because restore() has the backend only as a pickle."""
    needs = _core.BackendNeeds()
    if backend is None:
        return needs
    needs.environment = backend.environment()
    needs.preload = list(backend.preload)
    if hooks := hooks_class(backend):
        needs.backend_cls = hooks.__qualname__
    services = dict(backend.run_options())
    needs.replace_workers = bool(services.pop("replace_workers", False))
    needs.services = {name: options for name, options in services.items() if options}
    return needs


def process_plan(modules: tuple[str, ...], needs: _core.BackendNeeds) -> _core.RunPlan:
    """How workers are started: like this process as it is now, with these modules and what the backend needs."""
    modules = (*modules, *needs.preload, *_worker_imports.preloads())
    given = {name: value for name, value in os.environ.items() if is_text(name) and is_text(value)}
    plan = _core.RunPlan()
    path = [os.path.abspath(entry) for entry in sys.path]
    plan.program = _core.Program(_fork_server_command(modules), {**needs.environment, **given}, os.getcwd(), path)
    plan.backend = needs
    return plan


def _fork_server_command(modules: tuple[str, ...]) -> list[str]:
    if not sys.executable:
        raise EngineError(
            "[trainer] sys.executable is empty, so workers have no interpreter; start this program with python"
        )
    import subprocess

    # The interpreter's own flags (-O, -W, -X ...) hold for workers as well. -P: files in the current directory must not
    # hide modules that the fork server imports; workers get the caller's sys.path.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    safe = ["-P"] if sys.version_info >= (3, 11) and "-P" not in flags else []
    return [sys.executable, *flags, *safe, "-m", "lockstep._fork_server", *modules]
