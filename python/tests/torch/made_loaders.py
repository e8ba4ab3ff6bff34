"""Datasets of numbers, and what the loaders of all ranks gave; the tests of loaders import it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from lockstep.torch.loader import PreparedDataLoader
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

Make = Callable[[], DataLoader[Any]]
Prepare = Callable[..., PreparedDataLoader[Any]]
Loaders = list[PreparedDataLoader[Any]]
PrepareAll = Callable[..., Loaders]


class Numbers(Dataset[int]):
    """The numbers below `size`. Each can be read once an epoch; `read` says which were."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index


class Stream(IterableDataset[int]):
    """The numbers below `size`, rotated by the epoch, every loader worker its own part of them."""

    def __init__(self, size: int, epochs: bool = True) -> None:
        self.size = size
        self.epoch = 0
        if epochs:
            self.set_epoch = self._set_epoch

    def _set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter([(place + self.epoch) % self.size for place in range(first, self.size, step)])


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.size


class Buckets(Sampler[list[int]]):
    """Batches of different sizes in random order."""

    def __init__(self, drop_last: bool = False) -> None:
        self.batches = [[0], [1, 2], [3, 4, 5], [6, 7], [8], [9, 10, 11], [12]]
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        for place in torch.randperm(7).tolist():
            yield self.batches[place]

    def __len__(self) -> int:
        return 7


def batches(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def flat(parts: Any) -> list[int]:
    return [item for part in parts for item in (flat(part) if isinstance(part, list) else [part])]


def taken(iterators: list[Iterator[Any]], count: int | None = None) -> list[list[list[int]]]:
    """The next `count` batches, or all that are left, of each."""
    return [[batch.tolist() for batch in islice(iterator, count)] for iterator in iterators]


def the_state(loaders: Loaders) -> dict[str, Any]:
    """The state, which must be the same on all ranks and go through JSON."""
    first, *others = [loader.state_dict() for loader in loaders]
    assert all(state == first for state in others)
    assert json.loads(json.dumps(first)) == first
    return first


def loaded(loaders: Loaders, state: dict[str, Any]) -> Loaders:
    for loader in loaders:
        loader.load_state_dict(state)
    assert the_state(loaders) == state
    return loaders
