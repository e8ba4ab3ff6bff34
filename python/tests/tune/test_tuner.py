"""Experiments of functions, classes and trainers, from the constructor to the results."""

import json
import math
import os
import signal
import sqlite3

import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    session,
    tune,
)
from lockstep.tune import TuneConfig, Tuner


def quick(tmp_path, **more):
    return RunConfig(name="experiment", storage_path=tmp_path, verbose=0, **more)


def square(config):
    return {"loss": (config["x"] - 1) ** 2}


def test_a_function_that_returns_its_metrics(tmp_path):
    grid = Tuner(
        square,
        param_space={"x": tune.uniform(-5, 5)},
        tune_config=TuneConfig(num_samples=20, metric="loss", mode="min", seed=3),
        run_config=quick(tmp_path),
    ).fit()
    assert len(grid) == 20
    assert grid.num_terminated == 20 and grid.num_errors == 0 and grid.errors == []
    best = grid.get_best_result()
    assert best.metrics["loss"] == min(result.metrics["loss"] for result in grid)
    assert best.metrics["loss"] == (best.config["x"] - 1) ** 2
    assert grid.experiment_path == str(tmp_path / "experiment")
    frame = grid.get_dataframe()
    assert list(frame["config/x"]) == [result.config["x"] for result in grid]


def test_the_same_seed_gives_the_same_configurations(tmp_path):
    def configs(name):
        config = TuneConfig(num_samples=6, seed=11)
        run = RunConfig(name=name, storage_path=tmp_path, verbose=0)
        grid = Tuner(square, param_space={"x": tune.uniform(0, 1)}, tune_config=config, run_config=run).fit()
        return [result.config for result in grid]

    assert configs("one") == configs("two")


def test_a_function_that_reports_several_times(tmp_path):
    def train(config):
        for step in range(config["steps"]):
            session.report({"step": step})

    grid = Tuner(train, param_space={"steps": tune.grid_search([1, 3, 5])}, run_config=quick(tmp_path)).fit()
    assert [result.metrics["step"] for result in grid] == [0, 2, 4]
    assert [result.metrics["training_iteration"] for result in grid] == [1, 3, 5]
    assert [len(result.metrics_dataframe) for result in grid] == [1, 3, 5]
    assert list(grid[2].metrics_dataframe["step"]) == [0, 1, 2, 3, 4]


def test_a_generator_and_a_function_without_arguments(tmp_path):
    def train(config):
        yield {"a": 1}
        yield {"a": 2}

    grid = Tuner(train, run_config=quick(tmp_path)).fit()
    assert grid[0].metrics["a"] == 2 and grid[0].metrics["training_iteration"] == 2
    run = RunConfig(name="other", storage_path=tmp_path, verbose=0)
    assert Tuner(lambda: {"a": 3}, run_config=run).fit()[0].metrics["a"] == 3


def test_the_directory_of_a_trial_looks_like_a_run(tmp_path):
    grid = Tuner(square, param_space={"x": 2}, run_config=quick(tmp_path)).fit()
    place = grid[0].path
    assert json.loads((place / "params.json").read_text()) == {"x": 2}
    row = json.loads((place / "result.json").read_text())
    assert row["loss"] == 1 and row["done"] is True and row["config"] == {"x": 2}
    assert (place / "progress.csv").exists()
    assert json.loads((place / "run.json").read_text())["state"] == "finished"


def test_the_database_can_be_read_with_sqlite(tmp_path):
    Tuner(square, param_space={"x": tune.grid_search([1, 2])}, run_config=quick(tmp_path)).fit()
    with sqlite3.connect(tmp_path / "experiment" / "experiment.sqlite") as database:
        rows = database.execute("select number, state, config from trials order by number").fetchall()
    assert [(number, state, json.loads(config)) for number, state, config in rows] == [
        (0, "terminated", {"x": 1}),
        (1, "terminated", {"x": 2}),
    ]


class Counter(tune.Trainable):
    def setup(self, config):
        self.count = config.get("start", 0)

    def step(self):
        self.count += 1
        return {"count": self.count, "done": self.count >= self.config["end"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"count": self.count}

    def load_checkpoint(self, checkpoint):
        self.count = checkpoint["count"]


def test_a_class(tmp_path):
    from lockstep import CheckpointConfig

    grid = Tuner(
        Counter,
        param_space={"end": tune.grid_search([3, 5])},
        run_config=quick(tmp_path, checkpoint_config=CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)),
    ).fit()
    assert [result.metrics["count"] for result in grid] == [3, 5]
    assert [result.checkpoint.to_dict()["count"] for result in grid] == [3, 5]


