"""Where a prepared loader is: state_dict() and load_state_dict(), with any number of workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy
import pytest
import torch
from lockstep import Callback, Checkpoint, Result, session
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import _context
from lockstep.torch.loader import PreparedDataLoader, prepare_data_loader
from torch.utils.data import (
    ChainDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    get_worker_info,
)
from torch.utils.data.datapipes.iter import IterableWrapper


class Numbers(Dataset[int]):
    """The numbers below `size`; `read` says which were read."""

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


Make = Callable[[], DataLoader[Any]]
Loaders = list[PreparedDataLoader[Any]]
PrepareAll = Callable[[int, Make], Loaders]


@pytest.fixture
def prepare_all(monkeypatch: pytest.MonkeyPatch) -> PrepareAll:
    """The prepared loaders of all ranks."""

    def on_all(world: int, make: Make) -> Loaders:
        monkeypatch.setattr(_context, "world_size", lambda: world)
        loaders = []
        for rank in range(world):
            monkeypatch.setattr(_context, "rank", lambda rank=rank: rank)
            loaders.append(prepare_data_loader(make()))
        return loaders

    return on_all


def taken(iterators: list[Iterator[Any]], count: int | None = None) -> list[list[list[int]]]:
    """The next `count` batches, or all that are left, of each."""
    return [[batch.tolist() for batch in islice(iterator, count)] for iterator in iterators]


def flat(shares: list[list[list[int]]]) -> list[int]:
    return [item for share in shares for batch in share for item in batch]


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


def padding_at_most(world: int, seen: list[int], expected: list[int]) -> bool:
    """Whether all of `expected` was seen, and besides it at most one sample a rank, where the epoch ends."""
    more = Counter(seen) - Counter(expected)
    return not Counter(expected) - Counter(seen) and more.total() < world


# ---------------------------------------------------------------------- map-style datasets

MAP_STYLE: dict[str, Callable[[int], dict[str, Any]]] = {
    "sequential": lambda size: {},
    "shuffled": lambda size: {"shuffle": True},
    "subset": lambda size: {"sampler": SubsetRandomSampler(range(size))},
    "twice": lambda size: {"sampler": RandomSampler(range(size), num_samples=2 * size)},
}


@pytest.mark.parametrize("kind", MAP_STYLE)
@pytest.mark.parametrize(("world", "then"), [(1, 1), (1, 3), (2, 2), (2, 1), (2, 3), (4, 2), (3, 4)])
def test_no_sample_is_lost_or_seen_twice(prepare_all: PrepareAll, kind: str, world: int, then: int) -> None:
    for size, batch_size, batch_size_then in [(29, 2, 2), (24, 2, 3), (7, 1, 2), (13, 3, 1)]:
        data = Numbers(size)
        total = size * (2 if kind == "twice" else 1)

        def make(batch_size: int, data: Numbers = data) -> Make:
            return lambda: DataLoader(data, batch_size, **MAP_STYLE[kind](data.size))

        for batches in range(-(-total // (world * batch_size)) + 1):
            loaders = prepare_all(world, make(batch_size))
            taken([iter(loader) for loader in loaders])  # epoch 0
            iterators = [iter(loader) for loader in loaders]
            before = taken(iterators, batches)
            state = the_state(loaders)
            assert (state["epoch"], state["samples"]) == (1, min(batches * world * batch_size, total))
            data.read.clear()
            resumed = loaded(prepare_all(then, make(batch_size_then)), state)
            after = taken([iter(loader) for loader in resumed])
            assert len({len(share) for share in after}) == 1
            assert sorted(data.read) == sorted(flat(after))  # nothing is read only to be thrown away
            expected = sorted([*range(size)] * (total // size))
            seen = flat(before) + flat(after)
            assert padding_at_most(max(world, then), seen, expected), (size, batch_size, batches, seen)
            if batches * world * batch_size < total and then == world and batch_size == batch_size_then:
                assert after == taken(iterators)  # just as it would have gone on
            # The epochs after it are those of an undisturbed run.
            fresh = prepare_all(then, make(batch_size_then))
            for loader in fresh:
                loader.set_epoch(2)
            assert the_state(resumed) == the_state(fresh)
            assert taken([iter(loader) for loader in resumed]) == taken([iter(loader) for loader in fresh])


def test_resuming_again_and_again(prepare_all: PrepareAll) -> None:
    """One batch at a time, each time with another number of workers and another batch size."""
    state: dict[str, Any] = {"kind": "samples", "epoch": 0, "samples": 0, "total": 101}
    seen: list[int] = []
    for world, batch_size in [(1, 3), (3, 2), (2, 5), (4, 1), (1, 1), (5, 3), (2, 2), (3, 7)] * 2:
        loaders = loaded(prepare_all(world, lambda: DataLoader(Numbers(101), batch_size, shuffle=True)), state)  # noqa: B023
        seen += flat(taken([iter(loader) for loader in loaders], 1))
        state = the_state(loaders)
        if state["samples"] == 101:
            break
    assert padding_at_most(3, seen, list(range(101)))
    assert state["samples"] == 101


@pytest.mark.parametrize(("world", "then"), [(2, 2), (2, 3), (3, 1)])
def test_drop_last(prepare_all: PrepareAll, world: int, then: int) -> None:
    make = lambda: DataLoader(Numbers(29), 2, shuffle=True, drop_last=True)  # noqa: E731
    for batches in range(29 // (world * 2) + 1):
        loaders = prepare_all(world, make)
        before = taken([iter(loader) for loader in loaders], batches)
        state = the_state(loaders)
        after = taken([iter(loader) for loader in loaded(prepare_all(then, make), state)])
        seen = flat(before) + flat(after)
        assert len(set(seen)) == len(seen)
        assert 29 - len(seen) < max(world, then) * 2
        if batches == 29 // (world * 2):  # the epoch is over, whatever was left out
            assert state["samples"] == 29
            assert flat(after) == []


def test_the_end_of_an_epoch(prepare_all: PrepareAll) -> None:
    make = lambda: DataLoader(Numbers(10), 2, shuffle=True)  # noqa: E731
    (loader,) = prepare_all(1, make)
    assert loader.state_dict() == {"kind": "samples", "epoch": 0, "samples": 0, "total": 10}
    iterator = iter(loader)
    assert loader.state_dict() == {"kind": "samples", "epoch": 0, "samples": 0, "total": 10}
    taken([iterator], 5)
    last = {"kind": "samples", "epoch": 0, "samples": 10, "total": 10, "order": "shuffled, seed 0"}
    assert loader.state_dict() == last
    assert (loader.epoch, next(iterator, "end")) == (0, "end")
    assert loader.state_dict() == {"kind": "samples", "epoch": 1, "samples": 0, "total": 10}
    assert loader.epoch == 1
    second = taken([iter(loader)])
    (resumed,) = loaded(prepare_all(1, make), last)
    assert taken([iter(resumed)]) == [[]]
    assert resumed.epoch == 1
    assert taken([iter(resumed)]) == second


def test_saying_the_epoch_of_the_state_keeps_the_position(prepare_all: PrepareAll) -> None:
    make = lambda: DataLoader(Numbers(10), 2, shuffle=True)  # noqa: E731
    (loader,) = prepare_all(1, make)
    loader.set_epoch(4)
    iterator = iter(loader)
    taken([iterator], 2)
    state = loader.state_dict()
    rest = taken([iterator])
    (resumed,) = loaded(prepare_all(1, make), state)
    resumed.sampler.set_epoch(4)  # type: ignore[union-attr]
    assert taken([iter(resumed)]) == rest
    loaded([resumed], state)
    resumed.set_epoch(5)
    assert resumed.state_dict() == {"kind": "samples", "epoch": 5, "samples": 0, "total": 10}
    assert len(flat(taken([iter(resumed)]))) == 10


def test_loading_while_an_iteration_goes_on(prepare_all: PrepareAll) -> None:
    (loader,) = prepare_all(1, lambda: DataLoader(Numbers(10), 2))
    iterator = iter(loader)
    taken([iterator], 1)
    state = loader.state_dict()
    taken([iterator], 2)
    loader.load_state_dict(state)
    assert taken([iterator]) == [[[6, 7], [8, 9]]]
    assert loader.state_dict() == state
    assert taken([iter(loader)]) == [[[2, 3], [4, 5], [6, 7], [8, 9]]]


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_are_only_prefetched_do_not_count(prepare_all: PrepareAll, persistent: bool) -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {"persistent_workers": persistent, "prefetch_factor": 4}
        return DataLoader(Numbers(41), 2, shuffle=True, num_workers=2, **options)

    loaders = prepare_all(2, make)
    for epoch, batches in [(0, 3), (1, 7), (2, 0)]:
        iterators = [iter(loader) for loader in loaders]
        before = taken(iterators, batches)
        state = the_state(loaders)
        assert (state["epoch"], state["samples"]) == (epoch, batches * 4)
        # The same loaders go back as well, and persistent workers with them.
        for resumed in (loaders, prepare_all(3, make)):
            after = taken([iter(loader) for loader in loaded(resumed, state)])
            assert padding_at_most(3, flat(before) + flat(after), list(range(41)))


def test_batches_without_order_have_no_position(prepare_all: PrepareAll) -> None:
    (loader,) = prepare_all(1, lambda: DataLoader(Numbers(8), 2, num_workers=2, in_order=False))
    assert loader.state_dict()["samples"] == 0
    for _ in loader:
        with pytest.raises(LockstepError, match=r"inside epoch 0 .*in_order=False.*use in_order=True"):
            loader.state_dict()
    assert loader.state_dict()["epoch"] == 1


class Buckets(Sampler[list[int]]):
    """Batches of different sizes in random order."""

    def __init__(self, count: int = 7) -> None:
        self.batches = [[10 * place + item for item in range(1 + place % 3)] for place in range(count)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter([self.batches[place] for place in torch.randperm(len(self.batches)).tolist()])

    def __len__(self) -> int:
        return len(self.batches)


@pytest.mark.parametrize(("world", "then"), [(1, 1), (2, 2), (2, 3), (3, 1), (1, 4)])
def test_batch_samplers(prepare_all: PrepareAll, world: int, then: int) -> None:
    make = lambda: DataLoader(Numbers(70), batch_sampler=Buckets(11))  # noqa: E731
    everything = [item for batch in Buckets(11).batches for item in batch]
    for batches in range(-(-11 // world) + 1):
        loaders = prepare_all(world, make)
        before = taken([iter(loader) for loader in loaders], batches)
        state = the_state(loaders)
        assert (state["batches"], state["total"]) == (min(batches * world, 11), 11)
        after = taken([iter(loader) for loader in loaded(prepare_all(then, make), state)])
        if batches * world <= 11:
            assert state["samples"] == len(flat(before))
            # Only whole batches may come again, at most one for each rank but the first.
            assert not Counter(everything) - Counter(flat(before) + flat(after))
            assert sum(map(len, before)) + sum(map(len, after)) < 11 + then
        else:
            assert state["samples"] == len(everything)
            assert flat(after) == []


@pytest.mark.parametrize(("then", "batch_size"), [(2, 3), (1, 2), (3, 3)])
def test_a_distributed_sampler(prepare_all: PrepareAll, then: int, batch_size: int) -> None:
    def make(world: int, batch_size: int) -> Make:
        def on_this_rank() -> DataLoader[Any]:
            data = Numbers(24)
            return DataLoader(data, batch_size, sampler=DistributedSampler(data, world, _context.rank()))

        return on_this_rank

    for batches in range(5):
        loaders = prepare_all(2, make(2, 3))
        before = taken([iter(loader) for loader in loaders], batches)
        state = the_state(loaders)
        assert (state["epoch"], state["samples"]) == (0, batches * 6)
        after = taken([iter(loader) for loader in loaded(prepare_all(then, make(then, batch_size)), state)])
        assert sorted(flat(before) + flat(after)) == list(range(24))
    with pytest.raises(ConfigError, match=r"of 2 workers after 6 samples, which a DistributedSampler for 4 cannot"):
        prepare_all(4, make(4, 1))[0].load_state_dict({**state, "samples": 6})
    with pytest.raises(ConfigError, match=r"total 99, but this loader has 24"):
        loaders[0].load_state_dict({**state, "total": 99})


# ---------------------------------------------------------------------- iterable-style datasets


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_items_of_a_stream_are_divided(prepare_all: PrepareAll, world: int, workers: int) -> None:
    for size, batch_size, drop_last in [(25, 2, False), (27, 2, False), (24, 3, False), (25, 2, True), (2, 2, False)]:
        make = lambda: DataLoader(Stream(size), batch_size, num_workers=workers, drop_last=drop_last)  # noqa: B023, E731
        shares = taken([iter(loader) for loader in prepare_all(world, make)])
        assert len({len(share) for share in shares}) == 1
        seen = Counter(flat(shares))
        streams = max(workers, 1)
        if drop_last:
            assert max(seen.values()) == 1
            assert size - seen.total() < streams * world * batch_size
        else:
            assert set(seen) == set(range(size))
            assert seen.total() - size <= streams * (world - 1)
        if workers < 2 and not drop_last:
            expected = [-(-(size - rank) // world) for rank in range(world)]
            missing = sum(-(-own // batch_size) < -(-expected[0] // batch_size) for own in expected)
            assert seen.total() == size + missing


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_without_batches(prepare_all: PrepareAll, workers: int) -> None:
    make = lambda: DataLoader(Stream(9), batch_size=None, num_workers=workers)  # noqa: E731
    loaders = prepare_all(2, make)
    shares = [list(loader) for loader in loaders]
    assert len(shares[0]) == len(shares[1])
    assert set(shares[0]) | set(shares[1]) == set(range(9))
    iterators = [iter(loader) for loader in loaders]
    before = [list(islice(iterator, 3)) for iterator in iterators]
    after = [list(loader) for loader in loaded(prepare_all(2, make), the_state(loaders))]
    assert after == [list(iterator) for iterator in iterators]
    assert {item for share in before + after for item in share} == set(range(9))


def test_the_length_of_a_stream(prepare_all: PrepareAll) -> None:
    for world in (1, 2, 3):
        for size in (1, 6, 7, 13):
            for drop_last in (False, True):
                make = lambda: DataLoader(SizedStream(size), 2, drop_last=drop_last)  # noqa: B023, E731
                loaders = prepare_all(world, make)
                assert [len(loader) for loader in loaders] == [len(share) for share in taken(list(map(iter, loaders)))]
                assert type(loaders[0].dataset) is SizedStream
    with pytest.raises(TypeError, match=r"Stream.* has no len"):
        len(prepare_all(2, lambda: DataLoader(Stream(3)))[0])


def test_spawned_loader_workers_go_on(prepare_all: PrepareAll) -> None:
    data = ChainDataset([IterableWrapper(range(20))])  # a spawned process can import these
    options = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "spawn"}
    (loader,) = prepare_all(1, lambda: DataLoader(data, 4, **options))
    assert len(taken([iter(loader)], 2)[0]) == 2
    state = the_state([loader])
    taken([iter(loader)], 1)
    assert taken([iter(loaded([loader], state)[0])]) == [[[8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]]


@pytest.mark.parametrize("persistent", [False, True])
def test_loader_workers_hear_of_the_epoch(prepare_all: PrepareAll, persistent: bool) -> None:
    (loader,) = prepare_all(1, lambda: DataLoader(Stream(4), 4, num_workers=1, persistent_workers=persistent))
    assert [taken([iter(loader)])[0] for _ in range(3)] == [[[0, 1, 2, 3]], [[1, 2, 3, 0]], [[2, 3, 0, 1]]]
    loader.set_epoch(1)
    assert taken([iter(loader)])[0] == [[1, 2, 3, 0]]


def check_going_on(prepare_all: PrepareAll, world: int, then: int, options: dict[str, Any], left_at: list[int]) -> None:
    """Leaves epochs of a stream after so many batches, and goes on."""
    size, streams = 26, max(options.get("num_workers", 0), 1)

    def make(batch_size: int) -> Make:
        return lambda: DataLoader(Stream(size), batch_size, **options)

    loaders, others = prepare_all(world, make(2)), prepare_all(then, make(3))
    for epoch, batches in enumerate(left_at):
        iterators = [iter(loader) for loader in loaders]
        before = taken(iterators, batches)
        state = the_state(loaders)
        assert (state["epoch"], state["samples"]) == (epoch, sum(state["streams"]))
        assert state["samples"] == len(flat(before)) == batches * world * 2
        rest = taken(iterators)
        assert taken([iter(loader) for loader in loaded(loaders, state)]) == rest  # batch by batch as it went on before
        after = taken([iter(loader) for loader in loaded(others, state)])
        for share in (rest, after):
            assert len({len(part) for part in share}) == 1
            seen = Counter(flat(before) + flat(share))
            assert set(seen) == set(range(size))
            assert seen.total() - size <= streams * (len(share) - 1)
        assert the_state(loaders)["epoch"] == the_state(others)["epoch"] == epoch + 1


@pytest.mark.parametrize(("world", "then"), [(1, 1), (1, 2), (2, 2), (2, 3), (3, 1)])
def test_a_stream_goes_on(prepare_all: PrepareAll, world: int, then: int) -> None:
    check_going_on(prepare_all, world, then, {}, list(range(26 // (2 * world))))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("world", "then", "workers"), [(1, 2, 3), (2, 1, 2), (2, 3, 2), (2, 2, 1)])
def test_a_stream_of_loader_workers_goes_on(
    prepare_all: PrepareAll, world: int, then: int, workers: int, persistent: bool
) -> None:
    options = {"num_workers": workers, "persistent_workers": persistent}
    check_going_on(prepare_all, world, then, options, [0, 1, 2, 3, 5])


def test_right_after_the_last_batch_of_a_stream(prepare_all: PrepareAll) -> None:
    for world, then in [(1, 1), (2, 1), (2, 3)]:
        make = lambda: DataLoader(Stream(7), 2, num_workers=2)  # noqa: E731
        batches = len(taken([iter(prepare_all(world, make)[0])])[0])
        loaders = prepare_all(world, make)
        iterators = [iter(loader) for loader in loaders]
        taken(iterators, batches)
        state = the_state(loaders)
        assert (state["epoch"], state["samples"]) == (0, 7)
        resumed = loaded(prepare_all(then, make), state)
        assert flat(taken([iter(loader) for loader in resumed])) == []
        assert set(flat(taken([iter(loader) for loader in resumed]))) == set(range(7))
        assert resumed[0].epoch == 2


def test_an_endless_stream(prepare_all: PrepareAll) -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            number = 0
            while True:
                yield number
                number += 1

    loaders = prepare_all(2, lambda: DataLoader(Endless(), 2))
    assert taken([iter(loader) for loader in loaders], 2) == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    resumed = loaded(prepare_all(1, lambda: DataLoader(Endless(), 3)), the_state(loaders))
    assert taken([iter(resumed[0])], 2) == [[[8, 9, 10], [11, 12, 13]]]


class Shuffling(IterableDataset[int]):
    """Shuffles with the loader worker's own generators."""

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(20).tolist()
        numpy.random.shuffle(order)
        return iter(order)


