"""Batches of any shape, moved to a device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

_END = object()


def move(value: Any, device: torch.device, custom: bool = True) -> Any:
    """`value` with all its tensors moved to `device`; containers keep their types::

        move({"x": torch.zeros(2), "name": "a"}, torch.device("cuda"))

    Searches nested mappings, tuples, named tuples, lists and dataclasses. Other objects with a method ``to`` move
    themselves, unless `custom` is False; the rest is not changed. Tensors in pinned memory are copied without waiting
    for the copy.
    """
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=value.is_pinned())
    if isinstance(value, type):
        return value
    if callable(getattr(value, "to", None)):
        return value.to(device) if custom else value
    if isinstance(value, Mapping):
        return _remade_mapping(value, {key: move(item, device, custom) for key, item in value.items()})
    if isinstance(value, (tuple, list)):
        return _remade_sequence(value, [move(item, device, custom) for item in value])
    if dataclasses.is_dataclass(value):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(made, field.name, move(getattr(value, field.name), device, custom))
        return made
    return value


def moved(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """Moves each batch to `device` when it is requested."""
    return (move(batch, device) for batch in batches)


def moved_ahead(batches: Iterable[Any], device: torch.device, cuda: Any = torch.cuda) -> Iterator[Any]:
    """Moves each batch to the CUDA `device`; while one is in use, the next is copied on another stream.

    Only pinned memory (``DataLoader(pin_memory=True)``) is actually copied in parallel. Objects that move themselves
    are moved when they are requested: their memory must belong to the stream that uses it. `cuda` is ``torch.cuda`` or
    a fake, so that the order of the steps can be tested without a GPU; it has not run on a real one.
    """
    source = iter(batches)
    side = cuda.Stream(device)

    def copied() -> Any:
        batch = next(source, _END)
        if batch is _END:
            return batch
        with cuda.stream(side):
            return move(batch, device, custom=False)

    upcoming = copied()
    while upcoming is not _END:
        current = cuda.current_stream(device)
        current.wait_stream(side)
        # The memory belongs to the side stream, which must not reuse it before the current stream is done with it.
        for tensor in _tensors(upcoming):
            if tensor.is_cuda:
                tensor.record_stream(current)
        batch, upcoming = move(upcoming, device), copied()
        yield batch
        del batch


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))


def _remade_mapping(old: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(old) is dict:
        return items
    if isinstance(old, MutableMapping):  # keeps the other attributes of a defaultdict or a user's class
        made = copy.copy(old)
        made.update(items)
        return made
    try:
        return type(old)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _remade_sequence(old: tuple[Any, ...] | list[Any], items: list[Any]) -> Any:
    if hasattr(old, "_fields"):
        return type(old)(*items)
    try:
        return type(old)(items)
    except TypeError:
        return items if isinstance(old, list) else tuple(items)
