"""Agents as job steps of a real Slurm."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launchers import PROBE, ROOT, LauncherRefused, is_alive, launcher, wait_until
from namespaces import Network
from slurm_cluster import SlurmCluster


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    names = ["n1", "n2", "n3", "n4"]
    with Network(["head", *names]) as network, SlurmCluster(network, "head", names, gpus=2) as cluster:
        yield cluster


@pytest.fixture
def job(slurm: SlurmCluster) -> Iterator[dict[str, str]]:
    env = slurm.allocate(3, "--nodelist=n1,n2,n3", "--cpus-per-task=3", "--gpus-per-node=1")
    yield env
    slurm.cancel(env["SLURM_JOB_ID"])


def test_nodes_offer_what_the_job_has(slurm: SlurmCluster, job: dict[str, str], tmp_path: Path) -> None:
    with launcher(slurm.network, "n1", "slurm", {}, tmp_path, job) as found:
        others = [{"name": "n2", "cpus": 3}, {"name": "n3", "cpus": 3}]
        assert found.nodes() == {"others": others, "head_works": True, "head_cpus": 3}
    with launcher(slurm.network, "n2", "slurm", {"nodes": 2}, tmp_path, job) as found:
        assert found.nodes() == {"others": [{"name": "n1", "cpus": 3}], "head_works": True, "head_cpus": 3}
    with launcher(slurm.network, "head", "slurm", {}, tmp_path, job) as found:
        nodes = found.nodes()
        assert [each["name"] for each in nodes["others"]] == ["n1", "n2", "n3"]
        assert not nodes["head_works"], "the driver is on a node that is not in the job"


def test_agents_are_job_steps_and_end_with_the_launcher(
    slurm: SlurmCluster, job: dict[str, str], tmp_path: Path
) -> None:
    # The variables of a submission with options that a step of one task must not take over.
    env = {**job, "SLURM_NTASKS_PER_NODE": "2", "SLURM_NTASKS": "6", "SLURM_GPUS_PER_NODE": "7", "SLURM_EXACT": "1"}
    with launcher(slurm.network, "n1", "slurm", {}, tmp_path, env) as found:
        found.nodes()
        for name in ("n2", "n3"):
            found.launch(name)
        for name in ("n2", "n3"):
            note = found.note(name)
            assert (note["secret"], note["host"]) == ("s3cret", name)
            assert note["gpus"] in ("0", "1"), "one of the node's two, as the job has it"
            assert int(note["pid"]) in slurm.network.processes(name)
        assert len(slurm.steps()) == 2
        assert found.ended(wait=0) is None
        found.stop()
        assert found.is_over("n2") and found.is_over("n3")
    assert slurm.steps() == []


def test_failures_are_told(slurm: SlurmCluster, job: dict[str, str], tmp_path: Path) -> None:
    with launcher(slurm.network, "n1", "slurm", {}, tmp_path, job) as found:
        found.nodes()
        found.launch("n2", argv=["/no/such/lockstep-agent"])
        why = found.ended()["n2"]
        assert "srun has ended with code 127" in why and "lockstep is not installed on n2" in why
        found.launch("n2")
        os.kill(int(found.note("n2")["pid"]), signal.SIGKILL)
        assert "n2: task 0: Killed" in found.ended()["n2"]
        # The node is well: it is the first to be asked.
        assert found.replace("n2") == {"name": "n2", "cpus": 3}
        found.launch("n2")
        assert found.note("n2")["host"] == "n2"


def test_a_step_does_not_outlive_the_run_even_if_its_srun_was_killed(
    slurm: SlurmCluster, job: dict[str, str], tmp_path: Path
) -> None:
    with launcher(slurm.network, "n1", "slurm", {}, tmp_path, job) as found:
        found.nodes()
        found.launch("n2")
        pid = found.note("n2")["pid"]
        sruns = [
            each
            for each in slurm.network.processes("n1")
            if Path(f"/proc/{each}/cmdline").read_bytes().startswith(b"srun\0")
        ]
        assert sruns
        for each in sruns:
            os.kill(each, signal.SIGKILL)
        assert "signal 9" in found.ended()["n2"]
        assert is_alive(pid), "Slurm lets it go on"
        found.stop()
        wait_until(lambda: not is_alive(pid), "the step's end")
    wait_until(lambda: slurm.steps() == [], "the end of all steps")


def test_agents_end_with_a_killed_driver(slurm: SlurmCluster, job: dict[str, str], tmp_path: Path) -> None:
    with launcher(slurm.network, "n1", "slurm", {}, tmp_path, job) as found:
        found.nodes()
        found.launch("n2")
        pid = found.note("n2")["pid"]
        found.kill()
    wait_until(lambda: found.is_over("n2") and not is_alive(pid), "the agent's end")
    wait_until(lambda: slurm.steps() == [], "the end of the step")


def test_outside_of_an_allocation_it_says_what_to_do(slurm: SlurmCluster, tmp_path: Path) -> None:
    with (
        launcher(slurm.network, "head", "slurm", {}, tmp_path, slurm.env) as found,
        pytest.raises(LauncherRefused, match=r"not inside an allocation.*lockstep submit slurm -N 4 train.py"),
    ):
        found.nodes()


def test_a_program_that_srun_started_many_times_is_refused(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = f"echo '{{\"do\": \"nodes\"}}' | {PROBE} slurm '{{}}'"
    said = slurm.run("head", ["srun", "-N2", "-n4", "--input=none", "sh", "-c", script])
    lines = said.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert "srun has started this program 4 times" in line and "sbatch -N 2 --wrap" in line


def test_a_script_is_submitted(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(sys.argv[1], os.environ['SLURM_JOB_NUM_NODES'], 'nodes')\n"
    )
    lockstep = ROOT / ".venv" / "bin" / "lockstep"
    said = slurm.run("head", [lockstep, "submit", "slurm", "-N", "2", "train.py", "hello"], cwd=tmp_path)
    job = said.split()[3]
    output = tmp_path / f"slurm-{job}.out"
    assert f"tail -F {output}" in said
    wait_until(lambda: output.exists() and output.read_text() == "hello 2 nodes\n", "the job's output")


@pytest.mark.timeout(200)
def test_another_node_comes_in_place_of_a_dead_one(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = slurm.allocate(3, "--nodelist=n1,n2,n3", "--cpus-per-task=3", "--gpus-per-node=1")
    with launcher(slurm.network, "n1", "slurm", {}, tmp_path, job) as found:
        found.nodes()
        for name in ("n2", "n3"):
            found.launch(name)
        survivor = found.note("n2")["pid"]
        found.note("n3")
        slurm.network.power_off("n3")
        assert found.replace("n3") == {"name": "n4", "cpus": 3}
        found.launch("n4")
        note = found.note("n4")
        assert note["host"] == "n4" and note["gpus"] in ("0", "1")
        assert is_alive(survivor)
        jobs = slurm.run("head", ["squeue", "-h", "-o", "%N"]).split()
        assert sorted(jobs) == ["n4", "n[1-2]"], "the job has given up the dead node"
        found.kill()  # the hard end: nothing is left of it
    wait_until(lambda: not is_alive(note["pid"]), "the agent's end")
    wait_until(
        lambda: slurm.run("head", ["squeue", "-h", "-o", "%N"]).split() == ["n[1-2]"], "the end of the second job"
    )
    slurm.cancel(job["SLURM_JOB_ID"])
    slurm.network.heal("n3")
    slurm.start_node("n3")
    slurm.wait_for(["n3"])


@pytest.mark.timeout(200)
def test_a_node_that_comes_back_is_taken_if_there_is_no_other(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = slurm.allocate(4, "--no-kill")
    with launcher(slurm.network, "n1", "slurm", {"nodes": 2}, tmp_path, job) as found:
        assert [each["name"] for each in found.nodes()["others"]] == ["n2"]
        found.launch("n2")
        found.note("n2")
        slurm.network.cut("n2")
        assert found.replace("n2", wait=5) is None
        slurm.network.heal("n2")
        assert found.replace("n2")["name"] == "n2"
        queued = slurm.run("head", ["squeue", "-h", "-t", "pending"])
        assert queued == "", "the request for another is taken back"
    slurm.cancel(job["SLURM_JOB_ID"])
