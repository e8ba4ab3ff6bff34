"""The samplers of a prepared loader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, Dataset, DistributedSampler, Sampler

if TYPE_CHECKING:
    from lockstep.torch._sharding import Divided, DividedBatches


class ShardedSampler(DistributedSampler[Any]):
    """This rank's part of an epoch. Takes the place of torch's DistributedSampler::

    loader = prepare_data_loader(DataLoader(dataset, shuffle=True))
    loader.sampler.set_epoch(3)  # not needed: each new iteration has the next epoch
    """

    def __init__(self, dataset: Dataset[Any], plan: Divided) -> None:
        # Does not call the base's: that uses the length of the dataset, but here the length of the user's sampler
        # counts.
        self.dataset = dataset
        self.num_replicas, self.rank = plan.world, plan.rank
        self.shuffle, self.seed = plan.order.shuffle, plan.order.seed
        self.drop_last = plan.drop_last
        self.epoch = 0
        self.num_samples = len(plan)
        self.total_size = self.num_samples * plan.world
        self._plan = plan
        plan.sampler = self

    def __iter__(self) -> Iterator[Any]:
        return self._plan.indices()

    def __len__(self) -> int:
        return len(self._plan)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of `epoch`; those after it count on from there."""
        self._plan.set_epoch(epoch)


class ShardedBatchSampler(Sampler[Any]):
    """This rank's batches of a batch sampler. It has the attributes of that sampler too."""

    def __init__(self, plan: DividedBatches) -> None:
        self.epoch = 0
        self._plan = plan
        plan.sampler = self

    def __iter__(self) -> Iterator[Any]:
        return self._plan.indices()

    def __len__(self) -> int:
        return len(self._plan)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._plan.order.source, name)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of `epoch`; those after it count on from there."""
        self._plan.set_epoch(epoch)


class Skipping:
    """The indices of `sampler`, without the first `skip`."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.skip = 0

    def __iter__(self) -> Iterator[Any]:
        given = iter(self.sampler)
        # Fetch the first index now: a generator reads the epoch only then, and the epoch is about to change.
        return chain(list(islice(given, self.skip + 1))[self.skip :], given)

    def __len__(self) -> int:
        return len(self.sampler)


class SkippingBatches(BatchSampler):
    """As torch's BatchSampler, without the sampler's first `skip` indices. The epoch is fixed when iter() is called."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.skip = 0

    def __iter__(self) -> Iterator[list[Any]]:
        indices = Skipping(self.sampler)
        indices.skip = self.skip
        return self._batches(iter(indices))

    def _batches(self, indices: Iterator[Any]) -> Iterator[list[Any]]:
        while batch := list(islice(indices, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch
