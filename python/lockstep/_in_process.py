"""``ScalingConfig(num_workers=0)``: the training function runs in this process, for debuggers and notebooks."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import _core, _pickling, _run_data, session
from lockstep.callbacks import RunInfo
from lockstep.config import CheckpointConfig
from lockstep.errors import ConfigError, StopTraining
from lockstep.result import Result
from lockstep.validation import VALIDATION_FILE

if TYPE_CHECKING:
    from lockstep.trainer import DataParallelTrainer


class _HereCore(session._NoRun):
    """Stands in for the core in this process: keeps reports and checkpoints."""

    def __init__(self, trainer: DataParallelTrainer, info: RunInfo) -> None:
        super().__init__()
        self._trainer, self._info = trainer, info
        self._begun = self._before = time.time()
        self._files: dict[str, bytes] = {}
        self._numbers = 0
        self.metrics: dict[str, Any] = {}
        self.kept: list[tuple[Any, dict[str, Any]]] = []
        """Checkpoints with their metrics, oldest first."""
        self._keeps = trainer.run_config.checkpoint_config or CheckpointConfig()
        self._log = open(info.path / "result.json", "a", encoding="utf-8")  # noqa: SIM115

    def close(self) -> None:
        self._log.close()

    def report(self, metrics: dict[str, Any] | None, contents: Any) -> bool:
        if metrics is not None:
            self.metrics = self._filled(_core.plain_metrics(metrics))
            self._log.write(json.dumps(self.metrics, default=repr) + "\n")
            self._log.flush()
        if contents is not None:
            self._save(contents)
        if metrics is None:
            return False
        for callback in self._trainer.run_config.callbacks or ():
            callback.on_result(dict(self.metrics))
        self._stops = self._stop_requested or self._is_last()
        return self._stops

    def _is_last(self) -> bool:
        run = self._trainer.run_config
        limits = run.stop if isinstance(run.stop, dict) else {}
        if any(self.metrics.get(name, -math.inf) >= limit for name, limit in limits.items()):
            return True
        return any(stop(self._info.trial_id, self.metrics) for stop in run._stop_functions())

    def _filled(self, metrics: dict[str, Any]) -> dict[str, Any]:
        now, before = time.time(), self._before
        self._before = now
        return {
            **metrics,
            "training_iteration": int(self.metrics.get("training_iteration", 0)) + 1,
            "time_this_iter_s": now - before,
            "time_total_s": now - self._begun,
            "timestamp": int(now),
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            "pid": os.getpid(),
            "hostname": self._info.hostname,
            "trial_id": self._info.trial_id,
            "config": self._info.config,
            "done": False,
        }

    def _save(self, contents: Any) -> None:
        handle = _core.Checkpoint.from_parts(contents) if isinstance(contents, _core.EncodedDict) else contents
        place = self._info.path / f"checkpoint_{self._numbers:06d}"
        self._numbers += 1
        handle.to_directory(str(place))
        for name, data in self._files.items():
            if data:
                (place / name).write_bytes(data)
        checkpoint = self._trainer._type_of_checkpoints().from_directory(place)
        self.kept.append((checkpoint, {**self.metrics, **self._validated(checkpoint)}))
        self._drop_worst()
        for callback in self._trainer.run_config.callbacks or ():
            callback.on_checkpoint(checkpoint, dict(self.metrics))

    def _validated(self, checkpoint: Any) -> dict[str, Any]:
        """What the trainer's ValidationConfig finds, at once."""
        config, asked = self._trainer._validation(), self._files.get(VALIDATION_FILE)
        if not asked or config is None:
            return {}
        from lockstep._validation import arguments, checked

        return checked(config.fn(checkpoint, **arguments(config, asked)))

    def best(self) -> list[tuple[Any, dict[str, Any]]]:
        """Worst first."""
        name, sign = self._keeps.checkpoint_score_attribute, 1 if self._keeps.checkpoint_score_order == "max" else -1

        def score(pair: tuple[Any, dict[str, Any]]) -> float:
            value = _core.number_at(pair[1], name) if name is not None else None
            return -math.inf if value is None or math.isnan(value) else sign * value

        return sorted(self.kept, key=score) if name is not None else list(self.kept)

    def _drop_worst(self) -> None:
        number = self._keeps.num_to_keep
        if not number:
            return
        stays = [*self.best()[-number:], self.kept[-1]]
        for pair in [each for each in self.kept if all(each is not other for other in stays)]:
            shutil.rmtree(str(pair[0].path), ignore_errors=True)
            self.kept = [each for each in self.kept if each is not pair]

    def checkpoint(self) -> Any:
        if self.kept:
            return self.kept[-1][0]._as_handle()
        given = self._trainer.resume_from_checkpoint
        return None if given is None else given._as_handle()

    def saved_position(self, name: str) -> None:
        return None

    def set_position(self, name: str, text: str) -> None:
        pass

    def keep_file(self, name: str, data: bytes) -> None:
        self._files[name] = data


def run_here(trainer: DataParallelTrainer) -> Result:
    """What ``fit()`` does. Errors of the function are raised as they are, so that a debugger shows where."""
    if session._session is not None:
        raise ConfigError("[trainer] num_workers=0 in a worker: its process runs a training function already")
    if trainer._restored is not None or trainer.train_loop_per_worker is None:
        raise ConfigError("[trainer] a run cannot be restored with num_workers=0; use 1 or more")
    info = _info_of(trainer)
    core = _HereCore(trainer, info)
    made = session._Session(core)
    made.run_dir, made.experiment_name = str(info.path), info.name
    made.trial_id, made.trial_name = info.trial_id, info.name
    made.checkpoint_type = trainer._type_of_checkpoints()
    preprocessor, datasets = trainer._data.dump()
    callbacks = list(trainer.run_config.callbacks or ())
    value = None
    session._session = made
    try:
        made.data = _run_data.WorkerData(core, 0, 1, datasets, preprocessor)  # type: ignore[arg-type]
        for callback in callbacks:
            callback.on_start(info)
        value = _pickling.call(trainer.train_loop_per_worker, trainer.train_loop_config)
    except StopTraining:
        pass
    finally:
        session._session = None
        core.close()
    checkpoint = core.kept[-1][0] if core.kept else None
    metrics = {**core.metrics, "done": True} if core.metrics else {}
    result = Result(
        path=info.path, metrics=metrics, checkpoint=checkpoint, best_checkpoints=core.best(), config=info.config
    )
    result._returned = (value,)
    for callback in callbacks:
        callback.on_end(result)
    return result


def _info_of(trainer: DataParallelTrainer) -> RunInfo:
    run, kind = trainer.run_config._to_core(), type(trainer).__name__
    storage = Path(run.storage_path or _core.default_storage_path())
    name = run.name or f"{kind}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    path, number = storage / name, 2
    storage.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        try:
            path.mkdir(mode=0o700)
            break
        except FileExistsError:
            if run.name:
                raise ConfigError(f"[RunConfig] there is a run {name!r} in {storage} already; choose another") from None
            path = storage / f"{name}_{number}"
            number += 1
    return RunInfo(
        name=path.name,
        path=path,
        trial_id=f"{uuid.uuid4().hex[:5]}_00000",
        experiment_id=uuid.uuid4().hex,
        config=trainer._plain_config(),
        world_size=1,
        trainer=kind,
        hostname=socket.gethostname(),
        node_ip=_core.LOOPBACK,
    )
