"""What a script written for torchrun finds in a worker of ``lockstep run -n``."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from lockstep.torch import backend, config

STORE_TIMEOUT = timedelta(minutes=30)
_destroyed: list[Any] = []
"""Groups that the script has destroyed."""


def prepare(*, fast_collectives: bool) -> None:
    """Rank 0 listens for the ranks at MASTER_ADDR and MASTER_PORT, as torchrun does for its workers."""
    config._held_store = config._store(STORE_TIMEOUT)
    config._keep_gloo_inside()
    config._set_threads()
    _keep_destroyed_groups()
    if fast_collectives:
        _replace_gloo()


def _keep_destroyed_groups() -> None:
    """A model in DistributedDataParallel that outlives its group frees it at last, with Python's lock held; Gloo then
    waits for a thread of its own, which may wait for that lock: the process hangs."""
    destroy = distributed_c10d.destroy_process_group

    @functools.wraps(destroy)
    def kept(*args: Any, **kwargs: Any) -> Any:
        if dist.is_initialized():
            _destroyed.append(dist.group.WORLD)
        return destroy(*args, **kwargs)

    dist.destroy_process_group = distributed_c10d.destroy_process_group = kept


def _replace_gloo() -> None:
    """Groups that ask for Gloo, and those that ask for nothing on a machine without GPUs, get Lockstep's backend."""
    backend.load()
    for name in ("init_process_group", "new_group"):
        replaced = _with_fast_backend(getattr(distributed_c10d, name), is_first=name == "init_process_group")
        for module in (dist, distributed_c10d):
            setattr(module, name, replaced)


def _with_fast_backend(function: Any, *, is_first: bool) -> Any:
    import inspect

    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind_partial(*args, **kwargs)
        chosen = given.arguments.get("backend")
        if chosen is None and is_first and "device_id" not in given.arguments:
            import torch

            chosen = None if torch.cuda.is_available() else "gloo"
        if isinstance(chosen, str):
            given.arguments["backend"] = _fast(chosen)
        return function(*given.args, **given.kwargs)

    return call


def _fast(name: str) -> str:
    """
    >>> _fast("gloo"), _fast("cpu:gloo,cuda:nccl"), _fast("nccl")
    ('lockstep', 'cpu:lockstep,cuda:nccl', 'nccl')
    """
    parts = [part.split(":") for part in name.split(",")]
    return ",".join(":".join([*kind, backend.NAME if last.lower() == "gloo" else last]) for *kind, last in parts)
