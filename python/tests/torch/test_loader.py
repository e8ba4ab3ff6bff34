"""prepare_data_loader: which rank gets which samples."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from lockstep.errors import LockstepError
from lockstep.torch import _context
from made_loaders import Buckets, Numbers, Prepare, PrepareAll, batches, flat
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_every_sample_once_and_padding_only_where_a_batch_would_be_missing(
    prepare_all: PrepareAll, world: int, shuffle: bool
) -> None:
    for size in (1, 2, 5, 6, 7, 8, 12, 13, 29):
        for batch_size in (1, 2, 3, 5):
            loaders = prepare_all(world, lambda: DataLoader(Numbers(size), batch_size, shuffle=shuffle))  # noqa: B023
            shares = [batches(loader) for loader in loaders]
            assert {len(share) for share in shares} == {len(loader) for loader in loaders} == {len(shares[0])}
            seen = Counter(flat(shares))
            assert set(seen) == set(range(size))
            # Without padding rank r has ceil((size - r) / world) samples; one is added where that makes a batch.
            own = [-(-(size - rank) // world) if rank < size else 0 for rank in range(world)]
            missing = sum(-(-count // batch_size) < -(-own[0] // batch_size) for count in own)
            assert seen.total() == size + missing
            assert max(seen.values()) <= 1 + -(-missing // size)
            assert all(len(batch) == batch_size for share in shares for batch in share[:-1])


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_drop_last_leaves_out_what_fills_no_batch_on_every_rank(prepare_all: PrepareAll, world: int) -> None:
    for size in (1, 6, 7, 12, 13, 29):
        for batch_size in (1, 2, 3):
            loaders = prepare_all(world, lambda: DataLoader(Numbers(size), batch_size, drop_last=True))  # noqa: B023
            shares = [batches(loader) for loader in loaders]
            rounds = size // (world * batch_size)
            assert [len(loader) for loader in loaders] == [rounds] * world
            assert all(len(share) == rounds and all(len(b) == batch_size for b in share) for share in shares)
            assert sorted(flat(shares)) == list(range(rounds * world * batch_size))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_the_batch_of_all_workers_keeps_its_size(prepare_all: PrepareAll, world: int) -> None:
    for make in (
        lambda: DataLoader(Numbers(48), 5, shuffle=True),
        lambda: DataLoader(Numbers(48), 5, sampler=SubsetRandomSampler(range(48))),
    ):
        shares = [batches(loader) for loader in prepare_all(world, make, global_batch_size=12)]
        assert {len(batch) for share in shares for batch in share} == {12 // world}
        assert sorted(flat(shares)) == list(range(48))


def test_a_global_batch_size_is_rounded(prepare: Prepare) -> None:
    for world, size in ((3, 5), (5, 3), (40, 1)):
        assert prepare(0, world, DataLoader(Numbers(400), 2), global_batch_size=16).batch_size == size


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "8"])
def test_a_wrong_global_batch_size_is_refused(prepare: Prepare, given: Any) -> None:
    with pytest.raises(LockstepError, match=r"global_batch_size is .*; it must be an int of at least 1"):
        prepare(0, 2, DataLoader(Numbers(4), 2), global_batch_size=given)
    with pytest.raises(LockstepError, match="batch_size=None"):
        prepare(0, 2, DataLoader(Numbers(4), batch_size=None), global_batch_size=4)


def test_ranks_take_turns_in_the_order_of_the_dataset(prepare_all: PrepareAll) -> None:
    first, second = prepare_all(2, lambda: DataLoader(Numbers(9), 2))
    assert batches(first) == [[0, 2], [4, 6], [8]]
    assert batches(second) == [[1, 3], [5, 7], [0]]
    first, second = prepare_all(2, lambda: DataLoader(Numbers(7), 2))
    assert batches(first) == [[0, 2], [4, 6]]
    assert batches(second) == [[1, 3], [5]]


def test_an_empty_dataset_is_an_empty_loader(prepare_all: PrepareAll) -> None:
    for loader in prepare_all(3, lambda: DataLoader(Numbers(0), 2)):
        assert len(loader) == 0
        assert batches(loader) == batches(loader) == []


def test_without_batches_samples_are_divided(prepare_all: PrepareAll) -> None:
    loaders = prepare_all(2, lambda: DataLoader(Numbers(5), batch_size=None))
    assert [list(loader) for loader in loaders] == [[0, 2, 4], [1, 3, 0]]
    assert [len(loader) for loader in loaders] == [3, 3]


def test_a_shuffle_follows_from_seed_and_epoch(prepare_all: PrepareAll, monkeypatch: pytest.MonkeyPatch) -> None:
    def order(seed: int | None = None, **options: Any) -> list[list[int]]:
        monkeypatch.setattr(_context, "seed", seed)
        loaders = prepare_all(2, lambda: DataLoader(Numbers(50), 5, **({"shuffle": True} | options)))
        return [flat(zip(*(flat(batches(loader)) for loader in loaders), strict=True)) for _ in range(3)]

    torch.manual_seed(1)
    plain = order()
    torch.manual_seed(2)
    assert plain == order() == order(seed=0)
    assert len({tuple(epoch) for epoch in plain}) == 3
    assert all(sorted(flat(list(map(list, epoch)))) == list(range(50)) for epoch in plain)
    seeded = order(seed=7)
    assert len({str(epoch) for epoch in plain + seeded}) == 6
    by_loader = order(generator=torch.Generator().manual_seed(7))
    by_sampler = order(shuffle=None, sampler=RandomSampler(Numbers(50), generator=torch.Generator().manual_seed(7)))
    assert by_loader == by_sampler == seeded == order(seed=3, generator=torch.Generator().manual_seed(7))


def test_the_order_is_the_one_that_cpp_computes(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/torch/loader_test.cpp has the same numbers."""
    loader = prepare(0, 1, DataLoader(Numbers(10), 10, shuffle=True))
    assert flat(batches(loader)) == [2, 0, 1, 3, 8, 4, 5, 6, 7, 9]
    monkeypatch.setattr(_context, "seed", 7)
    loader = prepare(0, 1, DataLoader(Numbers(10), 10, shuffle=True))
    loader.set_epoch(3)
    assert flat(batches(loader)) == [8, 4, 7, 1, 0, 6, 9, 5, 2, 3]


