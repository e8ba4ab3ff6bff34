"""prepare_data_loader: who gets which samples, settings, epochs, what is refused."""

from __future__ import annotations

import math
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import _context
from lockstep.torch.loader import PreparedDataLoader
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

Make = Callable[[], DataLoader[Any]]


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


Prepare = Callable[..., PreparedDataLoader[Any]]


@pytest.fixture
def prepare_all(prepare: Prepare) -> Callable[[int, Make], list[PreparedDataLoader[Any]]]:
    def on_all(world: int, make: Make, **options: Any) -> list[PreparedDataLoader[Any]]:
        return [prepare(rank, world, make(), **options) for rank in range(world)]

    return on_all


PrepareAll = Callable[..., list[PreparedDataLoader[Any]]]


def batches(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def flat(parts: Any) -> list[int]:
    return [item for part in parts for item in (flat(part) if isinstance(part, list) else [part])]


# ---------------------------------------------------------------------- who gets what


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
    """Draws from numpy's and Python's own generators, and knows no epoch."""

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


# ---------------------------------------------------------------------- samplers that divide, batch samplers


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
    with pytest.raises(LockstepError, match=r"inside epoch 1; .* between epochs only"):
        loader.state_dict()


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


# ---------------------------------------------------------------------- the loader itself


def test_all_settings_are_kept_and_the_given_loader_is_not_changed(prepare: Prepare) -> None:
    class Tuned(DataLoader[int]):
        """With a setting that Lockstep cannot know."""

        temperature = 0

    def collate(items: list[int]) -> list[int]:
        return items

    def init(worker: int) -> None: ...

    data, generator = Numbers(8), torch.Generator()
    context = multiprocessing.get_context("fork")
    given = Tuned(
        data,
        batch_size=2,
        num_workers=2,
        collate_fn=collate,
        drop_last=True,
        timeout=50,
        worker_init_fn=init,
        multiprocessing_context=context,
        generator=generator,
        prefetch_factor=3,
        persistent_workers=True,
        in_order=False,
    )
    given.temperature = 3
    before = dict(given.__dict__)
    loader = prepare(0, 2, given)
    assert isinstance(loader, Tuned)
    assert isinstance(loader, DataLoader)
    assert isinstance(loader.sampler, DistributedSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert loader.multiprocessing_context is context
    for name in before.keys() - {"sampler", "batch_sampler"}:
        assert getattr(loader, name) is before[name], name
    assert sorted(flat(list(loader))) == [0, 2, 4, 6]
    assert {name: id(value) for name, value in given.__dict__.items()} == {k: id(v) for k, v in before.items()}
    assert isinstance(given.sampler, SequentialSampler)
    assert loader.dataset is data
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        loader.batch_size = 4  # as with any DataLoader


def test_loader_workers_of_the_given_loader_are_not_taken_over(prepare: Prepare) -> None:
    given = DataLoader(Numbers(8), 2, num_workers=1, persistent_workers=True)
    assert len(batches(given)) == 4
    loader = prepare(0, 2, given)
    assert batches(loader) == [[0, 2], [4, 6]]
    assert batches(given) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("persistent", [False, True])
def test_loader_workers_get_every_epoch(prepare_all: PrepareAll, persistent: bool) -> None:
    def make(workers: int) -> Make:
        options = {"persistent_workers": persistent, "prefetch_factor": 3} if workers else {}
        return lambda: DataLoader(Numbers(21), 2, shuffle=True, num_workers=workers, **options)

    plain, parallel = prepare_all(2, make(0)), prepare_all(2, make(2))
    for _ in range(3):
        assert [batches(loader) for loader in parallel] == [batches(loader) for loader in plain]


def test_sampler_looks_like_torchs(prepare: Prepare) -> None:
    sampler = prepare(1, 4, DataLoader(Numbers(10), 2, shuffle=True, drop_last=True)).sampler
    assert isinstance(sampler, DistributedSampler)
    assert (sampler.num_replicas, sampler.rank, sampler.shuffle, sampler.drop_last) == (4, 1, True, True)
    assert (len(sampler), sampler.num_samples, sampler.total_size, sampler.epoch, sampler.seed) == (2, 2, 8, 0, 0)
    first = list(sampler)
    assert list(sampler) == first  # looking at it is no iteration
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_a_loader_class_with_its_own_iteration(prepare_all: PrepareAll) -> None:
    class Doubled(DataLoader[int]):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                yield batch * 2

        def __len__(self) -> int:
            return 1000 + super().__len__()

    loaders = prepare_all(2, lambda: Doubled(Numbers(6), 2))
    for epoch in range(2):
        assert [batches(loader) for loader in loaders] == [[[0, 4], [8]], [[2, 6], [10]]]
        assert loaders[0].epoch == epoch + 1
    assert len(loaders[0]) == 1002
    iterator = iter(loaders[0])
    next(iterator)
    assert loaders[0].state_dict() == {"kind": "samples", "epoch": 2, "samples": 4, "total": 6, "order": "sequential"}


def test_two_iterations_at_once(prepare: Prepare) -> None:
    reference = prepare(0, 2, DataLoader(Numbers(12), 2, shuffle=True))
    first, second = batches(reference), batches(reference)
    loader = prepare(0, 2, DataLoader(Numbers(12), 2, shuffle=True))
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)]
    assert pairs == list(zip(first, second, strict=True))
    assert loader.state_dict()["epoch"] == 2
    older, newer = iter(loader), iter(loader)
    assert (next(older).tolist(), loader.state_dict()["samples"]) == (batches(reference)[0], 0)
    next(newer)
    assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (3, 4)


# ---------------------------------------------------------------------- epochs


