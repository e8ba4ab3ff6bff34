"""The loops over a data set that :class:`Dataset` and :class:`DataIterator` have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow

from lockstep.data import _formats
from lockstep.data._columns import table_to_rows
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    import tensorflow
    import torch

    from lockstep.data._torch import TorchBatches

T = TypeVar("T")
Columns = str | Sequence[str]


class Loop(NamedTuple):
    """What a loop gives, beside how its batches look."""

    batch_size: int | None = 256
    drop_last: bool = False
    prefetch: int = 0
    """Batches that a thread converts ahead; 0: the loop converts them itself."""
    shuffle_buffer: int | None = None
    shuffle_seed: int | None = None
    rows: bool = False
    """The loop gives single rows: they are dealt to the ranks one by one."""


class Loops(abc.ABC):
    """Batches in several forms. A subclass says where they come from."""

    @abc.abstractmethod
    def _loop(self, convert: Callable[[Any], T], loop: Loop, what: str) -> Iterator[T]:
        """Every batch, converted. `what` names the conversion, for people who look for what takes the time."""

    @abc.abstractmethod
    def schema(self) -> Any:
        """Names and types of the columns."""

    def iter_batches(
        self,
        batch_size: int | None = 256,
        batch_format: str = "numpy",
        *,
        drop_last: bool = False,
        prefetch_batches: int = 1,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterator[Any]:
        """Batches as dicts of numpy arrays, pandas ``DataFrame``\\ s or pyarrow ``Table``\\ s.

            for batch in shard.iter_batches(batch_size=32, batch_format="pandas"):
                ...

        Args:
            batch_size: rows of a batch, on this rank; ``None``: those of a block, or 4096 on an iterator.
            batch_format: ``"numpy"``, ``"pandas"`` or ``"pyarrow"``.
            drop_last: leave out a last batch that is not full.
            prefetch_batches: batches that are made ahead, where that takes time (``collate_fn``, a GPU). Threads read
                ahead in any case.
            local_shuffle_buffer_size: rows that are shuffled among each other in this loop; ``None``: as the iterator
                does.
            local_shuffle_seed: of this loop; ``None``: the iterator's.
        """
        convert = _formats.batch_converter(batch_format)
        _check_count("prefetch_batches", prefetch_batches, 0)
        loop = Loop(batch_size, drop_last, 0, local_shuffle_buffer_size, local_shuffle_seed)
        return self._loop(convert, loop, f"conversion to {batch_format}")

    def iter_rows(self, *, prefetch_blocks: int = 0) -> Iterator[dict[str, Any]]:
        """Single rows, as dicts of Python values. Several ranks take them in turn. `prefetch_blocks` has no meaning."""

        def rows_of(batch: Any) -> Any:
            return table_to_rows(pyarrow.record_batch(batch))

        return self._loop(rows_of, Loop(1, rows=True), "iter_rows")

    def iter_torch_batches(
        self,
        batch_size: int | None = 256,
        *,
        dtypes: torch.dtype | Mapping[str, torch.dtype] | None = None,
        device: torch.device | str | None = None,
        collate_fn: Callable[[dict[str, Any]], Any] | None = None,
        drop_last: bool = False,
        prefetch_batches: int = 1,
        pin_memory: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterator[Any]:
        """Batches as dicts of tensors, or as `collate_fn` makes them.

            for batch in shard.iter_torch_batches(batch_size=256, dtypes=torch.float32):
                loss = model(batch["x"]) ...

        Args:
            dtypes: of all tensors, or by column; else those of the data.
            device: where the tensors shall be; else this worker's GPU under a trainer that gives it one, or main
                memory.
            collate_fn: gets a dict of numpy arrays and returns the batch; not together with `dtypes`. A thread calls
                it, `prefetch_batches` ahead.
            pin_memory: put tensors into page-locked memory, from which GPUs copy faster. Does nothing without a GPU.

        The other arguments are those of :meth:`iter_batches`.
        """
        from lockstep.data._torch import TorchFormat

        _check_count("prefetch_batches", prefetch_batches, 0)
        form = TorchFormat(dtypes, device, collate_fn, pin_memory)
        ahead = prefetch_batches if form.takes_time else 0
        loop = Loop(batch_size, drop_last, ahead, local_shuffle_buffer_size, local_shuffle_seed)
        return self._loop(form, loop, "conversion to tensors" if collate_fn is None else "collate_fn")

    def to_torch(
        self,
        *,
        label_column: str | None = None,
        feature_columns: Columns | Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
        label_column_dtype: torch.dtype | None = None,
        feature_column_dtypes: Any = None,
        batch_size: int = 1,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
    ) -> TorchBatches:
        """A torch ``IterableDataset`` of pairs of features and labels; each loop over it is one over the data.

            for x, y in shard.to_torch(label_column="y", batch_size=32):
                loss = criterion(model(x), y)

        Args:
            label_column: ``None``: the second of the pair is ``None``.
            feature_columns: a list of columns gives one tensor, with a column each; a list of lists a list of tensors;
                a dict of lists a dict of tensors. ``None``: all columns but the label.
            label_column_dtype: else that of the data.
            feature_column_dtypes: one for all, or as `feature_columns` has lists: a list, or a dict.
            unsqueeze_label_tensor: labels have the shape (rows, 1), not (rows,).
            unsqueeze_feature_tensors: a single feature column has the shape (rows, 1), not (rows,).
        """
        from lockstep.data._torch import PairFormat, TorchBatches

        _check_count("prefetch_batches", prefetch_batches, 0)
        form = PairFormat(
            self.schema().names,
            label_column,
            feature_columns,
            label_column_dtype,
            feature_column_dtypes,
            unsqueeze_label_tensor,
            unsqueeze_feature_tensors,
        )
        loop = Loop(batch_size, drop_last, 0, local_shuffle_buffer_size, local_shuffle_seed)
        return TorchBatches(lambda: self._loop(form, loop, "conversion to tensors"))

    def iter_tf_batches(
        self,
        batch_size: int | None = 256,
        *,
        dtypes: tensorflow.DType | Mapping[str, tensorflow.DType] | None = None,
        drop_last: bool = False,
        prefetch_batches: int = 1,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Batches as dicts of TensorFlow tensors; columns of lists of different lengths become ragged ones."""
        from lockstep.data import _tensorflow

        _check_count("prefetch_batches", prefetch_batches, 0)
        loop = Loop(batch_size, drop_last, 0, local_shuffle_buffer_size, local_shuffle_seed)
        return self._loop(lambda batch: _tensorflow.to_tensors(batch, dtypes), loop, "conversion to tensors")

    def to_tf(
        self,
        feature_columns: Columns,
        label_columns: Columns,
        *,
        batch_size: int = 1,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> tensorflow.data.Dataset:
        """A ``tf.data.Dataset`` of pairs of features and labels, as ``model.fit()`` takes it.

            model.fit(shard.to_tf("x", "y", batch_size=32), epochs=1)

        One name gives tensors, a list of names dicts of tensors by column. Each loop over it is one over the data.
        """
        from lockstep.data import _tensorflow

        _check_count("prefetch_batches", prefetch_batches, 0)
        loop = Loop(batch_size, drop_last, 0, local_shuffle_buffer_size, local_shuffle_seed)
        pairs = _tensorflow.Pairs(self.schema(), feature_columns, label_columns)
        return pairs.dataset(lambda: self._loop(pairs, loop, "conversion to tensors"))


def _check_count(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"[data] {name} is {value!r}; it must be a whole number of at least {least}")
