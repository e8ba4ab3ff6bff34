"""What XGBoostTrainer and LightGBMTrainer have in common: boosted trees on data sets, one round after the other."""

from __future__ import annotations

import os
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import session
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, DataConfig, RunConfig, ScalingConfig
from lockstep.errors import ConfigError
from lockstep.trainer import DataParallelTrainer
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


class TreeTrainer(DataParallelTrainer):
    """The base of a library's trainer. Its ``train`` is the training function, which gets ``_loop_config()``."""

    _library: ClassVar[str]
    _data_options: ClassVar[str]
    """The argument with the options of the library's own data sets."""
    _split: ClassVar[str | tuple[str, ...]] = "all"
    """The data sets that are divided among the workers."""

    def __init__(
        self,
        *,
        params: Mapping[str, Any],
        label_column: str,
        datasets: Mapping[str, Any],
        num_boost_round: int = 10,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        dataset_config: DataConfig | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        **train_kwargs: Any,
    ) -> None:
        where = f"[{type(self).__name__}]"
        if not datasets or "train" not in datasets:
            raise ConfigError(f'{where} datasets is {datasets!r}; it must be a dict with the data set "train"')
        if not isinstance(params, Mapping):
            raise ConfigError(f"{where} params is {params!r}; it must be a dict of {self._library}'s parameters")
        if not isinstance(label_column, str):
            raise ConfigError(f"{where} label_column is {label_column!r}; it must be the name of a column")
        if isinstance(num_boost_round, bool) or not isinstance(num_boost_round, int) or num_boost_round < 1:
            raise ConfigError(f"{where} num_boost_round is {num_boost_round!r}; it must be an int of at least 1")
        data_options = train_kwargs.pop(self._data_options, None)
        self._frequencies = (run_config or RunConfig()).checkpoint_config or CheckpointConfig()
        self._loop = {
            "params": dict(params),
            "label_column": label_column,
            "num_boost_round": num_boost_round,
            "data_options": dict(data_options or {}),
            "train_options": train_kwargs,
            "datasets": list(datasets),
            "checkpoint_frequency": self._frequencies.checkpoint_frequency,
            "checkpoint_at_end": self._frequencies.checkpoint_at_end is not False,
        }
        # Every rank reads its rows once; a row that is there twice would count twice.
        split = DataConfig(datasets_to_split=self._split, datasets_to_shuffle=(), equal="uneven", resume=False)
        super().__init__(
            type(self)._train,
            train_loop_config=self._loop,
            scaling_config=scaling_config,
            run_config=_without_frequencies(run_config),
            dataset_config=dataset_config or split,
            datasets=datasets,
            preprocessor=preprocessor,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )

    @staticmethod
    @abstractmethod
    def _train(config: dict[str, Any]) -> None:
        """The training function."""

    def __repr__(self) -> str:
        workers = self.scaling_config._count_text()
        return f"<{type(self).__name__} of {self._loop['num_boost_round']} rounds on {workers} workers>"


def _without_frequencies(run_config: RunConfig | None) -> RunConfig | None:
    """The run's configuration for the core, which leaves checkpoints to the training function."""
    if run_config is None or run_config.checkpoint_config is None:
        return run_config
    keeps = replace(run_config.checkpoint_config, checkpoint_frequency=0, checkpoint_at_end=None)
    return replace(run_config, checkpoint_config=keeps)


class TreeCheckpoint(Checkpoint):
    """A checkpoint with the file of a library's model."""

    MODEL_FILENAME: ClassVar[str]

    @classmethod
    def _of(cls, booster: Any, preprocessor: Any = None) -> Self:
        """A checkpoint of any booster that saves itself into a file."""
        with tempfile.TemporaryDirectory() as directory:
            booster.save_model(os.path.join(directory, cls.MODEL_FILENAME))
            made = cls.from_bytes(Checkpoint.from_directory(directory).to_bytes())
        if preprocessor is not None:
            made.set_preprocessor(preprocessor)
        return made


class Rounds:
    """Reports the rounds of this rank, with checkpoints where they are due on rank 0."""

    def __init__(self, config: dict[str, Any], checkpoint_type: type[TreeCheckpoint], done: int) -> None:
        self._every = config["checkpoint_frequency"]
        self._at_end = config["checkpoint_at_end"]
        self._rounds = config["num_boost_round"]
        self._type = checkpoint_type
        self._done = done
        self._saved = -1
        self._last: dict[str, Any] = {}

    def after_round(self, booster: Any, metrics: dict[str, Any]) -> None:
        self._done += 1
        self._last = metrics
        at_end = self._at_end and self._done == self._rounds
        self._report(booster, at_end or bool(self._every and self._done % self._every == 0))

    def after_training(self, booster: Any) -> None:
        """The library may end before the last round."""
        if self._at_end and self._saved != self._done and self._last:
            self._report(booster, True)

    def _report(self, booster: Any, saves: bool) -> None:
        if saves:
            self._saved = self._done
        if not saves or session.get_world_rank() != 0:
            session.report(self._last)
            return
        with tempfile.TemporaryDirectory() as directory:
            booster.save_model(os.path.join(directory, self._type.MODEL_FILENAME))
            session.report(self._last, checkpoint=Checkpoint.from_directory(directory))


def frames(config: dict[str, Any]) -> dict[str, tuple[pd.DataFrame, pd.Series[Any]]]:
    """The features and labels of this rank's rows, by data set."""
    import pyarrow

    label = config["label_column"]
    found = {}
    for name in config["datasets"]:
        shard = session.get_dataset_shard(name)
        # The ranks get batches in turn: small ones divide a small data set evenly.
        size = min(4096, max(1, shard.count() // 8))
        parts = list(shard.iter_batches(batch_size=size, batch_format="pyarrow"))
        if not parts:
            raise ConfigError(f"[{name}] rank {session.get_world_rank()} has no rows; use fewer workers")
        frame = pyarrow.concat_tables(parts).to_pandas()
        if label not in frame.columns:
            columns = ", ".join(map(str, frame.columns))
            raise ConfigError(f"[{name}] label_column is {label!r}, but the data set has the columns {columns}")
        found[name] = (frame.drop(columns=[label]), frame[label])
    return found


def threads() -> int:
    """The threads that this worker was given."""
    return max(1, int(os.environ.get("OMP_NUM_THREADS", "1") or 1))
