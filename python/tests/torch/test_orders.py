"""The orders and shares that C++ computes for prepared loaders."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from lockstep import _core
from made_loaders import Numbers, PrepareAll, batches, flat
from torch.utils.data import DataLoader


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 4095, 4096, 4097, 50_000])
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (7, 3), (2**32 - 1, 10**6), (2**64 - 1, -1)])
def test_a_shuffle_is_that_of_torch(size: int, seed: int, epoch: int) -> None:
    generator = torch.Generator().manual_seed(_core.generator_seed(seed, epoch))
    expected = torch.randperm(size, generator=generator).tolist()
    order = _core.SampleOrder(size, seed, epoch)
    assert len(order) == size
    assert order.samples(_core.Deal(size, 0, 0, 1, 1, False), 0, size) == expected


def test_seeds_are_those_of_earlier_releases() -> None:
    """tests/data/order_test.cpp has the same numbers."""
    assert _core.generator_seed(7, 3) == 2600348547205184828
    assert _core.generator_seed(7, 3, 2) == 489860463864824660
    assert _core.generator_seed(7 + 2**64, 3) == _core.generator_seed(7, 3)  # they count modulo 2**64
    assert _core.generator_seed(2**64 - 1, -1) == 8931140498285671340
    wrong: Any = 0.5
    with pytest.raises(TypeError):
        _core.generator_seed(0, wrong)


@pytest.mark.parametrize("shuffle", [False, True])
def test_long_orders_come_in_several_chunks(prepare_all: PrepareAll, shuffle: bool) -> None:
    size = 3 * 10_000 + 1
    loaders = prepare_all(3, lambda: DataLoader(Numbers(size), 100, shuffle=shuffle))
    generator = torch.Generator().manual_seed(_core.generator_seed(0, 0))
    order = torch.randperm(size, generator=generator).tolist() if shuffle else list(range(size))
    expected = [order[rank::3] for rank in range(3)]
    expected[1].append(order[0])  # otherwise they would have one batch less
    expected[2].append(order[1])
    assert [list(loader.sampler) for loader in loaders] == expected
    assert [flat(batches(loader)) for loader in loaders] == expected


def test_places_beyond_the_end_are_none() -> None:
    order, deal = _core.SampleOrder(5, 0, 0), _core.Deal(5, 0, 1, 2, 1, False)
    samples = order.samples(_core.Deal(5, 0, 0, 1, 1, False), 0, 5)
    assert deal.places == (range(1, 5, 2), 0)
    assert (len(deal), deal.batches, deal.total, deal.position_after(2)) == (3, 3, 5, 4)
    assert order.samples(deal, 0, 100) == [samples[1], samples[3], samples[0]]
    assert order.samples(deal, 2, 1) == [samples[0]]
    assert order.samples(deal, 7, 3) == order.samples(deal, 0, -1) == []


def test_a_loader_in_use_can_be_copied(prepare_all: PrepareAll) -> None:
    (loader,) = prepare_all(1, lambda: DataLoader(Numbers(6), 2))
    next(iter(loader))
    copied = copy.deepcopy(loader)
    assert copied.state_dict() == loader.state_dict()
    assert batches(copied) == batches(loader)
