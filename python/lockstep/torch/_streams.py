"""How the ranks divide an iterable-style dataset.

Each rank, or each of its loader workers, reads the whole stream that the dataset gives it and takes every
world-size-th item. Loader worker j of one rank reads the same stream as loader worker j of another, so the place in the
streams of all loader workers is the position of the epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from lockstep.errors import ConfigError, LockstepError
from lockstep.torch._orders import WHERE, mixed, seed_python_and_numpy
from lockstep.torch._sharding import Plan, Position, integer


class Tagged(NamedTuple):
    """A batch on its way from a loader worker. A named tuple, so that torch pins the memory of what is in it."""

    worker: int
    done: int
    """How many items of the worker's stream are used up with this batch; -1 where the batch is only to be dropped."""
    batch: Any


class Filler:
    """In place of items: a batch of them lets the loader workers after this one go first."""


class Cursor:
    """What a stream needs to know, in every process that reads it."""

    def __init__(self, rank: int, world: int, batch_size: int, drop_last: bool, streams: int, seed: int | None) -> None:
        self.rank, self.world, self.batch_size, self.drop_last = rank, world, batch_size, drop_last
        self.seed = seed
        """For the generators of loader workers; None leaves them as they are."""
        self.orders = torch.zeros(2 + streams, dtype=torch.int64)
        """Epoch, the loader worker whose turn it is, and the items to skip of each one's stream."""
        self.done = 0
        """Items used up by what was given so far, in this process."""


class Stream(IterableDataset[Any]):
    """This rank's part of `dataset`. Otherwise it is like `dataset`: attributes are read from there and set there."""

    def __init__(self, dataset: IterableDataset[Any], cursor: Cursor) -> None:
        self.__dict__.update(_dataset=dataset, _cursor=cursor)

    def __getattr__(self, name: str) -> Any:
        if name in ("_dataset", "_cursor") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)

    def __iter__(self) -> Iterator[Any]:
        cursor, worker = self._cursor, get_worker_info()
        index = 0 if worker is None else worker.id
        epoch, turn, skip = (int(cursor.orders[place]) for place in (0, 1, 2 + index))
        if worker is not None and cursor.seed is not None:
            # Each epoch anew: loader workers that stay alive give what fresh ones would.
            seed = mixed(cursor.seed, epoch, index)
            torch.manual_seed(seed)
            seed_python_and_numpy(seed)
        if callable(getattr(self._dataset, "set_epoch", None)):
            self._dataset.set_epoch(epoch)
        return _given(cursor, iter(self._dataset), skip, cursor.batch_size if index < turn else 0)


def _given(cursor: Cursor, items: Iterator[Any], skip: int, fillers: int) -> Iterator[Any]:
    """This rank's of `items` after the first `skip`. All ranks get the same number of batches, as with share()."""
    cursor.done = -1
    for _ in range(fillers):
        yield Filler
    first = list(islice(items, min(skip, cursor.world)))
    cursor.done = len(first) + _exhausted(islice(items, skip - len(first)))
    if cursor.done < skip:
        raise LockstepError(
            f"{WHERE} the dataset ended after {cursor.done} items where {skip} were to be skipped; "
            "the loader's state was taken with another dataset"
        )
    if cursor.world == 1:
        for item in items:
            cursor.done += 1
            yield item
        return
    place = given = 0
    mine: Any = None
    for item in items:
        if len(first) < cursor.world:
            first.append(item)
        if place == cursor.rank:
            mine = item
        place += 1
        if place == cursor.world:
            cursor.done += place
            place, given = 0, given + 1
            yield mine
    if place == 0 or cursor.drop_last:
        return
    cursor.done += place
    if cursor.rank < place:
        yield mine
    elif given % cursor.batch_size == 0:  # else it has as many batches as the others already
        yield first[(cursor.rank - place) % len(first)]


def _exhausted(items: Iterator[Any]) -> int:
    """How many there were."""
    counted = enumerate(items, 1)
    last = deque(counted, maxlen=1)
    return last[0][0] if last else 0


class Tagging:
    """A collate function that says where its batch comes from."""

    def __init__(self, collate: Callable[[Any], Any], cursor: Cursor) -> None:
        self.collate, self.cursor = collate, cursor

    def __call__(self, items: Any) -> Tagged:
        worker = get_worker_info()
        index = 0 if worker is None else worker.id
        if items is Filler or (type(items) is list and items and items[0] is Filler):
            return Tagged(index, -1, None)
        return Tagged(index, self.cursor.done, self.collate(items))


