"""What the directories of trials hold, and how reports get there."""

import copy
import json
import pickle
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from lockstep import Checkpoint, ConfigError, RunConfig, session, tune
from lockstep._core import tune as core
from lockstep.tune import TuneConfig, Tuner, schedulers, search


def fit(tmp_path, trainable, space=None, callbacks=None, **options):
    config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0, callbacks=callbacks)
    return Tuner(trainable, param_space=space or {}, tune_config=TuneConfig(**options), run_config=config).fit()


def rows(result):
    with open(Path(result.path) / "result.json") as lines:
        return [json.loads(line) for line in lines]


def test_many_reports_that_nobody_waits_for(tmp_path):
    def train(config):
        for step in range(20_000):
            session.report({"loss": 1 / (step + 1), "step": step})

    grid = fit(tmp_path, train, {"x": tune.grid_search([1, 2])}, metric="loss", mode="min")
    for result in grid:
        assert [row["step"] for row in rows(result)] == list(range(20_000))
        assert result.metrics["training_iteration"] == 20_000
        assert len(result.metrics_dataframe) == 20_000
        assert rows(result)[-1]["done"] is True
        assert not any(row["done"] for row in rows(result)[:-1])
    stored = core.Experiment.open(grid.experiment_path, read_only=True)
    assert [each["step"] for each in stored.results(1)] == list(range(20_000))


def test_checkpoints_among_such_reports_belong_to_theirs(tmp_path):
    def train(config):
        for step in range(1, 200):
            saved = Checkpoint.from_dict({"step": step}) if step % 50 == 0 else None
            session.report({"step": step}, checkpoint=saved)

    grid = fit(tmp_path, train, {"x": tune.grid_search([1, 2])})
    for result in grid:
        assert result.checkpoint.to_dict()["step"] == 150
        assert [each.metadata["metrics"]["step"] for each, _ in result.best_checkpoints] == [50, 100, 150]
        assert len(rows(result)) == 199


def test_a_report_that_says_done_is_the_last(tmp_path):
    def train(config):
        for step in range(1, 6):
            session.report({"step": step, "done": step == 3})
            time.sleep(0.05)

    grid = fit(tmp_path, train)
    assert grid[0].metrics["step"] >= 3
    assert grid.num_errors == 0


def test_a_metric_that_is_missing_later(tmp_path):
    def train(config):
        session.report({"loss": 1})
        session.report({"loss": 2} if config["x"] else {"los": 2})
        time.sleep(30 if config["x"] == 0 else 0)

    grid = fit(tmp_path, train, {"x": tune.grid_search([1, 0, 1])}, metric="loss", mode="min", max_concurrent_trials=1)
    assert grid.num_errors == 1
    assert "no number" in str(grid.errors[0]) and "loss" in str(grid.errors[0])


def test_the_last_row_says_so_although_it_was_shown_before(tmp_path):
    shown = tmp_path / "experiment"

    def train(config):
        session.report({"a": 1, "text": 'with "quotes",\nand lines'})
        session.report({"a": 2, "new": 3})
        files = [*shown.glob("*/result.json")]
        deadline = time.monotonic() + 60
        while not files or files[0].read_text().count("\n") < 2:  # the driver shows it within a second
            assert time.monotonic() < deadline
            time.sleep(0.01)
            files = [*shown.glob("*/result.json")]
        assert '"done": false' in files[0].read_text().splitlines()[1]

    grid = fit(tmp_path, train)
    assert grid.num_errors == 0, grid.errors
    assert [(row["a"], row["done"]) for row in rows(grid[0])] == [(1, False), (2, True)]
    table = grid[0].metrics_dataframe
    assert list(table["a"]) == [1, 2] and list(table["done"]) == [False, True]


def test_a_single_report_has_hyperparameters_and_curves_too(tmp_path):
    grid = fit(tmp_path, lambda config: {"loss": config["x"]}, {"x": tune.grid_search([1.0, 2.0])})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for result in grid:
        events = EventAccumulator(str(result.path))
        events.Reload()
        assert [each.value for each in events.Scalars("loss")] == [result.config["x"]]
        assert "hparams" in events.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name


