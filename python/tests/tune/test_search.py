"""Searchers: in experiments, alone, and those that users write."""

import pytest
from lockstep import ConfigError, RunConfig, tune
from lockstep.tune import TuneConfig, Tuner, schedulers, search

SPACE = {"x": tune.uniform(-5, 5), "kind": tune.choice(["a", "b"]), "n": tune.randint(1, 10)}


def loss(config):
    return {"loss": (config["x"] - 1) ** 2 + (config["kind"] == "b") + abs(config["n"] - 3)}


@pytest.mark.parametrize(
    "kind", [search.RandomSearch, search.SobolSearch, search.TPESearch, search.CMAESSearch, search.GPSearch]
)
def test_ask_and_tell(kind):
    def best():
        searcher = kind(space=SPACE, metric="loss", mode="min", seed=0)
        for _ in range(60):
            number, config = searcher.ask()
            assert set(config) == {"x", "kind", "n"}
            searcher.tell(number, loss(config)["loss"])
        return searcher.best

    number, config, value = best()
    assert loss(config)["loss"] == value < 6
    assert best() == (number, config, value)


def test_tell_gets_metrics_or_nothing():
    searcher = search.TPESearch(space={"x": tune.uniform(0, 1)}, metric="loss", mode="max", seed=0)
    first, _ = searcher.ask()
    second, _ = searcher.ask()
    searcher.tell(first, {"loss": 3.0})
    searcher.tell(second, None)
    assert searcher.best[2] == 3.0
    with pytest.raises(ConfigError, match="told once"):
        searcher.tell(first, 1.0)


