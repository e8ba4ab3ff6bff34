"""A Launcher of src/engine, used from a test: what runs agents on the nodes of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from namespaces import Network

ROOT = Path(__file__).parents[2]
PROBE = ROOT / "build" / "tests" / "cluster" / "launcher_probe"
PATIENCE = 60.0  # against hangs only

AGENT = """#!/bin/sh
# In the place of an agent: notes its secret, and ends with its standard input, or when it is told to.
read secret
name=$1
trap 'touch "$0.$name.over"; exit' TERM
echo "secret=$secret pid=$$ gpus=$CUDA_VISIBLE_DEVICES host=$(uname -n)" > "$0.$name.part"
mv "$0.$name.part" "$0.$name"
echo "$name is up" >&2
while read line; do :; done
touch "$0.$name.over"
"""


class LauncherFailed(Exception):
    """Its launcher threw an EngineError."""


class LauncherRefused(Exception):
    """Its launcher threw a ConfigError."""


class Launcher:
    """The launcher, in a process on `node`."""

    def __init__(self, process: subprocess.Popen[bytes], agent: Path) -> None:
        self.process = process
        self.agent = agent
        self.was_killed = False

    def ask(self, what: str, **more: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        if "config_error" in said:
            raise LauncherRefused(said["config_error"])
        if "error" in said:
            raise LauncherFailed(said["error"])
        return said["answer"]

    def nodes(self) -> Any:
        return self.ask("nodes")

    def launch(self, node: str, secret: str = "s3cret", argv: list[str] | None = None) -> None:
        self.forget(node)
        self.ask("launch", node=node, argv=argv or [str(self.agent), node], secret=secret)

    def ended(self, wait: float = PATIENCE) -> Any:
        return self.ask("ended", wait=wait)

    def replace(self, node: str, wait: float = PATIENCE) -> Any:
        return self.ask("replace", node=node, wait=wait)

    def stop(self) -> None:
        self.ask("stop")

    def kill(self) -> None:
        """As a driver ends that is killed."""
        self.was_killed = True
        self.process.kill()

    # ------------------------------------------------------------------ what the agents note

    def note(self, node: str) -> dict[str, str]:
        """What the agent on the node noted, once it has."""
        file = Path(f"{self.agent}.{node}")
        wait_until(file.exists, f"the agent on {node}")
        return dict(word.split("=", 1) for word in file.read_text().split())

    def is_over(self, node: str) -> bool:
        """Whether the agent has ended in peace."""
        return Path(f"{self.agent}.{node}.over").exists()

    def forget(self, node: str) -> None:
        for name in (f"{self.agent}.{node}", f"{self.agent}.{node}.over"):
            Path(name).unlink(missing_ok=True)


def wait_until(is_so: Any, what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)


def is_alive(pid: str | int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@contextmanager
def launcher(
    network: Network,
    node: str,
    kind: str,
    options: Mapping[str, Any],
    folder: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[Launcher]:
    assert PROBE.exists(), f"build {PROBE.name} first: make build"
    agent = folder / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    process = network.start(
        node,
        [PROBE, kind, json.dumps(options)],
        subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=None,
        env={**os.environ, **(env or {})},
        cwd=folder,
    )
    try:
        made = Launcher(process, agent)
        yield made
        assert process.stdin
        process.stdin.close()
        assert process.wait(PATIENCE) == (-9 if made.was_killed else 0)
    finally:
        process.kill()
        process.wait()
