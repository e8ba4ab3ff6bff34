"""``tune.run`` and what belongs to it, as scripts for Ray 1.7 have them."""

from __future__ import annotations

from .conftest import Script

OLD = {"LOCKSTEP_AS_RAY": "1.7"}


def test_the_documents_of_raysgd(script: Script) -> None:
    code = """
import os
from ray import cloudpickle, tune
from ray.util.sgd import v2 as sgd
from ray.util.sgd.v2 import Trainer
from ray.util.sgd.v2.constants import TUNE_CHECKPOINT_FILE_NAME

def report(config):
    for _ in range(config["num_epochs"]):
        sgd.report(output=config["input"])

trainable = Trainer(backend="torch", num_workers=2).to_tune_trainable(report)
analysis = tune.run(trainable, config={"num_epochs": 2, "input": tune.grid_search([1, 2, 3])}, verbose=0)
assert analysis.get_best_config(metric="output", mode="max") == {"num_epochs": 2, "input": 3}

def goes_on(config):
    saved = sgd.load_checkpoint()
    for i in range(saved["i"] + 1 if saved else 0, config["last"]):
        if i == 2 and not saved:
            raise RuntimeError("on purpose")
        sgd.save_checkpoint(i=i)
        sgd.report(i=i)

trainable = Trainer(backend="torch", num_workers=1).to_tune_trainable(goes_on)
analysis = tune.run(trainable, config={"last": 4}, max_failures=1, verbose=0)
assert list(analysis.trial_dataframes.values())[0]["i"].tolist() == [0, 1, 2, 3]
path = analysis.trials[0].checkpoint.value
with open(os.path.join(path, TUNE_CHECKPOINT_FILE_NAME), "rb") as file:
    assert cloudpickle.load(file) == {"i": 3}
later = tune.run(trainable, config={"last": 6}, restore=path, verbose=0)
assert list(later.trial_dataframes.values())[0]["i"].tolist() == [4, 5]

def fails():
    raise RuntimeError("on purpose")
try:
    tune.run(Trainer(backend="torch", num_workers=1).to_tune_trainable(fails), verbose=0)
except tune.TuneError as error:
    assert "on purpose" in str(error)
else:
    raise AssertionError
"""
    script(code, **OLD)


def test_tune_run_takes_all_arguments(script: Script) -> None:
    code = """
import os
from ray import tune
from ray.tune.logger import DEFAULT_LOGGERS, Logger, LoggerCallback, pretty_print
from ray.tune.schedulers import create_scheduler
from ray.tune.trial import Trial

class Lines(Logger):
    def _init(self):
        self.file = open(os.path.join(self.logdir, "lines.txt"), "w")
    def on_result(self, result):
        self.file.write(f"{result['loss']}\\n")
    def close(self):
        self.file.close()

class Told(LoggerCallback):
    told = []
    def log_trial_start(self, trial):
        self.told.append("start" if str(trial).startswith("name_") else str(trial))
    def log_trial_result(self, iteration, trial, result):
        self.told.append(iteration)
    def log_trial_end(self, trial, failed=False):
        self.told.append(failed)

def train(config):
    for step in range(config["steps"]):
        tune.report(loss=config["a"] + step)

analysis = tune.run(
    train, name="all", metric="loss", mode="min", stop={"training_iteration": 2}, time_budget_s=60,
    config={"steps": 4, "a": tune.grid_search([1, 2]), "b": tune.sample_from(lambda spec: spec.config.a * 2)},
    resources_per_trial={"cpu": 1, "gpu": 0}, num_samples=1, local_dir="here", search_alg=None,
    scheduler=create_scheduler("async_hyperband", grace_period=2), keep_checkpoints_num=1,
    checkpoint_score_attr="min-loss", checkpoint_freq=0, checkpoint_at_end=False, verbose=0, progress_reporter=None,
    log_to_file=True, trial_name_creator=lambda trial: "name_" + trial.trial_id,
    trial_dirname_creator=lambda trial: "place_" + trial.trial_id, sync_config=tune.SyncConfig(), export_formats=None,
    max_failures=1, fail_fast=False, server_port=None, resume=False, queue_trials=None, reuse_actors=False,
    raise_on_failed_trial=True, callbacks=[Told()], loggers=[*DEFAULT_LOGGERS, Lines], max_concurrent_trials=1,
)
assert Told.told == 2 * ["start", 1, 2, False], Told.told
trial = analysis.best_trial
assert analysis.best_config == {"steps": 4, "a": 1, "b": 2}
assert analysis.best_logdir.startswith(os.path.abspath("here/all/place_")) and trial.status == Trial.TERMINATED
with open(os.path.join(analysis.best_logdir, "lines.txt")) as file:
    assert file.read() == "1\\n2\\n"
assert {"result.json", "params.json", "progress.csv"} <= set(os.listdir(trial.logdir))
assert analysis.best_result["loss"] == 2 and analysis.results[trial.trial_id]["loss"] == 2
assert analysis.dataframe(metric="loss", mode="min")["loss"].tolist() == [1, 2]
assert analysis.results_df.loc[trial.trial_id]["config/a"] == 1 and analysis.stats()["TERMINATED"] == 2
assert analysis.best_dataframe["loss"].tolist() == [1, 2]
assert analysis.get_best_trial("loss", "max", "all").config["a"] == 2
again = tune.Analysis(analysis.experiment_path)
assert again.get_best_config("loss", "min") == analysis.best_config and len(again.get_all_configs()) == 2
assert "\\nloss: 2\\n" in pretty_print(trial.last_result)
"""
    script(code, **OLD)