@pytest.mark.parametrize("through", ["loader", "sampler"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_explicit_epoch_wins_and_counting_goes_on(prepare: Prepare, through: str, workers: int) -> None:
    options = {"num_workers": workers, "persistent_workers": True} if workers else {}
    loader = prepare(0, 2, DataLoader(Numbers(30), 3, shuffle=True, **options))
    epochs = {epoch: batches(loader) for epoch in range(6)}
    assert len({str(order) for order in epochs.values()}) == 6
    target: Any = loader if through == "loader" else loader.sampler
    target.set_epoch(2)
    assert loader.epoch == 2
    assert batches(loader) == epochs[2]
    assert batches(loader) == epochs[3]
    target.set_epoch(4)
    target.set_epoch(1)
    assert list(loader.sampler) == flat(epochs[1])
    assert batches(loader) == epochs[1]
    for batch in loader:  # a loop that is left counts as well
        assert batch.tolist() == epochs[2][0]
        assert loader.epoch == loader.sampler.epoch == 2
        break
    assert batches(loader) == epochs[3]


def test_a_batch_sampler_takes_an_epoch_too(prepare: Prepare) -> None:
    loader = prepare(0, 2, DataLoader(Numbers(13), batch_sampler=Buckets()))
    epochs = [batches(loader) for _ in range(3)]
    loader.batch_sampler.set_epoch(1)  # type: ignore[union-attr]
    assert [batches(loader) for _ in range(2)] == epochs[1:]


class Dice(Dataset[float]):
    """Samples that depend on the loader worker's generators."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> list[float]:
        return [torch.rand(1).item(), random.random(), float(numpy.random.rand())]


def test_reproducible_mode_seeds_loader_workers(prepare_all: PrepareAll, monkeypatch: pytest.MonkeyPatch) -> None:
    def rolled(seed: int | None, **options: Any) -> list[list[Any]]:
        monkeypatch.setattr(_context, "seed", seed)
        shares = []
        for rank, loader in enumerate(prepare_all(2, lambda: DataLoader(Dice(), 2, num_workers=1, **options))):
            monkeypatch.setattr(_context, "rank", lambda rank=rank: rank)
            shares += [[torch.stack(batch).tolist() for batch in loader] for _ in range(2)]
        return shares

    torch.manual_seed(0)
    mine = rolled(5)
    torch.manual_seed(1)
    assert rolled(5) == mine  # whatever the state of the process's own generator
    assert len({str(share) for share in mine}) == 4  # by rank and epoch
    assert rolled(6) != mine
    torch.manual_seed(0)
    free = rolled(None)
    torch.manual_seed(0)
    assert rolled(None) == free != mine
    torch.manual_seed(1)
    assert rolled(None) != free
    by_user = rolled(5, generator=torch.Generator().manual_seed(3))
    assert by_user == rolled(6, generator=torch.Generator().manual_seed(3)) != mine


def test_reproducible_mode_leaves_the_processs_generator_alone(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_context, "seed", 0)
    loader = prepare(0, 1, DataLoader(Numbers(4), 2, shuffle=True))
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    list(loader)
    assert torch.equal(torch.rand(3), expected)


# ---------------------------------------------------------------------- what is refused


def test_what_cannot_be_divided_is_refused(prepare: Prepare) -> None:
    class Lengthless(Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    class Endless(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 0

    class EndlessBatches(Sampler[list[int]]):
        def __iter__(self) -> Iterator[list[int]]:
            while True:
                yield [0]

    class Remembering(DataLoader[int]):
        def load_state_dict(self, state: Any) -> None: ...

    where = r"^\[prepare_data_loader\] "
    for loader, message in [
        (DataLoader(Lengthless()), r"Lengthless has no len\(\).*IterableDataset.*add_dist_sampler=False"),
        (DataLoader(Numbers(3), sampler=Endless()), r"Endless has no len\(\)"),
        (DataLoader(Numbers(3), batch_sampler=EndlessBatches()), r"EndlessBatches has no len\(\)"),
        (Remembering(Numbers(3)), r"Remembering keeps its position itself.*plain DataLoader"),
        (
            DataLoader(torch.utils.data.datapipes.iter.IterableWrapper([1, 2])),
            r"a DataPipe.*add_dist_sampler=False",
        ),
        ([[1, 2]], r"got a list; it must be a torch.utils.data.DataLoader"),
        (prepare(0, 1, DataLoader(Numbers(3))), r"this loader is prepared already"),
    ]:
        with pytest.raises(ConfigError, match=where + message):
            prepare(0, 2, loader)


def test_a_sampler_longer_than_it_says_is_refused(prepare: Prepare) -> None:
    class Liar(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 0

        def __len__(self) -> int:
            return 3

    loader = prepare(0, 2, DataLoader(Numbers(3), sampler=Liar()))
    with pytest.raises(LockstepError, match=r"Liar gives more than the 3 that its len\(\) says"):
        iter(loader)


def test_without_a_sampler_nothing_is_divided(prepare: Prepare) -> None:
    class Counting(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    for given in (DataLoader(Numbers(5), 2), DataLoader(Counting(), 2)):
        loader = prepare(1, 2, given, add_dist_sampler=False)
        assert loader.sampler is given.sampler
        assert loader.batch_sampler is given.batch_sampler
        assert batches(loader) == [[0, 1], [2, 3], [4]]
        assert loader.state_dict() == {"kind": "whole", "epoch": 1, "samples": 0}
        loader.load_state_dict({"kind": "whole", "epoch": 3, "samples": 0})
        assert loader.epoch == 3
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(LockstepError, match=r"inside epoch 3; .*add_dist_sampler=True"):
            loader.state_dict()
        with pytest.raises(ConfigError, match=r"position inside an epoch.*add_dist_sampler=True"):
            loader.load_state_dict({"kind": "whole", "epoch": 3, "samples": 4})
