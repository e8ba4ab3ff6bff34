"""The data sets of a run: what a trainer takes, the bytes that are sent, and what a worker sees.

Imports no pyarrow: a run without data sets needs none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lockstep import _pickling, _preprocessors
from lockstep.checkpoint import PREPROCESSOR_FILE
from lockstep.config import DataConfig
from lockstep.errors import ConfigError, LockstepError

if TYPE_CHECKING:
    from lockstep import _core
    from lockstep.data import DataIterator, Dataset

_LENGTH = struct.Struct("<Q")


# ---------------------------------------------------------------------- in the trainer


@dataclass
class RunData:
    """The data sets that a trainer was given, and how they are divided."""

    datasets: Mapping[str, Dataset | Callable[[], Dataset]] = field(default_factory=dict)
    config: DataConfig = field(default_factory=DataConfig)
    preprocessor: Any = None
    fit_on: str = "train"
    """The data set that the preprocessor is fitted on."""
    untouched: frozenset[str] = frozenset()
    """Data sets that it is not applied to."""

    def __post_init__(self) -> None:
        self.datasets = _checked(self.datasets)
        self._expand_config()
        if not isinstance(self.config, DataConfig):
            raise ConfigError(f"[trainer] dataset_config is {self.config!r}; it must be a DataConfig or None")
        for argument in ("datasets_to_split", "datasets_to_shuffle"):
            names = getattr(self.config, argument)
            if names is not None and names != "all" and (unknown := {*names} - {"train", *self.datasets}):
                raise ConfigError(
                    f"[trainer] {argument} of dataset_config has {', '.join(map(repr, sorted(unknown)))}, "
                    f"but the data sets are {_listed(self.datasets)}"
                )
        if self.preprocessor is not None and not all(
            callable(getattr(self.preprocessor, method, None)) for method in ("fit", "transform")
        ):
            raise ConfigError(
                f"[trainer] preprocessor is {self.preprocessor!r}; it must have the methods fit() and transform()"
            )

    def _expand_config(self) -> None:
        """Converts a dict of configurations by data set, as in scripts for Ray, to one DataConfig."""
        by_dataset = self.config.values() if isinstance(self.config, Mapping) else ()
        convert = next((each._to_run_data for each in by_dataset if hasattr(each, "_to_run_data")), None)
        if convert is not None:
            vars(self).update(vars(convert(self)))

    def dump(self, before: bytes = b"") -> tuple[bytes, bytes]:
        """The fitted preprocessor and the data sets, prepared by it, as the workers get them. `before` is the
        preprocessor of the run that goes on, which is used if there is no other. If it has code of the user's own,
        only the workers open it and prepare the data sets."""
        is_left = self.preprocessor is None and before != b"" and _preprocessors.is_pickled(before)
        if self.preprocessor is None and before and not is_left:
            self.preprocessor = _preprocessors.load(before)
        if not self.datasets:
            return self._fitted() or before, b""
        datasets = {name: _made(name, dataset) for name, dataset in self.datasets.items()}
        if self.preprocessor is not None:
            if needs_fit(self.preprocessor):
                if self.fit_on not in datasets:
                    raise ConfigError(
                        f"[trainer] the preprocessor is fitted on the data set {self.fit_on!r}, but the data sets are "
                        f"{_listed(datasets)}; name one {self.fit_on!r}, or fit the preprocessor before"
                    )
                self.preprocessor.fit(_whole(datasets[self.fit_on]))
            datasets = {
                name: dataset if name in self.untouched else self.preprocessor.transform(dataset)
                for name, dataset in datasets.items()
            }
        for dataset in datasets.values():
            _whole(dataset).count()  # here once, instead of in every worker
        return (before if is_left else self._fitted()), _dump(
            datasets, self.config, datasets.keys() - self.untouched if is_left else set()
        )

    def _fitted(self) -> bytes:
        return b"" if self.preprocessor is None else _preprocessors.dump(self.preprocessor)


def _checked(datasets: Any) -> dict[str, Any]:
    if datasets is None:
        return {}
    if not isinstance(datasets, Mapping) or not all(isinstance(name, str) for name in datasets):
        raise ConfigError(f'[trainer] datasets is {datasets!r}; it must be a dict such as {{"train": ds}}')
    for name, dataset in datasets.items():
        if not _is_dataset(dataset) and not callable(dataset):
            raise ConfigError(
                f"[trainer] datasets[{name!r}] is a {type(dataset).__name__}; it must be a data set of lockstep.data, "
                "such as from_pandas(), from_items() and read_parquet() give"
            )
    return dict(datasets)


def _made(name: str, dataset: Any) -> Dataset:
    made = dataset if _is_dataset(dataset) else dataset()
    if not _is_dataset(made):
        raise ConfigError(f"[trainer] datasets[{name!r}]() gave a {type(made).__name__}; it must give a data set")
    return made  # type: ignore[no-any-return]


def _is_dataset(value: object) -> bool:
    return hasattr(type(value), "_shard_type")


def _whole(dataset: Any) -> Dataset:
    """All rows: the data set itself, or the source of a pipeline of the alias."""
    return getattr(dataset, "_whole", dataset)  # type: ignore[no-any-return]


def needs_fit(preprocessor: Any) -> bool:
    """Fits it, unless it says that it is fitted already."""
    status = getattr(preprocessor, "fit_status", None)
    said = status() if callable(status) else None
    return getattr(said, "name", said) not in ("FITTED", "NOT_FITTABLE")


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "none"


# ---------------------------------------------------------------------- the bytes


def _dump(datasets: Mapping[str, Dataset], config: DataConfig, to_prepare: set[str]) -> bytes:
    """A pickle, then the rows that are in memory, each at a multiple of 64: the worker uses them without a copy."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw())

    advice = "use functions and values that can be pickled"
    pickled = _pickling.dump_part((dict(datasets), config, to_prepare), "datasets", advice, keep)
    sizes = [len(pickled), *map(len, buffers)]
    out = bytearray(b"".join(map(_LENGTH.pack, [len(sizes), *sizes])))
    for piece in (memoryview(pickled), *buffers):
        out += bytes(-len(out) % _pickling.ALIGNMENT)
        out += piece
    return bytes(out)


