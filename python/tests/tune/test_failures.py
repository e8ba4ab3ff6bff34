"""A trial that fails harms no other one, and says why."""

import os
import signal
import threading
import time

import pytest
from lockstep import (
    Checkpoint,
    CheckpointConfig,
    ConfigError,
    FailureConfig,
    LockstepError,
    Result,
    RunConfig,
    TrainingFailedError,
    session,
    tune,
)
from lockstep.tune import TuneConfig, Tuner


def quick(tmp_path, **more):
    return RunConfig(name="experiment", storage_path=tmp_path, verbose=0, **more)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def end(config):
    session.report({"loss": 1.0})
    match config["how"]:
        case "exit":
            os._exit(3)
        case "exit 0":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("my error")
        case "sys.exit":
            raise SystemExit(0)
        case "interrupt":
            raise KeyboardInterrupt
        case "unprintable":
            raise Unprintable
    session.report({"loss": 0.5})


ENDS = {
    "exit": "exit code 3",
    "exit 0": "exit code 0",
    "kill": "SIGKILL",
    "raise": "ValueError: my error",
    "sys.exit": "sys.exit",
    "interrupt": "KeyboardInterrupt",
    "unprintable": "Unprintable",
}


@pytest.mark.parametrize("reuse", [True, False])
def test_each_way_to_end_is_the_trials_own(tmp_path, reuse):
    ways = [way for how in ENDS for way in (how, "well")]
    grid = Tuner(
        end,
        param_space={"how": tune.grid_search(ways)},
        tune_config=TuneConfig(metric="loss", mode="min", reuse_workers=reuse),
        run_config=quick(tmp_path),
    ).fit()
    assert grid.num_errors == len(ENDS) == len(grid.errors)
    for result in grid:
        how = result.config["how"]
        if how == "well":
            assert result.error is None and result.metrics["loss"] == 0.5
        else:
            assert isinstance(result.error, TrainingFailedError)
            assert ENDS[how] in str(result.error), how
            assert str(result.error).startswith(f"[tune] trial {result.path.name}: ")
            assert "Tuner.restore(" in str(result.error)
            assert result.metrics["loss"] == 1.0
    assert isinstance(grid[ways.index("raise")].error, ValueError)
    assert "the driver" not in str(Result.from_path(grid[0].path).error)


def test_fail_fast_raise(tmp_path):
    tuner = Tuner(
        end,
        param_space={"how": tune.grid_search(["raise", "well", "well"])},
        tune_config=TuneConfig(max_concurrent_trials=1),
        run_config=quick(tmp_path, failure_config=FailureConfig(fail_fast="raise")),
    )
    with pytest.raises(ValueError, match="my error"):
        tuner.fit()
    assert len(tuner.get_results()) == 1


def test_one_report_without_the_metric_fails_its_trial_alone(tmp_path):
    def train(config):
        session.report({"loss": 1.0} if config["x"] != 2 else {"accuracy": 1.0})

    grid = Tuner(
        train,
        param_space={"x": tune.grid_search([0, 1, 2, 3])},
        tune_config=TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=quick(tmp_path),
    ).fit()
    assert grid.num_errors == 1 and grid.num_terminated == 3
    assert 'no number "loss"' in str(grid[2].error) and "accuracy" in str(grid[2].error)


def test_there_is_no_best_trial_without_the_metric(tmp_path):
    grid = Tuner(end, param_space={"how": "well"}, run_config=quick(tmp_path)).fit()
    with pytest.raises(LockstepError, match=r"no trial has the metric 'accuracy'.*reported: 'loss'"):
        grid.get_best_result("accuracy", "max")


@pytest.mark.parametrize(
    ("trainable", "words"),
    [
        (lambda config, data: None, "missing a required argument: 'data'.*with_parameters"),
        (5, "it must be a trainer"),
    ],
)
def test_trainables_that_cannot_be_called(trainable, words):
    with pytest.raises(ConfigError, match=words):
        Tuner(trainable)


def test_parameters_that_a_function_does_not_have():
    with pytest.raises(ConfigError, match="unexpected keyword argument 'dta'"):
        tune.with_parameters(lambda config, data=None: None, dta=1)


class Noted(tune.Trainable):
    def setup(self, config):
        self.note("setup")

    def note(self, what):
        with open(self.config["notes"], "a") as file:
            file.write(f"{what} {self.config['x']}\n")

    def step(self):
        self.note("step")
        if self.config["x"] == self.config.get("fails"):
            raise RuntimeError("step failed")
        return {"x": self.config["x"], "done": True}

    def cleanup(self):
        self.note("cleanup")


