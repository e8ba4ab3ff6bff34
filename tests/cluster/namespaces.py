"""Machines for tests: network namespaces on this machine, each with its own host name, address and cable.

A namespace holds the switch, and one each node, so nothing of the machine's own network is touched. Needs root.
Processes of a node are found by its network namespace, so they cannot escape `power_off()`.

>>> with Network(["head", "a", "b"]) as network:  # doctest: +SKIP
...     network.run("a", ["hostname"]).stdout
...     network.cut("b")
'a\\n'
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_numbers = itertools.count()


class Network:
    """Nodes 10.77.0.1, 10.77.0.2 ... on one switch. Their names are in everyone's /etc/hosts."""

    def __init__(self, names: Sequence[str], hosts: Mapping[str, str] | None = None) -> None:
        """`hosts`: more names, by address."""
        self.names = list(names)
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, 1)}
        self._tag = f"ls{os.getpid()}-{next(_numbers)}"
        self._switch = f"{self._tag}-switch"
        self._more_hosts = dict(hosts or {})

    def __enter__(self) -> Network:
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def namespace(self, name: str) -> str:
        """What `ip netns` calls the node."""
        return f"{self._tag}-{name}"

    def command(self, name: str, argv: Iterable[str | Path]) -> list[str]:
        """A command line that runs `argv` on the node."""
        script = 'hostname "$0" && exec "$@"'
        inside = ["unshare", "--uts", "sh", "-c", script, name, *map(str, argv)]
        return ["ip", "netns", "exec", self.namespace(name), *inside]

    def run(self, name: str, argv: Iterable[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs `argv` on the node to its end."""
        return subprocess.run(
            self.command(name, argv), **{"capture_output": True, "text": True, "timeout": 60, **options}
        )

    def start(
        self, name: str, argv: Iterable[str | Path], output: IO[Any] | int = subprocess.DEVNULL, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Starts `argv` on the node, in a session of its own. The process is `argv` itself."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT, **options}
        return subprocess.Popen(self.command(name, argv), start_new_session=True, **given)

    def processes(self, name: str) -> list[int]:
        """The processes on the node."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace(name)], capture_output=True, text=True)
        return [int(each) for each in found.stdout.split()]

    # ------------------------------------------------------------------ faults

    def cut(self, name: str) -> None:
        """Pulls the node's cable."""
        _ip("-n", self._switch, "link", "set", self._port(name), "down")

    def heal(self, name: str) -> None:
        """Plugs it in again."""
        _ip("-n", self._switch, "link", "set", self._port(name), "up")

    def power_off(self, name: str) -> None:
        """Pulls the cable and kills everything on the node."""
        self.cut(name)
        self.kill_all(name)

    def kill_all(self, name: str) -> None:
        """Kills everything on the node and waits until it is gone."""
        deadline = time.monotonic() + 20
        while (found := self.processes(name)) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    # ------------------------------------------------------------------ making and removing

    def _port(self, name: str) -> str:
        return f"port{self.names.index(name)}"

    def _set_up(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        lines = [f"{address} {name}" for name, address in self.addresses.items()]
        lines += [f"{address} {name}" for name, address in self._more_hosts.items()]
        for name, address in self.addresses.items():
            space, port = self.namespace(name), self._port(name)
            _ip("netns", "add", space)
            etc = Path("/etc/netns") / space  # `ip netns exec` shows its files in /etc
            etc.mkdir(parents=True)
            (etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")

    def close(self) -> None:
        """Ends everything on the nodes and removes them."""
        for name in self.names:
            self.kill_all(name)
        for space in [*map(self.namespace, self.names), self._switch]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}; namespaces need root and iproute2"
