"""Experiments that were interrupted, or failed, go on."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from lockstep import ConfigError, RunConfig, StorageError, session, tune
from lockstep.tune import TuneConfig, Tuner

_SCRIPT = """
import sys, time
from lockstep import RunConfig, tune

def train(config):
    time.sleep(0.002)
    return {"loss": config["x"]}

tuner = tune.Tuner(
    train,
    param_space={"x": tune.uniform(-5, 5)},
    tune_config=tune.TuneConfig(num_samples=100_000),
    run_config=RunConfig(name="experiment", storage_path=sys.argv[1], verbose=0),
)
print("ready", flush=True)
tuner.fit()
"""


def test_ctrl_c_ends_the_experiment_with_advice(tmp_path):
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "Tuner.restore(" in errors
    grid = Tuner.restore(tmp_path / "experiment").get_results()
    assert len(grid) > 1 and grid.num_errors == 0


def test_failed_trials_are_tried_again(tmp_path):
    marker = tmp_path / "repaired"

    def train(config):
        if config["x"] % 2 and not marker.exists():
            raise ValueError("odd")
        return {"x": config["x"]}

    run_config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    tuner = Tuner(train, param_space={"x": tune.grid_search([0, 1, 2, 3])}, run_config=run_config)
    assert tuner.fit().num_errors == 2
    path = tmp_path / "experiment"
    assert Tuner.restore(path).fit().num_errors == 2
    marker.touch()
    assert Tuner.restore(path).fit().num_errors == 2
    grid = Tuner.restore(path, restart_errored=True).fit()
    assert grid.num_errors == 0
    assert [result.metrics["x"] for result in grid] == [0, 1, 2, 3]


def test_restore_with_another_function(tmp_path):
    def broken(config):
        raise RuntimeError

    def good(config):
        return {"x": config["x"]}

    run_config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    Tuner(broken, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config).fit()
    grid = Tuner.restore(tmp_path / "experiment", good, resume_errored=True).fit()
    assert [result.metrics["x"] for result in grid] == [1, 2]


def test_a_replaced_file_is_not_unpickled(tmp_path):
    run_config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    Tuner(lambda: {"x": 1}, run_config=run_config).fit()
    file = tmp_path / "experiment" / "function.pkl"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match="SHA-256"):
        Tuner.restore(tmp_path / "experiment")


def test_a_name_that_is_taken(tmp_path):
    run_config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    Tuner(lambda: {"x": 1}, run_config=run_config).fit()
    with pytest.raises(ConfigError, match="restore"):
        Tuner(lambda: {"x": 1}, run_config=run_config).fit()


def test_there_is_nothing_to_restore(tmp_path):
    assert not Tuner.can_restore(tmp_path)
    with pytest.raises(ConfigError, match="holds no experiment"):
        Tuner.restore(tmp_path)


def test_get_results_before_fit():
    with pytest.raises(ConfigError, match="no results yet"):
        Tuner(lambda: {"x": 1}).get_results()


def test_objects_of_the_space_are_restored(tmp_path):
    class Model:
        def __init__(self, width):
            self.width = width

    def train(config):
        session.report({"width": config["model"].width + config["twice"]})
        if config["model"].width == 3 and not (tmp_path / "again").exists():
            raise ValueError

    run_config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    space = {
        "model": tune.grid_search([Model(1), Model(3)]),
        "twice": tune.sample_from(lambda spec: 2 * spec.config.model.width),
    }
    tuner = Tuner(train, param_space=space, tune_config=TuneConfig(), run_config=run_config)
    assert tuner.fit().num_errors == 1
    (tmp_path / "again").touch()
    grid = Tuner.restore(tmp_path / "experiment", restart_errored=True).fit()
    assert [result.metrics["width"] for result in grid] == [3, 9]


class Locked(tune.Callback):
    """It cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ended = 0

    def on_experiment_end(self, trials, **info):
        self.ended += 1


def test_callbacks_that_cannot_be_pickled(tmp_path):
    run_config = RunConfig(name="experiment", storage_path=tmp_path, verbose=0, callbacks=[Locked(), tune.Callback()])
    with pytest.warns(UserWarning, match=r"cannot be pickled, so they are not stored: Locked;"):
        Tuner(lambda config: {"loss": 1}, run_config=run_config).fit()
    tuner = Tuner.restore(tmp_path / "experiment")
    assert [type(each) for each in tuner._run.callbacks] == [tune.Callback]
    callback = Locked()
    Tuner.restore(tmp_path / "experiment", callbacks=[callback]).fit()
    assert callback.ended == 1
