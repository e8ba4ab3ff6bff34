"""Callbacks with the hooks of Ray Tune, and trainers with their own training_loop."""

from __future__ import annotations

from .conftest import Script

TRAINER = """
import ray
from ray.air import Checkpoint, FailureConfig, RunConfig, ScalingConfig, session
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.tune import Callback
from ray.tune.logger import LoggerCallback

def train(config):
    start = session.get_checkpoint().to_dict()["epoch"] + 1 if session.get_checkpoint() else 0
    for epoch in range(start, 3):
        session.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
        if config.get("fails") and session.get_attempt() < config["fails"]:
            session.get_checkpoint()
            raise ValueError("on purpose")

def run(callback, fails=0, max_failures=0):
    return DataParallelTrainer(
        train,
        train_loop_config={"fails": fails},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(callbacks=[callback], verbose=0, failure_config=FailureConfig(max_failures=max_failures)),
    ).fit()

class Recorder(Callback):
    def __init__(self):
        self.told = []

    def setup(self, **info):
        self.told.append("setup")

    def on_trial_start(self, iteration, trials, trial, **info):
        self.told.append(f"start {trial.status} {trials == [trial]}")

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.told.append(f"result {iteration} {result['epoch']} {trial.last_result is result}")

    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        self.told.append(f"checkpoint {checkpoint.to_dict()['epoch']} {trial.checkpoint is checkpoint}")

    def on_trial_restore(self, iteration, trials, trial, **info):
        self.told.append("restore")

    def on_trial_error(self, iteration, trials, trial, **info):
        self.told.append(f"error {trial.status}")

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.told.append(f"complete {trial.status}")

    def on_experiment_end(self, trials, **info):
        self.told.append("end")
"""


def test_hooks_of_tune_are_called(script: Script) -> None:
    code = f"{TRAINER}\nrecorder = Recorder()\nrun(recorder)\nprint('\\n'.join(recorder.told))"
    told = script(code).stdout.splitlines()
    assert told[:2] == ["setup", "start RUNNING True"]
    assert [line for line in told if line.startswith("result")] == [f"result {n + 1} {n} True" for n in range(3)]
    assert [line for line in told if line.startswith("checkpoint")] == [f"checkpoint {n} True" for n in range(3)]
    assert told[-2:] == ["complete TERMINATED", "end"]


def test_failures_are_told(script: Script) -> None:
    code = f"""{TRAINER}
recorder = Recorder()
run(recorder, fails=1, max_failures=1)
assert recorder.told.count("restore") == 1 and recorder.told[-2] == "complete TERMINATED", recorder.told
recorder = Recorder()
try:
    run(recorder, fails=1)
except ValueError:
    assert recorder.told[-2:] == ["error ERROR", "end"], recorder.told
else:
    raise AssertionError
"""
    script(code)


def test_a_callback_without_on_checkpoint_knows_the_checkpoint(script: Script) -> None:
    code = f"""{TRAINER}
class Saves(Callback):
    seen = []
    def on_trial_save(self, iteration, trials, trial, **info):
        self.seen.append(trial.checkpoint.to_dict()["epoch"])
run(Saves())
print(Saves.seen)
"""
    assert script(code).stdout == "[0, 1, 2]\n"


def test_loggers_are_callbacks_of_tune(script: Script) -> None:
    code = f"""{TRAINER}
assert issubclass(LoggerCallback, Callback) and isinstance(LoggerCallback(), Callback)
assert not isinstance(LoggerCallback(), Recorder) and isinstance(Recorder(), lockstep.Callback)
assert not issubclass(int, Callback)
"""
    script(code)


def test_a_base_trainer_runs_its_own_loop(script: Script) -> None:
    code = """
import os
from ray.air import Checkpoint, RunConfig, ScalingConfig, session
from ray.train.base_trainer import BaseTrainer
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.tune import Callback

class Unpicklable(Callback):
    def __init__(self):
        self.file = open(os.devnull)

class Mine(BaseTrainer):
    def __init__(self, factor, **kwargs):
        self.factor = factor
        super().__init__(**kwargs)

    def setup(self):
        self.ready = True

    def training_loop(self):
        assert self.ready and session.get_world_size() == 1
        session.report({"value": self.factor * self.scaling_config.num_workers, "pid_here": os.getpid()},
                       checkpoint=Checkpoint.from_dict({"a": 1}))

run_config = RunConfig(verbose=0, callbacks=[Unpicklable()])
trainer = Mine(3, scaling_config=ScalingConfig(num_workers=2), run_config=run_config)
result = trainer.fit()
assert result.metrics["value"] == 6 and result.metrics["pid_here"] != os.getpid()
assert result.path.name.startswith("Mine_") and result.checkpoint.to_dict()["a"] == 1
assert isinstance(trainer, BaseTrainer) and isinstance(DataParallelTrainer(print), BaseTrainer)
assert issubclass(DataParallelTrainer, BaseTrainer) and not isinstance(DataParallelTrainer(print), Mine)
assert Mine.restore(result.path).fit().metrics["value"] == 6
try:
    BaseTrainer().fit()
except NotImplementedError:
    pass
else:
    raise AssertionError
"""
    script(code)


def test_flatten_dict(script: Script) -> None:
    code = """
from ray.tune.utils import flatten_dict
assert flatten_dict({"a": {"b": {"c": 1}, "d": {}}, "e": 2}) == {"a/b/c": 1, "a/d": {}, "e": 2}
assert flatten_dict({"a": {"b": 1}}, delimiter=".") == {"a.b": 1}
assert flatten_dict({"a": {"b/c": 1}}) == {"a/b/c": 1}
try:
    flatten_dict({"a": {"b/c": 1}}, prevent_delimiter=True)
except ValueError as error:
    assert "'b/c'" in str(error)
else:
    raise AssertionError
"""
    script(code)
