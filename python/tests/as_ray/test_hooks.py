"""What subclasses of trainers override, and loggers that a program drives by hand."""

from __future__ import annotations

from .conftest import Script

HEAD = """
import os, tempfile
import pytest
from ray.air import CheckpointConfig, RunConfig, ScalingConfig, session
from ray.train.base_trainer import BaseTrainer
from ray.train.data_parallel_trainer import DataParallelTrainer

TWO = ScalingConfig(num_workers=2)
"""


def test_hooks_of_data_parallel_trainers(script: Script) -> None:
    script(f"""{HEAD}
import ray

called = []

class Hooked(DataParallelTrainer):
    def setup(self):
        called.append("setup")

    def preprocess_datasets(self):
        called.append("preprocess_datasets")
        self.datasets = {{"train": self.datasets["train"].limit(4)}}

    def training_loop(self):
        called.append("before")
        super().training_loop()
        called.append("after")

def train_func():
    rows = list(session.get_dataset_shard("train").iter_rows())
    session.report({{"rows": len(rows), "size": session.get_world_size()}})

trainer = Hooked(train_func, scaling_config=TWO, datasets={{"train": ray.data.range(10)}})
assert list(trainer.datasets) == ["train"] and trainer.preprocessor is None
assert trainer.get_dataset_config().splits("train")
result = trainer.fit()
assert (result.metrics["rows"], result.metrics["size"]) == (2, 2)
assert called == ["setup", "preprocess_datasets", "before", "after"]

class Silent(DataParallelTrainer):
    def training_loop(self):
        pass

with pytest.raises(ValueError, match="super"):
    Silent(train_func).fit()
""")


def test_keys_that_a_trainer_does_not_allow(script: Script) -> None:
    script(f"""{HEAD}
class Narrow(DataParallelTrainer):
    _scaling_config_allowed_keys = ["num_workers"]

Narrow(lambda: None, scaling_config=TWO).fit()
with pytest.raises(ValueError, match="resources_per_worker"):
    Narrow(lambda: None, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={{"CPU": 1}})).fit()

class Wide(DataParallelTrainer):
    _scaling_config_allowed_keys = DataParallelTrainer._scaling_config_allowed_keys + ["other"]

Wide(lambda: None, scaling_config=TWO).fit()

class Own(BaseTrainer):
    _scaling_config_allowed_keys = ["trainer_resources"]

    def training_loop(self):
        pass

with pytest.raises(ValueError, match="num_workers"):
    Own(scaling_config=TWO).fit()
""")


def test_resources_of_a_scaling_config(script: Script) -> None:
    script("""
from ray.air import ScalingConfig

config = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2, "disk": 1}, trainer_resources={"CPU": 1})
assert (config.num_cpus_per_worker, config.num_gpus_per_worker) == (2, 0)
assert config.additional_resources_per_worker == {"disk": 1}
assert config.total_resources == {"CPU": 5, "disk": 2}
assert config.as_placement_group_factory().bundles == [{"CPU": 1}, {"CPU": 2, "disk": 1}, {"CPU": 2, "disk": 1}]
assert ScalingConfig.from_placement_group_factory(config.as_placement_group_factory()) == config
assert ScalingConfig(num_workers=1, use_gpu=True).num_gpus_per_worker == 1
""")


def test_frequencies_are_refused_by_fit(script: Script) -> None:
    script(f"""{HEAD}
from ray.tune import TuneError

for wrong in ({{"checkpoint_frequency": 2}}, {{"checkpoint_at_end": True}}):
    trainer = DataParallelTrainer(lambda: None, run_config=RunConfig(checkpoint_config=CheckpointConfig(**wrong)))
    with pytest.raises(ValueError, match=next(iter(wrong))) as caught:
        trainer.fit()
    assert isinstance(caught.value, TuneError)
""")


def test_loggers_by_hand(script: Script) -> None:
    script("""
import json, os, tempfile
import mlflow, pytest
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

class Trial:
    def __init__(self, name, config):
        self.trial_id = self.trial_name = name
        self.config = self.evaluated_params = config
        self.logdir = tempfile.mkdtemp()

    def __str__(self):
        return self.trial_name

for kind, file in ((JsonLoggerCallback, "result.json"), (CSVLoggerCallback, "progress.csv"), (TBXLoggerCallback, "")):
    logger, trial = kind(), Trial("t", {"a": 1})
    logger.setup()
    logger.on_trial_start(0, [trial], trial)
    logger.on_trial_result(1, [trial], trial, {"loss": 0.5, "training_iteration": 1})
    logger.on_trial_complete(1, [trial], trial)
    assert any(name.startswith(file or "events.out") for name in os.listdir(trial.logdir))

address = "sqlite:///" + os.path.join(tempfile.mkdtemp(), "runs.db")
callback = MLflowLoggerCallback(tracking_uri=address, experiment_name="trials", tags={"user": "me"})
callback.setup()
first, second = Trial("first", {"lr": 0.1}), Trial("second", {"lr": 0.2})
for trial in (first, second, first):
    callback.on_trial_start(0, [], trial)
callback.on_trial_result(0, [], first, {"loss": 0.5, "name": "x", "training_iteration": 3})
callback.on_trial_complete(0, [], first)
callback.on_trial_error(0, [], second)
client = mlflow.MlflowClient(address)
runs = client.search_runs([client.get_experiment_by_name("trials").experiment_id], order_by=["start_time"])
assert [(run.info.run_name, run.info.status) for run in runs] == [("first", "FINISHED"), ("second", "FAILED")]
assert [run.data.params for run in runs] == [{"lr": "0.1"}, {"lr": "0.2"}]
assert runs[0].data.metrics == {"loss": 0.5, "training_iteration": 3} and runs[0].data.tags["user"] == "me"
assert [metric.step for metric in client.get_metric_history(runs[0].info.run_id, "loss")] == [3]
with pytest.raises(ValueError, match="500"):
    MLflowLoggerCallback(tracking_uri=address, experiment_id="500").setup()
""")
