"""Methods of Ray Tune's classes that programs call by hand."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lockstep import tune
from lockstep.callbacks import JsonLoggerCallback
from lockstep.errors import ConfigError
from lockstep.tune.sample import Function
from lockstep.tune.search import Searcher


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "done": self.count == 3}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}


def test_domains_say_what_they_are() -> None:
    uniform, one_of = tune.uniform(1, 2), tune.choice(["a", "b"])
    assert uniform.is_valid(1.5) and not uniform.is_valid(3) and uniform.cast("1.5") == 1.5
    assert one_of.is_valid("a") and not one_of.is_valid("c") and one_of.domain_str == "['a', 'b']"
    assert 1 <= uniform.sample(config={}, random_state=1) <= 2
    double = Function(func=lambda spec: spec.config.x * 2)
    assert double.is_valid(3) and double.domain_str == "<lambda>()" and double.is_function()
    assert double.sample(config=SimpleNamespace(config=SimpleNamespace(x=4))) == 8


def test_a_trainable_is_driven_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_STORAGE_PATH", str(tmp_path))
    counter = Counter({"a": 1})
    assert not counter.is_actor() and counter.trial_resources is None and counter.get_current_ip_pid()[1] > 1
    first = counter.train()
    assert first["training_iteration"] == 1 and first["config"] == {"a": 1} and first["time_this_iter_s"] >= 0
    path = counter.save()
    assert [each["count"] for each in counter.train_buffered(60)] == [2, 3]
    filled = counter.get_auto_filled_metrics(debug_metrics_only=True)
    assert filled["iterations_since_restore"] == 3 and "training_iteration" not in filled
    counter.delete_checkpoint(path)
    assert not Path(path).exists()


class Known(Searcher):
    def __init__(self) -> None:
        super().__init__("loss", "min")
        self.points: list[tuple[dict[str, Any], float, bool]] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": len(self.points)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        pass

    def add_evaluated_point(
        self, parameters: dict[str, Any], value: float, error: bool = False, *_: Any, **__: Any
    ) -> None:
        self.points.append((parameters, value, error))

    def get_state(self) -> dict[str, Any]:
        return {"points": self.points}

    def set_state(self, state: dict[str, Any]) -> None:
        self.points = state["points"]


def test_a_searcher_learns_from_earlier_trials_and_is_saved(tmp_path: Path) -> None:
    def trial(x: int, status: str, result: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(config={"x": x}, status=status, last_result=result)

    searcher = Known()
    trials = [trial(1, "TERMINATED", {"loss": 3}), trial(2, "ERROR", {}), trial(3, "RUNNING", {"loss": 1})]
    searcher.add_evaluated_trials(SimpleNamespace(trials=trials), "loss")
    assert searcher.points[0] == ({"x": 1}, 3, False)
    assert math.isnan(searcher.points[1][1]) and searcher.points[1][2] and len(searcher.points) == 2
    searcher.save_to_dir(str(tmp_path))
    other = Known()
    with pytest.raises(ConfigError, match="searcher-state"):
        other.restore_from_dir(str(tmp_path / "elsewhere"))
    other.restore_from_dir(str(tmp_path))
    assert other.suggest("1") == {"x": 2}
    assert not other.set_max_concurrency(3)
    with pytest.raises(NotImplementedError, match="TPESearch"):
        tune.search.TPESearch().add_evaluated_point({"x": 1}, 2)


def test_schedulers_stoppers_and_callbacks_have_their_methods(tmp_path: Path) -> None:
    asha = tune.schedulers.ASHAScheduler(max_t=7)
    asha.save(str(tmp_path / "asha"))
    other = tune.schedulers.ASHAScheduler()
    other.restore(str(tmp_path / "asha"))
    assert vars(other) == vars(asha) and not other.supports_buffered_results
    plateau = tune.stopper.ExperimentPlateauStopper("loss", top=2, std=0.1)
    assert not plateau("t", {"loss": 1}) and not plateau.has_plateaued()
    assert plateau("t", {"loss": 1}) and plateau.has_plateaued()
    assert tune.stopper.FunctionStopper.is_valid_function(fn=lambda trial, result: False)
    assert tune.Callback().get_state() is None


def test_the_json_logger_writes_the_configuration(tmp_path: Path) -> None:
    trial = SimpleNamespace(logdir=str(tmp_path), trial_id="t", config={"lr": 0.5, "path": Path("a")})
    logger = JsonLoggerCallback()
    logger.on_trial_start(0, [trial], trial)
    assert json.loads((tmp_path / "params.json").read_text())["lr"] == 0.5
    assert pickle.loads((tmp_path / "params.pkl").read_bytes()) == trial.config
    logger.on_trial_result(1, [trial], trial, {"loss": 1.0, "training_iteration": 1, "config": trial.config})
    logger.on_trial_complete(1, [trial], trial)
    assert json.loads((tmp_path / "result.json").read_text())["config"] == {"lr": 0.5, "path": repr(Path("a"))}


class Growing(Counter):
    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


def test_a_class_counts_on_from_the_checkpoint_it_is_given(tmp_path: Path) -> None:
    options: dict[str, Any] = {"verbose": 0, "storage_path": str(tmp_path)}
    first = tune.run(Growing, stop={"training_iteration": 4}, checkpoint_freq=2, **options).trials[0]
    later = tune.run(Growing, stop={"training_iteration": 7}, restore=first.checkpoint.path, **options).trials[0]
    assert later.last_result["count"] == 7 and later.last_result["training_iteration"] == 7
    by_hand = Growing({})
    by_hand.count = by_hand._iteration = 5
    path = by_hand.save(str(tmp_path / "saved"))
    last = tune.run(Growing, stop={"training_iteration": 6}, restore=path, **options)
    assert last.trials[0].last_result["count"] == 6
    assert len(last.trial_dataframes[last.trials[0].logdir]) == 1
