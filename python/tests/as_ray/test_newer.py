"""Scripts for Ray 2.7 and later, where everything that a training function uses is in ``ray.train``."""

from __future__ import annotations

from .conftest import Script

QUICKSTART = """
import os, tempfile
import ray.train
import torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def train_func(config):
    context = train.get_context()
    model = torch.nn.Linear(2, 1)
    start = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "model.pt"))
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    model = prepare_model(model)
    for epoch in range(start, config["epochs"]):
        metrics = {"epoch": epoch, "start": start, "size": context.get_world_size()}
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"model": model.module.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(directory, "model.pt"))
                checkpoint = Checkpoint.from_directory(directory)
            if epoch % 2:
                ray.train.report(metrics=metrics, checkpoint=checkpoint)
            else:
                ray.train.report(metrics, checkpoint=checkpoint)
        if epoch == 1 and start == 0:
            train.get_checkpoint()
            raise RuntimeError("once")


result = TorchTrainer(
    train_func,
    train_loop_config={"epochs": 4},
    scaling_config=ScalingConfig(num_workers=WORKERS, use_gpu=False),
    run_config=RunConfig(
        name="newer",
        failure_config=FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(num_to_keep=1),
    ),
).fit()
assert isinstance(result, ray.train.Result)
assert (result.metrics["epoch"], result.metrics["size"]) == (3, WORKERS) and result.metrics["start"] > 0
with result.checkpoint.as_directory() as directory:
    assert torch.load(os.path.join(directory, "model.pt"))["epoch"] == 3
"""


def test_a_script_of_a_newer_release(script: Script) -> None:
    script(QUICKSTART.replace("WORKERS", "1"))


def test_metrics_by_keyword_are_still_metrics(script: Script) -> None:
    script("""
from ray import train
from ray.train.data_parallel_trainer import DataParallelTrainer

def train_func():
    train.report(loss=0.5, checkpoint=3)
    train.report(metrics=1, loss=0.25, checkpoint=4)
    try:
        train.report({"loss": 1}, epoch=3)
    except ValueError as error:
        assert "it takes only metrics and checkpoint" in str(error)

metrics = DataParallelTrainer(train_func).fit().metrics
assert (metrics["loss"], metrics["checkpoint"], metrics["metrics"]) == (0.25, 4, 1)
assert metrics["training_iteration"] == 2
""")
