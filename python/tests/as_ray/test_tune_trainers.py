"""Classes, trainers, stoppers and callbacks in a Tuner under the names of Ray."""

from __future__ import annotations

from .conftest import Script

HEAD = """
import os
import ray
from ray import tune
from ray.air import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, session
from ray.train.base_trainer import BaseTrainer
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.tune.tuner import TuneConfig, Tuner
ray.init(num_cpus=8)

def fit(trainable, space=None, **run):
    return Tuner(trainable, param_space=space or {}, run_config=RunConfig(verbose=0, **run)).fit()
"""

CLASSES = """
class Files(tune.Trainable):
    def setup(self, config):
        self.x, self.a = 0, config["a"]
    def step(self):
        self.x += 1
        return {"score": self.x * self.a}
    def save_checkpoint(self, checkpoint_dir):
        path = os.path.join(checkpoint_dir, "model.txt")
        with open(path, "w") as file:
            file.write(str(self.x))
        return path
    def load_checkpoint(self, path):
        with open(path) as file:
            self.x = int(file.read())

class Dicts(Files):
    def save_checkpoint(self, checkpoint_dir):
        return {"x": self.x}
    def load_checkpoint(self, state):
        self.x = state["x"]
"""


def test_classes(script: Script) -> None:
    code = f"""{HEAD}{CLASSES}
for kind in (Files, Dicts):
    analysis = tune.run(kind, config={{"a": tune.grid_search([1, 2])}}, stop={{"training_iteration": 4}}, verbose=0,
                        checkpoint_freq=2, checkpoint_at_end=True, metric="score", mode="max", reuse_actors=True)
    assert analysis.best_result["score"] == 8 and analysis.best_config == {{"a": 2}}
    path = analysis.get_best_checkpoint(analysis.best_trial, metric="score", mode="max", return_path=True)
    later = tune.run(kind, config={{"a": 2}}, restore=path, stop={{"score": 10}}, verbose=0)
    assert later.trials[0].last_result["score"] == 10 and len(later.trial_dataframes[later.trials[0].logdir]) == 1
    config = CheckpointConfig(checkpoint_frequency=1, num_to_keep=1)
    [result] = fit(kind, {{"a": 3}}, stop={{"score": 9}}, checkpoint_config=config)
    assert result.metrics["score"] == 9 and result.metrics["training_iteration"] == 3
"""
    script(code)


def test_a_trainable_by_hand(script: Script) -> None:
    code = f"""{HEAD}{CLASSES}
from ray.tune.utils import validate_save_restore
for kind in (Files, Dicts):
    made = kind(config={{"a": 2}})
    results = [made.train() for _ in range(3)]
    assert [each["training_iteration"] for each in results] == [1, 2, 3] and results[2]["score"] == 6
    assert results[0]["config"] == {{"a": 2}} and results[0]["done"] is False and results[0]["time_total_s"] >= 0
    other = kind({{"a": 2}})
    other.restore(made.save())
    assert other.x == 3 and other.training_iteration == 3 and os.path.isdir(made.logdir)
    other = kind({{"a": 2}})
    other.restore_from_object(made.save_to_object())
    assert other.train()["score"] == 8 and other.iteration == 4
    assert not made.reset({{"a": 1}}) and validate_save_restore(kind, {{"a": 1}})
    made.stop()
"""
    script(code)


def test_population_based_training_and_its_replay(script: Script) -> None:
    code = f"""{HEAD}{CLASSES}
from ray.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay

scheduler = PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=2, synch=True,
                                    hyperparam_mutations={{"a": lambda: 5, "b": [1, 2]}})
analysis = tune.run(Dicts, config={{"a": tune.grid_search([1, 2, 3, 4]), "b": 1}}, scheduler=scheduler, verbose=0,
                    metric="score", mode="max", stop={{"training_iteration": 8}})
assert all(trial.last_result["training_iteration"] == 8 for trial in analysis.trials)
place = analysis.experiment_path
policies = [os.path.join(place, name) for name in os.listdir(place) if name.startswith("pbt_policy_")]
replayed = tune.run(Dicts, scheduler=PopulationBasedTrainingReplay(policies[0]), stop={{"training_iteration": 8}},
                    verbose=0)
assert replayed.trials[0].last_result["training_iteration"] == 8
"""
    script(code)


