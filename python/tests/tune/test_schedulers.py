"""Schedulers and stoppers end, pause and change trials."""

import importlib
import time

import pytest
from lockstep import Checkpoint, CheckpointConfig, ConfigError, DataParallelTrainer, RunConfig, session, tune
from lockstep.tune import TuneConfig, Tuner, schedulers, stopper


def quick(tmp_path, **more):
    return RunConfig(name="experiment", storage_path=tmp_path, verbose=0, **more)


class Climber(tune.Trainable):
    """Gains its rate with every step."""

    def setup(self, config):
        self.value = 0.0

    def step(self):
        self.value += self.config["rate"]
        return {"value": self.value, "rate": self.config["rate"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"value": self.value}

    def load_checkpoint(self, checkpoint):
        self.value = checkpoint["value"]


def climb(config):
    checkpoint = session.get_checkpoint()
    value = checkpoint.to_dict()["value"] if checkpoint else 0.0
    while True:
        time.sleep(0.02)  # a checkpoint of a trainer is committed while the function goes on
        value += config["rate"]
        session.report({"value": value, "rate": config["rate"]}, checkpoint=Checkpoint.from_dict({"value": value}))


def population(trainable, tmp_path, nested=False, last=12, **more):
    space = {"rate": tune.grid_search([1.0, 2.0, 10.0, 11.0])}
    mutations = {"rate": tune.uniform(1, 20)}
    options = {"time_attr": "training_iteration", "perturbation_interval": 3, "quantile_fraction": 0.25, **more}
    return Tuner(
        trainable,
        param_space={"train_loop_config": space} if nested else space,
        tune_config=TuneConfig(
            metric="value",
            mode="max",
            seed=1,
            scheduler=schedulers.PopulationBasedTraining(
                hyperparam_mutations={"train_loop_config": mutations} if nested else mutations, **options
            ),
        ),
        run_config=quick(tmp_path, stop={"training_iteration": last}),
    ).fit()


@pytest.mark.parametrize("trainable", [Climber, climb])
def test_population_based_training(tmp_path, trainable):
    grid = population(trainable, tmp_path)
    assert grid.num_errors == 0
    assert grid[0].metrics["value"] > 12.5  # alone, its rate of 1 would reach 12
    assert all(result.metrics["training_iteration"] >= 12 for result in grid)
    policies = list((tmp_path / "experiment").glob("pbt_policy_*.txt"))
    assert policies
    schedulers.PopulationBasedTrainingReplay(str(policies[0]))


def test_population_based_training_of_a_trainer(tmp_path):
    grid = population(DataParallelTrainer(climb), tmp_path, nested=True, last=24)
    assert grid.num_errors == 0
    assert grid[0].metrics["value"] > 24.5  # as above


def test_population_based_training_of_torch_workers(tmp_path):
    torch = importlib.import_module("lockstep.torch")
    trainer = torch.TorchTrainer(climb)
    grid = population(trainer, tmp_path, nested=True, last=5, synch=True)
    assert grid.num_errors == 0
    assert grid[0].metrics["value"] > 5.5


def test_the_exploration_is_the_users(tmp_path):
    grid = population(Climber, tmp_path, custom_explore_fn=lambda config: {**config, "rate": 1000.0})
    assert max(result.metrics["value"] for result in grid) > 900


def test_the_exploration_after_a_restore(tmp_path):
    """It is the same, without a seed of the user's, too: an experiment that is restored decides anew all it decided."""
    mutations = {"rate": tune.uniform(1, 20)}
    grid = Tuner(
        Climber,
        param_space={"rate": tune.uniform(1, 20)},
        tune_config=TuneConfig(
            metric="value",
            mode="max",
            num_samples=4,
            scheduler=schedulers.PopulationBasedTraining(
                "training_iteration",
                perturbation_interval=2,
                quantile_fraction=0.5,
                hyperparam_mutations=mutations,
                custom_explore_fn=dict,
                synch=True,
            ),
        ),
        run_config=quick(tmp_path, stop={"training_iteration": 8}),
    ).fit()
    policies = tmp_path / "experiment" / "pbt_global.txt"
    assert policies.stat().st_mode & 0o777 == 0o600
    before = policies.read_text()
    assert len(before.splitlines()) > 1 and grid.num_errors == 0
    Tuner.restore(tmp_path / "experiment").fit()
    assert policies.read_text() == before


@pytest.mark.parametrize("trainable", [Climber, climb])
def test_one_checkpoint_of_each_trial_stays(tmp_path, trainable):
    """Donors keep theirs only while another trial needs it."""
    mutations = {"rate": tune.uniform(1, 20)}
    grid = Tuner(
        trainable,
        param_space={"rate": tune.uniform(1, 10)},
        tune_config=TuneConfig(
            metric="value",
            mode="max",
            num_samples=8,
            seed=2,
            scheduler=schedulers.PopulationBasedTraining(
                "training_iteration", perturbation_interval=2, hyperparam_mutations=mutations
            ),
        ),
        run_config=quick(tmp_path, stop={"training_iteration": 8}, checkpoint_config=CheckpointConfig(num_to_keep=1)),
    ).fit()
    assert grid.num_errors == 0
    assert list((tmp_path / "experiment").glob("pbt_policy_*.txt"))
    assert [len(list(result.path.glob("checkpoint_*"))) for result in grid] == [1] * 8


def test_a_policy_is_replayed(tmp_path):
    grid = population(Climber, tmp_path)
    policy = next((tmp_path / "experiment").glob("pbt_policy_*.txt"))
    again = Tuner(
        Climber,
        tune_config=TuneConfig(
            metric="value", mode="max", scheduler=schedulers.PopulationBasedTrainingReplay(str(policy))
        ),
        run_config=RunConfig(name="replay", storage_path=tmp_path, verbose=0, stop={"training_iteration": 12}),
    ).fit()
    assert len(again) == 1 and again.num_errors == 0
    rates = set(again[0].metrics_dataframe["rate"])
    assert len(rates) > 1
    assert grid.num_errors == 0


@pytest.mark.parametrize("trainable", [Climber, climb])
def test_hyperband_pauses_and_ends(tmp_path, trainable):
    grid = Tuner(
        trainable,
        param_space={"rate": tune.grid_search([float(rate) for rate in range(1, 10)])},
        tune_config=TuneConfig(metric="value", mode="max", scheduler=schedulers.HyperBandScheduler(max_t=9)),
        run_config=quick(tmp_path),
    ).fit()
    assert grid.num_errors == 0 and grid.num_terminated == 9
    iterations = sorted(result.metrics["training_iteration"] for result in grid)
    assert iterations[-1] == 9 and iterations[0] < 9
    values = {result.metrics["training_iteration"]: result.metrics for result in grid}
    assert values[9]["value"] == pytest.approx(9 * values[9]["rate"])  # its state survived the pauses


def test_bohb(tmp_path):
    grid = Tuner(
        Climber,
        param_space={"rate": tune.uniform(0, 1)},
        tune_config=TuneConfig(
            metric="value",
            mode="max",
            num_samples=12,
            seed=0,
            search_alg=tune.search.BOHBSearch(),
            scheduler=schedulers.HyperBandForBOHB(max_t=9),
        ),
        run_config=quick(tmp_path),
    ).fit()
    assert grid.num_terminated == 12


def test_median_stopping(tmp_path):
    grid = Tuner(
        climb,
        param_space={"rate": tune.grid_search([5.0, 4.0, 3.0, 0.1])},
        tune_config=TuneConfig(
            metric="value",
            mode="max",
            max_concurrent_trials=1,
            scheduler=schedulers.MedianStoppingRule(
                time_attr="training_iteration", grace_period=2, min_samples_required=2
            ),
        ),
        run_config=quick(tmp_path, stop={"training_iteration": 10}),
    ).fit()
    iterations = [result.metrics["training_iteration"] for result in grid]
    assert iterations[0] == 10 and iterations[3] < 10


def test_a_scheduler_of_the_users(tmp_path):
    class Threshold(schedulers.TrialScheduler):
        def on_trial_result(self, trial_runner, trial, result):
            return self.STOP if result["value"] > 5 else self.CONTINUE

    grid = Tuner(
        climb,
        param_space={"rate": tune.grid_search([1.0, 3.0])},
        tune_config=TuneConfig(metric="value", mode="max", scheduler=Threshold()),
        run_config=quick(tmp_path),
    ).fit()
    assert [result.metrics["training_iteration"] for result in grid] == [6, 2]


@pytest.mark.parametrize("trainable", [climb, DataParallelTrainer(lambda config: climb({"rate": 1.0}))])
@pytest.mark.parametrize(
    ("stop", "iterations"),
    [
        ({"value": 4}, 4),
        (lambda trial_id, result: result["value"] >= 3, 3),
        (stopper.MaximumIterationStopper(2), 2),
        (stopper.CombinedStopper(stopper.MaximumIterationStopper(7), stopper.MaximumIterationStopper(5)), 5),
        (stopper.TrialPlateauStopper("rate", num_results=3, grace_period=3), 3),
    ],
)
def test_stop(tmp_path, trainable, stop, iterations):
    space = {"rate": 1.0} if trainable is climb else {}
    grid = Tuner(trainable, param_space=space, run_config=quick(tmp_path, stop=stop)).fit()
    assert grid[0].metrics["training_iteration"] == iterations
    assert grid.num_terminated == 1


def test_the_experiment_is_stopped(tmp_path):
    grid = Tuner(
        climb,
        param_space={"rate": 1.0},
        tune_config=TuneConfig(num_samples=50),
        run_config=quick(tmp_path, stop=stopper.ExperimentPlateauStopper("rate", top=5)),
    ).fit()
    assert grid.num_errors == 0
    assert len(grid) < 50


def test_the_time_budget(tmp_path):
    def sleep(config):
        time.sleep(30)

    began = time.monotonic()
    grid = Tuner(sleep, tune_config=TuneConfig(num_samples=-1, time_budget_s=1), run_config=quick(tmp_path)).fit()
    assert time.monotonic() - began < 10
    assert grid.num_errors == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: schedulers.ASHAScheduler(max_t=-1), "max_t"),
        (lambda: schedulers.ASHAScheduler(mode="best"), "mode is 'best'"),
        (lambda: schedulers.PopulationBasedTraining(), "hyperparam_mutations"),
        (lambda: schedulers.PopulationBasedTraining(hyperparam_mutations={"a": 3}), "hyperparam_mutations"),
        (lambda: schedulers.create_scheduler("ashaa"), "there is no scheduler"),
        (lambda: stopper.MaximumIterationStopper(0), "max_iter is 0"),
        (lambda: schedulers.PopulationBasedTrainingReplay("/nowhere"), "cannot be read"),
    ],
)
def test_wrong_arguments(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
