"""Callbacks with the interface of Ray Tune, and the few other names of it that scripts without tuning need."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lockstep
from lockstep import _core
from lockstep._nested import leaves
from lockstep.callbacks import RunInfo, Trial
from lockstep.errors import LockstepError
from lockstep.result import AUTOFILLED_KEYS

if TYPE_CHECKING:
    from lockstep.checkpoint import Checkpoint
    from lockstep.errors import Failure
    from lockstep.result import Result

TuneError = LockstepError
"""Every error of Lockstep is a TuneError, so scripts that catch it work."""

AUTO_RESULT_KEYS = tuple(sorted(key for key in AUTOFILLED_KEYS if not key.startswith("_")))
DEFAULT_RESULTS_DIR = _core.default_storage_path()


class _AnyCallback(type):
    """Makes every callback of Lockstep an instance of Tune's Callback, as loggers are in Ray."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, lockstep.Callback) if cls is Callback else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, lockstep.Callback) if cls is Callback else super().__subclasscheck__(subclass)


class Callback(lockstep.Callback, metaclass=_AnyCallback):
    """A callback with the hooks of Ray Tune; a run is an experiment of one trial::

    class Printer(Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            print(result["loss"])
    """

    _trial: Trial
    _iteration: int = 0

    def setup(self, **info: Any) -> None:
        """Called before all other hooks."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The run starts."""

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The workers were restarted after a failure."""

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """``trial.checkpoint`` was committed."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Rank 0 reported."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The run finished."""

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """An attempt failed and is retried."""

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The run failed, and is not retried."""

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Before each result."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """After each result."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Called after all other hooks."""

    # ------------------------------------------------------------------ from Lockstep's hooks to Tune's

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "on_checkpoint" in cls.__dict__:  # both have a hook of that name
            hook = cls.__dict__["on_checkpoint"]
            cls.on_checkpoint = _of_two_meanings(hook)  # type: ignore[method-assign]
            cls.on_trial_checkpoint = hook

    on_trial_checkpoint: Callable[..., Any] | None = None
    """Tune's on_checkpoint of a subclass, which experiments call."""

    def on_start(self, run: RunInfo) -> None:
        self._iteration = 0
        self._trial = Trial(run.trial_id, run.config, str(run.path), run.trainer or run.name, status="RUNNING")
        self.setup(stop=None, num_samples=1, total_num_samples=1)
        self._tell("on_trial_start")

    def on_attempt_started(self, attempt: int) -> None:
        if attempt > 0:
            self._tell("on_trial_restore")

    def on_result(self, metrics: dict[str, Any]) -> None:
        self._iteration = int(metrics.get("training_iteration") or 0)
        self.on_step_begin(iteration=self._iteration, trials=[self._trial])
        self._trial.last_result = metrics
        self._tell("on_trial_result", result=metrics)
        self.on_step_end(iteration=self._iteration, trials=[self._trial])

    def on_checkpoint(self, checkpoint: Checkpoint, metrics: dict[str, Any]) -> None:
        self._trial.checkpoint = checkpoint
        self._tell("on_trial_save")

    def on_attempt_failed(self, failures: list[Failure], again: bool) -> None:
        if again:
            self._tell("on_trial_recover")

    def on_end(self, result: Result) -> None:
        trial: Trial | None = self.__dict__.get("_trial")
        if trial is None:  # another callback raised in on_start before this one was called
            return
        trial.status = "TERMINATED" if result.error is None else "ERROR"
        self._tell("on_trial_complete" if result.error is None else "on_trial_error")
        self.on_experiment_end(trials=[trial])

    def _tell(self, hook: str, **more: Any) -> None:
        getattr(self, hook)(iteration=self._iteration, trials=[self._trial], trial=self._trial, **more)


def _of_two_meanings(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Tune's ``on_checkpoint(iteration, trials, trial, checkpoint)``, which can also be called with Lockstep's
    arguments."""

    @functools.wraps(hook)
    def on_checkpoint(self: Callback, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 2 or kwargs:
            return hook(self, *args, **kwargs)
        Callback.on_checkpoint(self, *args)
        trial = self._trial
        return hook(self, iteration=self._iteration, trials=[trial], trial=trial, checkpoint=args[0])

    return on_checkpoint


class CallbackList:
    """Several callbacks as one."""

    def __init__(self, callbacks: list[Any]) -> None:
        self._callbacks = list(callbacks)

    def __getattr__(self, hook: str) -> Callable[..., None]:
        if hook != "setup" and not hook.startswith("on_"):
            raise AttributeError(hook)

        def call(*args: Any, **info: Any) -> None:
            for each in self._callbacks:
                getattr(each, hook)(*args, **info)

        return call


def flatten_dict(dt: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False) -> dict[str, Any]:
    """Nested dicts as one, with joined keys.

    >>> flatten_dict({"loss": {"train": 1, "test": 2}})
    {'loss/train': 1, 'loss/test': 2}
    """
    if prevent_delimiter:
        _refuse_delimiter(dt, delimiter)
    return dict(leaves(dt, delimiter))


def _refuse_delimiter(values: Mapping[str, Any], delimiter: str) -> None:
    for key, value in values.items():
        if delimiter in key:
            raise ValueError(f"[flatten_dict] the key {key!r} holds the delimiter {delimiter!r}")
        if isinstance(value, Mapping):
            _refuse_delimiter(value, delimiter)
