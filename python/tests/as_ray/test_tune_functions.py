"""Functions that are tuned under the names of Ray, as its releases write them."""

from __future__ import annotations

import pytest

from .conftest import Script

HEAD = """
import json, os
from ray import tune
from ray.air import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, session

def fit(trainable, space=None, config=None, **run):
    return tune.Tuner(trainable, param_space=space or {}, tune_config=config,
                      run_config=RunConfig(verbose=0, **run)).fit()
"""


@pytest.mark.parametrize("release", ["1.7", "2.0", "2.6"])
def test_every_way_to_report(script: Script, release: str) -> None:
    code = f"""{HEAD}
def by_session(config):
    session.report({{"score": config["a"]}})

def by_keywords(config):
    tune.report(score=config["a"])

def returns(config):
    return {{"score": config["a"]}}

def yields(config):
    for step in range(2):
        yield {{"score": config["a"] * step}}

def by_reporter(config, reporter):
    reporter(score=config["a"])

for function in (by_session, by_keywords, returns, yields, by_reporter):
    space = {{"a": tune.grid_search([1, 3, 2])}}
    grid = fit(function, space, tune.TuneConfig(metric="score", mode="max"))
    best = grid.get_best_result()
    assert best.config == best.metrics["config"] == {{"a": 3}} and len(grid) == 3, function
    assert tune.run(function, config=space, metric="score", mode="max", verbose=0).best_config == {{"a": 3}}
def number(config):
    tune.report(7)
assert list(tune.run(number, verbose=0).trial_dataframes.values())[0]["_metric"].tolist() == [7]
"""
    script(code, LOCKSTEP_AS_RAY=release)


def test_checkpoints_of_functions(script: Script) -> None:
    code = f"""{HEAD}
def newer(config):
    checkpoint = session.get_checkpoint()
    for step in range(checkpoint.to_dict()["step"] + 1 if checkpoint else 0, 4):
        session.report({{"step": step}}, checkpoint=Checkpoint.from_dict({{"step": step}}))
        if step == 1 and not checkpoint:
            raise RuntimeError("on purpose")

[result] = fit(newer, failure_config=FailureConfig(max_failures=1), checkpoint_config=CheckpointConfig(num_to_keep=2))
assert result.metrics_dataframe["step"].tolist() == [0, 1, 2, 3] and result.checkpoint.to_dict()["step"] == 3

def older(config, checkpoint_dir=None):
    start = 0
    if checkpoint_dir:
        with open(os.path.join(checkpoint_dir, "state.json")) as file:
            start = json.load(file)["step"] + 1
    for step in range(start, config["steps"]):
        with tune.checkpoint_dir(step=step) as directory:
            with open(os.path.join(directory, "state.json"), "w") as file:
                json.dump({{"step": step}}, file)
        tune.report(step=step)
        if step == 1 and not checkpoint_dir:
            raise RuntimeError("on purpose")

analysis = tune.run(older, config={{"steps": 4}}, max_failures=1, verbose=0)
[trial] = analysis.trials
assert trial.last_result["step"] == 3
for place in (trial.checkpoint.value, trial.checkpoint.dir_or_data, analysis.get_best_checkpoint(trial, "step", "max")):
    with open(os.path.join(place, "state.json")) as file:
        assert json.load(file) == {{"step": 3}}
[later] = tune.run(older, config={{"steps": 6}}, restore=trial.checkpoint.value, verbose=0).trial_dataframes.values()
assert later["step"].tolist() == [4, 5]
"""
    script(code)


def test_a_checkpoint_without_a_report_is_kept(script: Script) -> None:
    code = f"""{HEAD}
from ray.tune.result_grid import ResultGrid

def train(config):
    with tune.checkpoint_dir(step=0) as directory:
        open(os.path.join(directory, "model"), "w").close()

grid = ResultGrid(tune.run(train, verbose=0))
assert isinstance(grid[0].checkpoint, Checkpoint) and os.path.exists(os.path.join(grid[0].checkpoint, "model"))
assert grid.get_best_result().path == grid[0].path
try:
    grid.get_best_result("loss", "min")
except RuntimeError as error:
    assert "No best trial found" in str(error)
else:
    raise AssertionError
assert fit(lambda config: None)[0].checkpoint is None
"""
    script(code)


def test_trials_work_in_their_directory(script: Script) -> None:
    code = f"""{HEAD}
def train(config):
    open("here.txt", "w").close()
    session.report({{"original": os.environ["TUNE_ORIG_WORKING_DIR"]}})

[result] = fit(train)
assert os.path.exists(os.path.join(result.log_dir, "here.txt")) and result.metrics["original"] == os.getcwd()
[trial] = tune.run(train, verbose=0).trials
assert os.path.exists(os.path.join(trial.logdir, "here.txt"))
[trial] = tune.run(lambda config: {{"here": os.getcwd()}}, chdir_to_trial_dir=False, verbose=0).trials
assert trial.last_result["here"] == os.getcwd()
"""
    script(code)


def test_errors_of_trials(script: Script) -> None:
    code = f"""{HEAD}
def train(config):
    if config["a"] == 2:
        raise ValueError("on purpose")
    session.report({{"a": config["a"]}})

space = {{"a": tune.grid_search([1, 2, 3])}}
grid = fit(train, space)
assert grid.num_errors == len(grid.errors) == 1 and grid.num_terminated == 2 and "on purpose" in str(grid[1].error)
try:
    tune.run(train, config=space, verbose=0)
except tune.TuneError as error:
    assert "1 of 3 trials failed" in str(error)
else:
    raise AssertionError
trials = tune.run(train, config=space, verbose=0, raise_on_failed_trial=False).trials
assert [trial.status for trial in trials] == ["TERMINATED", "ERROR", "TERMINATED"]

def mended(config):
    return {{"a": config["a"]}}
assert tune.Tuner.restore(grid.experiment_path).fit().num_errors == 1
assert tune.Tuner.restore(grid.experiment_path, trainable=mended, restart_errored=True).fit()[1].metrics["a"] == 2
"""
    script(code)


def test_a_name_can_be_used_again(script: Script) -> None:
    code = f"""{HEAD}
places = [fit(lambda config, n=n: {{"n": n}}, name="same").experiment_path for n in range(2)]
analysis = tune.run(lambda config: {{"n": 2}}, name="same", verbose=0)
assert places == 2 * [analysis.experiment_path] and analysis.trials[0].last_result["n"] == 2
assert tune.Tuner.restore(analysis.experiment_path).get_results()[0].metrics["n"] == 2
assert len(os.listdir(os.path.dirname(analysis.experiment_path))) == 3
"""
    script(code)


def test_resources_and_parameters(script: Script) -> None:
    code = f"""{HEAD}
import ray
ray.init(num_cpus=4)

def train(config, data=None):
    session.report({{"sum": sum(data) + config["a"], "cpus": tune.get_trial_resources().required_resources["CPU"]}})

given = tune.with_parameters(train, data=[1, 2, 3])
space = {{"a": tune.grid_search([1, 2])}}
for resources, cpus in (({{"cpu": 2}}, 2), (tune.PlacementGroupFactory([{{"CPU": 1}}, {{"CPU": 0.5}}]), 1.5),
                        (lambda config: {{"cpu": config["a"] + 1}}, 3)):
    grid = fit(tune.with_resources(given, resources), space)
    assert [(result.metrics["sum"], result.metrics["cpus"]) for result in grid] == [(7, cpus), (8, cpus)], grid.errors
"""
    script(code)


def test_searchers_and_schedulers(script: Script) -> None:
    code = f"""{HEAD}
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.bayesopt import BayesOptSearch
from ray.tune.search.bohb import TuneBOHB
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.suggest.suggestion import Searcher as Older

def train(config):
    for step in range(4):
        session.report({{"score": config["a"] * step}})

class Own(Searcher):
    def __init__(self):
        super().__init__(metric="score", mode="max")
        self.ended = []
    def suggest(self, trial_id):
        return {{"a": len(self.ended)}}
    def on_trial_complete(self, trial_id, result=None, error=False):
        self.ended.append(result["score"])

own = Own()
assert fit(train, {{}}, tune.TuneConfig(search_alg=ConcurrencyLimiter(own, 1), num_samples=3)).num_terminated == 3
assert own.ended == [0, 3, 6] and Older is Searcher
space = {{"a": tune.uniform(0, 1)}}
limited = ConcurrencyLimiter(BayesOptSearch(random_search_steps=2), 2)
pairs = [(HyperOptSearch(n_initial_points=2), None), (limited, None), (BasicVariantGenerator(max_concurrent=2), "asha"),
         (Repeater(HyperOptSearch(), repeat=2), ASHAScheduler(max_t=4)),
         (TuneBOHB(), HyperBandForBOHB(max_t=4)), (None, HyperBandScheduler(max_t=4)),
         (None, MedianStoppingRule(time_attr="training_iteration", grace_period=1))]
for searcher, scheduler in pairs:
    config = tune.TuneConfig(
        metric="score", mode="max", num_samples=4, search_alg=searcher, scheduler=scheduler)
    grid = fit(train, space, config)
    assert len(grid) == 4 and not grid.errors, (searcher, scheduler, grid.errors)
try:
    HyperOptSearch(space={{"a": object()}})
except ValueError as error:
    assert "tune.uniform" in str(error)
else:
    raise AssertionError
"""
    script(code)


def test_schedulers_of_the_users(script: Script) -> None:
    code = f"""{HEAD}
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

class Third(FIFOScheduler):
    def on_trial_result(self, trial_runner, trial, result):
        return TrialScheduler.STOP if result["i"] >= 2 else super().on_trial_result(trial_runner, trial, result)

class Changed(ASHAScheduler):
    def on_trial_result(self, trial_runner, trial, result):
        return TrialScheduler.CONTINUE

def train(config):
    for i in range(9):
        session.report({{"i": i}})

assert fit(train, None, tune.TuneConfig(metric="i", mode="max", scheduler=Third()))[0].metrics["i"] == 2
try:
    fit(train, None, tune.TuneConfig(metric="i", mode="max", scheduler=Changed()))
except ValueError as error:
    assert "derive it from TrialScheduler" in str(error)
else:
    raise AssertionError
"""
    script(code)


def test_optuna_takes_its_own_spaces(script: Script) -> None:
    code = f"""{HEAD}
import optuna
from ray.tune.search.optuna import OptunaSearch

def define(trial):
    trial.suggest_float("a", 0, 1)
    return {{"b": 2}}

distributions = optuna.distributions
space = {{"a": distributions.FloatDistribution(0, 1), "b": distributions.IntDistribution(2, 2),
          "c": distributions.CategoricalDistribution(["x"])}}
for given in (define, space):
    search = OptunaSearch(given, metric="a", mode="max")
    grid = fit(lambda config: config, None, tune.TuneConfig(search_alg=search, num_samples=2))
    assert [result.config["b"] for result in grid] == [2, 2] and 0 <= grid[0].config["a"] <= 1, grid.errors
"""
    script(code)


def test_a_repeater_says_which_repetition_it_is(script: Script) -> None:
    code = f"""{HEAD}
from ray.tune.search.optuna import OptunaSearch
from ray.tune.search.repeater import Repeater, TRIAL_INDEX

for inner in (OptunaSearch(), tune.search.BasicVariantGenerator()):
    config = tune.TuneConfig(metric="x", mode="min", num_samples=4, search_alg=Repeater(inner, repeat=2))
    grid = fit(lambda config: {{"x": config["x"]}}, {{"x": tune.uniform(0, 1)}}, config)
    assert [result.config[TRIAL_INDEX] for result in grid] == [0, 1, 0, 1]
    assert grid[0].config["x"] == grid[1].config["x"] != grid[2].config["x"]
"""
    script(code)


def test_checkpoints_that_only_classes_can_make_are_refused(script: Script) -> None:
    code = f"""{HEAD}
for config in (CheckpointConfig(checkpoint_frequency=2), CheckpointConfig(checkpoint_at_end=True)):
    for kind in (ValueError, tune.TuneError):
        try:
            fit(print, checkpoint_config=config)
        except kind as error:
            assert "session.report" in str(error)
        else:
            raise AssertionError
"""
    script(code)
