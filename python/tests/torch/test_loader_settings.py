"""prepare_data_loader: settings, epochs, what is refused."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import _context
from made_loaders import Buckets, Make, Numbers, Prepare, PrepareAll, batches, flat
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    SequentialSampler,
)


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
        (prepare(0, 1, DataLoader(Numbers(3))), r"this loader is already prepared"),
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