def test_seed_and_epoch_do_not_add_up(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    def epochs(seed: int) -> list[list[int]]:
        monkeypatch.setattr(_context, "seed", seed)
        loader = prepare(0, 1, DataLoader(Numbers(20), 20, shuffle=True))
        return [flat(batches(loader)) for _ in range(2)]

    assert epochs(0)[1] != epochs(1)[0]


class NumpySampler(Sampler[int]):
    """Draws from numpy's and Python's own generators, and has no set_epoch()."""

    def __iter__(self) -> Iterator[int]:
        yield from numpy.random.permutation(20).tolist()
        yield from random.sample(range(20), 5)

    def __len__(self) -> int:
        return 25


SAMPLERS: dict[str, Callable[[], Any]] = {
    "replacement": lambda: RandomSampler(range(20), replacement=True),
    "fewer": lambda: RandomSampler(range(20), num_samples=9),
    "more": lambda: RandomSampler(range(20), num_samples=45),
    "subset": lambda: SubsetRandomSampler([3, 1, 4, 15, 9, 2, 6]),
    "subset generator": lambda: SubsetRandomSampler(range(3, 20), generator=torch.Generator().manual_seed(5)),
    "weighted": lambda: WeightedRandomSampler([1.0] * 10 + [5.0] * 10, 30),
    "numpy": NumpySampler,
    "list": lambda: [5, 3, 8, 1, 2],
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("world", [1, 3])
def test_any_other_sampler_is_drawn_alike_on_all_ranks(prepare_all: PrepareAll, name: str, world: int) -> None:
    loaders = []
    for rank in range(world):
        torch.manual_seed(rank)  # ranks need not agree on anything
        numpy.random.seed(rank)
        random.seed(rank)
        loaders.append(prepare_all(world, lambda: DataLoader(Numbers(20), 2, sampler=SAMPLERS[name]()))[rank])
    length = len(SAMPLERS[name]())
    orders = []
    for _ in range(2):
        shares = [flat(batches(loader)) for loader in loaders]
        taken = [shares[place % world][place // world] for place in range(length)]
        orders.append(taken)
        padding = Counter(flat(shares)) - Counter(taken)
        assert padding.total() < world
        assert set(padding) <= set(taken[:world])
    source = SAMPLERS[name]()
    if name.startswith("subset"):
        assert [sorted(order) for order in orders] == [sorted(source.indices)] * 2
    if name == "numpy":
        assert all(sorted(order[:20]) == list(range(20)) for order in orders)
    assert (orders[0] == orders[1]) == (name == "list")
    assert all(len(loader) == math.ceil(math.ceil(length / world) / 2) for loader in loaders)


def test_drawing_a_sampler_leaves_all_generators_alone(prepare: Prepare) -> None:
    generator = torch.Generator().manual_seed(11)
    sampler = SubsetRandomSampler(range(20), generator=generator)
    loaders = [prepare(0, 2, DataLoader(Numbers(20), 2, sampler=each)) for each in (sampler, NumpySampler())]

    def drawn() -> tuple[Any, ...]:
        return torch.rand(1).item(), random.random(), numpy.random.rand(), torch.rand(1, generator=generator).item()

    def seed_all() -> None:
        torch.manual_seed(3)
        random.seed(3)
        numpy.random.seed(3)
        generator.manual_seed(11)

    seed_all()
    torch.empty((), dtype=torch.int64).random_()  # torch takes a number for its loader workers, for each iterator
    torch.empty((), dtype=torch.int64).random_()
    expected = drawn()
    seed_all()
    for loader in loaders:
        list(loader)
    assert drawn() == expected


def test_a_sampler_that_knows_epochs_is_told(prepare: Prepare) -> None:
    class Turning(Sampler[int]):
        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            return iter([(place + self.epoch) % 4 for place in range(4)])

        def __len__(self) -> int:
            return 4

    loader = prepare(0, 2, DataLoader(Numbers(4), 4, sampler=Turning()))
    assert [batches(loader) for _ in range(3)] == [[[0, 2]], [[1, 3]], [[2, 0]]]


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_distributed_sampler_stays_and_gets_its_epochs(prepare: Prepare, add: bool, workers: int) -> None:
    data = Numbers(10)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, seed=4)
    loader = prepare(1, 2, DataLoader(data, 2, sampler=sampler, num_workers=workers), add_dist_sampler=add)
    assert loader.sampler is sampler
    for epoch in (0, 1, 2, 7, 8, 7, 0):
        if epoch in (7, 0):
            sampler.set_epoch(epoch)  # by the user's own name for it
        given = flat(batches(loader))
        reference = DistributedSampler(data, num_replicas=2, rank=1, seed=4)
        reference.set_epoch(epoch)
        assert given == list(reference)


def test_a_lazy_distributed_sampler_sees_its_own_epoch(prepare: Prepare) -> None:
    class Lazy(DistributedSampler[Any]):
        def __iter__(self) -> Iterator[int]:
            first = self.epoch * 10
            yield from range(first, first + 4)

        def __len__(self) -> int:
            return 4

    data = Numbers(100)
    for make in (
        lambda: DataLoader(data, 2, sampler=Lazy(data, num_replicas=2, rank=0)),
        lambda: DataLoader(data, batch_sampler=BatchSampler(Lazy(data, num_replicas=2, rank=0), 2, False)),
        lambda: DataLoader(data, batch_size=None, sampler=Lazy(data, num_replicas=2, rank=0)),
    ):
        loader = prepare(0, 2, make())
        epochs = [flat([b.tolist() if isinstance(b, torch.Tensor) else b for b in loader]) for _ in range(2)]
        assert epochs == [[0, 1, 2, 3], [10, 11, 12, 13]]
        loader.set_epoch(5)
        assert flat([b.tolist() if isinstance(b, torch.Tensor) else b for b in loader]) == [50, 51, 52, 53]


def test_a_batch_sampler_of_a_distributed_sampler_is_not_divided_again(prepare: Prepare) -> None:
    data = Numbers(8)
    batch_sampler = BatchSampler(DistributedSampler(data, 2, 1, shuffle=False), 2, False)
    loader = prepare(1, 2, DataLoader(data, batch_sampler=batch_sampler))
    assert loader.batch_sampler is batch_sampler
    assert batches(loader) == [[1, 3], [5, 7]]
    assert loader.state_dict()["epoch"] == 1
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(LockstepError, match=r"inside epoch 1; .* only between epochs"):
        loader.state_dict()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 9])
def test_a_batch_sampler_is_divided_by_whole_batches(prepare_all: PrepareAll, world: int, drop_last: bool) -> None:
    loaders = prepare_all(world, lambda: DataLoader(Numbers(13), batch_sampler=Buckets(drop_last)))
    orders = []
    for _ in range(2):
        shares = [batches(loader) for loader in loaders]
        counts = {len(share) for share in shares} | {len(loader) for loader in loaders}
        assert counts == {7 // world if drop_last else -(-7 // world)}
        taken = [shares[place % world][place // world] for place in range(7 // world * world if drop_last else 7)]
        assert len({tuple(batch) for batch in taken}) == len(taken)
        assert all(batch in Buckets().batches for share in shares for batch in share)
        orders.append(taken)
    if world < 9:
        assert orders[0] != orders[1]
    assert loaders[0].batch_sampler.batches == Buckets().batches  # type: ignore[union-attr]
