"""Agents on other machines by OpenSSH's client and a real sshd."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launchers import LauncherRefused, is_alive, launcher, wait_until
from namespaces import Network
from ssh_servers import SshServers


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(["head", "a", "b"]) as network:
        yield network


@pytest.fixture
def servers(network: Network) -> Iterator[SshServers]:
    with SshServers(network, ["a", "b"]) as servers:
        yield servers
    network.kill_all("a")
    network.kill_all("b")


def test_agents_get_the_secret_and_end_with_the_connection(
    network: Network, servers: SshServers, tmp_path: Path
) -> None:
    with launcher(network, "head", "ssh", {"hosts": "a:8,b"}, tmp_path, servers.env) as ssh:
        nodes = ssh.nodes()
        assert nodes["others"] == [{"name": "a", "cpus": 8}, {"name": "b", "cpus": None}]
        assert not nodes["head_works"], "it is not in the list"
        for name in ("a", "b"):
            ssh.launch(name)
        notes = {name: ssh.note(name) for name in ("a", "b")}
        assert [note["secret"] for note in notes.values()] == ["s3cret", "s3cret"]
        words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in network.processes("head")]
        words += [Path(f"/proc/{pid}/environ").read_bytes() for pid in network.processes("head")]
        assert len(words) > 4 and not any(b"s3cret" in each for each in words)
        assert int(notes["a"]["pid"]) in network.processes("a"), "it runs on that node"
        assert ssh.ended(wait=0) is None
        ssh.stop()
        assert ssh.is_over("a") and ssh.is_over("b")


def test_agents_end_with_a_killed_driver(network: Network, servers: SshServers, tmp_path: Path) -> None:
    with launcher(network, "head", "ssh", {"hosts": "a:8"}, tmp_path, servers.env) as ssh:
        ssh.nodes()
        ssh.launch("a")
        pid = ssh.note("a")["pid"]
        ssh.kill()
    wait_until(lambda: ssh.is_over("a") and not is_alive(pid), "the agent's end")


def test_the_drivers_machine_takes_workers_if_it_is_in_the_list(
    network: Network, servers: SshServers, tmp_path: Path
) -> None:
    for name in ("head", "localhost", network.addresses["head"]):
        with launcher(network, "head", "ssh", {"hosts": f"a:1,{name}:3"}, tmp_path, servers.env) as ssh:
            assert ssh.nodes() == {"others": [{"name": "a", "cpus": 1}], "head_works": True, "head_cpus": 3}
    with launcher(network, "head", "ssh", {"hosts": "head:3,b:2,a:2", "nodes": 2}, tmp_path, servers.env) as ssh:
        assert ssh.nodes() == {"others": [{"name": "b", "cpus": 2}], "head_works": True, "head_cpus": 3}
    with (
        launcher(network, "head", "ssh", {"hosts": "a", "nodes": 2}, tmp_path, servers.env) as ssh,
        pytest.raises(LauncherRefused, match="nodes is 2, but the list has 1 hosts"),
    ):
        ssh.nodes()


def test_failures_are_told_in_the_words_of_ssh(network: Network, servers: SshServers, tmp_path: Path) -> None:
    servers.trust("b", key_of="a")
    with launcher(network, "head", "ssh", {"hosts": "a,b,nowhere"}, tmp_path, servers.env) as ssh:
        ssh.nodes()
        ssh.launch("b")
        why = ssh.ended()["b"]
        assert "ssh did not connect" in why and "Host key for b has changed" in why
        ssh.launch("nowhere")
        assert "Could not resolve hostname nowhere" in ssh.ended()["nowhere"]
        ssh.launch("a", argv=["/no/such/lockstep-agent", "--join", "head:1"])
        why = ssh.ended()["a"]
        assert "lockstep is not installed on a: there is no /no/such/lockstep-agent" in why
        ssh.launch("a", argv=["sh", "-c", "echo 'no such run' >&2; exit 3"])
        assert ssh.ended()["a"] == "the agent has ended with code 3: no such run"
        ssh.launch("a")
        os.kill(int(ssh.note("a")["pid"]), signal.SIGKILL)
        assert "a is up" in ssh.ended()["a"]


def test_no_question_is_asked(network: Network, servers: SshServers, tmp_path: Path) -> None:
    (servers.folder / "known_hosts").write_text("")
    (servers.folder / "config").write_text("StrictHostKeyChecking ask\n" + (servers.folder / "config").read_text())
    with launcher(network, "head", "ssh", {"hosts": "a"}, tmp_path, servers.env) as ssh:
        ssh.nodes()
        ssh.launch("a")
        assert "Host key verification failed" in ssh.ended()["a"]


def test_a_config_for_people_does_no_harm(network: Network, servers: SshServers, tmp_path: Path) -> None:
    config = servers.folder / "config"
    for_people = "RequestTTY force\nRemoteCommand top\nLocalForward 7777 a:7777\nExitOnForwardFailure yes\n"
    config.write_text(f"{for_people}ControlMaster auto\nControlPath {servers.folder}/m-%h\n" + config.read_text())
    with launcher(network, "head", "ssh", {"hosts": "a,b"}, tmp_path, servers.env) as ssh:
        ssh.nodes()
        for name in ("a", "b"):
            ssh.launch(name)
            assert ssh.note(name)["secret"] == "s3cret"
        ssh.stop()
        assert ssh.is_over("a") and ssh.is_over("b")


def test_a_lost_host_is_taken_again_when_ssh_reaches_it(network: Network, servers: SshServers, tmp_path: Path) -> None:
    with launcher(network, "head", "ssh", {"hosts": "a:8,b:4"}, tmp_path, servers.env) as ssh:
        ssh.nodes()
        for name in ("a", "b"):
            ssh.launch(name)
            ssh.note(name)
        network.power_off("b")
        assert ssh.replace("b", wait=1.5) is None
        network.heal("b")
        servers.start("b")
        assert ssh.replace("b") == {"name": "b", "cpus": 4}
        ssh.launch("b")
        assert int(ssh.note("b")["pid"]) in network.processes("b")
        assert ssh.ended(wait=0) is None, "a was left alone, and what was given up is not told"
