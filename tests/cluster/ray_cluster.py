"""A real Ray cluster on nodes of a Network, from .venv-ray."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from launchers import ROOT, wait_until
from namespaces import Network

PYTHON = ROOT / ".venv-ray" / "bin" / "python"
PORT = 6379


class RayCluster:
    """`nodes` has the cores and GPUs of each; the first is the head."""

    def __init__(self, network: Network, nodes: Mapping[str, tuple[int, int]]) -> None:
        self.network = network
        self.nodes = dict(nodes)
        self.head = next(iter(self.nodes))
        self.address = f"{network.addresses[self.head]}:{PORT}"
        self.folder = Path(tempfile.mkdtemp(prefix="ray-"))  # a short path, for sockets
        self.env = {
            "RAY_ADDRESS": self.address,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(self.folder),
            "RAY_AUTH_MODE": "disabled",
            "RAY_worker_niceness": "0",
        }

    def __enter__(self) -> RayCluster:
        try:
            for name in self.nodes:  # one after the other: they share a directory
                self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in self.nodes:
            self.network.kill_all(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str) -> None:
        """Starts the node's Ray, for example after power_off()."""
        assert PYTHON.exists(), "run scripts/environments.sh ray first"
        cores, gpus = self.nodes[name]
        role = (
            ["--head", f"--port={PORT}", "--include-dashboard=false"]
            if name == self.head
            else [f"--address={self.address}"]
        )
        if name == self.head:
            role.append(f"--temp-dir={self.folder}")
        log = self.folder / f"start_{name}.log"
        with log.open("wb") as output:
            self.network.start(
                name,
                [
                    *(PYTHON.parent / "ray", "start", *role, f"--node-ip-address={self.network.addresses[name]}"),
                    *(f"--num-cpus={cores}", f"--num-gpus={gpus}", "--object-store-memory=80000000", "--block"),
                ],
                output,
                env={**os.environ, **self.env},
            )
        wait_until(lambda: "Ray runtime started" in log.read_text(), f"Ray on {name}", 180)
