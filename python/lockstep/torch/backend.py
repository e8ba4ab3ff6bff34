"""The backend "lockstep" of torch.distributed: CPU tensors, through shared memory on a node and by TCP between nodes.

Importing this module registers it, for ``TorchTrainer`` and for other programs::

    import lockstep.torch.backend  # in a script that torchrun starts
    import torch.distributed as dist

    dist.init_process_group("lockstep")
    dist.all_reduce(tensor)

Results have the same bits on every rank and in every run with the same ranks on each node. It opens no file in
``/dev/shm``, and ports only between nodes. If ranks of one node cannot share memory, all use Gloo instead, with a
warning.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing.util
import os
import socket
from datetime import timedelta
from types import ModuleType

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store

from lockstep import session

__all__ = ["NAME", "create", "is_available", "load", "module_name"]

NAME = "lockstep"
NODE_VARIABLE = "LOCKSTEP_COLLECTIVE_NODE"
"""Ranks with the same value are on one node."""
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
        made: Backend = module.create(store, rank, size, timeout, *_place())
        return made
    except module.CannotShareMemory as error:
        # All ranks get here: the group is made on all of them or on none.
        if rank == 0:
            _log.warning("%s; these ranks use Gloo", error)
        from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo

        # The store may be used for another group of the same name.
        prefix = f"gloo/{store.add(f'gloo_groups_of/{rank}', 1)}"
        return ProcessGroupGloo(PrefixStore(prefix, store), rank, size, timeout)


def _place() -> tuple[str, str, bool]:
    """This node's name, its address, and whether it is the only one. Without a name, ranks compare what the kernel
    says: the boot, the namespaces of processes and of the network."""
    name = os.environ.get(NODE_VARIABLE, "")
    worker = session._session
    if worker is None:
        return name, _address(), False
    address = worker.core.node_address(worker.rank)
    if name:
        return name, address, False
    return f"node {worker.node_rank}", address, worker.local_world_size == worker.world_size


def _address() -> str:
    """The address of this node on its way to rank 0's; empty: GLOO_SOCKET_IFNAME has it, or Gloo chooses."""
    master = os.environ.get("MASTER_ADDR", "")
    if not master or os.environ.get("GLOO_SOCKET_IFNAME"):
        return ""
    try:
        family, _, _, _, where = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect(where)  # sends nothing
            return str(way.getsockname()[0])
    except OSError:
        return ""


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
