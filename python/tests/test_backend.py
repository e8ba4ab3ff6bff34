"""Backends: what a restored run knows of them, and the packages that they need."""

from __future__ import annotations

import http.client
import importlib.abc
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from lockstep import Checkpoint, DataParallelTrainer, Result, RunConfig, ScalingConfig, session
from lockstep._core import LOOPBACK
from lockstep._installed import is_installed
from lockstep.backend import Backend, BackendConfig
from lockstep.errors import ConfigError


@dataclass
class Seeds(BackendConfig):
    preload: ClassVar[tuple[str, ...]] = ("colorsys", "no_such_module?")

    seed: int = 0

    def environment(self) -> dict[str, str]:
        return {"LIBRARY_SEED": str(self.seed)}


class SeedsTrainer(DataParallelTrainer):
    def __init__(self, function: Any, *, seeds_config: Seeds | None = None, **options: Any) -> None:
        super().__init__(function, backend_config=seeds_config or Seeds(), **options)

    def _default_backend(self) -> Seeds:
        return Seeds()


def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "scaling_config": ScalingConfig(num_workers=1),
        "run_config": RunConfig(storage_path=tmp_path / "runs", verbose=0),
    }


def tell(config: dict[str, Any]) -> None:
    session.report({"seed": os.environ.get("LIBRARY_SEED"), "there": "colorsys" in sys.modules})


@pytest.mark.parametrize(
    ("trainer", "option"), [(DataParallelTrainer, "backend_config"), (SeedsTrainer, "seeds_config")]
)
def test_a_restored_run_has_what_its_backend_asked_for(trainer: Any, option: str, tmp_path: Path) -> None:
    result = trainer(tell, **{option: Seeds(7)}, **settings(tmp_path)).fit()
    for _ in range(2):
        again = trainer.restore(result.path, train_loop_config={"more": 1})
        again.run_config.verbose = 0
        metrics = again.fit().metrics
        assert (metrics["seed"], metrics["there"]) == ("7", True)
    other = trainer.restore(result.path, train_loop_config={"more": 1})
    other.backend_config, other.run_config.verbose = Seeds(8), 0
    assert other.fit().metrics["seed"] == "8"


class WithStore(BackendConfig):
    def run_options(self) -> dict[str, Any]:
        return {"rendezvous": {"hosts": ["a", "b"]}}


def test_a_rank_is_told_its_place_in_the_store_that_the_run_hosts(tmp_path: Path) -> None:
    def put() -> None:
        place = session._get("put").core.begin.services["rendezvous"]
        connection = http.client.HTTPConnection(place["address"], place["port"], timeout=30)
        connection.request("PUT", f"/ranks/{place['rank']}", b"here")
        session.report({"status": connection.getresponse().status, "host": place["host"], "address": place["address"]})

    given = {**settings(tmp_path), "scaling_config": ScalingConfig(num_workers=2)}
    metrics = DataParallelTrainer(put, backend_config=WithStore(), **given).fit().metrics
    assert (metrics["status"], metrics["host"], metrics["address"]) == (200, "a", LOOPBACK)


class Counting(Backend):
    started: ClassVar[list[int]] = []

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        self.started.append(len(worker_group))


class CountingConfig(BackendConfig):
    @property
    def backend_cls(self) -> type[Backend]:
        return Counting


def test_hooks_of_this_process_are_asked_for_again(tmp_path: Path) -> None:
    result = DataParallelTrainer(tell, backend_config=CountingConfig(), **settings(tmp_path)).fit()
    assert Counting.started == [1]
    restored = DataParallelTrainer.restore(result.path)
    assert restored.fit().state == "finished", "that runs nothing"
    restored = DataParallelTrainer.restore(result.path, train_loop_config={})
    with pytest.raises(ConfigError, match=r"hooks that run in this process, Counting, .* pass the backend_config"):
        restored.fit()
    restored = DataParallelTrainer.restore(result.path, train_loop_config={}, backend_config=CountingConfig())
    restored.run_config.verbose = 0
    restored.fit()
    assert Counting.started == [1, 1]


class Apart(BackendConfig):
    def run_options(self) -> dict[str, Any]:
        return {"rendezvous": {"hosts": ["a", "b", "a"]}}


def test_hosts_that_do_not_stand_together_leave_no_directory(tmp_path: Path) -> None:
    options = {**settings(tmp_path), "scaling_config": ScalingConfig(num_workers=3)}
    with pytest.raises(ConfigError, match="are not adjacent"):
        DataParallelTrainer(tell, backend_config=Apart(), **options).fit()
    assert not list(tmp_path.glob("runs/*"))


class OwnCheckpoint(Checkpoint):
    pass


class OwnTrainer(DataParallelTrainer):
    _checkpoint_type: ClassVar[type[Checkpoint]] = OwnCheckpoint


def test_results_that_are_read_again_hold_checkpoints_of_their_trainer(tmp_path: Path) -> None:
    def train() -> None:
        session.report({}, checkpoint=Checkpoint.from_dict({"epoch": 1}))

    for trainer, kind in ((OwnTrainer, OwnCheckpoint), (DataParallelTrainer, Checkpoint)):
        result = trainer(train, **settings(tmp_path)).fit()
        assert type(result.checkpoint) is kind
        assert type(Result.from_path(result.path).checkpoint) is kind


def test_packages_that_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert is_installed("json") and is_installed("colorsys")
    assert not is_installed("no_such_module")
    (tmp_path / "some_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_installed("some_folder")
    monkeypatch.setitem(sys.modules, "made_by_hand", ModuleType("made_by_hand"))
    assert is_installed("made_by_hand")
    monkeypatch.setitem(sys.modules, "shut_out", None)  # type: ignore[arg-type]
    assert not is_installed("shut_out")

    class Block(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "tabnanny":
                raise ModuleNotFoundError(name)

    assert is_installed("tabnanny")
    monkeypatch.setattr(sys, "meta_path", [Block(), *sys.meta_path])
    assert not is_installed("tabnanny")