def _load(part: memoryview) -> tuple[dict[str, Dataset], DataConfig, set[str]]:
    pickled, *buffers = _pieces(part)
    return pickle.loads(pickled, buffers=buffers)  # type: ignore[no-any-return]


def _pieces(part: memoryview) -> list[memoryview]:
    (count,) = _LENGTH.unpack_from(part)
    sizes = [_LENGTH.unpack_from(part, _LENGTH.size * (n + 1))[0] for n in range(count)]
    pieces, at = [], _LENGTH.size * (count + 1)
    for size in sizes:
        at += -at % _pickling.ALIGNMENT
        pieces.append(part[at : at + size])
        at += size
    return pieces


# ---------------------------------------------------------------------- in a worker


def prepare_helpers(payload: memoryview) -> None:
    """For functions of data sets that run in helper processes. Called before the worker has threads."""
    datasets = _pickling.unpack(payload)[4]
    # The data sets stay pickled until they are used; a pickled call of map_batches() has the names of its arguments. If
    # the word occurs for another reason, one process is started needlessly.
    if datasets and b"num_workers" in bytes(_pieces(datasets)[0]):
        with contextlib.suppress(ImportError):  # get_dataset_shard() says what to install
            from lockstep.data import _helpers

            _helpers.prepare()


class WorkerData:
    """The data sets of the run that this worker is in."""

    def __init__(
        self,
        core: _core.WorkerSession,
        rank: int,
        world_size: int,
        datasets: bytes | memoryview,
        preprocessor: bytes | memoryview,
    ) -> None:
        self._core = core
        self._rank = rank
        self._world_size = world_size
        self._pickled = memoryview(datasets)
        self._shards: dict[str, DataIterator] = {}
        self.preprocessor = bytes(preprocessor)
        if self._pickled:
            core.saved_position("")  # reads all of them now: the checkpoint may be deleted later
        self.keep_preprocessor(self.preprocessor)

    @functools.cached_property
    def _loaded(self) -> tuple[dict[str, Dataset], DataConfig]:
        if not self._pickled:
            return {}, DataConfig()
        import lockstep.data  # noqa: F401  # says what to install

        datasets, config, to_prepare = _load(self._pickled)
        if to_prepare:
            preprocessor = _preprocessors.load(self.preprocessor)
            datasets.update({name: preprocessor.transform(datasets[name]) for name in to_prepare})
        if self._core.begin.local_world_size > 1:
            from lockstep.data._native import native

            plans = [_whole(dataset)._native for dataset in datasets.values()]
            native.share_whole(plans, self._shared_name("whole"), self._core.begin.local_world_size)
        return datasets, config

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """All data sets, not divided."""
        return self._loaded[0]

    def shard(self, name: str | None) -> DataIterator:
        """The iterator over a data set; the same one in every call."""
        datasets, config = self._loaded
        if not datasets:
            raise LockstepError(
                '[session] get_dataset_shard() found no data sets; give them to the trainer: datasets={"train": ds}'
            )
        if name is None:
            if len(datasets) > 1:
                raise ConfigError(f"[session] get_dataset_shard() needs a name; the data sets are {_listed(datasets)}")
            (name,) = datasets
        if name not in datasets:
            raise ConfigError(f"[session] get_dataset_shard() got {name!r}, but the data sets are {_listed(datasets)}")
        if name not in self._shards:
            self._shards[name] = self._made(name, datasets[name], config)
        return self._shards[name]

    def _made(self, name: str, dataset: Dataset, config: DataConfig) -> DataIterator:
        from lockstep.data.iterator import Order

        is_split = config.splits(name)
        is_shuffled = config.shuffles(name) and (config.datasets_to_shuffle is not None or dataset._is_shuffled)
        shard = dataset._shard_type(
            dataset,
            Order(config.seed, is_shuffled, config.window),
            rank=self._rank if is_split else 0,
            world_size=self._world_size if is_split else 1,
            equal=False if config.equal == "uneven" else config.equal,
            prefetch=config.prefetch,
            name=name,
            cache=self._cache(name) if is_split else None,
        )
        saved = self._core.saved_position(name) if config.resume else None
        if saved is not None:
            shard._resume(json.loads(saved))
        return shard

    def _cache(self, name: str) -> Any:
        """Shared memory for the blocks of a data set, so that each is read by one rank of this node only."""
        from lockstep.data._native import native

        ranks = self._core.begin.local_world_size
        return None if ranks == 1 else native.SharedCache.join(self._shared_name("blocks", name), ranks)

    def _shared_name(self, *what: str) -> str:
        """Of memory that the ranks of this node share, in this attempt."""
        begin = self._core.begin
        parts = (begin.run_dir, begin.trial_id, begin.attempt, begin.node_rank, *what)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def keep_positions(self) -> None:
        """Called before a report with a checkpoint, which then holds the positions of the data sets."""
        if self._rank == 0:
            for name, shard in self._shards.items():
                self._core.set_position(name, json.dumps(shard.state_dict()))

    def replace_preprocessor(self, preprocessor: Any) -> None:
        """Later checkpoints hold this preprocessor."""
        self.preprocessor = _preprocessors.dump(preprocessor)
        self.keep_preprocessor(self.preprocessor)

    def keep_preprocessor(self, dumped: bytes) -> None:
        """The preprocessor that later checkpoints hold; empty: none."""
        if self._rank == 0:
            self._core.keep_file(PREPROCESSOR_FILE, dumped)
