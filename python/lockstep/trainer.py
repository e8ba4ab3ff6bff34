"""Runs a Python function on many workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep import _core, _pickling
from lockstep.backend import BackendConfig, hooks_class
from lockstep.callbacks import CallbackAdapter, StopWhen
from lockstep.checkpoint import Checkpoint
from lockstep.config import (
    CheckpointConfig,
    RunConfig,
    ScalingConfig,
    TrainLoopConfig,
    is_dataclass_object,
    local_path,
    plain,
    run_path,
)
from lockstep.errors import ConfigError, EngineError, StorageError, TrainingInterrupted
from lockstep.result import Result, read_dict, register_checkpoint_type

if TYPE_CHECKING:
    from typing_extensions import Self


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
    When a worker fails, all are started again (``FailureConfig``) and find the newest checkpoint with
    ``session.get_checkpoint()``.
    """

    _preload: ClassVar[tuple[str, ...]] = ("cloudpickle", "numpy?")
    """Modules that workers find imported, beside their backend's; "?" marks those that may be missing."""
    _checkpoint_type: ClassVar[type[Checkpoint]] = Checkpoint
    """What results hold."""

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
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        _pickling.check_signature(train_loop_per_worker)
        self._set_up(train_loop_per_worker, train_loop_config, backend_config, scaling_config, run_config)
        _check("metadata", metadata, (dict, type(None)), "a dict or None")
        self.resume_from_checkpoint = self._to_resume_from(resume_from_checkpoint)
        self.metadata = metadata

    def fit(self) -> Result:
        """Runs to the end. One run at a time per process.

        Raises TrainingFailedError when the run failed for good, TrainingInterrupted after Ctrl-C, SerializationError
        (before anything is started) when the function or its configuration cannot be pickled, EngineError or
        StorageError when it could not run.
        """
        self._validate()
        if self._restored is not None and self._is_finished(self._restored):
            return Result._from_outcome(_core.read_run(self._restored), checkpoint_type=self._type_of_checkpoints())
        payload = self._payload()
        kind = self._type_of_checkpoints()
        callbacks = list(self.run_config.callbacks or ())
        if callable(self.run_config.stop):
            callbacks.append(StopWhen(self.run_config.stop))
        adapters = [CallbackAdapter(callback, kind) for callback in callbacks]
        resume_from = None if self.resume_from_checkpoint is None else self.resume_from_checkpoint._as_handle()
        if hooks_class(self.backend_config) is not None:
            from lockstep.sgd.fit import fit_in_group

            outcome, interrupt = fit_in_group(self, self._options(payload), payload, adapters, resume_from)
        else:
            outcome, interrupt, _ = _core.run(
                self._options(payload), payload, adapters, resume_from, may_handle_signals()
            )
        return self._conclude(outcome, interrupt, adapters)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: TrainLoopConfig | None = None,
        *,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        resume_from_checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> Self:
        """A trainer that goes on with a run: same directory, newest good checkpoint::

            DataParallelTrainer.restore(result.path).fit()
            DataParallelTrainer.restore("digits-1").fit()  # by its name, in the default storage path

        What is not given is as it was, callbacks excepted: pass those in `run_config`, whose name and storage_path must
        be left out. ``fit()`` of a finished run returns its ``Result`` at once, unless there is a new
        `train_loop_config`. Without `train_loop_per_worker` the workers unpickle the function that the run directory
        holds, if it has the hash that ``run.json`` says. A run directory that is not yours alone is refused
        (StorageError). `resume_from_checkpoint` counts only for a run that has no checkpoint of its own yet, or whose
        own are all damaged: without it such a run does not begin anew.
        """
        place = run_path(path, "[restore] path")
        if _core.find_run(place) is None:
            raise ConfigError(
                f"[restore] {place} holds no run, and the storage path has none of that name; "
                "give the directory that Result.path names"
            )
        _core.check_owner(place)
        if run_config is not None and (run_config.name or run_config.storage_path or run_config.local_dir):
            raise ConfigError("[restore] run_config has a name or storage_path; a restored run stays in its place")
        saved = _saved_settings(place)
        trainer = cls.__new__(cls)
        if train_loop_per_worker is not None:
            _pickling.check_signature(train_loop_per_worker)
        trainer._set_up(
            train_loop_per_worker,
            train_loop_config,
            backend_config,
            scaling_config or ScalingConfig.from_settings(saved),
            run_config or RunConfig.from_settings(saved),
        )
        trainer._restored = place
        trainer.resume_from_checkpoint = cls._to_resume_from(resume_from_checkpoint)
        trainer.metadata = None
        return trainer

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether `path` holds a run, or is the name of one in the default storage path."""
        return _core.find_run(run_path(path, "[restore] path")) is not None

    def __repr__(self) -> str:
        function = getattr(self.train_loop_per_worker, "__qualname__", None) or repr(self.train_loop_per_worker)
        return f"<{type(self).__name__} of {function} on {self.scaling_config.num_workers} workers>"

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
        self.run_config.validate()
        (self.run_config.checkpoint_config or CheckpointConfig()).validate_for_function()

    def _default_backend(self) -> BackendConfig | None:
        """For subclasses: what runs without a word about it use."""
        return None

    @classmethod
    def _type_of_checkpoints(cls) -> type[Checkpoint]:
        """For subclasses whose results hold one or another."""
        return cls._checkpoint_type

    @classmethod
    def _to_resume_from(cls, given: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
        """The checkpoint that was given, the one at a path, or the newest of the run there or of that name."""
        if given is None or isinstance(given, Checkpoint):
            return given
        _check("resume_from_checkpoint", given, (str, os.PathLike), "a Checkpoint, a path or None")
        place = local_path(given, "[trainer] resume_from_checkpoint")
        if not os.path.exists(place):
            place = run_path(given, "[trainer] resume_from_checkpoint")
        kind = cls._type_of_checkpoints()
        if _core.find_run(place) is None:
            return kind.from_directory(place)
        newest = _core.read_run(place).checkpoint
        if newest is None:
            raise ConfigError(
                f"[trainer] resume_from_checkpoint is {place}, a run that has no checkpoint; leave it out"
            )
        return kind._from_handle(newest)

    def _is_finished(self, path: str) -> bool:
        return self.train_loop_config is None and read_dict(path, "run.json").get("state") == "finished"

    def _payload(self) -> bytes:
        if self._restored is None:
            assert self.train_loop_per_worker is not None
            return _pickling.dump(self.train_loop_per_worker, self.train_loop_config, self.backend_config)
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
            saved = (b"", _pickling.dump_config(None), _pickling.dump_backend(self._default_backend()))
        parts = (bytes(old) if value is None else dump(value) for (value, dump), old in zip(given, saved, strict=True))
        return _pickling.pack(*parts)

    def _options(self, payload: bytes) -> dict[str, Any]:
        run = self.run_config.to_options()
        config: Any = {} if self.train_loop_config is None else plain(self.train_loop_config)
        if self._restored is not None:
            run["storage_path"], run["name"] = os.path.split(self._restored)
            if self.train_loop_config is None:
                config = Result(path=self._restored).config
        return {
            "trainer": type(self).__name__,
            "config": config,
            "metadata": plain(self.metadata or {}),
            "scaling": self.scaling_config.to_options(),
            "run": run,
            **self._process(),
            "restore": self._restored is not None,
            "function_pkl": payload,
            "function_sha256": _sha256(payload),
        }

    def _process(self) -> dict[str, Any]:
        saved = {} if self._restored is None else _saved_settings(self._restored)
        if self.backend_config is not None or "backend" not in saved:
            return process_options(self._preload, self.backend_config or self._default_backend())
        if hooks := saved["backend"].get("backend_cls"):
            raise ConfigError(
                f"[restore] the run's backend has hooks that run in this process, {hooks}, and the run directory does "
                "not hold them: pass the backend_config that the run had"
            )
        options = {name: saved[name] for name in ("rendezvous", "replace_workers") if name in saved}
        return {**_process_options(self._preload, saved["backend"]), **options}

    def _conclude(self, outcome: _core.RunOutcome, interrupt: int, adapters: list[CallbackAdapter]) -> Result:
        config = self.train_loop_config
        result = Result._from_outcome(
            outcome,
            config if isinstance(config, dict) or config is None else plain(config),
            type(self).__name__,
            self._type_of_checkpoints(),
            function=self.train_loop_per_worker,
        )
        if result.error is not None:
            raised = next((adapter.raised for adapter in adapters if adapter.raised is not None), None)
            raise result.error from raised or result.error.__cause__
        if result.state == "interrupted":
            from lockstep._failure_message import interrupt_message
            from lockstep._interrupts import ends_uncaught

            name = signal.Signals(interrupt).name if interrupt else "a signal"
            is_kept = result.checkpoint is not None and result.checkpoint.path is not None
            message = interrupt_message(str(result.path), type(self).__name__, name, has_checkpoint=is_kept)
            raise ends_uncaught(TrainingInterrupted(message, result, interrupt))
        return result


def process_options(modules: tuple[str, ...], backend: BackendConfig | None) -> dict[str, Any]:
    """How workers come into being: as this process is now, with these modules, and what the backend needs besides."""
    if backend is None:
        return _process_options(modules, {})
    needs = {"environment": backend.environment(), "preload": list(backend.preload)}
    if hooks := hooks_class(backend):
        needs["backend_cls"] = hooks.__qualname__
    return {**_process_options(modules, needs), **backend.run_options()}


def _process_options(modules: tuple[str, ...], needs: Mapping[str, Any]) -> dict[str, Any]:
    """`needs` is what run.json keeps of the backend, of which restore() has only a pickle that workers open."""
    modules = (*modules, *needs.get("preload", ()))
    if os.environ.get("LOCKSTEP_AS_RAY"):
        modules = (*modules, "lockstep.as_ray._modules", "lockstep.as_ray._table")
    given = {name: value for name, value in os.environ.items() if _is_text(name) and _is_text(value)}
    return {
        "argv": _fork_server_command(modules),
        "env": {**needs.get("environment", {}), **given},
        "cwd": os.getcwd(),
        "python_path": [os.path.abspath(entry) for entry in sys.path],
        "backend": dict(needs),
    }


def _check(name: str, value: object, kind: type | tuple[type, ...], rule: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"[trainer] {name} is {value!r}; it must be {rule}")


def _fork_server_command(modules: tuple[str, ...]) -> list[str]:
    if not sys.executable:
        raise EngineError(
            "[trainer] sys.executable is empty, so workers have no interpreter; start this program with python"
        )
    import subprocess

    # The interpreter's own flags (-O, -W, -X ...) hold for workers as well. -P: files in the current directory must not
    # hide modules that the fork server imports; workers get the caller's sys.path.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    safe = ["-P"] if sys.version_info >= (3, 11) and "-P" not in flags else []
    return [sys.executable, *flags, *safe, "-m", "lockstep._fork_server", *modules]


def may_handle_signals() -> bool:
    """Signal handlers belong to the main thread. A signal that is ignored stays so: the core sees to that."""
    return threading.current_thread() is threading.main_thread()


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _saved_settings(path: str) -> Mapping[str, Any]:
    saved = read_dict(path, "run.json").get("config_run", {})
    parts = ("backend", "rendezvous")
    if not isinstance(saved, dict) or not all(isinstance(saved.get(name, {}), dict) for name in parts):
        raise StorageError(f"[restore] {path}/run.json is not what Lockstep writes: config_run has other types")
    return saved


def _read_function(path: str) -> bytes:
    advice = "pass train_loop_per_worker, and train_loop_config if there was one"
    try:
        payload, expected = _core.read_function(path)
    except StorageError as error:
        raise StorageError(f"[restore] the run directory holds no training function ({error}); {advice}") from error
    if expected and (found := _sha256(payload)) not in expected:
        raise StorageError(
            f"[restore] {path}/function.pkl is not the function of this run: its SHA-256 is {found}, and run.json "
            f"says {' or '.join(expected)}; it was damaged or exchanged, and is not run: {advice}"
        )
    return payload


def _sha256(payload: bytes) -> str:
    import hashlib

    return hashlib.sha256(payload).hexdigest()
