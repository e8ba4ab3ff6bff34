"""Goes through a data set, epoch by epoch, from a position that can be saved."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow

from lockstep.data._ahead import Ahead
from lockstep.data._formats import empty_batch
from lockstep.data._loops import Loop, Loops
from lockstep.data._native import native
from lockstep.data._steps import whole_number
from lockstep.data._waits import IteratorStats, Waits
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

T = TypeVar("T")

TAILS = {"pad": native.Tail.pad, True: native.Tail.pad, "drop": native.Tail.drop, False: native.Tail.uneven}
"""What `equal` may be."""
_ROWS_OF_NO_SIZE = 4096
_ROWS_AT_ONCE = 256
"""iter_rows() fetches so many at a time."""


class Order(NamedTuple):
    """How an epoch is shuffled."""

    seed: int = 0
    shuffle: bool = True
    window: int = 100_000

    def of_loop(self, loop: Loop) -> Order:
        """The order of a loop, which may ask for another one than its iterator."""
        order = self
        if loop.shuffle_seed is not None:
            order = order._replace(seed=loop.shuffle_seed)
        if loop.shuffle_buffer is not None:
            order = order._replace(shuffle=True, window=loop.shuffle_buffer)
        order.check()
        return order

    def check(self) -> None:
        """Raises ConfigError."""
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**64:
            raise ConfigError(f"[data] seed is {self.seed!r}; it must be from 0 to 2**64 - 1")
        if not isinstance(self.window, int) or self.window < 1:
            raise ConfigError(f"[data] the shuffle's window is {self.window!r} rows; it must be 1 or more")


class DataIterator(Loops):
    """Goes through a data set, once per epoch. Made by :meth:`Dataset.iterator`; in a training function,
    ``session.get_dataset_shard()`` gives one.

    Each loop over one of its ``iter_`` methods is one epoch; a loop that is left early ends its epoch. The position,
    also within an epoch, is a small dict that can be stored anywhere, and loaded by an iterator over the same data,
    with the same order, for any number of ranks::

        it = ds.iterator(seed=0)
        for batch in it.iter_batches(batch_size=256):
            ...
            state = it.state_dict()  # this batch is done

        it = ds.iterator(seed=0)
        it.load_state_dict(state)
        for batch in it.iter_batches(batch_size=256):  # from the next batch on, to the end of that epoch
            ...
    """

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        *,
        rank: int = 0,
        world_size: int = 1,
        equal: str | bool = "pad",
        prefetch: int = 2,
        name: str = "",
        cache: Any = None,
    ) -> None:
        if equal not in TAILS:
            raise ConfigError(f"[data] equal is {equal!r}; it must be True, 'pad', 'drop' or False")
        order.check()
        self._dataset = dataset
        self._base = order
        self._rank = rank
        self._world_size = world_size
        self._equal = equal
        self._prefetch = prefetch
        self._cache = cache  # of the ranks of this machine
        self._waits = Waits(name)
        self._order = order
        self._native = self._made(order)
        self._loaded = False
        """Whether the next loop shall go on where load_state_dict() said."""
        self._resumes = False
        """Whether that came from a checkpoint, so that a loop in another order begins anew instead of failing."""

    # ------------------------------------------------------------------ the position

    @property
    def epoch(self) -> int:
        """The epoch that runs, else the next one."""
        return int(self._native.epoch())

    def set_epoch(self, epoch: int) -> None:
        """The next loop is over this epoch, from its beginning, or from the loaded position if that is in it."""
        epoch = whole_number("epoch", epoch)
        self._loaded = self._loaded and epoch == self.epoch
        self._native.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position: how many rows of the epoch all ranks have got together, if each has got as many batches."""
        state: dict[str, Any] = json.loads(self._native.state())
        return state if self._order == self._base else {**state, "local_shuffle": True}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next loop continues there. Nothing is read to get there. Raises ``ConfigError`` if the state is of other
        data or of another order."""
        if not isinstance(state, Mapping):
            raise ConfigError(
                f"[data] load_state_dict() got a {type(state).__name__}; it must be what state_dict() gave"
            )
        state = dict(state)
        order = self._base
        if state.pop("local_shuffle", False):
            order = Order(state.get("seed"), True, state.get("window"))  # type: ignore[arg-type]
            order.check()
        loaded = self._made(order)
        loaded.load_state(json.dumps(state))
        self._native, self._order, self._loaded, self._resumes = loaded, order, True, False

    def _resume(self, state: Mapping[str, Any]) -> None:
        """As load_state_dict(), for the state in a checkpoint: a position in other data means nothing here."""
        try:
            self.load_state_dict(state)
            self._resumes = True
        except ConfigError as error:
            self._begin_anew(str(error))

    def _begin_anew(self, why: str) -> None:
        if self._rank == 0:
            warnings.warn(
                f"[data] the checkpoint's position in the data set {self._waits.name!r} does not fit, so it begins "
                f"with its first epoch: {why}",
                RuntimeWarning,
                stacklevel=4,
            )
        self._native, self._loaded = self._made(self._order), False

    # ------------------------------------------------------------------ loops

    def _loop(self, convert: Callable[[Any], T], loop: Loop, what: str) -> Iterator[T]:
        order = self._base.of_loop(loop)
        return self._run(convert, loop, what, order)

    def _run(self, convert: Callable[[Any], Any], loop: Loop, what: str, order: Order) -> Iterator[Any]:
        iterator = self._use(order)
        size = _ROWS_OF_NO_SIZE if loop.batch_size is None else loop.batch_size
        running = iterator.begin(size, loop.drop_last)  # its threads end when this is dropped
        count = _ROWS_AT_ONCE if loop.rows else 1
        clock = self._waits.begin(running, what, self._dataset)

        def make() -> tuple[int, Any] | None:
            batch = iterator.take(running, count)
            if batch is None:
                return None
            with clock.converting():
                return len(batch), convert(batch)

        ahead = Ahead(make, loop.prefetch) if loop.prefetch > 0 else None
        following = ahead or make
        given = 0
        try:
            while (item := clock.wait_for(following)) is not None:
                rows, value = item
                clock.rows += rows
                # The position moves before the user has the batch: a report in the loop counts it as done.
                for each in value if loop.rows else (value,):
                    given += 1
                    iterator.move(running, given)
                    yield each
            iterator.finish(running)
        finally:
            if ahead is not None:
                ahead.close()
            clock.end()

    def _batches(self, batch_size: int, drop_last: bool) -> Iterator[Any]:
        """The core's batches, which have ``__arrow_c_array__``."""
        return self._loop(lambda batch: batch, Loop(batch_size, drop_last), "")

    def _use(self, order: Order) -> Any:
        """The core's iterator for the next loop, which goes in this order."""
        if order != self._order:
            epoch = self._native.next_epoch()
            if self._loaded:
                why = f"it was saved in a loop that was shuffled by {self._order}, but this loop asks for {order}"
                if not self._resumes:
                    raise ConfigError(f"[data] the loaded position does not fit: {why}")
                self._begin_anew(why)
                epoch = 0
            self._order = order
            self._native = self._made(order)
            self._native.set_epoch(epoch)
        self._loaded = False
        return self._native

    def _made(self, order: Order) -> Any:
        return native.Iterator(
            dataset=self._dataset._native,
            shuffle=order.shuffle,
            seed=order.seed,
            window=order.window,
            rank=self._rank,
            world_size=self._world_size,
            tail=TAILS[self._equal],
            prefetch=self._prefetch,
            cache=self._cache,
        )

    # ------------------------------------------------------------------ about it

    def schema(self) -> pyarrow.Schema:
        """Names and types of the columns."""
        return self._dataset.schema()

    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._dataset.columns()

    def count(self) -> int:
        """The rows that this rank gets in an epoch when they are dealt one by one, as :meth:`iter_rows` does."""
        whole, rest = divmod(self._dataset.count(), self._world_size)
        if rest == 0 or self._equal == "drop":
            return whole
        return whole + int(self._equal is not False or self._rank < rest)

    def materialize(self) -> Dataset:
        """This rank's rows, read into memory, as a data set. The position stays where it is.

        They are in the order of the data set, dealt one by one.
        """
        from lockstep.data.read import from_arrow

        copy = DataIterator(
            self._dataset,
            Order(shuffle=False),
            rank=self._rank,
            world_size=self._world_size,
            equal=self._equal,
            prefetch=self._prefetch,
        )
        whole = copy._native.begin(1, False)
        tables = [pyarrow.Table.from_batches([empty_batch(self.schema())])]
        while (batch := copy._native.take(whole, 16_384)) is not None:
            tables.append(pyarrow.Table.from_batches([pyarrow.record_batch(batch)]))
        return from_arrow(tables)

    def stats(self) -> IteratorStats:
        """How much the loops so far have read, and how long they have waited for it.

        >>> it = lockstep.data.range(1000).iterator()
        >>> for batch in it.iter_batches(100): ...
        >>> it.stats().rows
        1000
        """
        return self._waits.stats()

    def iter_epochs(self, max_epoch: int = -1) -> Iterator[DataIterator]:
        """Itself, once per epoch; without end if `max_epoch` is below 0."""
        done = 0
        while max_epoch < 0 or done < max_epoch:
            yield self
            done += 1

    def __repr__(self) -> str:
        name = f"{self._waits.name!r}, " if self._waits.name else ""
        return f"<DataIterator {name}rank {self._rank} of {self._world_size}, epoch {self.epoch}>"
