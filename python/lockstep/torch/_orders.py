"""The order of an epoch, which is equal on every rank. C++ computes it (src/data/order.h), except the orders of users'
samplers."""

from __future__ import annotations

import random
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler

from lockstep import _core
from lockstep.errors import LockstepError

WHERE = "[prepare_data_loader]"
_CHUNK = 4096
"""Samples that C++ computes in one call. A larger one delays the first batch."""


class Order:
    """The order of the dataset, or a shuffle that depends only on seed and epoch."""

    def __init__(self, source: Any, seed: int, shuffle: bool) -> None:
        self.source, self.seed, self.shuffle = source, seed, shuffle

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, epoch: int) -> Any:
        """The order of `epoch`."""
        return _core.SampleOrder(len(self), self.seed, epoch) if self.shuffle else range(len(self))

    def name(self, drawn: Any) -> str:
        """A name that differs between different orders. `drawn` is the result of draw()."""
        return _core.SampleOrder.name(self.shuffle, self.seed)

    def taken(self, drawn: Any, deal: _core.Deal) -> Iterator[Any]:
        """What one rank takes of the order."""
        if isinstance(drawn, _core.SampleOrder):
            return chain.from_iterable(drawn.samples(deal, first, _CHUNK) for first in range(0, len(deal), _CHUNK))
        places, extra = deal.places
        mine = drawn[places.start : places.stop : places.step]
        return iter(mine if extra is None else chain(mine, [drawn[extra]]))


class Drawn(Order):
    """The order of the user's sampler, with all generators that it may use seeded by seed and epoch."""

    def draw(self, epoch: int) -> Any:
        samplers = _nested(self.source)
        for sampler in samplers:
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch)
        length = len(self)
        with _seeded(_core.generator_seed(self.seed, epoch), samplers):
            drawn = list(islice(iter(self.source), length + 1))
        if len(drawn) > length:
            raise LockstepError(
                f"{WHERE} {type(self.source).__name__} gives more than the {length} that its len() says; "
                "an order without a known end cannot be divided among the workers"
            )
        return drawn

    def name(self, drawn: Any) -> str:
        return f"{type(self.source).__name__} {_checksum(drawn):08x}"


def order_of(sampler: Any, loader: DataLoader[Any], seed: int) -> Order:
    """The order of `sampler`; `seed` is used if the user gave no generator."""
    generator = getattr(sampler, "generator", None) or loader.generator
    if isinstance(generator, torch.Generator):
        seed = generator.initial_seed()
    if type(sampler) is SequentialSampler:
        return Order(sampler, seed, shuffle=False)
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return Order(sampler, seed, shuffle=True)
    return Drawn(sampler, seed, shuffle=True)


def _nested(sampler: Any) -> list[Any]:
    """`sampler` and the samplers that it, or one of those, holds."""
    found = [sampler]
    for each in found:
        for value in getattr(each, "__dict__", {}).values():
            if isinstance(value, Sampler) and not any(value is other for other in found):
                found.append(value)
    return found


@contextmanager
def _seeded(seed: int, samplers: Sequence[Any]) -> Iterator[None]:
    """Seeds the process's CPU generators and those of `samplers`, and restores them afterwards."""
    held = [value for sampler in samplers for value in getattr(sampler, "__dict__", {}).values()]
    generators = {id(each): each for each in (torch.default_generator, *held) if isinstance(each, torch.Generator)}
    states = [(generator, generator.get_state()) for generator in generators.values()]
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    try:
        for generator, _ in states:
            generator.manual_seed(seed)
        seed_python_and_numpy(seed)
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)


def seed_python_and_numpy(seed: int) -> None:
    """Seeds ``random`` and ``numpy.random``."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def _checksum(drawn: Sequence[Any]) -> int:
    try:
        return zlib.crc32(array("q", drawn).tobytes())
    except (TypeError, OverflowError):  # batches, or keys that are not numbers
        return zlib.crc32(repr(drawn).encode())
