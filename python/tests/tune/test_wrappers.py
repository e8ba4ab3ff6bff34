"""ConcurrencyLimiter and Repeater around searchers in Python, and searchers in Python without an experiment."""

import pytest
from lockstep import RunConfig, tune
from lockstep.tune import TuneConfig, Tuner, search


class Counting(search.Searcher):
    """Suggests 0, 1, 2, ... and notes what it is told."""

    def __init__(self, most=100):
        super().__init__()
        self.most = most
        self.suggested = 0
        self.told = []

    def suggest(self, trial_id):
        if self.suggested == self.most:
            return self.FINISHED
        self.suggested += 1
        return {"x": self.suggested - 1}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append(None if error else result["loss"])


def fit(tmp_path, searcher, samples, function, **more):
    return Tuner(
        function,
        tune_config=TuneConfig(num_samples=samples, metric="loss", mode="min", search_alg=searcher, **more),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()


def test_a_repeater_tells_the_mean_of_those_that_succeed(tmp_path):
    searcher = Counting()

    def loss(config):
        if config["x"] == 1 and config["__trial_index__"] == 0:
            raise ValueError("not this one")
        if config["x"] == 2:
            raise ValueError("none of these")
        return {"loss": config["x"] + config["__trial_index__"]}

    repeater = search.Repeater(searcher, repeat=3, set_index=True)
    grid = fit(tmp_path, repeater, 9, loss, max_concurrent_trials=1)
    assert [result.config for result in grid] == [{"x": x, "__trial_index__": n} for x in range(3) for n in range(3)]
    assert searcher.told == [1, 2.5, None]


def test_optuna_is_repeated(tmp_path):
    repeater = search.Repeater(search.ConcurrencyLimiter(search.OptunaSearch(seed=1), 2), repeat=2)
    grid = Tuner(
        lambda config: {"loss": config["x"]},
        param_space={"x": tune.uniform(0, 1)},
        tune_config=TuneConfig(num_samples=4, metric="loss", mode="min", search_alg=repeater),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    configs = [result.config for result in grid]
    assert configs[0] == configs[1] != configs[2] == configs[3]


def test_the_cores_searcher_with_an_index(tmp_path):
    repeater = search.Repeater(search.TPESearch(seed=1), repeat=2, set_index=True)
    grid = Tuner(
        lambda config: {"loss": config["x"]},
        param_space={"x": tune.uniform(0, 1), "double": tune.sample_from(lambda spec: 2 * spec.config.x)},
        tune_config=TuneConfig(num_samples=4, metric="loss", mode="min", search_alg=repeater),
        run_config=RunConfig(name="experiment", storage_path=tmp_path, verbose=0),
    ).fit()
    configs = [result.config for result in grid]
    assert [config.pop("__trial_index__") for config in configs] == [0, 1, 0, 1]
    assert configs[0] == configs[1] != configs[2] and configs[0]["double"] == 2 * configs[0]["x"]


def test_a_limit_by_hand():
    limited = search.ConcurrencyLimiter(Counting(), 2)
    first, second = limited.suggest("a"), limited.suggest("b")
    assert (first, second, limited.suggest("c")) == ({"x": 0}, {"x": 1}, None)
    limited.on_trial_complete("a", result={"loss": 5})
    assert limited.suggest("c") == {"x": 2}


def test_a_batch_is_told_when_all_of_it_have_ended():
    inner = Counting()
    batch = search.ConcurrencyLimiter(inner, 2, batch=True)
    assert batch.suggest("a") and batch.suggest("b")
    batch.on_trial_complete("a", result={"loss": 5})
    assert inner.told == [] and batch.suggest("c") is None
    batch.on_trial_complete("b", error=True)
    assert inner.told == [5, None] and batch.suggest("c") == {"x": 2}


def test_a_searcher_in_python_is_asked_alone():
    searcher = search.OptunaSearch({"x": tune.uniform(0, 1)}, metric="loss", mode="min", seed=1)
    asked = [searcher.ask() for _ in range(3)]
    assert [number for number, _ in asked] == [0, 1, 2] and all(0 <= config["x"] <= 1 for _, config in asked)
    searcher.tell(0, 0.5)
    searcher.tell(1, {"loss": 0.25})
    searcher.tell(2, None)
    assert searcher._study.best_value == 0.25
    ends = Counting(most=1)
    ends.ask()
    with pytest.raises(StopIteration, match="every point was tried"):
        ends.ask()
    with pytest.raises(tune.TuneError, match="Counting has no metric"):
        ends.tell(0, 1.0)


@pytest.mark.parametrize("repeat", [0, -1, 1.5, True, "3"])
def test_a_wrong_repeat(repeat):
    with pytest.raises(tune.TuneError, match=r"repeat is .*at least 1"):
        search.Repeater(search.TPESearch(), repeat=repeat)
