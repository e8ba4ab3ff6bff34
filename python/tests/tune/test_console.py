"""What an experiment shows on the terminal."""

import io

import pytest
from lockstep import RunConfig, tune
from lockstep.tune import TuneConfig, Tuner
from lockstep.tune._console import Console
from lockstep.tune._trial import Trial


class Terminal(io.StringIO):
    def isatty(self):
        return True


def trial(number):
    return Trial(f"a_{number}", {}, "", "train", number=number)


def test_the_table(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    console = Console(1, "loss", "min", total=10)
    for number in range(3):
        console.started(trial(number))
        console.reported(trial(number), {"loss": 3.0 - number, "training_iteration": 5})
    first = trial(0)
    first.status = "TERMINATED"
    console.ended(first)
    line = console.line(2)
    assert line.startswith("lockstep: 1/10 trials, 2 running") and "left" in line
    assert "best loss=1 (train_a_2)" in line
    header, *rows = console.rows(12)
    assert header.split() == ["trial", "reports", "loss", "seconds"]
    assert [row.split()[:3] for row in rows] == [["train_a_1", "5", "2"], ["train_a_2", "5", "1"]]


def test_many_running_trials_are_cut(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    console = Console(1, None, None, total=None)
    for number in range(30):
        console.started(trial(number))
    rows = console.rows(6)
    assert len(rows) == 7 and rows[-1].strip() == "and 25 more"


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 1), (2, 3)])
def test_on_a_pipe(tmp_path, capfd, verbose, lines):
    Tuner(
        lambda config: {"loss": 1.5},
        tune_config=TuneConfig(num_samples=2, metric="loss", mode="min"),
        run_config=RunConfig(storage_path=tmp_path, verbose=verbose),
    ).fit()
    captured = capfd.readouterr()
    assert len(captured.err.splitlines()) == lines
    assert captured.out == "" and "\x1b" not in captured.err


def test_a_restored_experiment_counts_what_ended_before(tmp_path, capfd):
    config = RunConfig(name="experiment", storage_path=tmp_path)
    Tuner(lambda config: {"loss": 1}, {"x": tune.grid_search([1, 2])}, run_config=config).fit()
    Tuner.restore(tmp_path / "experiment").fit()
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("lockstep: 2/2 trials, 0 running")
    assert second.startswith("lockstep: 2/2 trials, 0 running")
