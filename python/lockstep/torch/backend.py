"""The backend "lockstep" of torch.distributed: CPU tensors between processes of one machine, through shared memory.

Importing this module registers it, for ``TorchTrainer`` and for other programs::

    import lockstep.torch.backend  # in a script that torchrun starts
    import torch.distributed as dist

    dist.init_process_group("lockstep")
    dist.all_reduce(tensor)

Results have the same bits on every rank and in every run with the same number of ranks. It opens no port and no file in
``/dev/shm``. Ranks that cannot share memory, for example on several machines, use Gloo instead, with a warning.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing.util
import os
from datetime import timedelta
from types import ModuleType

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store

__all__ = ["NAME", "create", "is_available", "load", "module_name"]

NAME = "lockstep"
_log = logging.getLogger("lockstep")
_c10d: ModuleType | None = None
_leaves = 0
"""The process that has registered to leave its groups at exit."""


def is_available() -> bool:
    """Whether this installation has the backend for this version of torch.

    >>> is_available()
    True
    """
    try:
        load()
    except ImportError:
        return False
    return True


def create(store: Store, rank: int, size: int, timeout: timedelta) -> Backend:
    """torch calls this on every rank of a new group."""
    module = load()
    _leave_at_the_end_of_a_child()
    try:
        made: Backend = module.create(store, rank, size, timeout)
        return made
    except module.CannotShareMemory as error:
        # All ranks get here: the group is made on all of them or on none.
        if rank == 0:
            _log.warning("%s; these ranks use Gloo", error)
        from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo

        # The store may be used for another group of the same name.
        prefix = f"gloo/{store.add(f'gloo_groups_of/{rank}', 1)}"
        return ProcessGroupGloo(PrefixStore(prefix, store), rank, size, timeout)


def _leave_at_the_end_of_a_child() -> None:
    """A child forked by multiprocessing exits without finalizing its interpreter; to other ranks that would look like a
    death."""
    global _leaves
    if multiprocessing.parent_process() is not None and _leaves != os.getpid():
        _leaves = os.getpid()
        multiprocessing.util.Finalize(None, _leave, exitpriority=10)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def module_name() -> str:
    """The name of the compiled module, which contains the version of torch that it is for.

    >>> module_name()
    '_c10d_2_13_0'
    """
    return "_c10d_" + str(torch.__version__).split("+")[0].replace(".", "_")


def load() -> ModuleType:
    """The compiled module; raises an ImportError that says how to build it."""
    global _c10d
    if _c10d is None:
        name = f"{__package__}.{module_name()}"
        try:
            _c10d = importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f'[lockstep.torch.backend] this installation has no backend "{NAME}" for torch {torch.__version__} '
                f"({error}); build it, which takes a minute: python -m lockstep.torch.build_backend, "
                'or use backend="gloo"'
            ) from error
    return _c10d


dist.Backend.register_backend(NAME, create, devices=["cpu"])
