"""Runs a Python function on many workers."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import _core, _pickling
from lockstep._places import is_address, place_of, run_path
from lockstep._plain import is_dataclass_object, plain
from lockstep._program import backend_needs, process_plan
from lockstep._run_data import RunData
from lockstep._validation import Validator
from lockstep.backend import BackendConfig, hooks_class
from lockstep.callbacks import CallbackAdapter, StopWhen
from lockstep.checkpoint import Checkpoint
from lockstep.config import CheckpointConfig, DataConfig, RunConfig, ScalingConfig, TrainLoopConfig
from lockstep.errors import ConfigError, StorageError, TrainingInterrupted, TrainingPreempted
from lockstep.result import Result, register_checkpoint_type
from lockstep.run_handle import RunHandle, may_claim_signals
from lockstep.validation import ValidationConfig, check

if TYPE_CHECKING:
    from typing_extensions import Self

    from lockstep._hooks import BackendHooks


class DataParallelTrainer:
    """Runs a function on ``scaling_config.num_workers`` workers at once::

        from lockstep import DataParallelTrainer, ScalingConfig, session

        def train_func(config):
            for epoch in range(config["num_epochs"]):
                session.report({"epoch": epoch, "rank": session.get_world_rank()})

        trainer = DataParallelTrainer(
            train_func, train_loop_config={"num_epochs": 3}, scaling_config=ScalingConfig(num_workers=4)
        )
        result = trainer.fit()

    The function takes the configuration, or nothing. It is pickled when ``fit()`` is called, with what it refers to.
    When a worker fails, all workers are restarted (``FailureConfig``). ``session.get_checkpoint()`` then returns the
    newest checkpoint.

    `datasets` are data sets of ``lockstep.data`` by name: ``session.get_dataset_shard("train")`` gives each worker its
    part, as `dataset_config` says. When ``fit()`` is called, the `preprocessor` is fitted on ``"train"`` and applied to
    all of them; it is stored in the checkpoints.
    """

    _preload: ClassVar[tuple[str, ...]] = ("cloudpickle", "numpy?")
    """Modules that are imported before workers start, besides their backend's; "?" marks those that may be missing."""
    _checkpoint_type: ClassVar[type[Checkpoint]] = Checkpoint
    """The type of the checkpoints in results."""
    _scaling_config_allowed_keys: ClassVar[list[str]] = [field.name for field in dataclasses.fields(ScalingConfig)]
    """The fields of ScalingConfig that a subclass uses; if it has a list of its own, others raise ValueError."""
    _has_hooks: ClassVar[bool] = True
    """Whether setup(), preprocess_datasets() and training_loop() are called in this process."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        register_checkpoint_type(cls.__name__, cls._type_of_checkpoints)

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: TrainLoopConfig | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        _pickling.check_signature(train_loop_per_worker)
        self._set_up(train_loop_per_worker, train_loop_config, backend_config, scaling_config, run_config)
        self._data = RunData(datasets or {}, dataset_config or DataConfig(), preprocessor)
        _check("metadata", metadata, (dict, type(None)), "a dict or None")
        self.resume_from_checkpoint = self._to_resume_from(resume_from_checkpoint)
        self.metadata = metadata
        check(validation_config, "trainer")
        if validation_config is not None and self.run_config.validation_config is not None:
            raise ConfigError("[trainer] validation_config is given twice: here and in run_config; give it once")
        self.validation_config = validation_config

    def fit(self) -> Result:
        """Runs to the end. Calls in several threads, and in callbacks of other runs, run side by side.

        Raises TrainingFailedError when the run failed for good, TrainingInterrupted after Ctrl-C, SerializationError
        (before anything is started) when the function or its configuration cannot be pickled, EngineError or
        StorageError when it could not run.
        """
        self._call_hooks()
        if not self._has_hooks or type(self).training_loop is DataParallelTrainer.training_loop:
            return self._run()
        self._results: list[Result] = []
        self.training_loop()
        if not self._results:
            raise ConfigError(
                f"[{type(self).__name__}] training_loop() did not call super().training_loop(), which runs the workers"
            )
        return self._results.pop()

    def _run(self) -> Result:
        if self.scaling_config.num_workers == 0:
            from lockstep._in_process import run_here

            self._validate()
            self._refuse_frequencies()
            return run_here(self)
        return self._prepare(in_thread=False)._run_here().wait()

    def start(self) -> RunHandle:
        """Starts the run in its own thread and returns its handle at once::

            handle = trainer.start()
            for metrics in handle:
                print(metrics["loss"])
            result = handle.wait()

        Callbacks and hooks are called in that thread. Raises the errors that are known before anything runs:
        ConfigError, SerializationError, StorageError. ``wait()`` raises the others.
        """
        self._call_hooks()
        return self._prepare(in_thread=True)._run_in_thread()

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: TrainLoopConfig | None = None,
        *,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        dataset_config: DataConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        preprocessor: Any = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> Self:
        """A trainer that continues a run, in the same directory and from the newest valid checkpoint::

            DataParallelTrainer.restore(result.path).fit()
            DataParallelTrainer.restore("digits-1").fit()  # by its name, in the default storage path

        Arguments that you leave out keep the run's values. Callbacks are not saved: pass them in `run_config`, without
        a name and storage_path. New `datasets` replace all of the run's data sets; its preprocessor stays unless you
        pass another. ``fit()`` of a finished run returns its ``Result`` at once, unless there is a new
        `train_loop_config`. Without `train_loop_per_worker`, workers unpickle the function in the run directory, if it
        has the hash in ``run.json``. A run directory that others own or can write is refused (StorageError).
        `resume_from_checkpoint` is used only if the run has no checkpoint yet, or if all of them are damaged; without
        it a run whose checkpoints are all damaged fails.
        """
        place = run_path(path, "[restore] path")
        if _core.find_run(place) is None:
            raise ConfigError(
                f"[restore] {place} holds no run, and the storage path has none of that name; "
                "give the directory that Result.path names"
            )
        _core.check_owner(place)
        if run_config is not None and (run_config.name or run_config.storage_path or run_config.local_dir):
            raise ConfigError(
                "[restore] run_config has a name or storage_path; leave them out: a restored run stays in its directory"
            )
        saved = _core.read_settings(place)
        trainer = cls.__new__(cls)
        if train_loop_per_worker is not None:
            _pickling.check_signature(train_loop_per_worker)
        trainer._set_up(
            train_loop_per_worker,
            train_loop_config,
            backend_config,
            scaling_config or ScalingConfig._from_core(saved.scaling),
            run_config or RunConfig._from_core(saved.run),
        )
        trainer._restored = place
        trainer._data = RunData(datasets or {}, dataset_config or DataConfig(), preprocessor)
        if not trainer._data.datasets and (dataset_config is not None or preprocessor is not None):
            raise ConfigError("[restore] dataset_config and preprocessor belong to datasets; pass those too")
        trainer.resume_from_checkpoint = cls._to_resume_from(resume_from_checkpoint)
        trainer.metadata = None
        trainer.validation_config = None
        return trainer

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether `path` holds a run, or is the name of one in the default storage path."""
        place_of(path, "[restore] path")
        if is_address(path):
            return _core.run_exists(os.fspath(path))
        return _core.find_run(run_path(path, "[restore] path")) is not None

    # ------------------------------------------------------------------ for subclasses, as in Ray

    def setup(self) -> None:
        """Called first, in the process that calls ``fit()``. Does nothing; subclasses may override it."""

    def preprocess_datasets(self) -> None:
        """Called after setup(): a subclass may change ``self.datasets``. The preprocessor is applied by the run
        itself."""

    def training_loop(self) -> None:
        """Runs the workers to the end. A subclass may do more before and after ``super().training_loop()``."""
        self._results.append(self._run())

    @property
    def datasets(self) -> dict[str, Any]:
        """The data sets by name; a new dict replaces them."""
        return dict(self._data.datasets)

    @datasets.setter
    def datasets(self, datasets: Mapping[str, Any]) -> None:
        self._data = dataclasses.replace(self._data, datasets=datasets)

    @property
    def preprocessor(self) -> Any:
        """What is fitted and applied to the data sets."""
        return self._data.preprocessor

    @preprocessor.setter
    def preprocessor(self, preprocessor: Any) -> None:
        self._data = dataclasses.replace(self._data, preprocessor=preprocessor)

    def get_dataset_config(self) -> DataConfig:
        """How the data sets are divided."""
        return self._data.config

    def as_trainable(self) -> Self:
        """What ``tune.run()`` takes: the trainer itself."""
        return self

    def __repr__(self) -> str:
        function = getattr(self.train_loop_per_worker, "__qualname__", None) or repr(self.train_loop_per_worker)
        return f"<{type(self).__name__} of {function} on {self.scaling_config._count_text()} workers>"

    # ------------------------------------------------------------------ the parts of fit()

    def _set_up(
        self,
        function: Callable[..., Any] | None,
        config: TrainLoopConfig | None,
        backend_config: BackendConfig | None,
        scaling_config: ScalingConfig | None,
        run_config: RunConfig | None,
    ) -> None:
        self.train_loop_per_worker = function
        self.train_loop_config = config
        _check("backend_config", backend_config, (BackendConfig, type(None)), "a BackendConfig or None")
        self.backend_config = backend_config
        _check("scaling_config", scaling_config, (ScalingConfig, type(None)), "a ScalingConfig or None")
        _check("run_config", run_config, (RunConfig, type(None)), "a RunConfig or None")
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self._restored: str | None = None
        self._resumes = False
        self._data = RunData()
        self._validate()

    def _validate(self) -> None:
        """The configurations can be changed until fit() is called."""
        if not is_dataclass_object(self.train_loop_config):
            rule = "a dict, an object of a dataclass or None"
            _check("train_loop_config", self.train_loop_config, (dict, type(None)), rule)
        if self.backend_config is not None:
            self.backend_config.validate()
            hooks_class(self.backend_config)
        self.scaling_config.validate()
        self._check_scaling_keys()
        self.run_config.validate()
        if "lockstep.as_ray" not in sys.modules:  # Ray refuses them when fit() is called
            self._refuse_frequencies()

    def _check_scaling_keys(self) -> None:
        allowed, default = self._scaling_config_allowed_keys, ScalingConfig()
        owner = next(kind for kind in type(self).__mro__ if "_scaling_config_allowed_keys" in vars(kind))
        if owner.__module__.partition(".")[0] == "lockstep":
            return
        fields = [field.name for field in dataclasses.fields(ScalingConfig)]
        changed = [name for name in fields if getattr(self.scaling_config, name) != getattr(default, name)]
        if wrong := [name for name in changed if name not in allowed]:
            raise ConfigError(
                f"[{type(self).__name__}] scaling_config has {', '.join(wrong)}, but this trainer takes only "
                f"{', '.join(allowed)}"
            )

    def _call_hooks(self) -> None:
        if self._has_hooks:
            self.setup()
            self.preprocess_datasets()

    def _refuse_frequencies(self) -> None:
        (self.run_config.checkpoint_config or CheckpointConfig()).validate_for_function()

    def _default_backend(self) -> BackendConfig | None:
        """For subclasses: the backend of runs that did not store one."""
        return None

    @classmethod
    def _type_of_checkpoints(cls) -> type[Checkpoint]:
        """The type of the checkpoints in results; subclasses may choose it late."""
        return cls._checkpoint_type

    @classmethod
    def _to_resume_from(cls, given: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
        """The checkpoint that was given, the one at a path, or the newest of the run there or of that name."""
        if given is None or isinstance(given, Checkpoint):
            return given
        _check("resume_from_checkpoint", given, (str, os.PathLike), "a Checkpoint, a path or None")
        kind = cls._type_of_checkpoints()
        place = place_of(given, "[trainer] resume_from_checkpoint")
        if is_address(given) and not _core.run_exists(os.fspath(given)):
            return kind.from_uri(os.fspath(given))
        if not os.path.exists(place) or is_address(given):
            place = run_path(given, "[trainer] resume_from_checkpoint")
        if _core.find_run(place) is None:
            return kind.from_directory(place)
        newest = _core.read_run(place).checkpoint
        if newest is None:
            raise ConfigError(
                f"[trainer] resume_from_checkpoint is {place}, a run that has no checkpoint; leave it out"
            )
        return kind._from_handle(newest)

    def _prepare(self, in_thread: bool) -> RunHandle:
        self._validate()
        self._refuse_frequencies()
        if self.scaling_config.num_workers == 0:
            raise ConfigError("[trainer] num_workers is 0, which runs in this process: call fit(), or use 1 or more")
        if self._restored is None or self._resumes:
            self._restored = _core.run_to_resume(self.run_config._to_core())
            self._resumes = self._restored is not None
        if self._restored is not None and self._is_finished(self._restored):
            kind = self._type_of_checkpoints()
            finished = _core.Run.finished(_core.read_run(self._restored))
            return RunHandle(finished, lambda outcome, _: Result._from_outcome(outcome, checkpoint_type=kind))
        function = self._function()
        adapters, hooks = self._adapters(), self._hooks()
        claims = not in_thread and may_claim_signals()
        validation = self._validation()
        if validation is not None:
            self._check_place_of_validation()
        validator = None if validation is None else Validator(validation, self.run_config.verbose)
        if validator is not None:
            adapters.append(CallbackAdapter(validator, self._type_of_checkpoints()))
        run = _core.Run(
            self._plan(),
            function,
            adapters,
            hooks,
            claims_signals=claims,
            observed=in_thread,
            validations=validator,
        )
        return RunHandle(run, partial(self._conclude, adapters, hooks))

    def _adapters(self) -> list[CallbackAdapter]:
        callbacks = list(self.run_config.callbacks or ())
        callbacks += [StopWhen(stop) for stop in self.run_config._stop_functions()]
        return [CallbackAdapter(callback, self._type_of_checkpoints()) for callback in callbacks]

    def _check_place_of_validation(self) -> None:
        run, restored = self.run_config, self._restored
        place = run.storage_path or run.local_dir or _core.default_storage_path()
        if is_address(place if restored is None else _core.address_of(restored) or ""):
            raise ConfigError(
                "[trainer] validation_config does not work with a storage_path in an object store: manifests there are "
                "not replaced; use a directory"
            )

    def _validation(self) -> ValidationConfig | None:
        return self.validation_config or self.run_config.validation_config

    def _hooks(self) -> BackendHooks | None:
        kind = hooks_class(self.backend_config)
        if kind is None or self.backend_config is None:
            return None
        from lockstep._hooks import BackendHooks

        return BackendHooks(kind(), self.backend_config, self.scaling_config._least_and_most()[1])

    def _is_finished(self, path: str) -> bool:
        """Whether nothing is left to do. A script that is started again passes its configuration again."""
        if _core.RunView.read(path).state != "finished":
            return False
        if not self._resumes:
            return self.train_loop_config is None
        return bool(self._plain_config() == Result(path=path).config)

    def _plain_config(self) -> Any:
        return {} if self.train_loop_config is None else plain(self.train_loop_config)

    def _function(self) -> _core.Function:
        payload = self._payload()
        return _core.Function(payload, payload, _sha256(payload))

    def _payload(self) -> bytes:
        if self._restored is None or self._resumes:
            assert self.train_loop_per_worker is not None
            function, config = self.train_loop_per_worker, self.train_loop_config
            return _pickling.dump(function, config, self.backend_config, *self._data.dump())
        given: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
            (self.train_loop_per_worker, _pickling.dump_function),
            (self.train_loop_config, _pickling.dump_config),
            (self.backend_config, _pickling.dump_backend),
        )
        try:
            saved: Sequence[bytes | memoryview] = _pickling.unpack(_read_function(self._restored))
        except (StorageError, ConfigError):
            config_is_known = self.train_loop_config is not None or not Result(path=self._restored).config
            if self.train_loop_per_worker is None or not config_is_known:
                raise
            saved = (b"", _pickling.dump_config(None), _pickling.dump_backend(self._default_backend()), b"", b"")
        *olds, preprocessor, datasets = map(bytes, saved)
        new = [old if value is None else dump(value) for (value, dump), old in zip(given, olds, strict=True)]
        data = self._data.dump(preprocessor) if self._data.datasets else (preprocessor, datasets)
        return _pickling.pack(*new, *data)

    def _plan(self) -> _core.RunPlan:
        modules = (*self._preload, "lockstep.data?") if self._data.datasets else self._preload
        plan = process_plan(modules, self._needs())
        plan.trainer = type(self).__name__
        plan.scaling = self.scaling_config._to_core()
        plan.metadata = plain(self.metadata or {})
        plan.config = self._plain_config()
        if self.resume_from_checkpoint is not None:
            plan.resume_from = self.resume_from_checkpoint._as_handle()
        if self._restored is None:
            plan.run = self.run_config._to_core()
        else:
            storage_path, name = os.path.split(self._restored)
            plan.run = self.run_config._to_core(storage_path=storage_path, name=name, resume="never")
            plan.restore = True
            if self.train_loop_config is None and not self._resumes:
                plan.config = Result(path=self._restored).config
        return plan

    def _needs(self) -> _core.BackendNeeds:
        keeps = self._restored is not None and not self._resumes
        saved = _core.read_settings(self._restored).backend if keeps and self._restored is not None else None
        if self.backend_config is not None or saved is None:
            return backend_needs(self.backend_config or self._default_backend())
        if saved.backend_cls:
            raise ConfigError(
                f"[restore] the run's backend has hooks that run in this process, {saved.backend_cls}, and the run "
                "directory does not hold them: pass the backend_config that the run had"
            )
        return saved

    def _conclude(
        self,
        adapters: list[CallbackAdapter],
        hooks: BackendHooks | None,
        outcome: _core.RunOutcome,
        interrupt: int,
    ) -> Result | BaseException:
        """The result of the run, or what ``fit()`` raises."""
        if hooks is not None and (error := hooks.shutdown_error) is not None:
            warnings.warn(
                f"[backend] {hooks.name} raised {type(error).__name__}: {error}", RuntimeWarning, stacklevel=3
            )
        config = self.train_loop_config
        result = Result._from_outcome(
            outcome,
            config if isinstance(config, dict) or config is None else plain(config),
            type(self).__name__,
            self._type_of_checkpoints(),
            function=self.train_loop_per_worker,
        )
        raised = next((adapter.raised for adapter in adapters if adapter.raised is not None), None)
        if isinstance(raised, KeyboardInterrupt) and result.state != "interrupted":
            return _caused(raised, result.error)  # too late to end the run
        if result.error is not None:
            last = result.failures[-1].kind if result.failures else ""
            if raised is None and hooks is not None and last == "callback":
                raised = hooks.raised
            return _caused(result.error, raised or result.error.__cause__)
        if result.state in ("interrupted", "preempted"):
            from lockstep._failure_message import interrupt_message, preemption_message
            from lockstep._interrupts import ends_uncaught

            if isinstance(raised, KeyboardInterrupt):  # it may have come before the signal itself
                interrupt = interrupt or getattr(raised, "signal", signal.SIGINT)
            name = signal.Signals(interrupt).name if interrupt else "a signal"
            is_kept = result.checkpoint is not None and result.checkpoint.path is not None
            if result.state == "preempted":
                message = preemption_message(str(result.path), type(self).__name__, has_checkpoint=is_kept)
                return _caused(ends_uncaught(TrainingPreempted(message, result, interrupt)), raised)
            message = interrupt_message(str(result.path), type(self).__name__, name, has_checkpoint=is_kept)
            return _caused(ends_uncaught(TrainingInterrupted(message, result, interrupt)), raised)
        return result


def _check(name: str, value: object, kind: type | tuple[type, ...], rule: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"[trainer] {name} is {value!r}; it must be {rule}")


def _caused(error: BaseException, cause: BaseException | None) -> BaseException:
    error.__cause__ = cause
    return error


def _read_function(path: str) -> bytes:
    advice = "pass train_loop_per_worker, and train_loop_config if there was one"
    try:
        payload, expected = _core.read_function(path)
    except StorageError as error:
        raise StorageError(f"[restore] the run directory holds no training function ({error}); {advice}") from error
    if expected and (found := _sha256(payload)) not in expected:
        raise StorageError(
            f"[restore] {path}/function.pkl is not the function of this run: its SHA-256 is {found}, but run.json "
            f"has {' or '.join(expected)}. The file was damaged or replaced, so it is not used; {advice}"
        )
    return payload


def _sha256(payload: bytes) -> str:
    import hashlib

    return hashlib.sha256(payload).hexdigest()
