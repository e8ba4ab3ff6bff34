"""The position of a prepared loader of a map-style dataset: state_dict() and load_state_dict(), with any number of
workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from lockstep import Callback, Checkpoint, Result, session
from lockstep.errors import ConfigError, LockstepError
from lockstep.torch import _context
from lockstep.torch.loader import prepare_data_loader
from made_loaders import Make, Numbers, PrepareAll, SizedStream, Stream, flat, loaded, taken, the_state
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Sampler, SubsetRandomSampler


def padding_at_most(world: int, seen: list[int], expected: list[int]) -> bool:
    """Whether all of `expected` was seen, plus at most one more sample per rank at the end of the epoch."""
    more = Counter(seen) - Counter(expected)
    return not Counter(expected) - Counter(seen) and more.total() < world


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
