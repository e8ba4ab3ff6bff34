"""In a worker of ``lockstep run -n``: the environment of torchrun, and the script itself."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep import _installed, session
from lockstep.backend import BackendConfig

STREAMS = {1: "stdout", 2: "stderr"}


@dataclass
class Script:
    """What the workers run."""

    path: str
    """A Python file, a module or, with ``is_program``, a program."""
    arguments: list[str] = field(default_factory=list)
    is_module: bool = False
    is_program: bool = False


@dataclass
class ScriptConfig(BackendConfig):
    """Gives each worker the environment that torchrun would give it."""

    run_id: str = ""
    """``TORCHELASTIC_RUN_ID``; empty: the name of the run."""
    role: str = "default"
    max_restarts: int = 0
    fast_collectives: bool = False
    """Whether ``init_process_group("gloo")`` gets the backend of Lockstep."""
    visible_gpus: str | None = None
    """``CUDA_VISIBLE_DEVICES`` of the process that started the run: a script chooses its device by LOCAL_RANK."""
    hidden: dict[int, set[int]] = field(default_factory=dict)
    """By local rank: the descriptors (1, 2) whose output goes to a file of its own and not to the console."""

    def on_worker_start(self) -> None:
        """Runs before the script."""
        worker = session._get("ScriptConfig.on_worker_start")
        self._redirect(worker.local_rank, Path(worker.run_dir) / "logs" / f"attempt_{worker.attempt}")
        world_size, nodes = str(worker.world_size), str(worker.world_size // worker.local_world_size)
        os.environ.update(
            RANK=str(worker.rank),
            LOCAL_RANK=str(worker.local_rank),
            GROUP_RANK=str(worker.node_rank),
            ROLE_RANK=str(worker.rank),
            ROLE_NAME=self.role,
            WORLD_SIZE=world_size,
            LOCAL_WORLD_SIZE=str(worker.local_world_size),
            GROUP_WORLD_SIZE=nodes,
            ROLE_WORLD_SIZE=world_size,
            TORCHELASTIC_RESTART_COUNT=str(worker.attempt),
            TORCHELASTIC_MAX_RESTARTS=str(self.max_restarts),
            TORCHELASTIC_RUN_ID=self.run_id or worker.experiment_name,
            TORCHELASTIC_USE_AGENT_STORE="True",
        )
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
        if self.visible_gpus is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.visible_gpus
        if _installed.is_installed("torch"):
            from lockstep.torch import _script

            _script.prepare(fast_collectives=self.fast_collectives)
        else:
            _name_a_port()

    def _redirect(self, local_rank: int, place: Path) -> None:
        for descriptor in sorted(self.hidden.get(local_rank, ())):
            path = place / str(local_rank) / f"{STREAMS[descriptor]}.log"
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, descriptor)
            os.close(file)

    def on_worker_end(self) -> None:
        """Rank 0 has the store, which others may still need: all leave together."""
        from lockstep import _worker

        _worker._end_python()  # what the script registered may need the store too
        worker = session._get("ScriptConfig.on_worker_end")
        if worker.world_size > 1:
            worker.core.meet(b"", 10 * 365 * 86400.0)

    def is_consequence(self, error: BaseException) -> bool:
        if "torch" not in sys.modules:
            return False
        from lockstep.torch.config import TorchConfig

        return TorchConfig().is_consequence(error)


def _name_a_port() -> None:
    """Without torch nobody listens yet: a free port for a script that connects its ranks itself."""
    import socket

    address = session.get_node_address(0)
    port = 0
    if session.get_world_rank() == 0:
        with socket.create_server((address, 0)) as listener:
            port = listener.getsockname()[1]
    port = session.broadcast_from_rank_zero(port)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="False")


def run(config: dict[str, Any]) -> None:
    """The training function: runs the script as the interpreter would, as ``__main__``."""
    script = Script(**config)
    if script.is_program:
        code = subprocess.call([script.path, *script.arguments])
        if code != 0:
            sys.exit(code)
        return
    sys.argv[:] = [script.path, *script.arguments]
    if script.is_module:
        import runpy

        sys.modules["__main__"] = ModuleType("__main__")
        runpy._run_module_as_main(script.path)  # type: ignore[attr-defined]
    elif os.path.isdir(script.path) or not _is_text(script.path):
        import runpy

        runpy.run_path(script.path, run_name="__main__")  # a directory or an archive with a __main__.py
    else:
        _run_file(script.path)


def _is_text(path: str) -> bool:
    with open(path, "rb") as file:
        return not file.read(4).startswith((b"PK\3\4", b"PK\5\6"))


def _run_file(path: str) -> None:
    """Not by runpy, which removes the module at the end: objects of the script outlive it, and threads use it."""
    import builtins
    from importlib.machinery import SourceFileLoader

    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None, __spec__=None, __loader__=loader)
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)
