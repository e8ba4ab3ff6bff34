"""XGBoost on many workers::

import lockstep.data
from lockstep import ScalingConfig
from lockstep.xgboost import XGBoostTrainer

trainer = XGBoostTrainer(
    params={"objective": "binary:logistic", "eval_metric": ["logloss", "error"]},
    label_column="target",
    num_boost_round=20,
    datasets={"train": lockstep.data.read_parquet("train/*.parquet"), "valid": valid},
    scaling_config=ScalingConfig(num_workers=4),
)
result = trainer.fit()
booster = XGBoostTrainer.get_model(result.checkpoint)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import session
from lockstep._trees import Rounds, TreeCheckpoint, TreeTrainer, frames, threads
from lockstep.checkpoint import Checkpoint
from lockstep.predict import PREDICTIONS, Predictor

try:
    import xgboost
except ModuleNotFoundError as missing:
    if missing.name != "xgboost":
        raise
    raise ModuleNotFoundError(
        "[lockstep.xgboost] XGBoost is not installed: pip install xgboost, or xgboost-cpu for machines without a GPU",
        name="xgboost",
    ) from None

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

__all__ = ["XGBoostCheckpoint", "XGBoostPredictor", "XGBoostTrainer"]


class XGBoostCheckpoint(TreeCheckpoint):
    """A checkpoint that returns its ``xgboost.Booster``. The model is the file ``model.json``."""

    MODEL_FILENAME: ClassVar[str] = "model.json"

    @classmethod
    def from_model(cls, booster: xgboost.Booster, *, preprocessor: Any = None) -> Self:
        """A checkpoint of a booster."""
        return cls._of(booster, preprocessor)

    def get_model(self) -> xgboost.Booster:
        """The booster that was saved."""
        booster = xgboost.Booster()
        with self.as_directory() as directory:
            booster.load_model(os.path.join(directory, self.MODEL_FILENAME))
        return booster


class XGBoostTrainer(TreeTrainer):
    """Trains boosted trees on the rows of data sets, divided among the workers; see ``lockstep.xgboost``.

    `params`, `num_boost_round` (10) and further arguments are those of ``xgboost.train``, `dmatrix_params` those of
    ``xgboost.DMatrix``. Each data set is evaluated after each round: ``valid-logloss`` is reported for ``"valid"``.
    ``CheckpointConfig(checkpoint_frequency=n)`` makes a checkpoint every n rounds, ``checkpoint_at_end`` (default) in
    the last one. A run that starts again continues after the round of its checkpoint.
    """

    _library: ClassVar[str] = "XGBoost"
    _data_options: ClassVar[str] = "dmatrix_params"
    _preload: ClassVar[tuple[str, ...]] = (*TreeTrainer._preload, "pandas?", "xgboost")
    _checkpoint_type: ClassVar[type[Checkpoint]] = XGBoostCheckpoint

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> xgboost.Booster:
        """The booster of a checkpoint."""
        return XGBoostCheckpoint.from_checkpoint(checkpoint).get_model()

    @staticmethod
    def _train(config: dict[str, Any]) -> None:
        data = frames(config)  # before they connect: leaving the others early is an error that would hide its errors
        with _connected():
            _train_here(config, data)


class XGBoostPredictor(Predictor):
    """Predictions of a XGBoost model::

    predictor = XGBoostPredictor.from_checkpoint(result.checkpoint)
    predictor.predict(frame)["predictions"]
    """

    def __init__(self, model: xgboost.Booster, preprocessor: Any = None) -> None:
        super().__init__(preprocessor)
        self.model = model

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **kwargs: Any) -> Self:
        if kwargs:
            raise TypeError(f"XGBoostPredictor.from_checkpoint() does not take {', '.join(kwargs)}")
        return cls(XGBoostTrainer.get_model(checkpoint), checkpoint.get_preprocessor())

    def predict(
        self,
        data: Any,
        feature_columns: Sequence[str] | None = None,
        dmatrix_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """As Predictor.predict(). `feature_columns`: the columns that the model gets; None for all.
        `dmatrix_kwargs` are those of ``xgboost.DMatrix``, the rest those of ``Booster.predict``."""
        return super().predict(data, feature_columns=feature_columns, dmatrix_kwargs=dmatrix_kwargs, **kwargs)

    def _predict_pandas(self, data: pd.DataFrame, **kwargs: Any) -> pd.DataFrame:
        import pandas as pd

        columns = kwargs.pop("feature_columns", None)
        dmatrix_kwargs = kwargs.pop("dmatrix_kwargs", None)
        data = data if columns is None else data[list(columns)]
        predicted = self.model.predict(
            xgboost.DMatrix(data, **{"nthread": threads(), **(dmatrix_kwargs or {})}), **kwargs
        )
        if predicted.ndim == 1:
            return pd.DataFrame({PREDICTIONS: predicted})
        return pd.DataFrame({f"{PREDICTIONS}_{i}": predicted[:, i] for i in range(predicted.shape[1])})


def _train_here(config: dict[str, Any], data: dict[str, Any]) -> None:
    matrices = {
        name: xgboost.DMatrix(features, label=label, **{"nthread": threads(), **config["data_options"]})
        for name, (features, label) in data.items()
    }
    options = dict(config["train_options"])
    checkpoint = session.get_checkpoint()
    before = None if checkpoint is None else XGBoostTrainer.get_model(checkpoint)
    done = 0 if before is None else before.num_boosted_rounds()
    if done >= config["num_boost_round"]:
        return
    rounds = Rounds(config, XGBoostCheckpoint, done)
    xgboost.train(
        {"nthread": threads(), **config["params"]},
        matrices["train"],
        config["num_boost_round"] - done,
        evals=[(matrix, name) for name, matrix in matrices.items()],
        xgb_model=before,
        callbacks=[*options.pop("callbacks", ()), _Report(rounds)],
        verbose_eval=options.pop("verbose_eval", False),
        **options,
    )


class _Report(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    def __init__(self, rounds: Rounds) -> None:
        super().__init__()
        self._rounds = rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        metrics = {
            f"{name}-{metric}": values[-1][0] if isinstance(values[-1], tuple) else values[-1]
            for name, of_data in evals_log.items()
            for metric, values in of_data.items()
        }
        self._rounds.after_round(model, metrics)
        return False

    def after_training(self, model: Any) -> Any:
        self._rounds.after_training(model)
        return model


class _connected:
    """XGBoost's own collectives among the workers. Rank 0 has the tracker at which they meet."""

    def __enter__(self) -> None:
        self._tracker: Any = None
        self._context: Any = None
        if session.get_world_size() == 1:
            return
        arguments: dict[str, Any] = {}
        if session.get_world_rank() == 0:
            from xgboost.tracker import RabitTracker

            self._tracker = RabitTracker(
                n_workers=session.get_world_size(), host_ip=session.get_node_address(0), sortby="task"
            )
            self._tracker.start()
            arguments = self._tracker.worker_args()
        arguments = {**session.broadcast_from_rank_zero(arguments), "dmlc_task_id": f"{session.get_world_rank():08d}"}
        self._context = xgboost.collective.CommunicatorContext(**arguments)
        self._context.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._context is not None and error[0] is None:
            self._context.__exit__(*error)
        if self._tracker is not None:
            if error[0] is None:
                self._tracker.wait_for(timeout=30)
            self._tracker.free()