class Plain:
    """Not derived from Trainable."""

    def setup(self, config):
        self.steps, self.limit = 0, config["limit"]

    def step(self):
        self.steps += 1
        return {"steps": self.steps, "done": self.steps == self.limit}

    def save_checkpoint(self, checkpoint_dir):
        return {"steps": self.steps}

    def load_checkpoint(self, checkpoint):
        self.steps = checkpoint["steps"]


class WithConstructor(Plain):
    def __init__(self, config):
        self.config = config
        self.setup(config)


class WithoutArguments(Plain):
    def __init__(self):
        self.limit = None


class OnlySteps:
    def step(self):
        return {"steps": 2, "done": True}


@pytest.mark.parametrize("kind", [Plain, WithConstructor, WithoutArguments, OnlySteps])
def test_a_class_that_is_not_derived(tmp_path, kind):
    run = quick(tmp_path, checkpoint_config=CheckpointConfig(checkpoint_at_end=True))
    grid = Tuner(kind, param_space={"limit": 2}, tune_config=TuneConfig(num_samples=2), run_config=run).fit()
    assert grid.num_errors == 0, grid.errors
    assert [result.metrics["steps"] for result in grid] == [2, 2]
    if kind is not OnlySteps:
        assert grid[0].checkpoint.to_dict()["steps"] == 2


def test_a_class_is_stopped_by_a_limit(tmp_path):
    grid = Tuner(Counter, param_space={"end": 100}, run_config=quick(tmp_path, stop={"training_iteration": 4})).fit()
    assert grid[0].metrics["count"] == 4
    assert grid.num_terminated == 1


def train_workers(config):
    for step in range(3):
        checkpoint = Checkpoint.from_dict({"step": step}) if config.get("save") else None
        session.report({"loss": config["lr"] * step, "size": session.get_world_size()}, checkpoint=checkpoint)


def test_a_trainer(tmp_path):
    trainer = DataParallelTrainer(
        train_workers, train_loop_config={"save": True, "lr": 0}, scaling_config=ScalingConfig(num_workers=2)
    )
    grid = Tuner(
        trainer,
        param_space={"train_loop_config": {"lr": tune.grid_search([1.0, 2.0])}},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=quick(tmp_path),
    ).fit()
    assert [result.metrics["loss"] for result in grid] == [2.0, 4.0]
    assert [result.metrics["size"] for result in grid] == [2, 2]
    best = grid.get_best_result()
    assert best.config == {"train_loop_config": {"lr": 1.0}}
    assert best.checkpoint.to_dict()["step"] == 2
    assert (best.path / "logs").is_dir()
    assert best.path.parent == tmp_path / "experiment"


def test_a_trainer_with_different_numbers_of_workers(tmp_path):
    grid = Tuner(
        DataParallelTrainer(train_workers, train_loop_config={"lr": 1}),
        param_space={"scaling_config": {"num_workers": tune.grid_search([1, 2, 3])}},
        run_config=quick(tmp_path),
    ).fit()
    assert [result.metrics["size"] for result in grid] == [1, 2, 3]


def test_a_trainer_under_asha(tmp_path):
    def train(config):
        for step in range(9):
            session.report({"loss": config["x"] / (step + 1)})

    grid = Tuner(
        DataParallelTrainer(train),
        param_space={"train_loop_config": {"x": tune.grid_search([1, 2, 3, 4, 5, 6])}},
        tune_config=TuneConfig(
            metric="loss",
            mode="min",
            max_concurrent_trials=1,
            scheduler=tune.schedulers.ASHAScheduler(max_t=9, reduction_factor=3),
        ),
        run_config=quick(tmp_path),
    ).fit()
    assert [result.metrics["training_iteration"] for result in grid] == [9, 1, 1, 1, 1, 1]
    assert grid.get_best_result().config == {"train_loop_config": {"x": 1}}


