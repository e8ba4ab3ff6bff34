"""docs/tuning_database.md agrees with the database of an experiment."""

import re
import sqlite3
from pathlib import Path

import pytest
from lockstep import RunConfig, session, tune
from lockstep.checkpoint import Checkpoint

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tuning_database.md").read_text()


def section(name):
    return re.search(rf"^### {name}$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL).group(1)


def names(text):
    """What the first column of the tables names."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    place = tmp_path_factory.mktemp("database")

    def train(config):
        if config["x"] == 2:
            raise ValueError("two")
        session.report({"loss": config["x"]}, checkpoint=Checkpoint.from_dict({}))
        session.report({"loss": config["x"] / 2})

    tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=tune.schedulers.ASHAScheduler(max_t=2), max_concurrent_trials=1
        ),
        run_config=RunConfig(name="experiment", storage_path=place, verbose=0),
    ).fit()
    connection = sqlite3.connect(f"file:{place}/experiment/experiment.sqlite?mode=ro", uri=True)
    yield connection
    connection.close()


def columns(database, table):
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def test_tables(database):
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)) == tables
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    assert "is the format, now 1." in PAGE


def test_columns(database):
    assert names(section("trials")) == columns(database, "trials")
    events = columns(database, "events")
    assert names(section("events"))[: len(events)] == events
    for table in ("experiment", "results", "decisions"):
        for column in columns(database, table):
            assert f"`{column}`" in section(table)


def test_settings(database):
    keys = {key for (key,) in database.execute("SELECT key FROM experiment")}
    assert set(names(section("experiment"))) == keys


def test_kinds_of_events(database):
    source = (ROOT / "src" / "tune" / "experiment_store.h").read_text()
    kinds = re.search(r"enum class Kind \{(.*?)\}", source, re.DOTALL).group(1).replace("\n", " ")
    documented = names(section("events"))[len(columns(database, "events")) :]
    assert documented == [kind.strip() for kind in kinds.split(",")]
    seen = {kind for (kind,) in database.execute("SELECT DISTINCT kind FROM events")}
    assert {"ask", "start", "report", "checkpoint", "end", "fail"} <= seen <= set(documented)


def test_queries(database):
    queries = re.findall(r"(?:^    .*\n)+", PAGE[PAGE.index("## Useful") :], re.MULTILINE)
    assert len(queries) == 5
    found = [database.execute(query).fetchall() for query in queries]
    best, _, states, reasons, errors = found
    assert [row[:2] for row in best] == [(0, 0.5), (2, 3)]
    assert {row[:2] for row in states} == {("terminated", 2), ("error", 1)}
    assert {why for why, _ in reasons} == {"it has reached max_t", "it is not among the best at rung 1.0"}
    assert [row[0] for row in errors] == [1] and "two" in errors[0][2]