def test_the_grid_ends():
    searcher = search.GridSearch(space={"a": tune.choice([1, 2]), "b": tune.grid_search([3, 4])})
    found = []
    with pytest.raises(StopIteration):
        while True:
            found.append(tuple(searcher.ask()[1].values()))
    assert sorted(found) == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_points_come_first(tmp_path):
    points = [{"x": 0.5, "kind": "b"}, {"n": 4}]
    grid = Tuner(
        loss,
        param_space=SPACE,
        tune_config=TuneConfig(
            num_samples=5, metric="loss", mode="min", search_alg=search.TPESearch(points_to_evaluate=points)
        ),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    assert (grid[0].config["x"], grid[0].config["kind"], grid[1].config["n"]) == (0.5, "b", 4)


@pytest.mark.parametrize("kind", ["tpe", "cmaes", "gp", "sobol", "random"])
def test_an_experiment_by_the_searchers_name(tmp_path, kind):
    grid = Tuner(
        loss,
        param_space=SPACE,
        tune_config=TuneConfig(num_samples=20, metric="loss", mode="min", search_alg=kind, seed=0),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    assert grid.num_terminated == 20


def test_several_metrics(tmp_path):
    grid = Tuner(
        lambda config: {"loss": config["x"] ** 2, "size": (config["x"] - 2) ** 2},
        param_space={"x": tune.uniform(-5, 5)},
        tune_config=TuneConfig(
            num_samples=40,
            metric=["loss", "size"],
            mode=["min", "min"],
            search_alg=search.NSGA2Search(population=10),
            seed=0,
        ),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    front = grid.get_pareto_front()
    assert front and all(-0.7 <= result.config["x"] <= 2.7 for result in front)
    with pytest.raises(ConfigError, match="metric is missing"):
        grid.get_best_result()


def test_a_searcher_of_the_users(tmp_path):
    class Halving(search.Searcher):
        def __init__(self):
            super().__init__()
            self.lr = 1.0
            self.told = []

        def suggest(self, trial_id):
            if self.lr < 0.1:
                return self.FINISHED
            self.lr /= 2
            return {"inner": {"lr": self.lr}}

        def on_trial_complete(self, trial_id, result=None, error=False):
            self.told.append((trial_id, result["loss"]))

    searcher = Halving()
    grid = Tuner(
        lambda config: {"loss": config["inner"]["lr"] * config["inner"]["factor"]},
        param_space={"inner": {"factor": 10}},
        tune_config=TuneConfig(num_samples=10, metric="loss", mode="min", search_alg=searcher),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    assert [result.metrics["loss"] for result in grid] == [5, 2.5, 1.25, 0.625]
    assert sorted(searcher.told) == [("00000", 5), ("00001", 2.5), ("00002", 1.25), ("00003", 0.625)]
    assert grid[1].config == {"inner": {"factor": 10, "lr": 0.25}}


def test_a_limited_searcher_of_the_users_under_asha(tmp_path):
    class Fixed(search.Searcher):
        def suggest(self, trial_id):
            return {"x": float(trial_id)}

        def on_trial_complete(self, trial_id, result=None, error=False):
            pass

    def train(config):
        for step in range(4):
            yield {"loss": config["x"] + step}

    grid = Tuner(
        train,
        tune_config=TuneConfig(
            num_samples=4,
            metric="loss",
            mode="min",
            search_alg=search.ConcurrencyLimiter(Fixed(), max_concurrent=1),
            scheduler=tune.schedulers.ASHAScheduler(max_t=4, reduction_factor=2),
        ),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    assert [result.metrics["training_iteration"] for result in grid] == [4, 1, 1, 1]


def test_limiter_and_repeater(tmp_path):
    grid = Tuner(
        loss,
        param_space=SPACE,
        tune_config=TuneConfig(
            num_samples=9,
            metric="loss",
            mode="min",
            search_alg=search.ConcurrencyLimiter(search.Repeater(search.TPESearch(), repeat=3), max_concurrent=2),
        ),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    configs = [result.config for result in grid]
    assert configs[0] == configs[1] == configs[2] != configs[3]


def test_optuna(tmp_path):
    grid = Tuner(
        loss,
        param_space=SPACE,
        tune_config=TuneConfig(num_samples=10, metric="loss", mode="min", search_alg=search.OptunaSearch(seed=0)),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    assert grid.num_terminated == 10
    assert all(-5 <= result.config["x"] <= 5 and 1 <= result.config["n"] <= 9 for result in grid)


def test_optuna_again(tmp_path):
    """A searcher without a space of its own serves a second experiment and a restored one, which repeats its calls."""
    searcher = search.OptunaSearch()
    spaces = {"x": {"x": tune.uniform(-5, 5)}, "y": {"y": tune.uniform(10, 20)}}
    for name, space in spaces.items():
        grid = Tuner(
            lambda config: {"loss" + name: value for name, value in config.items()},
            param_space=space,
            tune_config=TuneConfig(num_samples=4, metric="loss" + name, mode="min", search_alg=searcher),
            run_config=RunConfig(name=name, storage_path=tmp_path, verbose=0),
        ).fit()
        assert grid.num_terminated == 4 and all(name in result.config for result in grid)
    again = [Tuner.restore(tmp_path / "y")._setup.searcher for _ in range(2)]
    asked = [[each.ask(n, []) and each.suggested[n] for n in range(4)] for each in again]
    assert asked[0] == asked[1] == [result.config for result in grid]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"scheduler": schedulers.ASHAScheduler(metric="acc")}, "metric of ASHA.*is 'acc', but that of TuneConfig"),
        ({"scheduler": schedulers.ASHAScheduler(mode="max")}, "mode of A.* is 'max', but that of TuneConfig is 'min'"),
        ({"search_alg": search.TPESearch(metric="acc")}, "metric of TPESearch is 'acc'"),
    ],
)
def test_two_objectives(own, words):
    with pytest.raises(ConfigError, match=words.replace("ASHA", "AsyncHyperBand")):
        Tuner(loss, param_space=SPACE, tune_config=TuneConfig(metric="loss", mode="min", **own))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: search.TPESearch(n_startup=-1), "n_startup"),
        (lambda: search.TPESearch(wrong=1), "wrong"),
        (lambda: search.TPESearch(mode="best"), "mode is 'best'"),
        (lambda: search.TPESearch().ask(), "needs a space"),
        (lambda: search.ConcurrencyLimiter(3, 1), "must be a searcher"),
        (lambda: search.ConcurrencyLimiter(search.TPESearch(), 0), "max_concurrent is 0"),
        (lambda: search.create_searcher("tpee"), "there is no searcher"),
    ],
)
def test_wrong_arguments(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