class Reused(Noted):
    def reset_config(self, new_config):
        self.config = new_config
        self.note("reset")
        return True


@pytest.mark.parametrize(
    ("kind", "fails", "notes"),
    [
        (Noted, None, "setup 0, step 0, cleanup 0, setup 1, step 1, cleanup 1, setup 2, step 2, cleanup 2"),
        (Reused, None, "setup 0, step 0, reset 1, step 1, reset 2, step 2, cleanup 2"),
        (Reused, 1, "setup 0, step 0, reset 1, step 1, cleanup 1, setup 2, step 2, cleanup 2"),
    ],
)
def test_each_object_is_cleaned_up_once(tmp_path, kind, fails, notes):
    place = tmp_path / "notes"
    space = {"x": tune.grid_search([0, 1, 2]), "notes": str(place), "fails": fails}
    config = TuneConfig(max_concurrent_trials=1)
    grid = Tuner(kind, param_space=space, tune_config=config, run_config=quick(tmp_path)).fit()
    assert grid.num_errors == (fails is not None)
    assert place.read_text().splitlines() == notes.split(", ")


def test_a_step_that_returns_no_dict(tmp_path):
    class Wrong(tune.Trainable):
        def step(self):
            return 5

    grid = Tuner(Wrong, run_config=quick(tmp_path)).fit()
    assert "step() returned 5; it must return a dict" in str(grid[0].error)


def test_a_trial_that_is_restarted_has_no_old_checkpoints(tmp_path):
    flag = tmp_path / "flag"

    def train(config):
        for step in range(3):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        if not flag.exists():
            raise RuntimeError("not yet")

    grid = Tuner(train, run_config=quick(tmp_path, checkpoint_config=CheckpointConfig())).fit()
    assert grid.num_errors == 1
    flag.touch()
    again = Tuner.restore(grid.experiment_path, train, restart_errored=True).fit()
    assert again.num_errors == 0
    assert [checkpoint.to_dict()["step"] for checkpoint, _ in again[0].best_checkpoints] == [0, 1, 2]


def test_several_experiments_of_the_same_second(tmp_path):
    grids = []

    def search():
        space = {"how": "well"}
        config = RunConfig(storage_path=tmp_path, verbose=0)
        grids.append(Tuner(end, param_space=space, run_config=config).fit())

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({grid.experiment_path for grid in grids}) == 4


def test_sigterm_leaves_an_experiment_to_restore(tmp_path):
    def train(config):
        time.sleep(0.05)
        return {"x": config["x"]}

    class Terminates(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            os.kill(os.getpid(), signal.SIGTERM)

    tuner = Tuner(
        train,
        param_space={"x": tune.grid_search(list(range(8)))},
        run_config=quick(tmp_path, callbacks=[Terminates()]),
    )
    with pytest.raises(KeyboardInterrupt, match=r"Tuner\.restore") as caught:
        tuner.fit()
    assert caught.value.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    grid = Tuner.restore(tmp_path / "experiment", train)
    grid._run.callbacks = None
    assert grid.fit().num_terminated == 8


@pytest.mark.parametrize("reuse", [True, False])
def test_an_interrupt_ends_running_trials_at_once(tmp_path, reuse):
    """A worker that took the interrupt for the failure of its trial waited for the next trial."""

    def train(config):
        session.report({"loss": 1})
        time.sleep(60)

    class Interrupts(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            os.kill(os.getpid(), signal.SIGINT)

    tuner = Tuner(
        train, tune_config=TuneConfig(reuse_workers=reuse), run_config=quick(tmp_path, callbacks=[Interrupts()])
    )
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match=r"Tuner\.restore"):
        tuner.fit()
    assert time.monotonic() - began < 9


def test_trials_of_the_same_name_have_their_own_directories(tmp_path):
    config = TuneConfig(num_samples=3, trial_name_creator=lambda trial: "same")
    grid = Tuner(lambda config: {"loss": 1}, tune_config=config, run_config=quick(tmp_path)).fit()
    assert len({result.path for result in grid}) == 3
    assert grid[0].path.name == "same"


def test_a_trial_that_hangs_is_ended_alone(tmp_path):
    def train(config):
        session.report({"loss": 1})
        if config["hangs"]:
            time.sleep(300)

    grid = Tuner(
        train,
        param_space={"hangs": tune.grid_search([False, True, False])},
        run_config=quick(tmp_path, hang_timeout=1),
    ).fit()
    assert [result.error is None for result in grid] == [True, False, True]
    assert "it reported nothing for 1 s" in str(grid[1].error)
