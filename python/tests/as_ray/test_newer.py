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


RELEASE = "import ray\nprint(ray.__version__, lockstep.as_ray.release)"


def test_the_default_release_is_what_the_script_uses(script: Script) -> None:
    assert script(RELEASE).stdout.split() == ["2.6.0", "2.6"]
    newer = f"from ray.train import ScalingConfig\n{RELEASE}"
    assert script(newer).stdout.split() == ["2.60.0", "2.60"]
    assert script(newer, LOCKSTEP_AS_RAY="2.7").stdout.split() == ["2.7.0", "2.7"]
    assert script(newer, LOCKSTEP_AS_RAY="1").stdout.split() == ["2.60.0", "2.60"]
    assert script(f"from ray.air import session, ScalingConfig\n{newer}").stdout.split() == ["2.6.0", "2.6"]


def test_names_that_ray_train_has_today(script: Script) -> None:
    script("""
import inspect, os, tempfile
import ray.train, ray.tune
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train_func(config):
    context = ray.train.get_context()
    assert context.get_metadata() == {"owner": "me"} and context.get_storage().experiment_dir_name == "today"
    for epoch in range(3):
        place = tempfile.mkdtemp()
        open(os.path.join(place, "model.pt"), "w").write(str(epoch))
        ray.train.report(
            {"loss": epoch},
            checkpoint=ray.train.Checkpoint.from_directory(place),
            checkpoint_upload_mode=ray.train.CheckpointUploadMode.ASYNC,
            checkpoint_dir_name=f"epoch_{epoch}",
        )
        assert not os.path.exists(place)
    assert ray.train.collective.broadcast_from_rank_zero(context.get_world_rank()) == 0
    ray.train.collective.barrier()
    found = ray.train.get_all_reported_checkpoints()
    assert [each.metrics["loss"] for each in found] == [0, 1, 2]
    if config["fails"]:
        raise RuntimeError("simulated")
    return {"score": 1.5}


import ray.train.collective
seen = []


class Watch(ray.train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        seen.append(metrics[0]["loss"])

    def after_exception(self, run_context, worker_exceptions):
        seen.append(sorted(worker_exceptions))


def trainer(name, fails):
    return DataParallelTrainer(
        train_func,
        train_loop_config={"fails": fails},
        scaling_config=ray.train.ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(name=name, callbacks=[Watch()]),
        metadata={"owner": "me"},
    )


result = trainer("today", False).fit()
assert isinstance(result, ray.train.Result) and result.metrics["loss"] == 2
assert min(result.best_checkpoints, key=lambda each: each[1]["loss"])[1]["loss"] == 0
assert seen == [0, 1, 2]
result.filesystem.get_file_info(str(result.path))
""")


def test_errors_of_workers_have_a_class_of_their_own(script: Script) -> None:
    script("""
import ray.train
from ray.train.data_parallel_trainer import DataParallelTrainer

def fails():
    raise RuntimeError("simulated")

try:
    DataParallelTrainer(fails, scaling_config=ray.train.ScalingConfig(num_workers=1)).fit()
except ray.train.TrainingFailedError as error:
    assert isinstance(error, ray.train.WorkerGroupError) and not isinstance(error, ray.train.ControllerError)
    assert "simulated" in str(error.worker_failures[0])
else:
    raise AssertionError
""")


def test_a_run_inside_a_trial(script: Script) -> None:
    """Ray's quickstart of tuning a trainer today: the trial's function starts the run."""
    script("""
import random, tempfile, uuid
import ray.train
import ray.train.torch
import ray.tune
from ray.tune.integration.ray_train import TuneReportCallback


def train_fn_per_worker(train_loop_config: dict):
    with tempfile.TemporaryDirectory() as place:
        ray.train.report({"loss": train_loop_config["lr"]}, checkpoint=ray.train.Checkpoint.from_directory(place))


def train_driver_fn(config: dict):
    trainer = ray.train.torch.TorchTrainer(
        train_fn_per_worker,
        train_loop_config=config["train_loop_config"],
        scaling_config=ray.train.ScalingConfig(num_workers=config["num_workers"]),
        run_config=ray.train.RunConfig(
            name=f"train-trial_id={ray.tune.get_context().get_trial_id()}",
            callbacks=[TuneReportCallback()],
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    tuner = ray.tune.Tuner(
        train_driver_fn,
        param_space={"num_workers": 1, "train_loop_config": {"lr": ray.tune.grid_search([0.5, 0.25])}},
        run_config=ray.tune.RunConfig(name=f"example-{uuid.uuid4().hex[:6]}"),
        tune_config=ray.tune.TuneConfig(max_concurrent_trials=2),
    )
    best = tuner.fit().get_best_result(metric="loss", mode="min")
    assert best.metrics["loss"] == 0.25, best
""")


def test_validation(script: Script) -> None:
    script("""
import tempfile
import ray.train
from ray.train import CheckpointConfig, RunConfig, ScalingConfig, ValidationConfig, ValidationTaskConfig
from ray.train.torch import TorchTrainer

def validate(checkpoint, epoch, factor):
    return {"score": factor * epoch}

def train_func():
    for epoch in range(3):
        with tempfile.TemporaryDirectory() as place:
            ray.train.report(
                {"epoch": epoch},
                checkpoint=ray.train.Checkpoint.from_directory(place),
                validation=ValidationTaskConfig(fn_kwargs={"epoch": epoch}),
            )
    reported = ray.train.get_all_reported_checkpoints()
    assert [each.metrics["score"] for each in reported] == [0, -2, -4]
    assert {each.status for each in reported} == {ray.train.ReportedCheckpointStatus.VALIDATED}

trainer = TorchTrainer(
    train_func,
    validation_config=ValidationConfig(validate, task_config=ValidationTaskConfig(fn_kwargs={"factor": -2})),
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(checkpoint_config=CheckpointConfig(checkpoint_score_attribute="score")),
)
assert trainer.fit().best_checkpoints[-1][1]["epoch"] == 0
""")


def test_a_check_that_nobody_makes_is_not_waited_for(script: Script) -> None:
    script("""
import tempfile
import ray.train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

def train_func():
    with tempfile.TemporaryDirectory() as place:
        ray.train.report({"x": 1}, checkpoint=ray.train.Checkpoint.from_directory(place), validation=True)
    (reported,) = ray.train.get_all_reported_checkpoints()
    assert reported.status is ray.train.ReportedCheckpointStatus.COMMITTED

TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=1)).fit()
""")


def test_validation_of_a_base_trainer(script: Script) -> None:
    script("""
import tempfile
import ray.train
from ray.train import ValidationConfig
from ray.train.base_trainer import BaseTrainer

class Own(BaseTrainer):
    def training_loop(self):
        with tempfile.TemporaryDirectory() as place:
            ray.train.report({"x": 1}, checkpoint=ray.train.Checkpoint.from_directory(place), validation=True)

result = Own(validation_config=ValidationConfig(lambda checkpoint: {"score": 5})).fit()
assert result.best_checkpoints[0][1]["score"] == 5
""")