def test_the_spaces_of_trainers(script: Script) -> None:
    code = f"""{HEAD}
def train(config):
    rows = sum(1 for _ in session.get_dataset_shard("train").iter_rows()) if config.get("rows") else 0
    session.report({{"world": session.get_world_size(), "b": config["b"], "rows": rows}})

trainer = DataParallelTrainer(train, train_loop_config={{"a": 1, "b": 2}}, scaling_config=ScalingConfig(num_workers=1))
def told(space, key="world"):
    grid = fit(trainer, space)
    assert not grid.errors, grid.errors
    return [result.metrics[key] for result in grid]

assert told({{"train_loop_config": {{"b": tune.grid_search([5, 6])}}}}, "b") == [5, 6]
assert told({{"scaling_config": tune.grid_search([ScalingConfig(num_workers=n) for n in (1, 2)])}}) == [1, 2]
each = {{"CPU": tune.choice([1])}}
grid = ScalingConfig(num_workers=tune.grid_search([1, 2]), resources_per_worker=each)
assert told({{"scaling_config": grid}}) == [1, 2] == told({{"scaling_config": {{"num_workers": grid.num_workers}}}})
try:
    DataParallelTrainer(train, scaling_config=grid)
except ValueError as error:
    assert "param_space" in str(error)
else:
    raise AssertionError
one, two = (ray.data.from_items([{{"x": 1}}] * n) for n in (1, 2))
trainer = DataParallelTrainer(train, train_loop_config={{"b": 0, "rows": True}}, datasets={{"train": one}})
[trial] = tune.run(trainer.as_trainable(), config={{"datasets": {{"train": two}}}}, verbose=0).trials
assert trial.last_result["b"] == 0 and trial.last_result["rows"] == 2
"""
    script(code)


BASE = """
class Own(BaseTrainer):
    _scaling_config_allowed_keys = BaseTrainer._scaling_config_allowed_keys + ["num_workers"]

    def __init__(self, loop, custom=None, **kwargs):
        self.loop, self.custom = loop, custom
        super().__init__(**kwargs)

    def setup(self):
        self.is_set_up = True

    def training_loop(self):
        assert self.is_set_up
        self.loop(self)
"""


def test_subclasses_of_base_trainer(script: Script) -> None:
    code = f"""{HEAD}{BASE}
def loop(self):
    custom = self.custom["outer"]
    tune.report(inner=custom["inner"], fixed=custom["fixed"], workers=self.scaling_config.num_workers)

trainer = Own(loop, custom={{"outer": {{"inner": 1, "fixed": 2}}}}, scaling_config=ScalingConfig(num_workers=3),
              run_config=RunConfig(verbose=0))
space = {{"custom": {{"outer": {{"inner": tune.grid_search([5, 6])}}}}, "scaling_config": ScalingConfig(num_workers=1)}}
found = [fit(trainer, space), tune.run(trainer.as_trainable(), config=space, verbose=0).trials]
for results in ([result.metrics for result in found[0]], [trial.last_result for trial in found[1]]):
    assert [(each["inner"], each["fixed"], each["workers"]) for each in results] == [(5, 2, 1), (6, 2, 1)], results
assert trainer.fit().metrics["workers"] == 3

def goes_on(self):
    start = self.resume_from_checkpoint.to_dict()["step"] if self.resume_from_checkpoint else 0
    for step in range(start, 4):
        session.report({{"step": step}}, checkpoint=Checkpoint.from_dict({{"step": step + 1}}))
        if step == 1 and start == 0:
            raise RuntimeError("on purpose")

[result] = fit(Own(goes_on), failure_config=FailureConfig(max_failures=1))
assert result.error is None and result.metrics["step"] == 3
grid = fit(Own(goes_on))
assert grid.num_errors == 1 and "on purpose" in str(grid[0].error)
"""
    script(code)


