"""`lockstep tune`: the trials of an experiment and their plots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_experiments import make_experiment, report_of
from made_runs import Cli, MakeRun, table


def losses(path: Path) -> list[float]:
    from lockstep._core import tune

    opened = tune.Experiment.open(path, read_only=True)
    return [opened.trial(number).last_result["loss"] for number in range(opened.size())]


def part(text: str) -> list[dict[str, str]]:
    """The table between the counts and the best."""
    return table(text.split("\n\n")[1] + "\n")


def test_show_lists_trials_best_first(cli: Cli, storage: Path) -> None:
    path = storage / "search-1"
    make_experiment(path)
    done = cli("tune", "show", "search-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("search-1: finished, 8 trials: 8 terminated\n")
    rows = part(done.stdout)
    assert len(rows) == 8
    assert list(rows[0])[:4] == ["TRIAL", "STATE", "ITERATIONS", "TIME"]
    assert {"lr", "momentum", "net", "loss"} <= set(rows[0]), "parameters without their prefix"
    assert "epochs" not in rows[0], "a constant is no parameter"
    found = [float(row["loss"]) for row in rows]
    assert found == sorted(found)
    assert "accuracy=" in done.stdout
    best = min(losses(path))
    assert f"best: {rows[0]['TRIAL']}, loss={best:.4g} (min)" in done.stdout
    assert '"epochs": 3' in done.stdout, "the whole configuration"
    assert "restore" not in done.stdout, "nothing is left to do"


def test_show_sorts_and_limits(cli: Cli, storage: Path) -> None:
    make_experiment(storage / "search-1")
    lines = cli("tune", "show", "search-1", "--limit", "2").stdout
    assert len(part(lines.replace("6 more; --limit 8 shows all\n", ""))) == 2
    assert "6 more; --limit 8 shows all" in lines
    by_number = cli("tune", "show", "search-1", "--sort", "trial", "--json")
    assert [trial["number"] for trial in json.loads(by_number.stdout)["trials"]] == list(range(8))
    accurate = cli("tune", "show", "search-1", "--metric", "accuracy", "--mode", "max", "--json")
    value = json.loads(accurate.stdout)
    found = [trial["metrics"]["accuracy"] for trial in value["trials"]]
    assert found == sorted(found, reverse=True)
    assert value["best"]["number"] == value["trials"][0]["number"]


def test_show_as_json(cli: Cli, storage: Path) -> None:
    path = storage / "search-1"
    make_experiment(path, fail=3)
    value = json.loads(cli("tune", "show", path, "--json").stdout)
    assert value["name"] == "search-1" and value["path"] == str(path)
    assert value["counts"] == {"pending": 0, "running": 0, "paused": 0, "terminated": 7, "error": 1}
    failed = next(trial for trial in value["trials"] if trial["number"] == 3)
    assert failed["state"] == "error" and "ValueError" in failed["error"]
    assert failed["metrics"]["loss"] == pytest.approx(report_of(failed["config"])["loss"])
    assert value["best"]["state"] == "terminated"
    assert value["metrics"] == ["loss"] and value["modes"] == ["min"]


def test_show_names_failures_and_how_to_go_on(cli: Cli, storage: Path) -> None:
    path = storage / "search-1"
    experiment = make_experiment(path, ended=5, fail=2)
    del experiment  # as if its process had died
    shown = cli("tune", "show", "search-1").stdout
    assert "search-1: unfinished, 5 trials: 4 terminated, 1 error" in shown
    assert "failed: ValueError: no such net\n" in shown
    assert f'to go on: tune.Tuner.restore("{path}", trainable, resume_errored=True).fit()' in shown


def test_show_while_it_runs(cli: Cli, storage: Path) -> None:
    path = storage / "search-1"
    experiment = make_experiment(path, ended=2)
    start = experiment.next()
    experiment.sync()
    files = sorted(file.name for file in path.iterdir())
    shown = cli("tune", "show", "search-1")
    assert shown.returncode == 0, shown.stderr
    assert "search-1: running, 3 trials: 1 running, 2 terminated" in shown.stdout
    assert "restore" not in shown.stdout
    assert sorted(file.name for file in path.iterdir()) == files
    experiment.on_report(start.trial, report_of(start.config))  # was not disturbed
    experiment.on_ended(start.trial)


def test_show_without_a_metric(cli: Cli, storage: Path) -> None:
    make_experiment(storage / "search-1", metrics=[], modes=[])
    shown = cli("tune", "show", "search-1").stdout
    assert "best:" not in shown and "loss=" in shown
    assert "best:" in cli("tune", "show", "search-1", "--metric", "size").stdout


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere", "does not exist"),
        ("a run", "is a run, not an experiment"),
        ("other", "has no experiment.sqlite"),
        ("search-1/trial", "is a trial of the experiment"),
    ],
)
def test_what_is_no_experiment(cli: Cli, storage: Path, make_run: MakeRun, path: str, says: str) -> None:
    make_run("a run")
    (storage / "other").mkdir()
    make_experiment(storage / "search-1")
    (storage / "search-1" / "trial").mkdir()
    for command in ("show", "plot"):
        done = cli("tune", command, storage / path)
        assert done.returncode == 1
        assert says in done.stderr and "Traceback" not in done.stderr


def test_a_damaged_database(cli: Cli, storage: Path) -> None:
    (storage / "search-1").mkdir()
    (storage / "search-1" / "experiment.sqlite").write_text("this is no database, though it is long enough\n" * 100)
    done = cli("tune", "show", "search-1")
    assert done.returncode == 1
    assert "experiment.sqlite" in done.stderr and "not a database" in done.stderr


def test_an_unknown_metric_names_those_there_are(cli: Cli, storage: Path) -> None:
    make_experiment(storage / "search-1")
    for command in ("show", "plot"):
        done = cli("tune", command, "search-1", "--metric", "los")
        assert done.returncode == 1
        assert '"los"' in done.stderr
    assert "accuracy" in cli("tune", "show", "search-1", "--sort", "los").stderr


def test_plot_writes_all_kinds_that_fit(cli: Cli, storage: Path) -> None:
    path = storage / "search-1"
    make_experiment(path)
    done = cli("tune", "plot", "search-1")
    assert (done.returncode, done.stderr) == (0, "")
    kinds = ["history", "parallel", "importance", "contour"]
    assert done.stdout.splitlines() == [str(path / "plots" / f"{kind}.html") for kind in kinds]
    for kind in kinds:
        page = (path / "plots" / f"{kind}.html").read_text()
        assert "<svg" in page and "src=" not in page, "it loads nothing"


def test_plot_with_two_metrics_has_a_pareto_front(cli: Cli, storage: Path, tmp_path: Path) -> None:
    changes = {"metrics": ["loss", "size"], "modes": ["min", "min"], "searcher": {"kind": "nsga2"}}
    make_experiment(storage / "search-1", **changes)
    done = cli("tune", "plot", "search-1", "--output", "pages")
    assert done.stdout.splitlines()[-1] == str(tmp_path / "pages" / "pareto.html")


def test_plot_one_kind_into_a_file(cli: Cli, storage: Path, tmp_path: Path) -> None:
    make_experiment(storage / "search-1")
    done = cli("tune", "plot", "search-1", "pareto", "--x", "loss", "--y", "size", "-o", "front.html")
    assert done.returncode == 0, done.stderr
    assert "size" in (tmp_path / "front.html").read_text()
    best = {}
    for mode in ("min", "max"):
        assert cli("tune", "plot", "search-1", "history", "-o", f"{mode}.html", "--mode", mode).returncode == 0
        best[mode] = (tmp_path / f"{mode}.html").read_text()
    assert best["min"] != best["max"]
    assert not (storage / "search-1" / "plots").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--output", "x.html"), "name one kind"),
        (("history", "--output", "x.png"), "lockstep.tune.plot in Python"),
        (("history", "--x", "lr"), "contour or pareto"),
        (("histogram",), "histogram"),
        (("history", "--mode", "best"), "best"),
    ],
)
def test_wrong_usage_of_plot(cli: Cli, storage: Path, arguments: tuple[str, ...], says: str) -> None:
    make_experiment(storage / "search-1")
    done = cli("tune", "plot", "search-1", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
