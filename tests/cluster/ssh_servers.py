"""A real sshd on nodes of a Network, with keys made for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from launchers import wait_until
from namespaces import Network

SERVER = """
Port 22
HostKey {folder}/host_{name}
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv PATH={path}
"""

CLIENT = """
Host alias-of-*
  HostName %n
Host *
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  ConnectTimeout 3
"""


class SshServers:
    """Each of the nodes runs sshd. `env` has an `ssh` in PATH that uses the config and keys of the test."""

    def __init__(self, network: Network, names: Sequence[str]) -> None:
        self.network = network
        self.names = list(names)
        self.folder = Path(tempfile.mkdtemp(prefix="ssh-servers-"))
        self.env = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}

    def __enter__(self) -> SshServers:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # the network ends the servers

    def start(self, name: str) -> None:
        """Starts the node's server, for example after power_off()."""
        server = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
        assert server, "these tests need openssh-server"
        log = self.folder / f"log_{name}"
        config = self.folder / f"sshd_{name}"
        path = "/usr/local/bin:/usr/bin:/bin"
        config.write_text(SERVER.format(folder=self.folder, name=name, path=path))
        with log.open("wb") as output:
            self.network.start(name, [server, "-D", "-e", "-f", config], output)
        wait_until(lambda: "Server listening" in log.read_text(), f"sshd on {name}: {log.read_text()}")

    def trust(self, name: str, key_of: str | None = None) -> None:
        """Notes the node's host key as known; or, for a test, that of another node."""
        key = (self.folder / f"host_{key_of or name}.pub").read_text()
        known = self.folder / "known_hosts"
        others = known.read_text().splitlines() if known.exists() else []
        lines = [line for line in others if line.split()[0] != name]
        known.write_text("\n".join([*lines, f"{name} {key}"]))

    def _start(self) -> None:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for key in ["user", *(f"host_{name}" for name in self.names)]:
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(self.folder / key)]
            subprocess.run(make, check=True, timeout=60)
        self.folder.chmod(0o711)
        (self.folder / "config").write_text(CLIENT.format(folder=self.folder))
        command = self.folder / "bin" / "ssh"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        command.chmod(0o755)
        for name in self.names:
            self.trust(name)
            self.start(name)
