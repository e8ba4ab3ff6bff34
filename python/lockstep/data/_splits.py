"""The methods of data sets that divide the rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from lockstep.data._plans import step
from lockstep.data._steps import seed_of, whole_number
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

_END = 2**63 - 1


class Splits:
    """Parts are data sets that read only their rows; see :class:`~lockstep.data.Dataset`."""

    _native: Any

    def split_at_indices(self, indices: Sequence[int]) -> list[Dataset]:
        """The rows before the first index, those up to the next, and so on.

        >>> [part.count() for part in lockstep.data.range(10).split_at_indices([3, 8])]
        [3, 5, 2]
        """
        places = [whole_number("an index", index) for index in indices]
        if not places:
            raise ConfigError("[data] split_at_indices() got no indices; give at least one")
        if sorted(places) != places:
            raise ConfigError(f"[data] split_at_indices() got {places}; indices must be sorted")
        return self._cut([0, *places, _END], "split_at_indices")

    def split_proportionately(self, proportions: Sequence[float]) -> list[Dataset]:
        """Parts of these fractions of the rows, and the rest.

        >>> [part.count() for part in lockstep.data.range(10).split_proportionately([0.2, 0.5])]
        [2, 5, 3]
        """
        if not proportions:
            raise ConfigError("[data] split_proportionately() got no proportions; give at least one")
        if any(not isinstance(each, int | float) or each <= 0 for each in proportions) or sum(proportions) >= 1:
            raise ConfigError(
                f"[data] split_proportionately() got {list(proportions)}; each must be above 0, and their sum below 1"
            )
        count = self._count()
        places = [_part(count, part) for part in itertools.accumulate(proportions)]
        return self._cut([0, *places, _END], "split_proportionately")

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[Dataset]:
        """`n` parts, one after the other, whose sizes differ by at most 1.

        Args:
            n: the number of parts.
            equal: all have the same size; the rows that are too many are left out.
            locality_hints: have no meaning here.
        """
        parts = whole_number("n", n, 1)
        count = self._count()
        if equal:
            return self._cut([count // parts * part for part in range(parts + 1)], "split")
        sizes = [count // parts + (part < count % parts) for part in range(parts)]
        return self._cut([0, *itertools.accumulate(sizes)], "split")

    def train_test_split(
        self,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[Dataset, Dataset]:
        """The first rows and the last ones, as data to train and to test with.

            >>> train, test = lockstep.data.range(8).train_test_split(0.25)
            >>> train.count(), test.take_all()
            (6, [{'id': 6}, {'id': 7}])

        Args:
            test_size: of the second part: a fraction of the rows, or their number.
            shuffle: the rows are put into a random order first; they are held in memory then.
            seed: of that order.
            stratify: a column of which both parts have each value as often, in proportion, as the whole. The rows are
                held in memory then.
        """
        is_number = isinstance(test_size, int | numpy.integer) and not isinstance(test_size, bool)
        if not is_number and not (isinstance(test_size, float) and 0 < test_size < 1):
            raise ConfigError(
                f"[data] test_size is {test_size!r}; it must be a fraction between 0 and 1, or a number of rows"
            )
        if is_number and test_size < 1:
            raise ConfigError(f"[data] test_size is {test_size}; it must be at least 1")
        if stratify is not None:
            self._dataset()._check_columns("train_test_split", [stratify])
        count = self._count()
        train = _part(count, 1 - test_size) if isinstance(test_size, float) else count - int(test_size)
        if train < 0:
            raise ConfigError(f"[data] test_size is {test_size}, but there are only {count} rows")
        chosen = seed_of(seed) if shuffle else None
        if stratify is not None:
            codes = self._codes(stratify)
            packed = numpy.packbits(_stratified(codes, count - train, _order(len(codes), chosen)))
            first, second = self._stratified_parts(packed.tobytes(), len(codes), chosen)
        else:
            ds = self._dataset() if chosen is None else self._dataset().random_shuffle(seed=chosen)
            first, second = ds._cut([0, train, _END], "train_test_split")
        return first, second

    def _codes(self, column: str) -> Any:
        """A number for each row: the same where the values are."""
        values = self._dataset().select_columns(column).to_arrow()[column].combine_chunks()
        return pyarrow.compute.fill_null(values.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)

    @step
    def _stratified_parts(self, packed: bytes, count: int, seed: int | None) -> list[Dataset]:
        """The rows whose bits are 0, and the others."""
        order = _order(count, seed)
        in_test = numpy.unpackbits(numpy.frombuffer(packed, numpy.uint8), count=count).astype(bool)[order]
        return [self._taken(order[~in_test], "train"), self._taken(order[in_test], "test")]

    def _taken(self, rows: Any, part: str) -> Dataset:
        return self._dataset()._new(
            self._native.whole(
                lambda table: pyarrow.table(table).take(pyarrow.array(rows)),
                description=f"train_test_split: {len(rows)} rows to {part} with, stratified (in memory)",
                keeps_schema=True,
            )
        )

    @step
    def _cut(self, places: list[int], method: str) -> list[Dataset]:
        parts = []
        for number, (begin, end) in enumerate(itertools.pairwise(places)):
            rows = f"rows {begin} to {end - 1}" if end < _END else f"rows from {begin}"
            text = f"{method}: part {number + 1} of {len(places) - 1}, {rows} (others are not read)"
            parts.append(self._dataset()._new(self._native.slice(begin, end, text)))
        return parts

    def _count(self) -> int:
        return int(self._native.count())

    def _dataset(self) -> Dataset:
        return self  # type: ignore[return-value]


def _part(count: int, fraction: float) -> int:
    """Rounded down, but not because 0.7 is a little less than 7 tenths."""
    return int(count * fraction + 1e-9 * max(count, 1))


def _order(count: int, seed: int | None) -> Any:
    """The numbers of all rows; without a seed in their own order."""
    if seed is None:
        return numpy.arange(count)
    return numpy.random.Generator(numpy.random.Philox(seed)).permutation(count)


def _stratified(codes: Any, test: int, order: Any) -> Any:
    """Whether each row is one of the `test` rows to test with: of each code the last ones in this order."""
    classes, numbers = numpy.unique(codes, return_counts=True)
    # The largest remainders are rounded up, so that the numbers of all values add up.
    shares = numbers * test / max(len(codes), 1)
    wanted = numpy.floor(shares).astype(int)
    missing = test - int(wanted.sum())
    wanted[numpy.argsort(wanted - shares, kind="stable")[:missing]] += 1
    in_test = numpy.zeros(len(codes), bool)
    for code, number in zip(classes, wanted, strict=True):
        members = order[codes[order] == code]
        in_test[members[len(members) - number :]] = True
    return in_test
