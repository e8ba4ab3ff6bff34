"""``ray.air.config.DatasetConfig``: what a trainer does with one of its data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lockstep._run_data import RunData
from lockstep.config import DataConfig

_STREAM_WINDOW = 1 << 30


@dataclasses.dataclass
class DatasetConfig:
    """``dataset_config={"train": DatasetConfig(split=True)}``; the key ``"*"`` is for all others. What is None is as a
    trainer has it: ``train`` is fitted on and split, the others are whole, and all are transformed."""

    fit: bool | None = None
    """Fit the preprocessor on this data set."""
    split: bool | None = None
    """Give each worker its part, not all rows."""
    required: bool | None = None
    """Raise ValueError if the trainer was not given this data set."""
    transform: bool | None = None
    """Apply the preprocessor."""
    max_object_store_memory_fraction: float | None = None
    """No meaning here: data sets stream."""
    global_shuffle: bool | None = None
    randomize_block_order: bool | None = None
    per_epoch_preprocessor: Any = None
    """Applied when rows are read, so anew in each epoch."""
    use_stream_api: bool | None = None
    """``get_dataset_shard()`` gives a DatasetPipeline that repeats for ever."""
    stream_window_size: float | None = None
    """Bytes of its windows."""

    def fill_defaults(self) -> DatasetConfig:
        """With values for all that is None."""
        defaults = DatasetConfig(False, False, False, True, -1.0, False, True, None, False, float(_STREAM_WINDOW))
        return defaults._merge(self)

    @staticmethod
    def merge(a: Mapping[str, DatasetConfig], b: Mapping[str, DatasetConfig] | None) -> dict[str, DatasetConfig]:
        """Both by name; where both say something, `b` counts."""
        merged = dict(a)
        for name, config in (b or {}).items():
            merged[name] = merged[name]._merge(config) if name in merged else config
        return merged

    @staticmethod
    def validated(config: Mapping[str, DatasetConfig], datasets: Mapping[str, Any] | None) -> dict[str, DatasetConfig]:
        """That of each data set, without gaps. ValueError if one is missing."""
        given = dict(datasets or {})
        for name, each in config.items():
            if each.fit and each.transform is False:
                raise ValueError(f"DatasetConfig of {name!r} has fit=True, but transform=False")
            if each.required and name != "*" and name not in given:
                raise ValueError(f"the data set {name!r} is required, but the data sets are {sorted(given)}")
        others = config.get("*", DatasetConfig())
        return {name: others._merge(config.get(name, DatasetConfig())).fill_defaults() for name in given}

    def _merge(self, other: DatasetConfig) -> DatasetConfig:
        said = {name: value for name, value in vars(other).items() if value is not None}
        return dataclasses.replace(self, **said)

    @staticmethod
    def _to_run_data(given: RunData) -> RunData:
        """A trainer's data sets as these configurations want them."""
        said: Mapping[str, DatasetConfig] = given.config  # type: ignore[assignment]
        merged = DatasetConfig.merge({"train": DatasetConfig(fit=True, split=True)}, said)
        configs = DatasetConfig.validated(merged, given.datasets)
        names = list(configs)
        datasets = {name: _prepared(dataset, configs[name]) for name, dataset in given.datasets.items()}
        return RunData(
            datasets,
            DataConfig(
                datasets_to_split=[name for name in names if configs[name].split],
                datasets_to_shuffle=[name for name in names if _is_shuffled(said.get(name), said.get("*"))],
            ),
            given.preprocessor,
            fit_on=next((name for name in names if configs[name].fit), "train"),
            untouched=frozenset(name for name in names if not configs[name].transform),
        )


def _is_shuffled(*said: DatasetConfig | None) -> bool:
    for config in said:
        if config is not None and config.global_shuffle is not None:
            return config.global_shuffle
        if config is not None and config.randomize_block_order is not None:
            return config.randomize_block_order
    return False


def _prepared(dataset: Any, config: DatasetConfig) -> Any:
    if not config.use_stream_api and config.per_epoch_preprocessor is None:
        return dataset

    def made() -> Any:
        from lockstep.as_ray._dataset import of_ray
        from lockstep.data import Dataset

        given = dataset() if not isinstance(dataset, Dataset) and callable(dataset) else dataset
        if config.use_stream_api and isinstance(given, Dataset):
            window = int(config.stream_window_size or -1)
            pipeline = of_ray(given).window(bytes_per_window=window) if window > 0 else of_ray(given).repeat(1)
            given = pipeline.repeat()
            if config.global_shuffle:
                given = given.random_shuffle_each_window()
            elif config.randomize_block_order:
                given = given.randomize_block_order_each_window()
        if config.per_epoch_preprocessor is not None:
            given = config.per_epoch_preprocessor.transform(given)
        return given

    return made
