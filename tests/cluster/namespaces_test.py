"""The machines that the tests of clusters use."""

from __future__ import annotations

from pathlib import Path

from namespaces import Network


def test_nodes_have_names_and_addresses_and_reach_each_other() -> None:
    with Network(["head", "a"]) as network:
        assert network.run("a", ["hostname"]).stdout == "a\n"
        assert network.addresses["a"] == "10.77.0.2"
        hello = "exec 3<>/dev/tcp/a/7777; echo hello >&3"
        listen = (
            "import socket; s = socket.create_server(('', 7777)); print('up', flush=True); print(s.accept()[0].recv(9))"
        )
        server = network.start("a", ["python3", "-c", listen], output=-1)
        assert server.stdout is not None and server.stdout.readline() == b"up\n"
        network.run("head", ["bash", "-c", hello])
        assert server.stdout.readline() == b"b'hello\\n'\n"
        server.wait(20)


def test_a_cable_can_be_cut_and_plugged_in_again() -> None:
    ping = ["python3", "-c", "import socket; socket.create_connection(('a', 7777), 0.3)"]
    with Network(["head", "a"]) as network:
        assert "refused" in network.run("head", ping).stderr
        network.cut("a")
        assert "refused" not in network.run("head", ping).stderr
        network.heal("a")
        assert "refused" in network.run("head", ping).stderr


def test_nothing_is_left() -> None:
    with Network(["head", "a"]) as network:
        sleeper = network.start("a", ["sleep", "100"])
        spaces = [network.namespace(name) for name in network.names]
        assert all(Path("/run/netns", space).exists() for space in spaces)
    assert sleeper.wait(5) == -9
    assert not any(Path("/run/netns", space).exists() or Path("/etc/netns", space).exists() for space in spaces)
