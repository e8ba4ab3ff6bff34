"""Search spaces: wrong domains, values that depend on others, objects, resources."""

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from lockstep import ConfigError, DataParallelTrainer, RunConfig, ScalingConfig, session, tune
from lockstep.tune import TuneConfig, Tuner
from lockstep.tune.result_grid import ResultGrid
from lockstep.tune.schedulers._scheduler import Around


def quick(tmp_path, **more):
    return RunConfig(name="experiment", storage_path=tmp_path, verbose=0, **more)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tune.uniform("a", 1), "uniform.. got lower='a'"),
        (lambda: tune.uniform(0, math.inf), "uniform.. got upper=inf"),
        (lambda: tune.uniform(0, None), "uniform.. got upper=None"),
        (lambda: tune.loguniform(True, 2), "lower=True"),
        (lambda: tune.randint(0, 2**70), "64 bits"),
        (lambda: tune.choice({"a": 1}), "it must be a list"),
        (lambda: tune.grid_search({"a": 1}), "it must be a list"),
        (lambda: tune.grid_search([]), "at least one"),
        (lambda: TuneConfig(metric=3), "metric is 3"),
        (lambda: TuneConfig(metric="", mode="min"), "metric is ''"),
        (lambda: TuneConfig(seed="a"), "seed is 'a'"),
        (lambda: TuneConfig(seed=-1), "seed is -1"),
        (lambda: TuneConfig(trial_name_creator=5), "trial_name_creator is 5"),
        (lambda: TuneConfig(reuse_workers="no"), "reuse_workers is 'no'"),
        (lambda: tune.search.TPESearch(seed=1.5), "seed is 1.5"),
        (lambda: tune.search.TPESearch(points_to_evaluate={"x": 1}), "it must be a list of dicts"),
        (lambda: tune.search.TPESearch(points_to_evaluate=["x"]), "it must be a list of dicts"),
        (lambda: tune.with_resources(print, {"cpu": "a"}), "amounts must be numbers"),
        (lambda: tune.with_resources(print, {"cpu": math.nan}), "amounts must be numbers"),
    ],
)
def test_wrong_arguments(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_rounded_values_have_no_negative_zero():
    values = tune.quniform(0, 1, 0.5).sample(size=200)
    assert set(values) == {0.0, 0.5, 1.0}
    assert all(math.copysign(1, value) == 1 for value in values)


def test_numbers_of_numpy_are_numbers(tmp_path):
    tune.uniform(numpy.float32(0), numpy.float64(1))
    TuneConfig(num_samples=numpy.int64(2), seed=numpy.int64(3))


def test_a_random_sample_from_keeps_its_value(tmp_path):
    seen = tmp_path / "seen"

    def train(config):
        with open(seen, "a") as file:
            file.write(f"{config['x']!r} {config['twice']!r}\n")
        if len(seen.read_text().splitlines()) == 1:
            raise RuntimeError("once more")
        return {"x": config["x"]}

    from lockstep import FailureConfig

    grid = Tuner(
        train,
        param_space={
            "twice": tune.sample_from(lambda spec: 2 * spec.config.x),
            "x": tune.sample_from(lambda spec: random.random()),
        },
        run_config=quick(tmp_path, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    first, second = seen.read_text().splitlines()
    assert first == second
    assert grid[0].config["x"] == grid[0].metrics["x"]
    assert grid[0].config["twice"] == 2 * grid[0].config["x"]


def test_a_scheduler_in_python_passes_on_that_there_is_more_to_come():
    from lockstep import _core

    mutations = {"rate": [1.0, 2.0]}
    options = {"kind": "pbt", "perturbation_interval": 1, "hyperparam_mutations": mutations}
    scheduler = Around(_core.tune.make_scheduler(options, 0))
    scheduler.on_added(0, {"rate": 1.0})
    scheduler.more_to_come(True)
    assert scheduler.choose([0], []) == 0
    decision = scheduler.on_result(0, 1.0, 1.0, True)
    assert decision.kind == _core.tune.Decision.Kind.pause  # the others must not fall behind


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda spec: 1 / 0, "sample_from.. of 'x' raised ZeroDivisionError: division by zero;"),
        (lambda spec: spec.config.nope, "of 'x' raised AttributeError: the configuration has no 'nope'; it has"),
    ],
)
def test_a_sample_from_that_raises(tmp_path, function, words):
    tuner = Tuner(lambda config: {"loss": 1}, param_space={"x": tune.sample_from(function)}, run_config=quick(tmp_path))
    with pytest.raises(ConfigError, match=words):
        tuner.fit()