def test_experiments_and_registered_names(script: Script) -> None:
    code = """
from ray import tune
from ray.tune.registry import get_trainable_cls, register_env, register_trainable

def train(config):
    for step in range(5):
        tune.report(value=config["a"] * step)

register_trainable("mine", train)
register_env("world", lambda config: config)
assert get_trainable_cls("mine") is train
[trial] = tune.run("mine", config={"a": 2}, verbose=0).trials
assert trial.last_result["value"] == 8
one = tune.Experiment("one", run=train, config={"a": tune.grid_search([1, 2])}, stop={"training_iteration": 2})
assert [trial.last_result["value"] for trial in tune.run_experiments(one, verbose=0)] == [1, 2]
spec = {"two": {"run": "mine", "stop": {"value": 3}, "config": {"a": 1}, "num_samples": 2}}
assert [trial.last_result["value"] for trial in tune.run_experiments(spec, verbose=0)] == [3, 3]
assert tune.run(one, metric="value", mode="max", verbose=0).best_config == {"a": 2}
three = tune.Experiment("three", train, config={"a": 1}, max_failures=1, trial_name_creator=lambda trial: "named")
assert [str(trial) for trial in tune.run_experiments([three], verbose=0)] == ["named"]
try:
    tune.run("nothing")
except ValueError as error:
    assert "'nothing'" in str(error) and "mine" in str(error)
else:
    raise AssertionError
"""
    script(code, **OLD)


def test_reporters(script: Script) -> None:
    code = """
from ray import tune
from ray.air import RunConfig
from ray.tune import CLIReporter, JupyterNotebookReporter
from ray.tune.experiment import Trial

def train(config):
    tune.report(loss=config["a"], other=1)
    if config["a"] == 3:
        raise RuntimeError("on purpose")

class OnlyAtTheEnd(CLIReporter):
    def should_report(self, trials, done=False):
        return done

reporter = OnlyAtTheEnd(metric_columns={"loss": "the loss"}, parameter_columns=["a"])
reporter.add_metric_column("other")
space = {"a": tune.grid_search([1, 2, 3]), "hidden": 5}
tune.run(train, config=space, progress_reporter=reporter, metric="loss", mode="min", verbose=0,
         raise_on_failed_trial=False)
print("--")
tune.Tuner(train, param_space=space, run_config=RunConfig(verbose=0, progress_reporter=JupyterNotebookReporter())).fit()

class Counts(CLIReporter):
    ended = []
    def report(self, trials, done, *sys_info):
        self.ended.append(sum(trial.status == Trial.TERMINATED for trial in trials))
tune.run(train, config={"a": 1}, progress_reporter=Counts(max_report_frequency=0), verbose=0)
assert Counts.ended[-1] == 1
"""
    first, second = script(code).stdout.split("--\n")
    assert "Number of trials: 3/3 (2 TERMINATED, 1 ERROR)" in first and first.count("== Status ==") == 1
    assert "Current best trial" in first and "with loss=1 and parameters={'a': 1" in first
    assert "| the loss | other |" in first and "hidden" not in first.split("\n+")[1]
    assert "failed: RuntimeError: on purpose" in first
    assert "| a | hidden |" in second and "loss" in second