def test_stoppers(script: Script) -> None:
    code = f"""{HEAD}{BASE}
from ray.tune import Stopper
from ray.tune.stopper import CombinedStopper, FunctionStopper, MaximumIterationStopper, TimeoutStopper
from ray.tune.stopper.trial_plateau import TrialPlateauStopper

class Mine(Stopper):
    def __call__(self, trial_id, result):
        return result["i"] >= 3
    def stop_all(self):
        return False

def train(config=None):
    for i in range(50):
        session.report({{"i": i, "flat": 1.0}})

stops = [({{"training_iteration": 2}}, 1), (Mine(), 3), (lambda trial_id, result: result["i"] >= 5, 5),
         (CombinedStopper(TimeoutStopper(60), FunctionStopper(lambda trial_id, result: result["i"] == 4)), 4)]
for stop, last in stops:
    trainer = DataParallelTrainer(train, run_config=RunConfig(verbose=0, stop=stop))
    own = Own(lambda self: train(), run_config=RunConfig(verbose=0, stop=stop))
    results = [trainer.fit(), own.fit(), fit(train, stop=stop)[0], fit(trainer, stop=stop)[0]]
    assert [result.metrics["i"] for result in results] == 4 * [last], stop
for stop, last in ((MaximumIterationStopper(4), 3), (TrialPlateauStopper("flat", num_results=2, grace_period=2), 1)):
    assert fit(train, stop=stop)[0].metrics["i"] == last
"""
    script(code)


def test_callbacks(script: Script) -> None:
    code = f"""{HEAD}
class Recorder(tune.Callback):
    def __init__(self):
        self.told = []
    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
        self.told.append(f"setup {{total_num_samples}}")
    def on_trial_start(self, iteration, trials, trial, **info):
        open(os.path.join(trial.logdir, "mine.txt"), "w").close()
        self.told.append("start")
    def on_trial_result(self, iteration, trials, trial, result, **info):
        assert result["trial_id"] == trial.trial_id and trial in trials
        self.told.append("result")
    def on_trial_save(self, iteration, trials, trial, **info):
        self.told.append("save")
    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        assert checkpoint.to_dict()["a"] == 1
        self.told.append("checkpoint")
    def on_trial_complete(self, iteration, trials, trial, **info):
        assert trial.is_finished() and os.path.exists(os.path.join(trial.logdir, "mine.txt"))
        self.told.append("complete")
    def on_trial_error(self, iteration, trials, trial, **info):
        self.told.append("error")
    def on_experiment_end(self, trials, **info):
        self.told.append("end")

def train(config):
    session.report({{"x": config["x"]}}, checkpoint=Checkpoint.from_dict({{"a": 1}}))
    if config["x"] == 2:
        raise RuntimeError("on purpose")

space = {{"x": tune.grid_search([1, 2])}}
for trainable, given in ((train, space), (DataParallelTrainer(train), {{"train_loop_config": space}})):
    recorder = Recorder()
    fit(trainable, given, callbacks=[recorder])
    told = recorder.told
    assert told[0] == "setup 2" and told[-1] == "end", told
    once, twice = ("complete", "error"), ("start", "result", "save", "checkpoint")
    assert [told.count(hook) for hook in (*once, *twice)] == [1, 1, 2, 2, 2, 2], told

class Other(tune.Callback):
    ends = 0
    def on_experiment_end(self, trials, **info):
        self.ends += 1

from ray.tune.callback import CallbackList
both = [Other(), Other()]
CallbackList(both).on_experiment_end(trials=[])
assert [each.ends for each in both] == [1, 1]
"""
    script(code)