def test_more_resources_than_there_are(tmp_path):
    tuner = Tuner(tune.with_resources(lambda config: {"loss": 1}, {"cpu": 9999}), run_config=quick(tmp_path))
    with pytest.raises(ConfigError, match=r"needs 9999 CPU, but there are .*; ask for less in tune.with_resources"):
        tuner.fit()


class Thing:
    pass


def test_configurations_have_the_objects_of_the_space(tmp_path):
    thing = Thing()
    grid = Tuner(
        lambda config: {"loss": 1},
        param_space={"kind": tune.choice([thing]), "shape": (1, 2), "kinds": tune.grid_search([int, float])},
        tune_config=TuneConfig(metric="loss", mode="min"),
        run_config=quick(tmp_path),
    ).fit()
    assert grid[0].config == {"kind": thing, "shape": (1, 2), "kinds": int}
    assert grid.get_best_result().config["kind"] is thing


class Sized:
    def __init__(self, size):
        self.size = size

    def __repr__(self):
        return f"Sized({self.size})"


class Sizes(tune.search.Searcher):
    """Suggests values that no param_space has."""

    def suggest(self, trial_id):
        return {"layers": (random.randrange(10**9), 64), "model": Sized(random.randrange(10**9))}

    def on_trial_complete(self, trial_id, result=None, error=False):
        pass


def test_suggested_objects_are_restored(tmp_path):
    """Trials that are tried again have the configurations that they had, and those who read the database see texts."""

    def train(config):
        if not (tmp_path / "again").exists():
            raise ValueError
        return {"layer": config["layers"][0], "size": config["model"].size}

    config = TuneConfig(metric="size", mode="min", num_samples=2, search_alg=Sizes())
    grid = Tuner(train, tune_config=config, run_config=quick(tmp_path)).fit()
    before = [(result.config["layers"], result.config["model"].size) for result in grid]
    (tmp_path / "again").touch()
    grid = Tuner.restore(tmp_path / "experiment", restart_errored=True).fit()
    assert [(result.config["layers"], result.config["model"].size) for result in grid] == before
    assert [((result.metrics["layer"], 64), result.metrics["size"]) for result in grid] == before
    shown = subprocess.run(
        [Path(sys.executable).parent / "lockstep", "tune", "show", tmp_path / "experiment"],
        capture_output=True,
        text=True,
    ).stdout
    best = min(before, key=lambda each: each[1])
    assert f'"layers": [{best[0][0]}, 64], "model": "Sized({best[1]})"' in shown and "$" not in shown


def test_tuples_of_the_space(tmp_path):
    """Also with domains in them, and known by the searcher and the population."""
    space = {
        "shape": tune.choice([(1, 2), (3, 4)]),
        "betas": (tune.uniform(0, 1), 0.5),
        "twice": (tune.sample_from(lambda spec: 2 * spec.config.betas[0]), numpy.float64(3)),
    }
    points = [{"shape": (3, 4), "betas": (0.25, 0.5)}]
    mutations = {"shape": [(1, 2), (3, 4)]}
    scheduler = tune.schedulers.PopulationBasedTraining("training_iteration", hyperparam_mutations=mutations)
    search_alg = tune.search.TPESearch(points_to_evaluate=points)
    config = TuneConfig(metric="loss", mode="min", num_samples=3, search_alg=search_alg, scheduler=scheduler)
    grid = Tuner(
        lambda config: {"loss": sum(config["shape"])}, param_space=space, tune_config=config, run_config=quick(tmp_path)
    ).fit()
    assert grid[0].config == {"shape": (3, 4), "betas": (0.25, 0.5), "twice": (0.5, 3.0)}
    assert all(0 <= result.config["betas"][0] <= 1 for result in grid)
    assert ResultGrid._open(tmp_path / "experiment")[0].config["shape"] in ((3, 4), [3, 4])

    config.search_alg = tune.search.TPESearch(points_to_evaluate=[{"shape": (9, 9)}])
    with pytest.raises(ConfigError, match=r"shape is \[9, 9\], which is none of its 2 values"):
        Tuner(
            lambda config: {"loss": 1},
            param_space=space,
            tune_config=config,
            run_config=RunConfig(name="other", storage_path=tmp_path),
        ).fit()


