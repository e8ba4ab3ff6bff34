"""LightGBM on many workers::

import lockstep.data
from lockstep import ScalingConfig
from lockstep.lightgbm import LightGBMTrainer

trainer = LightGBMTrainer(
    params={"objective": "binary", "metric": ["binary_logloss", "binary_error"]},
    label_column="target",
    num_boost_round=20,
    datasets={"train": lockstep.data.read_parquet("train/*.parquet"), "valid": valid},
    scaling_config=ScalingConfig(num_workers=4),
)
result = trainer.fit()
booster = LightGBMTrainer.get_model(result.checkpoint)
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import session
from lockstep._trees import Rounds, TreeCheckpoint, TreeTrainer, frames, threads
from lockstep.checkpoint import Checkpoint
from lockstep.errors import ConfigError
from lockstep.predict import PREDICTIONS, Predictor

try:
    import lightgbm
except ModuleNotFoundError as missing:
    if missing.name != "lightgbm":
        raise
    raise ModuleNotFoundError(
        "[lockstep.lightgbm] LightGBM is not installed: pip install lightgbm", name="lightgbm"
    ) from None

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

__all__ = ["LightGBMCheckpoint", "LightGBMPredictor", "LightGBMTrainer"]

_SERIAL = ("serial", "serial_tree_learner")


class LightGBMCheckpoint(TreeCheckpoint):
    """A checkpoint that returns its ``lightgbm.Booster``. The model is the file ``model.txt``."""

    MODEL_FILENAME: ClassVar[str] = "model.txt"

    @classmethod
    def from_model(cls, booster: lightgbm.Booster, *, preprocessor: Any = None) -> Self:
        """A checkpoint of a booster."""
        return cls._of(booster, preprocessor)

    def get_model(self) -> lightgbm.Booster:
        """The booster that was saved."""
        with self.as_directory() as directory:
            return lightgbm.Booster(model_file=os.path.join(directory, self.MODEL_FILENAME))


class LightGBMTrainer(TreeTrainer):
    """Trains boosted trees on the rows of data sets, divided among the workers; see ``lockstep.lightgbm``.

    `params`, `num_boost_round` (10) and further arguments are those of ``lightgbm.train``, `dataset_params` those of
    ``lightgbm.Dataset``. Each data set is evaluated after each round: ``valid-auc`` is reported for ``"valid"``.
    LightGBM evaluates each worker's rows alone: so only ``"train"`` is divided, and its metrics are of rank 0's part.
    ``tree_learner`` is ``"data"`` unless `params` say otherwise. ``CheckpointConfig(checkpoint_frequency=n)`` makes a
    checkpoint every n rounds, ``checkpoint_at_end`` (default) in the last one. A run that starts again continues after
    the round of its checkpoint.
    """

    _library: ClassVar[str] = "LightGBM"
    _data_options: ClassVar[str] = "dataset_params"
    _split: ClassVar[str | tuple[str, ...]] = ("train",)
    _preload: ClassVar[tuple[str, ...]] = (*TreeTrainer._preload, "pandas?", "lightgbm")
    _checkpoint_type: ClassVar[type[Checkpoint]] = LightGBMCheckpoint

    def __init__(self, *, params: Mapping[str, Any], **others: Any) -> None:
        """`others`: the arguments of every trainer of trees, and those of ``lightgbm.train``."""
        super().__init__(params=params, **others)
        if self.scaling_config._least_and_most()[1] > 1 and params.get("tree_learner") in _SERIAL:
            raise ConfigError(
                "[LightGBMTrainer] params has tree_learner='serial', with which each worker would train a model of its "
                "own; leave it out, or give 'data', 'feature' or 'voting'"
            )

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> lightgbm.Booster:
        """The booster of a checkpoint."""
        return LightGBMCheckpoint.from_checkpoint(checkpoint).get_model()

    @staticmethod
    def _train(config: dict[str, Any]) -> None:
        rows = frames(config)
        params = {"num_threads": threads(), "verbosity": -1, **config["params"], **_network(config["params"])}
        options = {"params": params, "free_raw_data": False, **config["data_options"]}
        checkpoint = session.get_checkpoint()
        before = None if checkpoint is None else LightGBMTrainer.get_model(checkpoint)
        done = 0 if before is None else before.current_iteration()
        if done >= config["num_boost_round"]:
            return
        features, label = rows["train"]
        train = lightgbm.Dataset(features, label=label, **options)
        valid = {
            name: train if name == "train" else lightgbm.Dataset(*pair[:1], label=pair[1], reference=train, **options)
            for name, pair in rows.items()
        }
        given = dict(config["train_options"])
        rounds = Rounds(config, LightGBMCheckpoint, done)

        def report(env: Any) -> None:
            metrics = {f"{name}-{metric}": value for name, metric, value, *_ in env.evaluation_result_list}
            rounds.after_round(env.model, metrics)

        report.order = 25  # type: ignore[attr-defined]  # before early_stopping(), which ends the round
        booster = lightgbm.train(
            params,
            train,
            config["num_boost_round"] - done,
            valid_sets=list(valid.values()),
            valid_names=list(valid),
            init_model=before,
            callbacks=[*given.pop("callbacks", ()), report],
            **given,
        )
        rounds.after_training(booster)


class LightGBMPredictor(Predictor):
    """Predictions of a LightGBM model::

    predictor = LightGBMPredictor.from_checkpoint(result.checkpoint)
    predictor.predict(frame)["predictions"]
    """

    def __init__(self, model: lightgbm.Booster, preprocessor: Any = None) -> None:
        super().__init__(preprocessor)
        self.model = model

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> Self:
        if kwargs:
            raise TypeError(f"LightGBMPredictor.from_checkpoint() does not take {', '.join(kwargs)}")
        return cls(LightGBMTrainer.get_model(checkpoint), checkpoint.get_preprocessor())

    def predict(
        self,
        data: Any,
        feature_columns: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """As Predictor.predict(). `feature_columns`: the columns that the model gets; None for all.
        The rest are the arguments of ``Booster.predict``."""
        return super().predict(data, feature_columns=feature_columns, **kwargs)

    def _predict_pandas(self, data: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
        import pandas as pd

        columns = kwargs.pop("feature_columns", None)

        data = data if columns is None else data[list(columns)]
        predicted = self.model.predict(data, **kwargs)
        if predicted.ndim == 1:
            return pd.DataFrame({PREDICTIONS: predicted})
        return pd.DataFrame({f"{PREDICTIONS}_{i}": predicted[:, i] for i in range(predicted.shape[1])})


def _network(params: Mapping[str, Any]) -> dict[str, Any]:
    """The addresses of all workers, at which LightGBM listens."""
    size, rank = session.get_world_size(), session.get_world_rank()
    if size == 1:
        return {}
    ports = session.broadcast_from_rank_zero(_free_ports(size) if rank == 0 else [])
    machines = [f"{session.get_node_address(each)}:{port}" for each, port in enumerate(ports)]
    return {
        "machines": ",".join(machines),
        "local_listen_port": ports[rank],
        "num_machines": size,
        "tree_learner": params.get("tree_learner", "data"),
        "pre_partition": True,
        "time_out": 2,
    }


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind((session.get_node_address(0), 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