class InStreams(Position):
    """The place in each loader worker's stream."""

    def __init__(self, epoch: int, streams: list[int], turn: int, total: int | None) -> None:
        super().__init__(epoch)
        self.streams, self.turn, self.total = streams, turn, total
        self.loaded: deque[tuple[int, int]] = deque()
        """Worker and place of the batches that torch gave and the user has not got yet."""

    def hand(self) -> None:
        super().hand()
        if self.loaded:
            worker, self.streams[worker] = self.loaded.popleft()
            self.turn = (worker + 1) % len(self.streams)

    def state(self) -> dict[str, Any]:
        return _state(self.epoch, self.streams, self.turn, self.total)


def _state(epoch: int, streams: list[int], turn: int, total: int | None) -> dict[str, Any]:
    state = {"kind": "stream", "epoch": epoch, "samples": sum(streams), "total": total}
    return {**state, "streams": list(streams), "turn": turn}


class DividedStream(Plan):
    """Items of an iterable-style dataset, taken in turns by the ranks."""

    kind = "stream"

    def __init__(self, loader: DataLoader[Any], rank: int, world: int, seed: int) -> None:
        super().__init__()
        own_seeds = loader.generator is not None or loader.worker_init_fn is not None
        workers = max(loader.num_workers, 1)
        batch_size = loader.batch_size or 1
        self.cursor = Cursor(rank, world, batch_size, loader.drop_last, workers, None if own_seeds else seed)
        if loader.persistent_workers:
            self.cursor.orders.share_memory_()  # type: ignore[no-untyped-call]
        self.dataset = loader.dataset
        self.same_on_all_ranks = world > 1

    def __len__(self) -> int:
        """How many batches an epoch has, by the dataset's len(), which need not be right with many loader workers."""
        cursor, length = self.cursor, len(self.dataset)  # type: ignore[arg-type]
        if cursor.drop_last:
            return length // cursor.world // cursor.batch_size
        return -(-length // (cursor.world * cursor.batch_size))

    def stand_ins(self, loader: DataLoader[Any]) -> dict[str, Any]:
        dataset: Any = loader.dataset
        return {"dataset": Stream(dataset, self.cursor), "collate_fn": Tagging(loader.collate_fn, self.cursor)}

    @contextmanager
    def iteration(self, epoch: int, resumed: Mapping[str, Any] | None) -> Iterator[Position]:
        streams = self._streams(resumed)
        turn = 0 if resumed is None or not resumed["samples"] else integer(resumed, "turn")
        self.cursor.orders.copy_(torch.tensor([epoch, turn, *streams], dtype=torch.int64))
        yield InStreams(epoch, streams, turn, self._total())

    def unpacked(self, batches: Iterator[Any], position: Any) -> Iterator[Any]:
        for worker, done, batch in batches:
            if done >= 0:
                position.loaded.append((worker, done))
                yield batch

    def resting(self, epoch: int) -> dict[str, Any]:
        return _state(epoch, self._streams(None), 0, self._total())

    def check(self, state: Mapping[str, Any]) -> None:
        if state.get("total") != self._total():
            raise ConfigError(
                f"{WHERE} load_state_dict() got the state of a dataset with len() {state.get('total')}, but this "
                f"loader's has {self._total()}; give it the data that the state was taken with"
            )
        if state["samples"]:
            self._streams(state)
            integer(state, "turn")

    def _streams(self, state: Mapping[str, Any] | None) -> list[int]:
        """How many items of each loader worker's stream are used up."""
        workers = len(self.cursor.orders) - 2
        if state is None or not state["samples"]:
            return [0] * workers
        streams: Any = state.get("streams")
        counts = isinstance(streams, list) and all(type(count) is int and count >= 0 for count in streams)
        if not counts or sum(streams) != state["samples"]:
            raise ConfigError(
                f"{WHERE} load_state_dict() got streams={streams!r} for {state['samples']} samples; "
                "give it what state_dict() gave"
            )
        if len(streams) != workers:
            raise ConfigError(
                f"{WHERE} load_state_dict() got a position inside an epoch with num_workers={len(streams)}, "
                f"but this loader has {workers}, whose streams are others; use as many, or a state between epochs"
            )
        return list(streams)

    def _total(self) -> int | None:
        try:
            return len(self.dataset)  # type: ignore[arg-type]
        except TypeError:
            return None
