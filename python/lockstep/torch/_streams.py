"""How the ranks divide an iterable-style dataset.

Each rank, or each of its loader workers, reads the dataset's whole stream and takes every world-size-th item. Loader
worker j of one rank reads the same stream as loader worker j of another, so the places in the streams of all loader
workers are the position in the epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from lockstep import _core
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch._orders import WHERE, seed_python_and_numpy
from lockstep.torch._sharding import Plan, Position, integer


class Tagged(NamedTuple):
    """A batch from a loader worker. A named tuple, so that torch pins the memory of its contents."""

    worker: int
    done: int
    """The number of items of the worker's stream used up to this batch; -1 if the batch must be dropped."""
    batch: Any


class Filler:
    """A placeholder for items: a batch of them lets the later loader workers go first."""


class Cursor:
    """The position of a stream, in every process that reads it."""

    def __init__(self, rank: int, world: int, batch_size: int, drop_last: bool, streams: int, seed: int | None) -> None:
        self.rank, self.world, self.batch_size, self.drop_last = rank, world, batch_size, drop_last
        self.seed = seed
        """For the generators of loader workers; None leaves them as they are."""
        self.orders = torch.zeros(2 + streams, dtype=torch.int64)
        """Epoch, the loader worker whose turn it is, and the items to skip of each one's stream."""
        self.done = 0
        """Items used so far in this process."""

    def deal(self, total: int, start: int) -> _core.Deal:
        """What this rank takes of a stream of `total` items."""
        return _core.Deal(total, start, self.rank, self.world, self.batch_size, self.drop_last)


class Stream(IterableDataset[Any]):
    """This rank's part of `dataset`. Attributes are read from and set on `dataset`."""

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
            # Seed in each epoch, so that persistent loader workers behave like new ones.
            seed = _core.generator_seed(cursor.seed, epoch, index)
            torch.manual_seed(seed)
            seed_python_and_numpy(seed)
        if callable(getattr(self._dataset, "set_epoch", None)):
            self._dataset.set_epoch(epoch)
        return _given(cursor, iter(self._dataset), skip, cursor.batch_size if index < turn else 0)


def _given(cursor: Cursor, items: Iterator[Any], skip: int, fillers: int) -> Iterator[Any]:
    """This rank's part of `items` after the first `skip`."""
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
    # Only now is the length known, and with it whether this rank must be padded.
    places, extra = cursor.deal(cursor.done + place, skip).places
    if not cursor.drop_last:
        cursor.done += place
    if len(places) > given:
        yield mine
    elif extra is not None:
        yield first[extra]


def _exhausted(items: Iterator[Any]) -> int:
    """How many there were."""
    counted = enumerate(items, 1)
    last = deque(counted, maxlen=1)
    return last[0][0] if last else 0


class Tagging:
    """A collate function that adds where its batch comes from."""

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
        """Worker and place of the batches that torch has returned and the user has not received yet."""

    def hand(self) -> None:
        super().hand()
        if self.loaded:
            worker, self.streams[worker] = self.loaded.popleft()
            self.turn = (worker + 1) % len(self.streams)


def _state(epoch: int, streams: list[int], turn: int, total: int | None) -> dict[str, Any]:
    state = {"kind": "stream", "epoch": epoch, "samples": sum(streams), "total": total}
    return {**state, "streams": list(streams), "turn": turn}


class DividedStream(Plan):
    """Items of an iterable-style dataset, taken in turn by the ranks."""

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
        """The number of batches in an epoch by the dataset's len(), which may be wrong with several loader workers."""
        return self.cursor.deal(len(self.dataset), 0).batches  # type: ignore[arg-type]

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

    def state(self, position: Any) -> dict[str, Any]:
        return _state(position.epoch, position.streams, position.turn, position.total)

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
        """The number of items used of each loader worker's stream."""
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
                f"but this loader has {workers}, whose streams differ; use the same number, or a state between epochs"
            )
        return list(streams)

    def _total(self) -> int | None:
        try:
            return len(self.dataset)  # type: ignore[arg-type]
        except TypeError:
            return None