def test_a_trial_that_was_killed_after_its_last_report_has_ended(tmp_path):
    grid = fit(tmp_path, lambda config: {"loss": 1}, {"x": tune.grid_search([1, 2])})
    with sqlite3.connect(f"{grid.experiment_path}/experiment.sqlite") as database:
        sequence = database.execute("SELECT max(sequence) FROM events WHERE kind = 'end'").fetchone()[0]
        trial = database.execute("SELECT trial FROM events WHERE sequence = ?", (sequence,)).fetchone()[0]
        database.execute("DELETE FROM events WHERE sequence = ?", (sequence,))
        # What a trial looks like that was told to end, with a checkpoint: it is not started again.
        report = "kind = 'report' AND trial = ?"
        database.execute(f"UPDATE events SET outcome = 'reached', has_checkpoint = 1 WHERE {report}", (trial,))
        found = database.execute(f"SELECT max(sequence) FROM events WHERE {report}", (trial,)).fetchone()[0]
        later = found + 1000
        database.execute(
            "INSERT INTO events (sequence, kind, trial, iteration) VALUES (?, 'checkpoint', ?, 1)", (later, trial)
        )
        database.execute("UPDATE trials SET state = 'running', ended = NULL WHERE number = ?", (trial,))
    place = Path(grid[trial].path)
    record = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps({**record, "state": "running", "finished": None}))
    again = Tuner.restore(tmp_path / "experiment").fit()
    assert again.num_terminated == 2
    record = json.loads((place / "run.json").read_text())
    assert record["state"] == "finished" and record["finished"]


def test_stop_is_replaced_when_an_experiment_is_restored(tmp_path):
    def train(config):
        for step in range(1, 20):
            session.report({"step": step})

    def broken(trial_id, result):
        return result["nope"]

    config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0, stop=broken)
    with pytest.raises(ConfigError, match="nope"):
        Tuner(train, run_config=config).fit()
    path = tmp_path / "experiment"
    with pytest.raises(ConfigError, match="only functions"):
        Tuner.restore(path, stop={"step": 3})
    grid = Tuner.restore(path, stop=lambda trial_id, result: result["step"] >= 3).fit()
    assert grid[0].metrics["step"] == 3


def test_a_metric_without_a_mode(tmp_path):
    with pytest.raises(ConfigError, match="mode is missing; AsyncHyperBandScheduler"):
        Tuner(lambda config: {}, tune_config=TuneConfig(metric="loss", scheduler=schedulers.ASHAScheduler()))
    with pytest.raises(ConfigError, match="mode is missing; TPESearch"):
        Tuner(lambda config: {}, tune_config=TuneConfig(metric="loss", search_alg=search.TPESearch()))
    grid = fit(tmp_path, lambda config: {"loss": config["x"]}, {"x": tune.grid_search([1, 2])}, metric="loss")
    with pytest.raises(ConfigError, match="mode is missing; give"):
        grid.get_best_result()
    assert grid.get_best_result(mode="max").config == {"x": 2}


class Patience(schedulers.TrialScheduler):
    """Has no metric, and looks at the whole results."""

    def on_trial_result(self, trial_runner, trial, result):
        return self.STOP if result["step"] >= trial.config["x"] else self.CONTINUE


class Count(search.Searcher):
    def __init__(self):
        super().__init__()
        self.told = []

    def suggest(self, trial_id):
        return {"x": len(self.told) + 1}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((trial_id, None if result is None else result["step"], error))


def test_own_searchers_and_schedulers_need_no_metric(tmp_path):
    interrupted = threading.Event()

    class Interrupts(tune.Callback):
        def on_trial_result(self, trial, result, **info):
            if trial.config["x"] == 3 and not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt

    def train(config):
        for step in range(1, 9):
            session.report({"step": step})
        raise ValueError("not stopped")

    searcher = Count()
    options = {"search_alg": searcher, "scheduler": Patience(), "num_samples": 4, "max_concurrent_trials": 1}
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, train, callbacks=[Interrupts()], **options)
    assert [each[1:] for each in searcher.told] == [(1, False), (2, False)]
    grid = Tuner.restore(tmp_path / "experiment", train, callbacks=[]).fit()
    assert [result.metrics["step"] for result in grid] == [1, 2, 3, 4]
    assert grid.num_errors == 0


def test_a_sampler_of_optuna_without_a_seed_is_repeated(tmp_path):
    optuna = pytest.importorskip("optuna")

    def run(name, sampler):
        return Tuner(
            lambda config: {"loss": config["x"] ** 2},
            param_space={"x": tune.uniform(-5, 5)},
            tune_config=TuneConfig(
                metric="loss",
                mode="min",
                num_samples=8,
                max_concurrent_trials=1,
                search_alg=search.OptunaSearch(sampler=sampler),
            ),
            run_config=RunConfig(name=name, storage_path=tmp_path, verbose=0),
        ).fit()

    sampler = optuna.samplers.TPESampler(n_startup_trials=3)
    search.OptunaSearch(sampler=sampler)  # it has a seed from now on
    whole = run("whole", copy.deepcopy(sampler))
    assert [each.config for each in run("again", pickle.loads(pickle.dumps(sampler)))] == [
        each.config for each in whole
    ]
