"""Callbacks that Ray Train 2.0 has for the older Trainer."""

from __future__ import annotations

from .conftest import Script


def test_mlflow_logs_a_run_of_the_older_trainer(script: Script) -> None:
    code = """
import mlflow
from ray import train
from ray.train import Trainer
from ray.train.callbacks import TrainingCallback
from ray.train.callbacks.logging import MLflowLoggerCallback

def loop(config):
    for i in range(2):
        train.report(loss=config["start"] - i, rank=train.world_rank())

logger = MLflowLoggerCallback("sqlite:///mlflow.db", experiment_name="old", worker_to_log=1)
assert isinstance(logger, TrainingCallback)
with Trainer(backend="torch", num_workers=2) as trainer:
    trainer.run(loop, config={"start": 5}, callbacks=[logger])
client = mlflow.MlflowClient("sqlite:///mlflow.db")
[run] = client.search_runs([client.get_experiment_by_name("old").experiment_id])
history = client.get_metric_history(run.info.run_id, "loss")
print(run.info.status, run.data.params["start"], [(m.step, m.value) for m in history], run.data.metrics["rank"])
"""
    assert script(code).stdout.splitlines()[-1] == "FINISHED 5 [(1, 5.0), (2, 4.0)] 1.0"


def test_profiler_traces_of_the_older_trainer(script: Script) -> None:
    code = """
import torch
from torch.profiler import profile
from ray import train
from ray.train import Trainer
from ray.train.callbacks import TorchTensorboardProfilerCallback
from ray.train.torch import TorchWorkerProfiler

def loop():
    profiler = TorchWorkerProfiler()
    with profile(on_trace_ready=profiler.trace_handler):
        torch.ones(3).sum()
    train.report(epoch=0, **profiler.get_and_clear_profile_traces())

callback = TorchTensorboardProfilerCallback()
with Trainer(backend="torch", num_workers=2) as trainer:
    trainer.run(loop, callbacks=[callback])
place = trainer.latest_run_dir / "pytorch_profiler"
print([trace.name for trace in callback.traces], callback.traces[0].parent == place)
"""
    names = "['rank_0.0.pt.trace.json', 'rank_1.0.pt.trace.json']"
    assert script(code).stdout.splitlines()[-1] == f"{names} True"