def failing(config):
    session.report({"x": config["x"]})
    if config["x"] == 1:
        raise ValueError("x is 1")
    if config["x"] == 2:
        os._exit(7)
    if config["x"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    session.report({"x": config["x"]})


@pytest.mark.parametrize("reuse", [True, False])
def test_a_failed_trial_harms_no_other(tmp_path, reuse):
    grid = Tuner(
        failing,
        param_space={"x": tune.grid_search([0, 1, 2, 3, 4, 5])},
        tune_config=TuneConfig(reuse_workers=reuse),
        run_config=quick(tmp_path),
    ).fit()
    assert grid.num_errors == 3 and grid.num_terminated == 3
    assert [result.error is not None for result in grid] == [False, True, True, True, False, False]
    assert "x is 1" in str(grid[1].error)
    assert "7" in str(grid[2].error)
    assert "KILL" in str(grid[3].error)
    assert [result.metrics["training_iteration"] for result in grid] == [2, 1, 1, 1, 2, 2]


def test_a_failed_trial_of_a_trainer_harms_no_other(tmp_path):
    grid = Tuner(
        DataParallelTrainer(failing),
        param_space={"train_loop_config": {"x": tune.grid_search([0, 1, 2, 4])}},
        run_config=quick(tmp_path),
    ).fit()
    assert [result.error is not None for result in grid] == [False, True, True, False]
    assert "x is 1" in str(grid[1].error)


def test_a_trial_is_tried_again_from_its_checkpoint(tmp_path):
    def train(config):
        checkpoint = session.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, 4):
            session.report({"step": step, "first": first}, checkpoint=Checkpoint.from_dict({"step": step}))
            if step == 1 and first == 0:
                raise RuntimeError("once")

    for trainable in (train, DataParallelTrainer(train)):
        name = type(trainable).__name__
        run = RunConfig(name=name, storage_path=tmp_path, verbose=0, failure_config=FailureConfig(max_failures=1))
        grid = Tuner(trainable, run_config=run).fit()
        assert grid.num_errors == 0
        assert grid[0].metrics["first"] == 2 and grid[0].metrics["step"] == 3
        assert grid[0].metrics["training_iteration"] == 4
        assert list(grid[0].metrics_dataframe["step"]) == [0, 1, 2, 3]


def test_fail_fast_ends_the_experiment(tmp_path):
    grid = Tuner(
        failing,
        param_space={"x": tune.grid_search([1, 0, 0, 0, 0, 0, 0, 0])},
        tune_config=TuneConfig(max_concurrent_trials=1),
        run_config=quick(tmp_path, failure_config=FailureConfig(fail_fast=True)),
    ).fit()
    assert grid.num_errors == 1
    assert grid.num_terminated == 0


def test_fresh_workers_see_no_globals_of_other_trials(tmp_path):
    def train(config):
        import builtins

        seen = getattr(builtins, "_seen_by_trials", 0)
        builtins._seen_by_trials = seen + 1
        return {"seen": seen}

    def seen(reuse):
        run = RunConfig(name=f"reuse_{reuse}", storage_path=tmp_path, verbose=0)
        config = TuneConfig(num_samples=6, reuse_workers=reuse, max_concurrent_trials=1)
        return [result.metrics["seen"] for result in Tuner(train, tune_config=config, run_config=run).fit()]

    assert seen(False) == [0] * 6
    assert seen(True) == [0, 1, 2, 3, 4, 5]


def test_nan_is_never_the_best(tmp_path):
    grid = Tuner(
        lambda config: {"loss": config["x"]},
        param_space={"x": tune.grid_search([math.nan, 2.0, 1.0, math.inf])},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=quick(tmp_path),
    ).fit()
    assert grid.get_best_result().metrics["loss"] == 1.0
    assert grid.get_best_result(mode="max").metrics["loss"] == 2.0


def test_a_missing_metric_names_those_that_there_are(tmp_path):
    tuner = Tuner(
        lambda config: {"accuracy": 1},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=quick(tmp_path),
    )
    with pytest.raises(ConfigError, match=r'no number "loss".*accuracy'):
        tuner.fit()


@pytest.mark.parametrize("run", [tune.run, tune.run_experiments])
def test_unknown_arguments_of_run(run):
    given = (lambda config: {"loss": 1}) if run is tune.run else {"experiment": {"run": lambda config: {"loss": 1}}}
    with pytest.raises(ConfigError, match="no argument 'num_sample'; did you mean 'num_samples'"):
        run(given, num_sample=3)


def test_arguments_of_run_without_effect(tmp_path):
    options = {"trial_executor": None, "queue_trials": False, "sync_config": tune.SyncConfig(), "_remote": False}
    trials = tune.run(lambda config: {"loss": 1}, name="experiment", storage_path=tmp_path, verbose=0, **options).trials
    assert len(trials) == 1