def test_a_slice_of_the_results(tmp_path):
    space = {"x": tune.grid_search([1, 2, 3])}
    grid = Tuner(lambda config: {"x": config["x"]}, param_space=space, run_config=quick(tmp_path)).fit()
    assert [result.config["x"] for result in grid[1:]] == [2, 3]
    assert [result.config["x"] for result in grid[::-1]] == [3, 2, 1]
    assert grid[numpy.int64(-1)].config["x"] == 3


def test_the_arguments_may_be_given_by_position(tmp_path):
    grid = Tuner(lambda config: {"x": config["x"]}, {"x": 1}, TuneConfig(num_samples=2), quick(tmp_path)).fit()
    assert len(grid) == 2


def test_a_scaling_config_with_domains(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_RESOURCES", '{"CPU": 4}')

    def train():
        session.report({"workers": session.get_world_size()})

    grid = Tuner(
        DataParallelTrainer(train),
        param_space={"scaling_config": ScalingConfig(num_workers=tune.grid_search([1, 2]))},
        run_config=quick(tmp_path),
    ).fit()
    assert [result.metrics["workers"] for result in grid] == [1, 2]


def test_resources_of_a_scaling_config():
    made = tune.with_resources(print, ScalingConfig(num_workers=2, resources_per_worker={"CPU": 3}))
    assert made._lockstep_resources == {"CPU": 6}


def test_the_pareto_front_by_hand():
    searcher = tune.search.NSGA2Search({"x": tune.uniform(0, 1)}, metric=["a", "b"], mode=["min", "max"], seed=0)
    for values in ([1, 1], [2, 2], [2, 1], [3, 0], [1, 1]):
        number, _ = searcher.ask()
        searcher.tell(number, values)
    assert [number for number, _, _ in searcher.get_pareto_front()] == [0, 1, 4]


@pytest.mark.parametrize("value", ["a", object(), {"loss": 1}])
def test_values_that_cannot_be_told(value):
    searcher = tune.search.RandomSearch({"x": tune.uniform(0, 1)}, seed=0)
    number, _ = searcher.ask()
    with pytest.raises(ConfigError, match=r"tell\(\) got"):
        searcher.tell(number, value)


def test_several_stoppers(tmp_path):
    def train(config):
        for _ in range(9):
            session.report({"loss": 1})

    stop = [tune.stopper.MaximumIterationStopper(5), lambda trial_id, result: result["training_iteration"] >= 3]
    grid = Tuner(train, run_config=quick(tmp_path, stop=stop)).fit()
    assert grid[0].metrics["training_iteration"] == 3


def test_a_scaling_config_of_the_wrong_type(tmp_path):
    trainer = DataParallelTrainer(lambda: None)
    grid = Tuner(trainer, param_space={"scaling_config": 5}, run_config=quick(tmp_path)).fit()
    assert "it must be a config object or a dict" in str(grid[0].error)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"scaling_config": {"num_worker": 2}}, r"scaling_config'\] has 'num_worker'; a ScalingConfig has num_workers"),
        ({"scaling_config": tune.grid_search([{"gpu": 1}])}, "has 'gpu'; a ScalingConfig has"),
        ({"run_config": tune.choice([{"name": "a"}, {"nam": "b"}])}, "has 'nam'; a RunConfig has name"),
    ],
)
def test_unknown_keys_of_configs(space, words):
    with pytest.raises(ConfigError, match=words):
        Tuner(DataParallelTrainer(lambda: None), param_space=space)