@pytest.mark.parametrize("persistent", [False, True])
def test_loader_workers_that_shuffle_agree_on_all_ranks_and_after_a_restart(
    prepare_all: PrepareAll, persistent: bool
) -> None:
    make = lambda: DataLoader(Shuffling(), 2, num_workers=1, persistent_workers=persistent)  # noqa: E731
    loaders = prepare_all(2, make)
    epochs = []
    for epoch in range(3):
        shares = []
        for rank, loader in enumerate(loaders):
            torch.manual_seed(100 * epoch + rank)
            shares += taken([iter(loader)])
        assert sorted(flat(shares)) == list(range(20))
        epochs.append(shares)
    assert epochs[0] != epochs[1] != epochs[2]
    iterators = [iter(loader) for loader in loaders]
    before = taken(iterators, 2)
    after = taken([iter(loader) for loader in loaded(prepare_all(2, make), the_state(loaders))])
    assert sorted(flat(before) + flat(after)) == list(range(20))


def test_a_worker_init_function_finds_the_dataset(prepare_all: PrepareAll) -> None:
    class Range(IterableDataset[int]):
        def __init__(self) -> None:
            self.first, self.last = 0, 12

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.first, self.last))

    def split(worker: int) -> None:
        data: Any = get_worker_info().dataset  # type: ignore[union-attr]
        assert data.last == 12
        data.first, data.last = 6 * worker, 6 * worker + 6

    loaders = prepare_all(2, lambda: DataLoader(Range(), 3, num_workers=2, worker_init_fn=split))
    assert taken([iter(loader) for loader in loaders]) == [[[0, 2, 4], [6, 8, 10]], [[1, 3, 5], [7, 9, 11]]]


