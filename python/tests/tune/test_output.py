"""What trials print: in their logs, and on the console."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lockstep import FailureConfig, RunConfig, tune
from lockstep.tune import TuneConfig, Tuner


def prints(config):
    print(f"value {config['x']}")
    os.write(2, b"from C\n")
    if config["x"] == 1:
        subprocess.run(["echo", "from a child"], check=True)
        sys.stdout.write("no end of line")
        sys.stdout.flush()
        os._exit(3)
    if config["x"] == 2:
        raise ValueError("two")
    return {"loss": config["x"]}


def quiet(config):
    return {"loss": config["x"]}


def log_of(result):
    return (Path(result.path) / "logs" / "rank_0.log").read_text()


@pytest.mark.parametrize("reuse", [True, False])
def test_each_trial_has_its_log(tmp_path, capfd, reuse):
    grid = Tuner(
        prints,
        param_space={"x": tune.grid_search([0, 1, 2, 3])},
        tune_config=TuneConfig(metric="loss", mode="min", reuse_workers=reuse),
        run_config=RunConfig(name="experiment", storage_path=tmp_path),
    ).fit()
    assert log_of(grid[0]) == "value 0\nfrom C\n" and log_of(grid[3]) == "value 3\nfrom C\n"
    assert log_of(grid[1]) == "value 1\nfrom C\nfrom a child\nno end of line"
    assert log_of(grid[2]).startswith("value 2\nfrom C\nTraceback") and "ValueError: two" in log_of(grid[2])
    shown = capfd.readouterr().err
    name = os.path.basename(grid[1].path)
    assert f"[{name}] value 1\n[{name}] from C\n[{name}] from a child\n[{name}] no end of line\n" in shown


@pytest.mark.parametrize("more", [{"verbose": 0}, {"log_to_console": "none"}])
def test_the_console_is_silent(tmp_path, capfd, more):
    run = RunConfig(name="experiment", storage_path=tmp_path, **more)
    grid = Tuner(prints, param_space={"x": 0}, run_config=run).fit()
    assert log_of(grid[0]) == "value 0\nfrom C\n"
    assert "value" not in capfd.readouterr().err


def test_a_trial_that_prints_nothing_has_no_log(tmp_path):
    run = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    grid = Tuner(quiet, param_space={"x": 0}, run_config=run).fit()
    assert not (Path(grid[0].path) / "logs").exists()


def test_a_log_has_all_attempts(tmp_path):
    def fails_once(config):
        mark = tmp_path / "mark"
        print("second" if mark.exists() else "first")
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return {"loss": 1}

    failures = FailureConfig(max_failures=1)
    run = RunConfig(name="experiment", storage_path=tmp_path, verbose=0, failure_config=failures)
    grid = Tuner(fails_once, param_space={}, run_config=run).fit()
    assert grid.num_errors == 0 and log_of(grid[0]) == "first\nsecond\n"


def test_large_output_is_whole(tmp_path):
    def many(config):
        for n in range(200_000):
            print(n)
        return {"loss": 1}

    run = RunConfig(name="experiment", storage_path=tmp_path, verbose=0)
    grid = Tuner(many, param_space={}, tune_config=TuneConfig(num_samples=2), run_config=run).fit()
    for result in grid:
        assert log_of(result) == "".join(f"{n}\n" for n in range(200_000))
