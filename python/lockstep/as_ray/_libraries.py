"""``ray.train.lightning``, ``.huggingface``, ``.xgboost`` and ``.lightgbm``. Each name imports its library when it is
first used."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lockstep import Checkpoint, DataParallelTrainer, session
from lockstep.backend import BackendConfig
from lockstep.errors import NotAvailableError


def __getattr__(name: str) -> Any:
    make = _MAKERS.get(name)
    if make is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = make()
    return made


# ---------------------------------------------------------------- Lightning, Transformers


def _lightning(name: str) -> Any:
    from lockstep.integrations import lightning

    return getattr(lightning, name)


def _lightning_callback() -> Any:
    from lockstep.integrations import lightning

    class RayTrainReportCallback(lightning.ReportCheckpointCallback):
        """Reports metrics and a checkpoint at the end of each epoch of training."""

        CHECKPOINT_NAME = lightning.CHECKPOINT_FILE

    return _named(RayTrainReportCallback, "RayTrainReportCallback")


def _transformers_callback() -> Any:
    from lockstep.integrations import transformers

    class RayTrainReportCallback(transformers.ReportCheckpointCallback):
        """Reports metrics and a checkpoint whenever ``transformers.Trainer`` saves one."""

        CHECKPOINT_NAME = transformers.CHECKPOINT_DIRECTORY

    return _named(RayTrainReportCallback, "RayTrainReportCallback")


def _prepare_transformers() -> Any:
    from lockstep.integrations.transformers import prepare_trainer

    return prepare_trainer


def _transformers_trainer() -> Any:
    """``TransformersTrainer`` of 2.1 to 2.6, whose function makes the library's trainer."""
    from lockstep.torch import TorchTrainer

    class TransformersTrainer(TorchTrainer):
        """``trainer_init_per_worker(train_dataset, eval_dataset, **config)`` gives a ``transformers.Trainer``, which
        trains on every worker."""

        def __init__(
            self,
            trainer_init_per_worker: Callable[..., Any],
            *,
            trainer_init_config: dict[str, Any] | None = None,
            datasets: Mapping[str, Any] | None = None,
            **options: Any,
        ) -> None:
            super().__init__(
                partial(_train_transformers, trainer_init_per_worker, list(datasets or ())),
                train_loop_config=trainer_init_config or {},
                datasets=datasets,
                **options,
            )

    return _named(TransformersTrainer, "TransformersTrainer")


def _train_transformers(make: Callable[..., Any], names: list[str], config: dict[str, Any]) -> None:
    callback, prepare = _transformers_callback(), _prepare_transformers()
    batch_size = int(config.get("per_device_train_batch_size", config.get("batch_size", 8)))
    shards = {name: session.get_dataset_shard(name).iter_torch_batches(batch_size=batch_size) for name in names}
    trainer = make(shards.get("train"), shards.get("evaluation"), **config)
    trainer.add_callback(callback())
    from lockstep.integrations.transformers import checkpoint_path

    with checkpoint_path() as path:
        prepare(trainer).train(resume_from_checkpoint=path)


def _accelerate_trainer() -> Any:
    """``AccelerateTrainer`` of 2.5 and 2.6."""
    from lockstep.torch import TorchTrainer

    class AccelerateTrainer(TorchTrainer):
        """A ``TorchTrainer``: ``Accelerator()`` finds the ranks. `accelerate_config` gives its variables."""

        def __init__(
            self, train_loop_per_worker: Callable[..., Any], *, accelerate_config: Any = None, **options: Any
        ) -> None:
            if accelerate_config is not None and not isinstance(accelerate_config, Mapping):
                raise NotAvailableError(
                    "[AccelerateTrainer] accelerate_config must be a dict here; give the settings to Accelerator()"
                )
            precision = (accelerate_config or {}).get("mixed_precision")
            function = train_loop_per_worker
            if precision is not None:
                function = partial(_with_precision, train_loop_per_worker, str(precision))
            super().__init__(function, **options)

    return _named(AccelerateTrainer, "AccelerateTrainer")


