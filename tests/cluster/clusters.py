"""Clusters that run one script, the same way for every engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from namespaces import Network

BIN = Path(sys.executable).parent
PATIENCE = 90.0  # against hangs only


def wait_until(is_so: Callable[[], Any], what: str, within: float = PATIENCE) -> Any:
    """Returns what `is_so` returns, once it is true."""
    deadline = time.monotonic() + within
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(0.02)
    return found


class Driver:
    """`lockstep run` on the head node."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, words: str, within: float = PATIENCE) -> None:
        wait_until(
            lambda: words in self.output or self.process.poll() is not None, f"{words!r} in {self.output}", within
        )
        assert words in self.output, self.output

    def finish(self, within: float = PATIENCE) -> dict[str, Any]:
        """What the script printed at its end."""
        assert self.process.wait(within) == 0, self.output
        (line,) = [line for line in self.output.splitlines() if line.startswith("RESULT ")]
        found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
        return found


class Cluster:
    """Nodes of a network: the driver's, `head`, and others. An engine's class says how agents get there."""

    kind = ""
    options: tuple[str, ...] = ()
    """More options of `lockstep run`."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.folder = folder
        self.others = [name for name in network.names if name != "head"]
        self.runs = folder / "runs"
        self.notes = folder / "notes"
        self.notes.mkdir()
        self._drivers = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.network.close()

    def run(self, script: Path, *arguments: object, options: Iterable[str] = (), nodes: int | None = None) -> Driver:
        """Starts the script on the head, with agents on as many nodes as there are, or on `nodes` of them."""
        count = len(self.network.names) if nodes is None else nodes
        self._drivers += 1
        output = self.folder / f"output_{self._drivers}"
        words = ["run", "--engine", self.kind, "--nodes", str(count), *self.options, *options, script, *arguments]
        with output.open("wb") as file:
            process = self.network.start(
                "head", [BIN / "lockstep", *words], file, env=self.environment(), cwd=self.folder
            )
        driver = Driver(process, output)
        self.attract(driver, self.others[: count - 1])
        return driver

    def environment(self) -> dict[str, str]:
        return {**os.environ, "LOCKSTEP_STORAGE_PATH": str(self.runs), "NOTES": str(self.notes)}

    def attract(self, driver: Driver, names: Iterable[str]) -> None:
        """Does what must be done on the nodes themselves."""

    # ------------------------------------------------------------------ what the workers noted

    def noted(self, attempt: int, ranks: int) -> list[dict[str, Any]]:
        """What the ranks of the attempt wrote into $NOTES, by rank."""
        files = [self.notes / f"{attempt}_{rank}.json" for rank in range(ranks)]
        wait_until(lambda: all(file.exists() for file in files), f"{ranks} ranks of attempt {attempt}")
        return [json.loads(file.read_text()) for file in files]

    # ------------------------------------------------------------------ processes

    def agents(self, name: str) -> list[int]:
        """The agents on the node."""
        return [pid for pid in self.network.processes(name) if _command(pid).startswith("lockstep-agent")]

    def stop_agents(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        for pid in self.agents(name):
            os.kill(pid, number)

    def is_empty(self, name: str) -> bool:
        """Whether nothing of Lockstep runs on the node."""
        return not [pid for pid in self.network.processes(name) if is_alive(pid) and "lockstep" in _words(pid)]


class JoinCluster(Cluster):
    """Agents are started by hand."""

    kind = "join"

    def __init__(self, network: Network, folder: Path) -> None:
        super().__init__(network, folder)
        self.secret = folder / "secret"
        self.options = ("--secret-file", str(self.secret))

    def attract(self, driver: Driver, names: Iterable[str]) -> None:
        wait_until(self.secret.exists, "the secret")
        for name in names:
            self.join(name)

    def join(self, name: str) -> subprocess.Popen[bytes]:
        words = ["agent", "--join", "head:29400", "--secret-file", self.secret, "--name", name]
        env = {**os.environ, "WHERE": name}
        with (self.folder / f"agent_{name}").open("ab") as file:
            started: subprocess.Popen[bytes] = self.network.start(
                name, [BIN / "lockstep", *words], file, env=env, cwd="/"
            )
        return started


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
