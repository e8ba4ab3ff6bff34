"""A model that stays equal to its copies on the other workers."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from lockstep.errors import ConfigError
from lockstep.torch import _context, amp

STRATEGIES = ("ddp", "fsdp", None)


def get_device() -> torch.device:
    """This worker's device: its first GPU, or the CPU.

    For scripts written for Ray 2.6: a list of its GPUs, if it has several.
    """
    device = _context.device()
    if device.type == "cuda" and os.environ.get("LOCKSTEP_AS_RAY") == "2.6" and torch.cuda.device_count() > 1:
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]  # type: ignore[return-value]
    return device


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | bool | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
    *,
    wrap_ddp: bool | None = None,
    ddp_kwargs: dict[str, Any] | None = None,
) -> torch.nn.Module:
    """Moves a model to this worker's device and connects it with its copies on the other workers::

        model = prepare_model(Net())
        model = prepare_model(Net(), parallel_strategy_kwargs={"find_unused_parameters": True})

    "ddp": every worker has a full copy (DistributedDataParallel), which starts as rank 0's; gradients are averaged.
    "fsdp": the parameters are divided among the workers (FullyShardedDataParallel). None, or a single worker: the model
    is not wrapped; ``no_sync()`` and ``module``, which is the model itself, still work. ``parallel_strategy_kwargs``
    are passed to the wrapper, and override the defaults chosen here. ``wrap_ddp`` and ``ddp_kwargs`` are older
    spellings of the last two arguments.
    """
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"[prepare_model] model is a {type(model).__name__}; it must be a torch.nn.Module")
    strategy, options = _spelled(parallel_strategy, parallel_strategy_kwargs, wrap_ddp, ddp_kwargs)
    amp.lock("prepare_model")
    device = move_to_device if isinstance(move_to_device, torch.device) else _context.device()
    if move_to_device:
        model = model.to(device)
    if amp.is_on():
        model = amp.autocasting(model, device)
    if _context.world_size() == 1 or strategy is None:
        return _unwrapped(model)
    if strategy == "fsdp":
        return _fully_sharded(model, device, options)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return _unwrapped(model)  # nothing to average; DistributedDataParallel refuses such a model
    if device.type == "cuda":
        options = {"device_ids": [device], "output_device": device, **options}
    # Gradients are stored in the buckets: no copy back.
    return DistributedDataParallel(model, **{"gradient_as_bucket_view": True, **options})


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, with ``no_sync()`` and ``module`` for code that accumulates gradients or saves
    ``model.module``."""
    if not hasattr(model, "no_sync"):
        model.no_sync = contextlib.nullcontext  # type: ignore[assignment]
    if not hasattr(model, "module"):
        model.__dict__["module"] = model  # an attribute, not a submodule: neither names nor parameters change
    return model


def _spelled(
    strategy: str | bool | None,
    options: dict[str, Any] | None,
    wrap_ddp: bool | None,
    ddp_kwargs: dict[str, Any] | None,
) -> tuple[str | None, dict[str, Any]]:
    """Strategy and options, from the newer or older spellings."""
    if isinstance(strategy, bool):  # the older third argument
        strategy = "ddp" if strategy else None
    if wrap_ddp is not None:
        if not isinstance(wrap_ddp, bool):
            raise ConfigError(f"[prepare_model] wrap_ddp is {wrap_ddp!r}; it must be True or False")
        strategy = strategy if wrap_ddp else None
    if strategy not in STRATEGIES:
        raise ConfigError(f"[prepare_model] parallel_strategy is {strategy!r}; it must be 'ddp', 'fsdp' or None")
    if options is not None and ddp_kwargs is not None:
        raise ConfigError("[prepare_model] parallel_strategy_kwargs and ddp_kwargs are two spellings; give one")
    given = options if options is not None else ddp_kwargs
    if given is not None and not isinstance(given, dict):
        raise ConfigError(f"[prepare_model] parallel_strategy_kwargs is {given!r}; it must be a dict or None")
    return strategy, dict(given or {})


def _fully_sharded(model: torch.nn.Module, device: torch.device, options: dict[str, Any]) -> torch.nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, **{"device_id": device, **options})
