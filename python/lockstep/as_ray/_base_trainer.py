"""The base of trainers that scripts for Ray write themselves."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import lockstep
from lockstep import Checkpoint, RunConfig, ScalingConfig, session
from lockstep._run_data import RunData, needs_fit
from lockstep.run_handle import RunHandle
from lockstep.tune.schedulers._scheduler import merged
from lockstep.validation import ValidationConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class _AnyTrainer(type):
    """Makes every trainer of Lockstep a BaseTrainer."""

    def __instancecheck__(cls, instance: object) -> bool:
        own = super().__instancecheck__(instance)
        return isinstance(instance, lockstep.DataParallelTrainer) if cls is BaseTrainer else own

    def __subclasscheck__(cls, subclass: type) -> bool:
        own = super().__subclasscheck__(subclass)
        return issubclass(subclass, lockstep.DataParallelTrainer) if cls is BaseTrainer else own


class BaseTrainer(lockstep.DataParallelTrainer, metaclass=_AnyTrainer):
    """Runs its own ``training_loop()``, in one worker::

        class Counter(BaseTrainer):
            def training_loop(self):
                for epoch in range(3):
                    session.report({"rows": self.datasets["train"].count()})

        result = Counter(datasets={"train": ray.data.range(100)}).fit()

    The worker calls ``setup()``, ``preprocess_datasets()`` and ``training_loop()``, in this order. What they change in
    the trainer stays in the worker.
    """

    _scaling_config_allowed_keys: ClassVar[list[str]] = ["trainer_resources"]
    _has_hooks: ClassVar[bool] = False  # they are called in the worker

    _given: tuple[tuple[Any, ...], dict[str, Any]]
    """The arguments of the constructor."""
    datasets: Any = None
    preprocessor: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made._given = (args, kwargs)
        return made

    def __init__(
        self,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        super().__init__(
            self.training_loop,
            scaling_config=scaling_config,
            run_config=run_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )
        self.datasets = dict(RunData(datasets or {}, preprocessor=preprocessor).datasets)
        self.preprocessor = preprocessor

    def setup(self) -> None:
        """Called in the worker, before the next two."""

    def preprocess_datasets(self) -> None:
        """Fits the preprocessor on ``train``, unless it is fitted, and replaces ``self.datasets`` by what it makes of
        them."""
        if self.preprocessor is None or not self.datasets:
            return
        if "train" in self.datasets and needs_fit(self.preprocessor):
            self.preprocessor.fit(self.datasets["train"])
        self.datasets = {name: self.preprocessor.transform(dataset) for name, dataset in self.datasets.items()}

    def training_loop(self) -> None:
        """The training itself; ``session`` works in it. To be overridden."""
        raise NotImplementedError(f"[{type(self).__name__}] training_loop() is missing; a BaseTrainer needs one")

    def _prepare(self, in_thread: bool) -> RunHandle:
        if self._restored is not None and self.train_loop_per_worker is None:
            return super()._prepare(in_thread)
        self._validate()
        sent = copy.copy(self)
        sent._given = ((), {})
        sent.train_loop_per_worker = None
        sent.run_config = dataclasses.replace(  # they stay in this process
            self.run_config, callbacks=None, validation_config=None
        )
        sent.datasets = {}  # the run brings them
        sent.validation_config = None
        single: type[lockstep.DataParallelTrainer] = type(type(self).__name__, (lockstep.DataParallelTrainer,), {})
        made = single(
            partial(_run, sent),
            train_loop_config=self.train_loop_config,
            scaling_config=ScalingConfig(num_workers=1),
            run_config=self.run_config,
            datasets=self.datasets,
            resume_from_checkpoint=self.resume_from_checkpoint,
            metadata=self.metadata,
            validation_config=self.validation_config,
        )
        made._restored = self._restored
        return made._prepare(in_thread)

    def _with_config(self, config: Mapping[str, Any]) -> Self:
        """A new trainer whose arguments are those of this one, changed by the configuration of a trial."""
        positional, given = self._given
        arguments = inspect.signature(type(self)).bind_partial(*positional, **given).arguments
        for name, parameter in inspect.signature(type(self)).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(name, {}))
        for name, value in config.items():
            before = arguments.get(name)
            if isinstance(value, Mapping) and name in ("scaling_config", "run_config"):
                value = dataclasses.replace(getattr(self, name), **value)
            elif isinstance(value, Mapping) and isinstance(before, Mapping):
                value = merged(before, value)
            arguments[name] = value
        made = type(self)(**arguments)
        if "run_config" not in config:
            made.run_config = self.run_config
        return made


def _run(trainer: BaseTrainer) -> None:
    """In the worker."""
    assert session._session is not None and session._session.data is not None
    data = session._session.data
    trainer.datasets = dict(data.datasets)
    trainer.resume_from_checkpoint = session.get_checkpoint()
    trainer.setup()
    trainer.preprocess_datasets()
    if trainer.preprocessor is not None:
        data.replace_preprocessor(trainer.preprocessor)
    trainer.training_loop()
