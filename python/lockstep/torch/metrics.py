"""Metrics aggregated over all workers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, overload

import torch
import torch.distributed as dist

from lockstep.errors import ConfigError
from lockstep.torch import _context


@overload
def all_reduce_mean(metrics: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
def all_reduce_mean(metrics: float | torch.Tensor) -> float: ...
def all_reduce_mean(metrics: Any) -> Any:
    """The mean of every number over all workers. Call it on every rank, with the same keys::

        session.report(all_reduce_mean({"loss": loss.item(), "accuracy": correct / seen}))
        loss = all_reduce_mean(loss)

    Values are numbers, tensors of one element, or dicts and lists of them. For a value that is not a number, the error
    names its key. If ranks have different keys, every rank gets an error that names them.
    """
    names: list[str] = []
    numbers: list[float] = []
    shape = _flatten(_checked(metrics), "", names, numbers)
    if _context.world_size() == 1:
        return _rebuild(shape, iter(numbers))
    if isinstance(metrics, Mapping):
        _check_equal(names)
    values = torch.tensor(numbers, dtype=torch.float64, device=_exchange_device())
    if numbers:
        dist.all_reduce(values)
        values /= _context.world_size()
    return _rebuild(shape, iter(values.tolist()))


def _checked(metrics: Any) -> Any:
    if isinstance(metrics, Mapping):
        return metrics
    try:
        return float(metrics)
    except (TypeError, ValueError, RuntimeError):
        given = type(metrics).__name__
        raise ConfigError(
            f"[all_reduce_mean] got a {given}; it must be a number, or a dict such as {{'loss': 0.5}}"
        ) from None


def _exchange_device() -> torch.device:
    uses_gpu = dist.is_initialized() and dist.get_backend() == "nccl"
    return _context.device() if uses_gpu else torch.device("cpu")


def _flatten(value: Any, name: str, names: list[str], numbers: list[float]) -> Any:
    """Appends the numbers, sorted by key, and their names; returns the structure to put their means into."""
    inside = f"{name}/" if name else ""
    if isinstance(value, Mapping):
        shape: dict[str, Any] = dict.fromkeys(value)
        for key in sorted(value, key=str):
            shape[key] = _flatten(value[key], f"{inside}{key}", names, numbers)
        return shape
    if isinstance(value, (list, tuple)):
        return [_flatten(each, f"{inside}{place}", names, numbers) for place, each in enumerate(value)]
    try:
        numbers.append(float(value))
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(
            f"[all_reduce_mean] {name} is {value!r}; it must be a number or a tensor of one element"
        ) from None
    names.append(name)
    return None


def _check_equal(names: list[str]) -> None:
    """Raises on every rank if some have other names than rank 0; otherwise different metrics would be added."""
    checksum = torch.tensor([len(names), zlib.crc32(repr(names).encode())], device=_exchange_device())
    found = [torch.empty_like(checksum) for _ in range(_context.world_size())]
    dist.all_gather(found, checksum)
    other = next((rank for rank, each in enumerate(found) if not each.equal(found[0])), None)
    if other is None:
        return
    gathered: list[Any] = [None] * len(found)
    dist.all_gather_object(gathered, names)
    first, second = gathered[0], gathered[other]
    raise ConfigError(
        f"[all_reduce_mean] the keys of the metrics differ: only rank 0 has {_missing(first, second)}, "
        f"only rank {other} has {_missing(second, first)}; give the same keys on every rank"
    )


def _missing(names: list[str], others: list[str]) -> str:
    """Those of `names` that `others` lack."""
    found = sorted(set(names) - set(others))
    return (", ".join(found[:8]) or "nothing") + (", ..." if len(found) > 8 else "")


def _rebuild(shape: Any, means: Iterator[float]) -> Any:
    if isinstance(shape, dict):
        filled = dict(shape)
        for key in sorted(shape, key=str):
            filled[key] = _rebuild(shape[key], means)
        return filled
    return [_rebuild(each, means) for each in shape] if isinstance(shape, list) else next(means)