def _with_precision(function: Callable[..., Any], precision: str, config: Any = None) -> Any:
    from lockstep import _pickling

    os.environ["ACCELERATE_MIXED_PRECISION"] = precision
    return _pickling.call(function, config)


def _refused(name: str, instead: str) -> Callable[[], Any]:
    def make() -> Any:
        class Refused:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                raise NotAvailableError(f"[{name}] Lockstep does not have it; {instead}")

        return _named(Refused, name)

    return make


# ---------------------------------------------------------------- trees


class _OneOfTwo(type):
    """With a training function, the class makes a trainer of that function."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs.get("train_loop_per_worker") is not None:
            return cls._of_function(*args, **kwargs)  # type: ignore[attr-defined]
        return super().__call__(**{name: value for name, value in kwargs.items() if name != "train_loop_per_worker"})


def _function_trainer(name: str, start: Callable[..., Any], preload: str) -> Callable[..., DataParallelTrainer]:
    kind = type(name, (DataParallelTrainer,), {"_preload": ("cloudpickle", "numpy?", "pandas?", preload)})

    def make(train_loop_per_worker: Callable[..., Any], **options: Any) -> DataParallelTrainer:
        for ignored in ("xgboost_config", "lightgbm_config"):
            options.pop(ignored, None)
        made: DataParallelTrainer = kind(partial(start, train_loop_per_worker), **options)
        return made

    return make


def _in_xgboost(function: Callable[..., Any], config: Any = None) -> Any:
    from lockstep import _pickling
    from lockstep.xgboost import _connected

    with _connected():
        return _pickling.call(function, config)


def _in_lightgbm(function: Callable[..., Any], config: Any = None) -> Any:
    from lockstep import _pickling

    return _pickling.call(function, config)


def _xgboost_trainer() -> Any:
    from lockstep.xgboost import XGBoostTrainer as Core

    class XGBoostTrainer(Core, metaclass=_OneOfTwo):
        """With `params`, as in Ray 2.6; with ``train_loop_per_worker``, as in later releases."""

        _of_function = staticmethod(_function_trainer("XGBoostTrainer", _in_xgboost, "xgboost"))

    return _named(XGBoostTrainer, "XGBoostTrainer")


def _lightgbm_trainer() -> Any:
    from lockstep.lightgbm import LightGBMTrainer as Core

    class LightGBMTrainer(Core, metaclass=_OneOfTwo):
        """With `params`, as in Ray 2.6; with ``train_loop_per_worker``, as in later releases."""

        _of_function = staticmethod(_function_trainer("LightGBMTrainer", _in_lightgbm, "lightgbm"))

    return _named(LightGBMTrainer, "LightGBMTrainer")


class TreeConfig(BackendConfig):
    """``XGBoostConfig`` and ``LightGBMConfig``: accepted, without effect."""

    def __init__(self, **ignored: Any) -> None:
        self.ignored = ignored


XGBoostConfig = LightGBMConfig = TreeConfig


class _RoundReports:
    """Reports each round, with checkpoints where they are due on rank 0."""

    def __init__(
        self,
        metrics: Any = None,
        filename: str = "",
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._metrics = [metrics] if isinstance(metrics, str) else metrics
        self._filename, self._frequency, self._at_end = filename, frequency, checkpoint_at_end
        self._change = results_postprocessing_fn
        self._last: dict[str, Any] = {}
        self._saved = False

    def report(self, booster: Any, round: int, metrics: dict[str, Any], is_last: bool = False) -> None:
        chosen = metrics
        if isinstance(self._metrics, Mapping):
            chosen = {name: metrics[source] for name, source in self._metrics.items()}
        elif self._metrics is not None:
            chosen = {name: metrics[name] for name in self._metrics}
        self._last = self._change(chosen) if self._change else chosen
        self._saved = bool(self._frequency and (round + 1) % self._frequency == 0) or (is_last and self._at_end)
        self._send(booster, self._saved)

    def end(self, booster: Any) -> None:
        if self._at_end and not self._saved:
            self._send(booster, True)

    def _send(self, booster: Any, saves: bool) -> None:
        if not saves or session.get_world_rank() != 0:
            session.report(self._last)
            return
        with tempfile.TemporaryDirectory() as directory:
            booster.save_model(os.path.join(directory, self._filename))
            session.report(self._last, checkpoint=Checkpoint.from_directory(directory))


def _xgboost_callback() -> Any:
    import xgboost

    class RayTrainReportCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        """Give it to ``xgboost.train(callbacks=[...])``."""

        CHECKPOINT_NAME = "model.ubj"

        def __init__(self, metrics: Any = None, filename: str = CHECKPOINT_NAME, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self._reports = _RoundReports(metrics, filename, *args, **kwargs)

        @classmethod
        def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
            """The booster of a checkpoint."""
            booster = xgboost.Booster()
            with checkpoint.as_directory() as directory:
                booster.load_model(os.path.join(directory, filename))
            return booster

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            metrics = {
                f"{data}-{metric}": values[-1][0] if isinstance(values[-1], tuple) else values[-1]
                for data, of_data in evals_log.items()
                for metric, values in of_data.items()
            }
            self._reports.report(model, epoch, metrics)
            return False

        def after_training(self, model: Any) -> Any:
            self._reports.end(model)
            return model

    return _named(RayTrainReportCallback, "RayTrainReportCallback")


def _lightgbm_callback() -> Any:
    import lightgbm

    class RayTrainReportCallback:
        """Give it to ``lightgbm.train(callbacks=[...])``."""

        CHECKPOINT_NAME = "model.txt"
        order = 20

        def __init__(self, metrics: Any = None, filename: str = CHECKPOINT_NAME, *args: Any, **kwargs: Any) -> None:
            self._reports = _RoundReports(metrics, filename, *args, **kwargs)

        @classmethod
        def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
            """The booster of a checkpoint."""
            with checkpoint.as_directory() as directory:
                return lightgbm.Booster(model_file=os.path.join(directory, filename))

        def __call__(self, env: Any) -> None:
            metrics = {f"{each[0]}-{each[1]}": each[2] for each in env.evaluation_result_list or ()}
            is_last = env.iteration + 1 == env.end_iteration
            self._reports.report(env.model, env.iteration, metrics, is_last)

    return _named(RayTrainReportCallback, "RayTrainReportCallback")


def _network_params() -> Any:
    def get_network_params() -> dict[str, Any]:
        """The parameters by which LightGBM's workers find each other."""
        from lockstep.lightgbm import _network

        return _network({})

    return get_network_params


