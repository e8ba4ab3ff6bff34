"""A real Slurm on nodes of a Network: munged, slurmctld and a slurmd on each node. No systemd, cgroups or database."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from launchers import wait_until
from namespaces import Network

# Failures are noticed and processes killed far sooner than by default.
CONFIG = """
ClusterName=test
SlurmctldHost={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdTimeout=3
SlurmctldTimeout=10
MessageTimeout=5
KillWait=3
ReturnToService=2
JobRequeue=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd_%n.log
DebugFlags=NO_CONF_HASH
GresTypes=gpu
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE
"""


class SlurmCluster:
    """The nodes of `names`; the controller is on another node of the network."""

    def __init__(self, network: Network, controller: str, names: Sequence[str], cpus: int = 4, gpus: int = 0) -> None:
        self.network = network
        self.controller = controller
        self.names = list(names)
        self.cpus = cpus
        self.gpus = gpus
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a short path, for the socket
        self.env = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._munged: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SlurmCluster:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in [*self.names, self.controller]:
            self.network.kill_all(name)
        if self._munged:
            self._munged.kill()
            self._munged.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, name: str, argv: Iterable[str | Path], env: dict[str, str] | None = None, **options: Any) -> str:
        """Runs a program on a node and returns its output."""
        done = self.network.run(name, argv, env={**os.environ, **self.env, **(env or {})}, **options)
        assert done.returncode == 0, f"{done.args} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def allocate(self, count: int, *options: str) -> dict[str, str]:
        """An allocation of `count` nodes; the variables that a program inside it has."""
        argv = ["salloc", "--no-shell", f"--nodes={count}", *options]
        done = self.network.run(self.controller, argv, env={**os.environ, **self.env})
        assert done.returncode == 0, done.stderr
        job = done.stderr.split("job allocation ")[1].split()[0]
        return {**self.env, "SLURM_JOB_ID": job, "SLURM_JOB_NUM_NODES": str(count)}

    def steps(self) -> list[str]:
        """The names of the job steps that run."""
        return self.run(self.controller, ["squeue", "--steps", "--noheader", "--format=%j"]).split()

    def cancel(self, job: str) -> None:
        self.run(self.controller, ["scancel", job])
        wait_until(lambda: not self.run(self.controller, ["squeue", "-h", "-j", job]).strip(), f"the end of job {job}")

    # ------------------------------------------------------------------ daemons

    def start_node(self, name: str) -> None:
        """Starts its slurmd, for example after power_off()."""
        self._daemon(name, "slurmd", "-D", "-N", name)

    def _daemon(self, node: str, program: str, *arguments: str) -> None:
        path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
        assert path, f"these tests need {program}; scripts/setup.sh installs it"
        with (self.folder / f"{program}_{node}.out").open("ab") as output:
            self.network.start(node, [path, *arguments], output, env={**os.environ, **self.env})

    def _start(self) -> None:
        folder = self.folder
        (folder / "state").mkdir()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        text = CONFIG.format(
            folder=folder,
            user=user,
            controller=f"{self.controller}({self.network.addresses[self.controller]})",
        )
        gres = ""
        if self.gpus:
            (folder / "dev").mkdir()
            for number in range(self.gpus):  # Slurm wants device files; nothing opens them
                (folder / "dev" / f"gpu{number}").symlink_to("/dev/null")
            (folder / "gres.conf").write_text(f"Name=gpu File={folder}/dev/gpu[0-{self.gpus - 1}]\n")
            gres = f" Gres=gpu:{self.gpus}"
        for name in self.names:
            (folder / f"spool_{name}").mkdir()
            address = self.network.addresses[name]
            text += f"NodeName={name} NodeAddr={address} CPUs={self.cpus} RealMemory=4000{gres}\n"
        (folder / "slurm.conf").write_text(text)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # else slurmd wants a mounted one

        munged = shutil.which("munged", path=f"{os.environ['PATH']}:/usr/sbin")
        assert munged, "these tests need munge; scripts/setup.sh installs it"
        key = folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        places = {"socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed", "log-file": "munge.log"}
        self._munged = subprocess.Popen(
            [
                munged,
                "-F",
                "--force",
                f"--key-file={key}",
                *(f"--{what}={folder}/{name}" for what, name in places.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=(folder / "munged.out").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_until((folder / "munge.sock").exists, "munged's socket")
        self._daemon(self.controller, "slurmctld", "-D")
        for name in self.names:
            self.start_node(name)
        self.wait_for(self.names)

    def wait_for(self, names: Sequence[str]) -> None:
        """Waits until these nodes are idle."""

        def are_idle() -> bool:
            done = self.network.run(
                self.controller, ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"], env={**os.environ, **self.env}
            )
            return set(names) <= set(done.stdout.split())

        wait_until(are_idle, f"Slurm's nodes; see {self.folder}")
