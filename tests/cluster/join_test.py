"""Agents that arrive by themselves."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import BIN, JoinCluster, wait_until
from namespaces import Network

SCRIPT = Path(__file__).with_name("train.py")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinCluster]:
    with Network(["head", "a"]) as network, JoinCluster(network, tmp_path) as made:
        yield made


def test_a_run_that_waits_in_vain_says_how_agents_join(cluster: JoinCluster) -> None:
    command = [BIN / "lockstep", "run", "--engine", "join", "--nodes", "2", "--start-timeout", "1s"]
    home = cluster.folder / "home"
    home.mkdir()
    env = {**cluster.environment(), "HOME": str(home)}
    done = cluster.network.run("head", [*command, SCRIPT, 2, 1], env=env, cwd=cluster.folder)
    assert done.returncode != 0
    assert "1 node of 1 did not join within 1 s" in done.stderr
    address = cluster.network.addresses["head"]
    assert f"lockstep agent --join {address}:29400 --secret-file {home}/.lockstep/" in done.stderr
    assert list((home / ".lockstep").iterdir()) == [], "a secret that is worthless now"
    assert not (cluster.runs / "run").exists()


def test_the_secret_is_made_for_the_run_and_for_its_owner_only(cluster: JoinCluster) -> None:
    driver = cluster.run(SCRIPT, 2, 1, nodes=2)
    assert cluster.secret.exists()
    assert stat.S_IMODE(cluster.secret.stat().st_mode) == 0o600
    driver.finish()
    wait_until(lambda: not cluster.secret.exists(), "the removal of the secret")


def test_a_secret_that_was_there_stays(cluster: JoinCluster) -> None:
    cluster.secret.write_text("ab" * 32 + "\n")
    cluster.secret.chmod(0o600)
    cluster.run(SCRIPT, 2, 1, nodes=2).finish()
    assert cluster.secret.read_text() == "ab" * 32 + "\n"


def test_an_agent_may_come_in_place_of_a_lost_one(cluster: JoinCluster) -> None:
    driver = cluster.run(SCRIPT, 2, 4, '{"hold": 2, "max_failures": 1, "strategy": "STRICT_SPREAD"}', nodes=2)
    cluster.noted(0, 2)
    cluster.stop_agents("a")
    driver.wait_for("waiting for another node")
    cluster.join("a")
    result = driver.finish()
    assert [note["host"] for note in cluster.noted(1, 2)] == ["head", "a"]
    assert "node a is lost" in result["failures"][0][2]


def test_an_elastic_run_begins_without_nodes_that_do_not_come(cluster: JoinCluster) -> None:
    command = [BIN / "lockstep", "run", "--engine", "join", "--nodes", "2", *cluster.options]
    done = cluster.network.run(
        "head", [*command, SCRIPT, 1, 1, '{"most": 2}'], env=cluster.environment(), cwd=cluster.folder
    )
    assert done.returncode == 0, done.stderr
    assert "starting without 1 node; others may join later" in done.stderr


def test_an_elastic_run_goes_on_with_the_rest_and_grows_when_an_agent_joins(cluster: JoinCluster) -> None:
    options = '{"most": 2, "strategy": "STRICT_SPREAD", "pause": 0.1, "enough": 2}'
    driver = cluster.run(SCRIPT, 1, 10000, options, nodes=2)
    assert [note["host"] for note in cluster.noted(0, 2)] == ["head", "a"]
    cluster.stop_agents("a")
    assert [note["world_size"] for note in cluster.noted(1, 1)] == [1], "nobody waits for another node"
    cluster.join("a")
    notes = cluster.noted(2, 2)
    assert [note["host"] for note in notes] == ["head", "a"]
    result = driver.finish()
    assert [failure[0] for failure in result["failures"]] == ["node"], "growing is no failure"
    record = json.loads((cluster.runs / "run" / "run.json").read_text())
    assert [attempt["world_size"] for attempt in record["attempts"]] == [2, 1, 2]
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["failed", "resized", "finished"]


def test_an_elastic_run_goes_on_without_a_node_that_is_taken_away(cluster: JoinCluster) -> None:
    options = '{"most": 2, "strategy": "STRICT_SPREAD", "pause": 0.1, "enough": 1}'
    driver = cluster.run(SCRIPT, 1, 10000, options, nodes=2)
    cluster.noted(0, 2)
    cluster.stop_agents("a", signal.SIGTERM)
    assert [note["host"] for note in cluster.noted(1, 1)] == ["head"]
    assert driver.finish()["failures"] == []
    record = json.loads((cluster.runs / "run" / "run.json").read_text())
    assert [(attempt["world_size"], attempt["outcome"]) for attempt in record["attempts"]] == [
        (2, "resized"),
        (1, "finished"),
    ]


def test_the_head_may_be_idle(cluster: JoinCluster) -> None:
    driver = cluster.run(SCRIPT, 2, 1, options=["--head-idle"], nodes=1)
    cluster.join("a")
    driver.finish()
    assert [note["host"] for note in cluster.noted(0, 2)] == ["a", "a"]


def test_what_differs_between_nodes_is_told_at_once(cluster: JoinCluster) -> None:
    folder = cluster.folder / "modules"
    folder.mkdir()
    hide = f'mount -t tmpfs none {folder.parent / "only_here"} && exec "$@"'
    only_here = folder.parent / "only_here"
    (only_here / "inside").mkdir(parents=True)
    env = {**cluster.environment(), "PYTHONPATH": str(only_here / "inside")}
    words = ["run", "--engine", "join", "--nodes", "2", *cluster.options, SCRIPT, 2, 1]
    driver = cluster.network.start("head", [BIN / "lockstep", *words], subprocess.PIPE, env=env, cwd=cluster.folder)
    wait_until(cluster.secret.exists, "the secret")
    agent = [BIN / "lockstep", "agent", "--join", "head:29400", "--secret-file", cluster.secret, "--name", "a"]
    cluster.network.start("a", ["unshare", "--mount", "sh", "-c", hide, "sh", *agent], env=dict(os.environ))
    said = driver.communicate(timeout=60)[0].decode()
    assert driver.returncode != 0
    assert f"the path {only_here / 'inside'} is missing on a and there on head" in said


def test_the_environment_of_a_node_is_its_own(cluster: JoinCluster) -> None:
    cluster.run(SCRIPT, 2, 1, nodes=2).finish()
    assert [note["where"] for note in cluster.noted(0, 2)] == ["", "a"]


def test_python_finds_the_engine_in_the_script_too(cluster: JoinCluster) -> None:
    script = cluster.folder / "own.py"
    script.write_text(
        "import sys\n"
        "from lockstep import DataParallelTrainer, EngineConfig, RunConfig, ScalingConfig, session\n"
        "engine = EngineConfig('join', nodes=2, port=29555, secret_file=sys.argv[1])\n"
        "result = DataParallelTrainer(lambda: session.report({'world': session.get_world_size()}),\n"
        "    scaling_config=ScalingConfig(num_workers=2, placement_strategy='STRICT_SPREAD'),\n"
        "    run_config=RunConfig(engine=engine)).fit()\n"
        "print('world', result.metrics['world'])\n"
    )
    driver = cluster.network.start(
        "head", [sys.executable, script, cluster.secret], subprocess.PIPE, env=cluster.environment(), cwd=cluster.folder
    )
    wait_until(cluster.secret.exists, "the secret")
    words = ["agent", "--join", "head:29555", "--secret-file", cluster.secret]
    cluster.network.start("a", [BIN / "lockstep", *words])
    said = driver.communicate(timeout=60)[0].decode()
    assert "world 2" in said, said


def test_the_check_shows_nodes_and_the_network_between_them(cluster: JoinCluster) -> None:
    command = [BIN / "lockstep", "cluster", "check", "--engine", "join", "--nodes", "2", *cluster.options]
    check = cluster.network.start("head", command, subprocess.PIPE, env=cluster.environment(), cwd=cluster.folder)
    wait_until(cluster.secret.exists, "the secret")
    cluster.join("a")
    said = check.communicate(timeout=90)[0].decode()
    assert check.returncode == 0, said
    assert f"node a at {cluster.network.addresses['a']}: " in said
    assert "a has Lockstep" in said and "head to a: latency" in said and "all-reduce of 4 MB on 2 ranks" in said
    assert said.endswith("all is well\n")
