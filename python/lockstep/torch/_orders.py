"""The order of an epoch, equal on every rank, and the places of it that each rank takes."""

from __future__ import annotations

import random
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler

from lockstep.errors import LockstepError

WHERE = "[prepare_data_loader]"
_ALL_BITS = 2**64 - 1


def mixed(first: int, *rest: int) -> int:
    """A seed of 63 bits in which all numbers count: seed 1 in epoch 0 is not seed 0 in epoch 1.

    C++ computes it too (src/torch/order.cpp), for loaders with the order of these.
    """
    value = _scrambled(first + 0x9E3779B97F4A7C15)
    for number in rest:
        value = _scrambled(value + number * 0xD1342543DE82EF95 + 1)
    return value >> 1


def _scrambled(value: int) -> int:
    """64 bits, each of which depends on every bit of `value`."""
    value &= _ALL_BITS
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & _ALL_BITS
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & _ALL_BITS
    return value ^ value >> 31


def share(
    total: int, start: int, rank: int, world: int, batch_size: int = 1, drop_last: bool = False
) -> tuple[range, int | None]:
    """The places that `rank` takes of the rest, from `start`, of `total`, and maybe one more, taken already, to pad::

        >>> [share(10, 0, rank, world=4, batch_size=2) for rank in (1, 2)]
        [(range(1, 10, 4), None), (range(2, 10, 4), 0)]

    All ranks get the same number of batches. A rank is padded only if it had fewer otherwise, with places from the
    beginning; with `drop_last` all that does not fill a batch on every rank is left out instead.
    """
    left = max(total - start, 0)
    if drop_last:
        every = world * batch_size
        return range(start + rank, start + left // every * every, world), None
    mine = range(start + rank, total, world)
    most = -(-left // world)
    if len(mine) < most and (most - 1) % batch_size == 0:
        return mine, (start + rank + len(mine) * world - total) % total
    return mine, None


class Order:
    """The order of all samples (or batches) of an epoch, the same on every rank."""

    def __init__(self, source: Any, seed: int) -> None:
        self.source = source
        self.seed = seed

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, epoch: int) -> Sequence[Any] | torch.Tensor:
        """The order of `epoch`."""
        raise NotImplementedError

    def name(self, drawn: Any) -> str:
        """Differs where the order does. `drawn` is what draw() gave."""
        raise NotImplementedError


class Sequential(Order):
    """The dataset's own."""

    def draw(self, epoch: int) -> Sequence[Any]:
        return range(len(self))

    def name(self, drawn: Any) -> str:
        return "sequential"


class Shuffled(Order):
    """A permutation that follows from seed and epoch."""

    def draw(self, epoch: int) -> torch.Tensor:
        return torch.randperm(len(self), generator=torch.Generator().manual_seed(mixed(self.seed, epoch)))

    def name(self, drawn: Any) -> str:
        return f"shuffled, seed {self.seed}"


class Drawn(Order):
    """What a sampler of the user's gives when all generators it may draw from are seeded by seed and epoch."""

    def draw(self, epoch: int) -> list[Any]:
        samplers = _nested(self.source)
        for sampler in samplers:
            if callable(getattr(sampler, "set_epoch", None)):
                sampler.set_epoch(epoch)
        length = len(self)
        with _seeded(mixed(self.seed, epoch), samplers):
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
    """The order that `sampler` stands for; `seed` counts where the user gave no generator."""
    generator = getattr(sampler, "generator", None) or loader.generator
    if isinstance(generator, torch.Generator):
        seed = generator.initial_seed()
    if type(sampler) is SequentialSampler:
        return Sequential(sampler, seed)
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return Shuffled(sampler, seed)
    return Drawn(sampler, seed)


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
    """Seeds the process's CPU generators and those that `samplers` hold, and puts them back."""
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
    except (TypeError, OverflowError):  # batches, or keys that are no numbers
        return zlib.crc32(repr(drawn).encode())
