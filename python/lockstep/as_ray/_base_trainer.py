"""The base of trainers that scripts for Ray write themselves."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import lockstep
from lockstep import Checkpoint, Result, RunConfig, ScalingConfig
from lockstep.as_ray._errors import NotAvailableError


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
            for step in range(3):
                session.report({"step": step})

    result = Counter().fit()
    """

    def __init__(
        self,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if datasets or preprocessor is not None:
            raise NotAvailableError(
                "[BaseTrainer] datasets and preprocessor cannot be given: its training_loop() runs in one place; "
                "use a DataParallelTrainer, or read the data in training_loop()"
            )
        super().__init__(
            self.training_loop,
            scaling_config=scaling_config,
            run_config=run_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
        )
        self.datasets: dict[str, Any] = {}
        self.preprocessor = None

    def setup(self) -> None:
        """Runs in the worker, before ``training_loop()``."""

    def preprocess_datasets(self) -> None:
        """Never called: data sets do not exist yet."""

    def training_loop(self) -> None:
        """The training itself; ``session`` works in it. To be overridden."""
        raise NotImplementedError(f"[{type(self).__name__}] training_loop() is missing; a BaseTrainer needs one")

    def fit(self) -> Result:
        """As DataParallelTrainer.fit()."""
        if self._restored is not None:
            return super().fit()
        sent = copy.copy(self)
        sent.run_config = dataclasses.replace(self.run_config, callbacks=None)  # they stay in this process
        single: type[lockstep.DataParallelTrainer] = type(type(self).__name__, (lockstep.DataParallelTrainer,), {})

        def loop() -> None:
            sent.setup()
            sent.training_loop()

        return single(
            loop,
            scaling_config=ScalingConfig(num_workers=1),
            run_config=self.run_config,
            resume_from_checkpoint=self.resume_from_checkpoint,
            metadata=self.metadata,
        ).fit()