def test_variants_without_an_experiment(script: Script) -> None:
    code = """
import random
import numpy as np
from ray import tune
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.sample import Categorical, Float, Function, Integer
from ray.tune.search.variant_generator import (
    RecursiveDependencyError, _resolve_nested_dict, count_variants, format_vars, generate_variants, grid_search)

spec = {"config": {
    "a": grid_search([1, 2]), "b": {"c": tune.uniform(0, 1)}, "d": tune.sample_from(lambda spec: spec.config.a * 2),
    "e": tune.choice([{"f": tune.randint(5, 6)}]), "g": grid_search([tune.sample_from(lambda spec: spec.config["d"])]),
    "l": [tune.choice([9])], "h": 1}}
found = list(generate_variants(spec))
configs = [each["config"] for _, each in found]
assert [(each["a"], each["d"], each["g"]) for each in configs] == [(1, 2, 2), (2, 4, 4)], configs
assert all(0 <= each["b"]["c"] < 1 and each["e"] == {"f": 5} and each["l"] == [9] for each in configs)
assert found[0][0][("config", "a")] == 1 and "a=1" in format_vars(found[0][0]) and spec["config"]["h"] == 1
assert count_variants({**spec, "num_samples": 3}) == 6
same = [next(generate_variants(spec, random_state=seed))[1] for seed in (1, 1, 2)]
assert same[0] == same[1] != same[2]
constant = [each for _, each in generate_variants(
    {"a": grid_search([1, 2]), "b": tune.uniform(0, 1)}, constant_grid_search=True)]
assert [each["a"] for each in constant] == [1, 2] and constant[0]["b"] == constant[1]["b"]
circle = {"a": tune.sample_from(lambda spec: spec.b), "b": tune.sample_from(lambda spec: spec.a)}
try:
    list(generate_variants(circle))
except RecursiveDependencyError as error:
    assert "a, b" in str(error)
else:
    raise AssertionError
assert _resolve_nested_dict({"a": {"b": 1}, "c": 2}) == {("a", "b"): 1, ("c",): 2}

generator = BasicVariantGenerator(points_to_evaluate=[{"x": 7}])
generator.add_configurations({"name": {"run": "mine", "num_samples": 2, "config": {
    "x": tune.randint(0, 5), "y": tune.sample_from(lambda spec: spec.config.x + 1)}}})
trials = []
while not generator.is_finished():
    trials += [trial] if (trial := generator.next_trial()) else []
assert generator.total_samples == 2 and trials[0].config == {"x": 7, "y": 8} and trials[1].config["x"] < 5
assert str(trials[0]).startswith("mine_") and trials[1].experiment_tag.startswith("1_x=")

assert isinstance(tune.uniform(0, 1), Float) and isinstance(tune.randint(0, 9), Integer)
assert isinstance(tune.choice([1]), Categorical) and isinstance(tune.sample_from(print), Function)
for make in (lambda: np.random.RandomState(1), lambda: np.random.default_rng(1), lambda: 1):
    for domain in (tune.loguniform(1e-4, 1), tune.choice(range(100)), tune.qrandint(0, 100, 5)):
        drawn = [domain.sample(size=3, random_state=make()) for _ in range(2)]
        assert drawn[0] == drawn[1] and len(drawn[0]) == 3 and all(map(domain.is_valid, drawn[0]))
"""
    script(code)


def test_helpers(script: Script) -> None:
    code = """
from ray.tune.utils import deep_update, flatten_dict, merge_dicts, unflatten_dict
nested = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
assert unflatten_dict(flatten_dict(nested)) == nested
assert merge_dicts(nested, {"a": {"b": 5}, "f": 6}) == {"a": {"b": 5, "c": {"d": 2}}, "e": 3, "f": 6}
assert nested["a"]["b"] == 1 and deep_update(nested, {"a": {"b": 7}})["a"]["b"] == 7
try:
    deep_update(nested, {"unknown": 1})
except ValueError as error:
    assert "'unknown'" in str(error)
else:
    raise AssertionError
"""
    script(code)


def test_loggers_of_ray_1_by_hand(script: Script) -> None:
    code = """
import json, os
from ray import tune
from ray.tune.logger import CSVLogger, JsonLogger, TBXLogger, UnifiedLogger

place = os.environ["LOCKSTEP_STORAGE_PATH"] + "/by_hand"
logger = UnifiedLogger({"a": 1}, place)
for step in range(3):
    logger.on_result({"loss": step, "training_iteration": step + 1})
logger.flush()
logger.close()
lines = [json.loads(line) for line in open(place + "/result.json")]
assert [line["loss"] for line in lines] == [0, 1, 2], lines
assert len(open(place + "/progress.csv").readlines()) == 4
assert any("tfevents" in name for name in os.listdir(place))

def train(config):
    tune.report(loss=1)

trial, = tune.run(train, loggers=[JsonLogger, CSVLogger, TBXLogger], verbose=0).trials
assert len(open(trial.logdir + "/result.json").readlines()) == 1
"""
    script(code)
