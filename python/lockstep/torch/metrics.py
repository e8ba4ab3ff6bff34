"""Metrics of all workers as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from lockstep.errors import ConfigError
from lockstep.torch import _context


def all_reduce_mean(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The mean of every number over all workers, in one exchange. Call it on every rank, with the same keys::

        session.report(all_reduce_mean({"loss": loss.item(), "accuracy": correct / seen}))

    Values are numbers, tensors of one element, or dicts of them. What is not a number is an error that names its key.
    """
    if type(metrics) is not dict:
        metrics = _as_dict(metrics)
    numbers: list[float] = []
    shape = _flatten(metrics, numbers, "")
    values = torch.tensor(numbers, dtype=torch.float64, device=_exchange_device())
    if _context.world_size() > 1 and numbers:
        dist.all_reduce(values)
        values /= _context.world_size()
    return _rebuild(shape, iter(values.tolist()))


def _as_dict(metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        given = type(metrics).__name__
        raise ConfigError(f"[all_reduce_mean] got a {given}; it must be a dict such as {{'loss': 0.5}}")
    return dict(metrics)


def _exchange_device() -> torch.device:
    uses_gpu = dist.is_initialized() and dist.get_backend() == "nccl"
    return _context.device() if uses_gpu else torch.device("cpu")


def _flatten(metrics: Mapping[str, Any], numbers: list[float], where: str) -> dict[str, Any]:
    """Appends the numbers, sorted by key; gives the shape to put their means into."""
    shape: dict[str, Any] = dict.fromkeys(metrics)
    for key in sorted(metrics, key=str):
        value = metrics[key]
        if isinstance(value, Mapping):
            shape[key] = _flatten(value, numbers, f"{where}{key}/")
            continue
        try:
            numbers.append(float(value))
        except (TypeError, ValueError, RuntimeError):
            raise ConfigError(
                f"[all_reduce_mean] {where}{key} is {value!r}; it must be a number or a tensor of one element"
            ) from None
    return shape


def _rebuild(shape: dict[str, Any], means: Any) -> dict[str, Any]:
    filled = dict(shape)
    for key in sorted(shape, key=str):
        filled[key] = _rebuild(shape[key], means) if isinstance(shape[key], dict) else next(means)
    return filled
