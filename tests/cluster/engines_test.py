"""What every engine that spans nodes must do: the same tests for each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, JoinCluster, is_alive, wait_until
from launched_clusters import SlurmEngine, SshEngine
from namespaces import Network

SCRIPT = Path(__file__).with_name("train.py")

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=[JoinCluster, SshEngine, SlurmEngine], ids=lambda kind: kind.kind)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A head and two other nodes."""
    with Network(["head", "a", "b"]) as network, request.param(network, tmp_path) as made:
        yield made


def options(**given: Any) -> str:
    return json.dumps(given)


def test_ranks_are_spread_over_the_nodes_and_reach_each_other(cluster: Cluster) -> None:
    result = cluster.run(SCRIPT, 4, 2).finish()
    assert result["metrics"]["epoch"] == 1 and result["checkpoint"] == 1 and result["failures"] == []
    noted = cluster.noted(0, 4)
    record = json.loads((cluster.runs / "run" / "run.json").read_text())
    head, second, third = record["attempts"][0]["nodes"]  # agents that come by themselves come in any order
    assert head == "head" and {second, third} == {"a", "b"}
    assert [(note["host"], note["node_rank"], note["local_rank"]) for note in noted] == [
        (head, 0, 0),
        (head, 0, 1),
        (second, 1, 0),
        (third, 2, 0),
    ]
    assert [note["local_world_size"] for note in noted] == [2, 2, 1, 1]
    addresses = [cluster.network.addresses[note["host"]] for note in noted]
    for note in noted:
        assert note["addresses"] == addresses
        assert note["ip"] == cluster.network.addresses[note["host"]]
        assert (note["world_size"], note["cwd"]) == (4, str(cluster.folder))
    assert result["metrics"]["node_ip"] == cluster.network.addresses["head"]
    wait_until(lambda: all(map(cluster.is_empty, cluster.others)), "the end of the other nodes", 10)


def test_one_node_is_enough_for_workers_that_fit_there(cluster: Cluster) -> None:
    result = cluster.run(SCRIPT, 1, 1, options(strategy="PACK"), nodes=2).finish()
    (noted,) = cluster.noted(0, 1)
    assert noted["addresses"] == ["127.0.0.1"] and result["failures"] == []


def test_torch_meets_at_the_address_of_the_first_node(cluster: Cluster) -> None:
    metrics = cluster.run(SCRIPT.with_name("torch_train.py"), 4).finish()
    assert metrics["sum"] == 6 and metrics["nodes"] == [0, 0, 1, 2]
    assert metrics["backend"] == "lockstep"
    assert metrics["master"] == cluster.network.addresses["head"]


def test_a_killed_worker_is_restarted_from_the_checkpoint(cluster: Cluster) -> None:
    driver = cluster.run(SCRIPT, 3, 4, options(hold=2, max_failures=1))
    victim = cluster.noted(0, 3)[2]
    assert victim["host"] != "head"
    wait_until(lambda: (cluster.runs / "run" / "checkpoint_000001" / "manifest.json").exists(), "a checkpoint")
    os.kill(victim["pid"], signal.SIGKILL)
    result = driver.finish()
    assert [failure[:2] for failure in result["failures"]] == [["signal", victim["host"]]]
    assert [note["start"] for note in cluster.noted(1, 3)] == [2, 2, 2]
    assert result["checkpoint"] == 3


def test_a_killed_agent_is_named_and_its_ranks_run_elsewhere(cluster: Cluster) -> None:
    driver = cluster.run(SCRIPT, 3, 4, options(hold=2, max_failures=1), options=["--replace-timeout", "2s"])
    pids = {note["host"]: note["pid"] for note in cluster.noted(0, 3)}
    wait_until(lambda: (cluster.runs / "run" / "checkpoint_000001" / "manifest.json").exists(), "a checkpoint")
    cluster.stop_agents("b")
    result = driver.finish()
    kind, _, message = result["failures"][0]
    assert kind == "node" and "node b is lost" in message
    assert not is_alive(pids["b"])
    noted = cluster.noted(1, 3)
    assert [note["start"] for note in noted] == [2, 2, 2]
    assert result["checkpoint"] == 3


def test_a_cut_cable_is_noticed_in_time_and_the_cut_off_workers_end_before(cluster: Cluster) -> None:
    driver = cluster.run(
        SCRIPT, 3, 4, options(hold=2, max_failures=1), options=["--node-timeout", "2s", "--replace-timeout", "1s"]
    )
    pids = {note["host"]: note["pid"] for note in cluster.noted(0, 3)}
    wait_until(lambda: (cluster.runs / "run" / "checkpoint_000001" / "manifest.json").exists(), "a checkpoint")
    cluster.network.cut("b")
    wait_until(lambda: not is_alive(pids["b"]), "the end of the worker that is cut off")
    assert "node b is lost" not in driver.output
    driver.wait_for("node b is lost")
    assert driver.finish()["failures"][0][0] == "node"


def test_workers_end_even_if_their_agent_is_stopped(cluster: Cluster) -> None:
    driver = cluster.run(
        SCRIPT, 3, 4, options(hold=2, max_failures=1), options=["--node-timeout", "2s", "--replace-timeout", "1s"]
    )
    pids = {note["host"]: note["pid"] for note in cluster.noted(0, 3)}
    wait_until(lambda: (cluster.runs / "run" / "checkpoint_000001" / "manifest.json").exists(), "a checkpoint")
    cluster.stop_agents("b", signal.SIGSTOP)
    wait_until(lambda: not is_alive(pids["b"]), "the end of the worker whose agent is stopped")
    assert not (cluster.notes / "1_0.json").exists(), "its rank runs elsewhere already"
    result = driver.finish()
    assert "node b is lost" in result["failures"][0][2]
    cluster.stop_agents("b", signal.SIGCONT)
    wait_until(lambda: cluster.is_empty("b"), "the end of the agent")


def test_everything_ends_with_the_driver(cluster: Cluster) -> None:
    driver = cluster.run(SCRIPT, 3, 9, options(hold=0))
    cluster.noted(0, 3)
    driver.process.send_signal(signal.SIGKILL)
    for name in ("head", *cluster.others):
        wait_until(lambda name=name: cluster.is_empty(name), f"the end of everything on {name}", 10)


def test_a_run_is_restored_on_the_nodes(cluster: Cluster) -> None:
    failed = cluster.run(SCRIPT, 3, 4, options(hold=2))
    victim = cluster.noted(0, 3)[1]
    wait_until(lambda: (cluster.runs / "run" / "checkpoint_000001" / "manifest.json").exists(), "a checkpoint")
    os.kill(victim["pid"], signal.SIGKILL)
    assert failed.process.wait(60) != 0
    wait_until(lambda: all(map(cluster.is_empty, cluster.others)), "the end of the first run")
    result = cluster.run(SCRIPT, 3, 4, options(restore=True)).finish()
    assert result["checkpoint"] == 3
    assert [note["start"] for note in cluster.noted(1, 3)] == [2, 2, 2]
    assert {note["host"] for note in cluster.noted(1, 3)} == {"head", "a", "b"}
