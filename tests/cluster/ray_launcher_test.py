"""Agents in actors of a real Ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launchers import PATIENCE, ROOT, LauncherFailed, LauncherRefused, is_alive, launcher, wait_until
from namespaces import Network
from ray_cluster import PYTHON, RayCluster

HELPER = [str(PYTHON), "-m", "lockstep._ray_nodes"]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    nodes = {"r1": (2, 0), "r2": (4, 2), "r3": (4, 0)}
    with Network(["driver", *nodes]) as network, RayCluster(network, nodes) as cluster:
        yield cluster


def start(ray: RayCluster, folder: Path, node: str = "r1", **options: Any) -> Any:
    return launcher(ray.network, node, "ray", {"helper": HELPER, **options}, folder, ray.env)


def alone(ray: RayCluster) -> list[str]:
    """The helper on a machine that does not see the processes and sockets of Ray's nodes, which namespaces share."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*unshare, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(ray.folder), *HELPER]


def actor_of(pid: str) -> int:
    """The process of the actor that started this agent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_whole_nodes_are_taken_and_given_back(ray: RayCluster, tmp_path: Path) -> None:
    for _ in range(2):  # the second time shows that all was given back
        with start(ray, tmp_path) as found:
            nodes = found.nodes()
            offers = [{"name": "r1", "cpus": 2}, {"name": "r2", "cpus": 4}, {"name": "r3", "cpus": 4}]
            assert sorted(nodes["others"], key=lambda each: each["name"]) == offers
            assert not nodes["head_works"], "the driver's own machine is one of Ray's nodes"
            for name in ("r1", "r2"):
                found.launch(name)
            notes = {name: found.note(name) for name in ("r1", "r2")}
            assert [note["secret"] for note in notes.values()] == ["s3cret", "s3cret"]
            assert [note["gpus"] for note in notes.values()] == ["", "0,1"], "as Ray gave them"
            assert int(notes["r2"]["pid"]) in ray.network.processes("r2")
            assert found.ended(wait=0) is None
            found.stop()
            wait_until(lambda: found.is_over("r1") and found.is_over("r2"), "the agents' end")


def test_strategies_place_the_room_for_workers(ray: RayCluster, tmp_path: Path) -> None:
    def offers(**options: Any) -> dict[str, float]:
        with start(ray, tmp_path, **options) as found:
            return {each["name"]: each["cpus"] for each in found.nodes()["others"]}

    assert list(offers(workers=4, strategy="STRICT_PACK").values()) == [4]
    assert offers(workers=3, strategy="STRICT_SPREAD") == {"r1": 1, "r2": 1, "r3": 1}
    assert offers(workers=2, resources_per_worker={"CPU": 1, "GPU": 1}) == {"r2": 2}
    assert sum(offers(workers=5, strategy="SPREAD", resources_per_worker={"CPU": 2}).values()) == 10


def test_gpus_of_many_workers_are_all_there(ray: RayCluster, tmp_path: Path) -> None:
    with start(ray, tmp_path, workers=2, resources_per_worker={"CPU": 1, "GPU": 1}) as found:
        assert [each["name"] for each in found.nodes()["others"]] == ["r2"]
        found.launch("r2")
        assert sorted(found.note("r2")["gpus"].split(",")) == ["0", "1"]


def test_what_does_not_fit_is_said(ray: RayCluster, tmp_path: Path) -> None:
    with start(ray, tmp_path, workers=4, strategy="STRICT_SPREAD", patience=2) as found:
        with pytest.raises(LauncherFailed) as error:
            found.nodes()
        assert "asked for 4 x (1 CPU) (STRICT_SPREAD); the cluster has 10 CPU, 2 GPU; free are 10 CPU" in str(
            error.value
        )
    with (
        start(ray, tmp_path, nodes=4) as found,
        pytest.raises(LauncherRefused, match="4 nodes were asked for, but only 3"),
    ):
        found.nodes()


def test_an_agent_does_not_survive_its_actor_nor_its_driver(ray: RayCluster, tmp_path: Path) -> None:
    stubborn = ["sh", "-c", f"echo $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/up; exec sleep 1000"]
    with start(ray, tmp_path) as found:
        found.nodes()
        found.launch("r2", argv=stubborn)
        wait_until((tmp_path / "up").exists, "the agent")
        pid = (tmp_path / "up").read_text().strip()
        os.kill(actor_of(pid), signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "the agent's end")
        assert "the actor has ended" in found.ended()["r2"]
        found.launch("r3")
        pid = found.note("r3")["pid"]
        found.kill()
        wait_until(lambda: not is_alive(pid), "the agent's end")
        assert found.is_over("r3"), "it had time to clean up"


def test_failures_are_told_and_the_node_serves_again(ray: RayCluster, tmp_path: Path) -> None:
    with start(ray, tmp_path) as found:
        found.nodes()
        found.launch("r2", argv=["sh", "-c", "echo 'no such run' >&2; exit 3"])
        assert found.ended()["r2"] == "the agent has ended with code 3: no such run"
        assert found.replace("r2") == {"name": "r2", "cpus": 4}
        found.launch("r2")
        note = found.note("r2")
        assert note["gpus"] == "0,1"
        # An actor that was killed is made anew.
        os.kill(actor_of(note["pid"]), signal.SIGKILL)
        assert "the actor has ended" in found.ended()["r2"]
        assert found.replace("r2") == {"name": "r2", "cpus": 4}
        found.launch("r2")
        assert found.note("r2")["secret"] == "s3cret"


def test_a_helper_that_is_gone_is_the_end_of_all_its_nodes(ray: RayCluster, tmp_path: Path) -> None:
    with start(ray, tmp_path) as found:
        found.nodes()
        found.launch("r2")
        pid = found.note("r2")["pid"]
        helper = next(
            each
            for each in ray.network.processes("r1")
            if Path(f"/proc/{each}/cmdline").read_bytes().startswith(HELPER[0].encode())
            and b"_ray_nodes" in Path(f"/proc/{each}/cmdline").read_bytes()
        )
        os.kill(helper, signal.SIGKILL)
        assert "Ray's helper" in found.ended()["r2"]
        wait_until(lambda: not is_alive(pid), "the agent's end")


def test_a_driver_outside_of_the_cluster_joins_it_without_resources(ray: RayCluster, tmp_path: Path) -> None:
    options = {"helper": alone(ray), "address": ray.address}
    for _ in range(2):
        with launcher(ray.network, "driver", "ray", options, tmp_path, {**ray.env, "RAY_ADDRESS": ""}) as found:
            names = [each["name"] for each in found.nodes()["others"]]
            assert sorted(names) == ["r1", "r2", "r3"]
            found.launch("r3")
            assert found.note("r3")["host"] == "r3"
            assert len(ray.network.processes("driver")) > 2
        wait_until(lambda: not ray.network.processes("driver"), "the end of the driver's node")


def test_without_a_cluster_or_without_ray_it_says_what_to_do(ray: RayCluster, tmp_path: Path) -> None:
    nowhere = {**ray.env, "RAY_ADDRESS": "", "RAY_TMPDIR": str(tmp_path)}
    with (
        launcher(ray.network, "driver", "ray", {"helper": alone(ray)}, tmp_path, nowhere) as found,
        pytest.raises(LauncherFailed, match=r"there is no Ray cluster on this machine.*set RAY_ADDRESS=HOST:PORT"),
    ):
        found.nodes()
    options = {"helper": [str(ROOT / ".venv" / "bin" / "python"), "-m", "lockstep._ray_nodes"]}
    with (
        launcher(ray.network, "driver", "ray", options, tmp_path) as found,
        pytest.raises(LauncherRefused, match=r"Ray is not installed for .*pip install ray"),
    ):
        found.nodes()


def test_another_node_comes_in_place_of_a_dead_one(ray: RayCluster, tmp_path: Path) -> None:
    with start(ray, tmp_path, workers=2, strategy="STRICT_SPREAD", resources_per_worker={"CPU": 3}) as found:
        assert {each["name"] for each in found.nodes()["others"]} == {"r2", "r3"}
        found.launch("r2")
        found.note("r2")
        found.launch("r3")
        found.note("r3")
        ray.network.power_off("r3")
        ray.network.heal("r3")
        ray.start("r3")  # where there is room again
        assert found.replace("r3", wait=PATIENCE * 2) == {"name": "r3", "cpus": 3}
        found.launch("r3")
        assert int(found.note("r3")["pid"]) in ray.network.processes("r3")
        assert is_alive(found.note("r2")["pid"])
