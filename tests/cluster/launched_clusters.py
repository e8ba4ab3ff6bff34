"""The clusters of clusters.py whose agents an engine launches by itself."""

from __future__ import annotations

from pathlib import Path

from clusters import Cluster
from namespaces import Network
from slurm_cluster import SlurmCluster
from ssh_servers import SshServers


class SshEngine(Cluster):
    """Machines with sshd."""

    kind = "ssh"

    def __init__(self, network: Network, folder: Path) -> None:
        super().__init__(network, folder)
        self.servers = SshServers(network, self.others)
        self.options = ("--hosts", ",".join(network.names))

    def __enter__(self) -> Cluster:
        self.servers.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.servers.close()

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.servers.env}


class SlurmEngine(Cluster):
    """An allocation of all nodes of a Slurm."""

    kind = "slurm"

    def __init__(self, network: Network, folder: Path) -> None:
        super().__init__(network, folder)
        self.slurm = SlurmCluster(network, "head", network.names, cpus=2)

    def __enter__(self) -> Cluster:
        self.slurm.__enter__()
        self.job = self.slurm.allocate(len(self.network.names), "--cpus-per-task=2", "--no-kill")
        return self

    def __exit__(self, *error: object) -> None:
        self.slurm.close()
        super().__exit__(*error)

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.job}
