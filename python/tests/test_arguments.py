"""Other arguments of a trainer than plain dicts and functions: dataclasses, paths of checkpoints, functools.partial."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lockstep import (
    Callback,
    Checkpoint,
    ConfigError,
    DataParallelTrainer,
    Result,
    RunConfig,
    StorageError,
    session,
)
from lockstep._pickling import call, check_signature

Fit = Callable[..., Result]
Make = Callable[..., DataParallelTrainer]


@dataclass
class Optimizer:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass(frozen=True)
class Settings:
    epochs: int
    optimizer: Optimizer = field(default_factory=Optimizer)
    root: Path = Path("/data")
    unset: int = field(init=False)


PLAIN = {"epochs": 2, "optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}, "root": repr(Path("/data"))}


def test_a_dataclass_is_the_configuration(fit: Fit) -> None:
    class Seen(Callback):
        config: Any = None

        def on_start(self, run: Any) -> None:
            self.config = run.config

    def train_func(config: Settings) -> None:
        assert isinstance(config, Settings) and config.root == Path("/data")
        for epoch in range(config.epochs):
            session.report({"epoch": epoch, "lr": config.optimizer.lr})

    seen = Seen()
    result = fit(train_func, 1, Settings(epochs=2), callbacks=[seen])
    assert (result.metrics["epoch"], result.metrics["lr"]) == (1, 0.1)
    assert json.loads((result.path / "params.json").read_text()) == PLAIN
    assert result.config == result.metrics["config"] == seen.config == Result.from_path(result.path).config == PLAIN


def test_a_dataclass_of_a_script_is_the_same_class_in_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from dataclasses import dataclass\n"
        "from lockstep import DataParallelTrainer, session\n"
        "@dataclass\n"
        "class Settings:\n"
        "    lr: float\n"
        "    def half(self):\n"
        "        return self.lr / 2\n"
        "def train_func(config):\n"
        "    session.report({'same': isinstance(config, Settings), 'half': config.half()})\n"
        "metrics = DataParallelTrainer(train_func, train_loop_config=Settings(0.5)).fit().metrics\n"
        "assert metrics['same'] and metrics['half'] == 0.25\n"
    )
    environment = {"LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs"), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_class_is_no_configuration() -> None:
    with pytest.raises(ConfigError, match="it must be a dict, an object of a dataclass or None"):
        DataParallelTrainer(lambda config: None, train_loop_config=Settings)  # type: ignore[arg-type]


def test_a_path_to_resume_from(fit: Fit, make_trainer: Make, tmp_path: Path) -> None:
    def train_func(config: dict[str, int]) -> None:
        checkpoint = session.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, config["epochs"]):
            session.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))

    first = fit(train_func, 1, {"epochs": 2})
    assert first.checkpoint is not None and first.checkpoint.path is not None
    for place, start in (
        (first.path, 2),
        (str(first.path), 2),
        (first.checkpoint.path, 2),
        (first.path / "checkpoint_000000", 1),
        ((first.path / "checkpoint_000000").as_uri(), 1),
    ):
        trainer = make_trainer(train_func, 1, {"epochs": 3}, resume_from_checkpoint=place)
        assert isinstance(trainer.resume_from_checkpoint, Checkpoint)
        assert trainer.resume_from_checkpoint.to_dict()["epoch"] == start - 1
    assert trainer.fit().metrics["start"] == 1
    empty = fit(lambda: None, 1)
    with pytest.raises(ConfigError, match="a run that has no checkpoint"):
        make_trainer(train_func, resume_from_checkpoint=empty.path)
    with pytest.raises(StorageError, match="there is no directory"):
        make_trainer(train_func, resume_from_checkpoint=tmp_path / "missing")
    with pytest.raises(ConfigError, match="must be a Checkpoint, a path or None"):
        DataParallelTrainer.restore(first.path, resume_from_checkpoint=3, run_config=RunConfig())  # type: ignore[arg-type]


def two(scale: int, config: Any) -> Any:
    return (scale, config)


def with_default(scale: int, config: Any = "default") -> Any:
    return (scale, config)


@pytest.mark.parametrize(
    ("function", "config", "expected"),
    [
        (functools.partial(two, scale=3), {"x": 1}, (3, {"x": 1})),
        (functools.partial(two, scale=3), None, (3, {})),
        (functools.partial(functools.partial(two), scale=3), {"x": 1}, (3, {"x": 1})),
        (functools.partial(with_default, scale=3), {"x": 1}, (3, {"x": 1})),
        (functools.partial(with_default, scale=3), None, (3, "default")),
        (functools.partial(two, 3), {"x": 1}, (3, {"x": 1})),
        (functools.partial(two, config="own", scale=3), {"x": 1}, (3, "own")),
    ],
)
def test_a_partial_leaves_the_configuration_free(function: Any, config: Any, expected: Any) -> None:
    check_signature(function)
    assert call(function, config) == expected


def test_a_partial_that_cannot_be_called_is_refused() -> None:
    def three(a: int, b: int, config: Any) -> None: ...

    def keyword_only(a: int, *, config: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"2 parameters without a default \(b, config\)"):
        DataParallelTrainer(functools.partial(three, a=1))
    with pytest.raises(ConfigError, match="keyword-only parameter config"):
        DataParallelTrainer(functools.partial(keyword_only, a=1))