def _named(kind: Any, name: str) -> Any:
    kind.__name__ = kind.__qualname__ = name
    return kind


_MAKERS: dict[str, Callable[[], Any]] = {
    "RayDDPStrategy": partial(_lightning, "DDPStrategy"),
    "RayFSDPStrategy": partial(_lightning, "FSDPStrategy"),
    "RayLightningEnvironment": partial(_lightning, "LightningEnvironment"),
    "RayDeepSpeedStrategy": _refused("RayDeepSpeedStrategy", "use RayDDPStrategy or RayFSDPStrategy"),
    "RayTrainReportCallback": _lightning_callback,
    "prepare_trainer": partial(_lightning, "prepare_trainer"),
    "LightningTrainer": _refused("LightningTrainer", "call lightning.Trainer in the function of a TorchTrainer"),
    "LightningConfigBuilder": _refused("LightningConfigBuilder", "call lightning.Trainer in the training function"),
    "TransformersReportCallback": _transformers_callback,
    "prepare_transformers_trainer": _prepare_transformers,
    "TransformersTrainer": _transformers_trainer,
    "AccelerateTrainer": _accelerate_trainer,
    "XGBoostTrainer": _xgboost_trainer,
    "XGBoostReportCallback": _xgboost_callback,
    "LightGBMTrainer": _lightgbm_trainer,
    "LightGBMReportCallback": _lightgbm_callback,
    "get_network_params": _network_params,
}