def test_a_loader_class_with_its_own_iteration_sees_the_batches_of_a_stream(prepare_all: PrepareAll) -> None:
    class Doubled(DataLoader[int]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield batch * 2

    make = lambda: Doubled(Stream(12), 2, num_workers=2)  # noqa: E731
    loaders = prepare_all(2, make)
    iterators = [iter(loader) for loader in loaders]
    before = taken(iterators, 1)
    after = taken([iter(loader) for loader in loaded(prepare_all(2, make), the_state(loaders))])
    assert after == taken(iterators)
    assert sorted(flat(before) + flat(after)) == list(range(0, 24, 2))


# ---------------------------------------------------------------------- wrong states


def test_wrong_states_are_refused_and_change_nothing(prepare_all: PrepareAll) -> None:
    loaders = {
        "map": prepare_all(1, lambda: DataLoader(Numbers(10), 2, shuffle=True))[0],
        "subset": prepare_all(1, lambda: DataLoader(Numbers(10), 2, sampler=SubsetRandomSampler(range(10))))[0],
        "batches": prepare_all(1, lambda: DataLoader(Numbers(70), batch_sampler=Buckets()))[0],
        "stream": prepare_all(1, lambda: DataLoader(Stream(10), 2, num_workers=2))[0],
        "sized": prepare_all(1, lambda: DataLoader(SizedStream(10), 2))[0],
    }
    states = {}
    for name, loader in loaders.items():
        iterator = iter(loader)
        next(iterator)
        states[name] = loader.state_dict()
    for name, wrong, message in [
        ("map", [1], r"got a list; it must be a dict that state_dict\(\) gave"),
        ("map", {}, r"kind None.*of kind 'samples'"),
        ("map", states["stream"], r"kind 'stream'.*of kind 'samples'"),
        ("map", {"epoch": -1}, r"epoch=-1; it must be an int of at least 0"),
        ("map", {"epoch": True}, r"epoch=True"),
        ("map", {"samples": "2"}, r"samples='2'"),
        ("map", {"samples": 11}, r"10 samples, 11 of them done, but this one has 10"),
        ("map", {"total": 11}, r"11 samples, 2 of them done, but this one has 10"),
        ("map", {"total": 11, "samples": 0}, r"11 samples, 0 of them done, but this one has 10"),
        ("map", {"order": "shuffled, seed 4"}, r"'shuffled, seed 4', but .* order of epoch 0 is 'shuffled, seed 0'"),
        ("map", {"order": "sequential"}, r"'sequential', but"),
        ("subset", {"epoch": 1}, r"SubsetRandomSampler [0-9a-f]{8}', but this loader's order of epoch 1"),
        ("batches", {"batches": None}, r"batches=None"),
        ("batches", {"total": 8}, r"8 batches, 1 of them done, but this one has 7"),
        ("batches", {"samples": 60}, r"the sampler and the seed"),
        ("stream", {"streams": [2]}, r"inside an epoch with num_workers=1, but this loader has 2"),
        ("stream", {"streams": [2, 0, 0]}, r"inside an epoch with num_workers=3, but this loader has 2"),
        ("stream", {"streams": [3, 0]}, r"streams=\[3, 0\] for 2 samples"),
        ("stream", {"streams": None}, r"streams=None"),
        ("stream", {"turn": -1}, r"turn=-1"),
        ("sized", {"total": 11}, r"len\(\) 11, but this loader's has 10"),
    ]:
        state = {**states[name], **wrong} if isinstance(wrong, dict) and wrong and "kind" not in wrong else wrong
        with pytest.raises(ConfigError, match=r"^\[prepare_data_loader\] load_state_dict\(\) .*" + message):
            loaders[name].load_state_dict(state)
        assert loaders[name].state_dict() == states[name]


def test_a_stream_that_has_become_shorter(prepare_all: PrepareAll) -> None:
    (loader,) = prepare_all(1, lambda: DataLoader(Stream(10), 2))
    iterator = iter(loader)
    taken([iterator], 4)
    (shorter,) = prepare_all(1, lambda: DataLoader(Stream(5), 2))
    shorter.load_state_dict(loader.state_dict())
    with pytest.raises(LockstepError, match=r"ended after 5 items where 8 were to be skipped"):
        list(shorter)


def test_between_epochs_the_number_of_loader_workers_may_change(prepare_all: PrepareAll) -> None:
    (loader,) = prepare_all(1, lambda: DataLoader(Stream(10), 2, num_workers=2))
    taken([iter(loader)])
    (other,) = prepare_all(1, lambda: DataLoader(Stream(10), 10))
    other.load_state_dict(loader.state_dict())
    assert taken([iter(other)]) == [[[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]]]


def test_a_loader_class_that_gives_more_than_torch_has_no_position(prepare_all: PrepareAll) -> None:
    class Twice(DataLoader[int]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield batch
                yield batch

    (loader,) = prepare_all(1, lambda: Twice(Numbers(4), 2))
    iterator = iter(loader)
    taken([iterator], 3)
    with pytest.raises(LockstepError, match=r"gave 3 batches in epoch 0 where its sampler has 2"):
        loader.state_dict()


# ---------------------------------------------------------------------- in real workers


def test_a_run_goes_on_with_another_number_of_workers(torch_fit: Callable[..., Result]) -> None:
    def train_func(config: dict[str, Any]) -> None:
        loader = prepare_data_loader(DataLoader(Numbers(23), 2, shuffle=True, num_workers=config["loader_workers"]))
        checkpoint = session.get_checkpoint()
        if checkpoint:
            loader.load_state_dict(checkpoint.to_dict()["loader"])
        seen = [item for batch in islice(loader, config["batches"]) for item in batch.tolist()]
        state = loader.state_dict()
        session.report({"seen": seen, "state": state}, checkpoint=Checkpoint.from_dict({"loader": state}))

    class AllRanks(Callback):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_report(self, results: list[dict[str, Any] | None]) -> None:
            self.seen += [item for metrics in results if metrics is not None for item in metrics["seen"]]

    rows = AllRanks()
    first = torch_fit(train_func, workers=3, config={"batches": 2, "loader_workers": 2}, callbacks=[rows])
    assert first.metrics["state"]["samples"] == len(set(rows.seen)) == 12
    config = {"batches": None, "loader_workers": 0}
    last = torch_fit(train_func, workers=2, config=config, resume_from_checkpoint=first.checkpoint, callbacks=[rows])
    assert last.metrics["state"] == {"kind": "samples", "epoch": 1, "samples": 0, "total": 23}
    assert set(rows.seen) == set(range(23))
    assert len(rows.seen) == 23
