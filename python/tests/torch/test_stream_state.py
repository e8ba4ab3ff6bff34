"""Prepared loaders of iterable-style datasets: how a stream is divided, its position, and how it continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy
import pytest
import torch
from made_loaders import Make, PrepareAll, SizedStream, Stream, flat, loaded, taken, the_state
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper


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
    """Leaves epochs of a stream after some batches, and continues."""
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
