"""How the workers of a Horovod run find each other."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lockstep import _core, session
from lockstep._framework_packages import is_installed
from lockstep.backend import BackendConfig
from lockstep.errors import ConfigError, LockstepTimeoutError
from lockstep.horovod import losses

LOOPBACK = "lo"
ELASTIC_TIMEOUT_S = 10
"""The longest that an elastic job's exchange with a dead rank can last."""
LEAVE_TOGETHER_WITHIN = 30.0
"""How long a rank whose function has ended keeps its connections for the others, in seconds."""
FOR_EVER = 10 * 365 * 86400.0
LONGEST_TIMEOUT_S = 2**31 - 1
"""Horovod reads its timeout as a number of 32 bits, and ends in a negative one."""
_FRAMEWORKS = ("horovod.torch", "horovod.tensorflow", "horovod.mxnet")
_LOST_PEER = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Horovod has been shut down")


@dataclass
class HorovodConfig(BackendConfig):
    """Sets the variables that ``hvd.init()`` reads, and has the run keep the store through which ranks find each other.

    >>> HorovodConfig(elastic=True).run_options()["replace_workers"]
    True
    """

    preload: ClassVar[tuple[str, ...]] = ("lockstep.horovod._preload",)

    nics: Collection[str] | None = None
    """Network interfaces to use; Gloo takes the first. None: the loopback, as all workers are on one machine."""
    verbose: int = 1
    """0: Horovod's errors only; 1: its warnings too; 2: all that it has to say."""
    key: str | None = None
    """Accepted for scripts that give it, as the four below: no worker is started through ssh."""
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    timeout_s: int | None = 300
    """How long ranks wait for each other in ``hvd.init()``, and for data in a collective that all have entered; None:
    Horovod's own 30 s. A rank that is late to enter one is waited for without end."""
    placement_group_timeout_s: int = 100
    elastic: bool = False
    """For functions that train in ``hvd.elastic.run``: a rank that dies is replaced alone, and the others go on from
    ``state.commit()``. Each death takes one of ``FailureConfig(max_failures=)``."""
    hosts: Sequence[str] | None = None
    """By rank: the name of the host where Horovod is to take it to live, to try out what depends on local and cross
    ranks; ranks of one host stand together. None: one host."""
    min_workers: int | None = None
    """With ``elastic``: when a rank has died and the new one is late, so many others go on without it, as a smaller
    world, until it is there. None: they wait for it."""

    def __post_init__(self) -> None:
        self._check_fields()

    def validate(self) -> None:
        self._check_fields()
        self._check_interfaces()
        if not is_installed("horovod"):
            raise ConfigError(
                "[HorovodTrainer] Horovod is not installed; pip install horovod==0.28.1 "
                "(it is built from source: docs/horovod.md tells how, also for newer releases of PyTorch)"
            )

    def _check_fields(self) -> None:
        if self.nics is not None and not _are_names(self.nics):
            raise ConfigError(f"[HorovodConfig] nics is {self.nics!r}; it must be a set of names, or None")
        for name in ("timeout_s", "placement_group_timeout_s"):
            value = getattr(self, name)
            if value is not None and not _is_whole(value, 1, LONGEST_TIMEOUT_S):
                raise ConfigError(
                    f"[HorovodConfig] {name} is {value!r}; it must be a whole number of seconds, "
                    f"from 1 to {LONGEST_TIMEOUT_S}"
                )
        if not _is_whole(self.verbose, 0, 2):
            raise ConfigError(f"[HorovodConfig] verbose is {self.verbose!r}; it must be 0, 1 or 2")
        if not isinstance(self.elastic, bool):
            raise ConfigError(f"[HorovodConfig] elastic is {self.elastic!r}; it must be True or False")
        self._check_min_workers()
        self._check_ssh()
        self._check_hosts()

    def _check_ssh(self) -> None:
        for name in ("key", "ssh_identity_file", "ssh_str"):
            value = getattr(self, name)
            if not isinstance(value, (str, type(None))):
                raise ConfigError(f"[HorovodConfig] {name} is {value!r}; it must be a string or None")
        if self.ssh_port is not None and not _is_whole(self.ssh_port, 1, 65535):
            raise ConfigError(f"[HorovodConfig] ssh_port is {self.ssh_port!r}; it must be from 1 to 65535, or None")

    def _check_hosts(self) -> None:
        if self.hosts is None:
            return
        if not isinstance(self.hosts, Sequence) or not _are_names(self.hosts):
            raise ConfigError(
                f"[HorovodConfig] hosts is {self.hosts!r}; it must be a list of names, one for each rank, or None"
            )
        _core.check_hosts([host.encode(errors="backslashreplace").decode() for host in self.hosts])

    def _check_interfaces(self) -> None:
        there = [name for _, name in socket.if_nameindex()]
        if missing := [nic for nic in self.nics or () if nic not in there]:
            raise ConfigError(f"[HorovodConfig] no network interface {missing[0]!r}; there are {', '.join(there)}")

    def _check_min_workers(self) -> None:
        least = self.min_workers
        if least is None:
            return
        if not _is_whole(least, 1, sys.maxsize):
            raise ConfigError(
                f"[HorovodConfig] min_workers is {least!r}; it must be a whole number from 1 to num_workers, or None"
            )
        if not self.elastic:
            raise ConfigError(f"[HorovodConfig] min_workers={least} is for elastic jobs; give elastic=True with it")
        if self.nics is not None and self._nics()[0] != LOOPBACK:
            raise ConfigError(
                f"[HorovodConfig] min_workers={least} needs the loopback, on which workers are told of new ones; "
                f"nics is {self.nics!r}; leave it None"
            )

    def _nics(self) -> list[str]:
        nics = list(self.nics or [LOOPBACK])
        if isinstance(self.nics, (set, frozenset)):
            nics.sort()
        return nics

    def run_options(self) -> dict[str, Any]:
        rendezvous = {"hosts": list(self.hosts or ()), "min_workers": self.min_workers}
        return {"rendezvous": rendezvous, "replace_workers": self.elastic}

    def on_worker_start(self) -> None:
        worker = session._get("HorovodConfig.on_worker_start")
        if "torch" in sys.modules:
            import torch

            from lockstep import _wrappers
            from lockstep.torch.checkpoint import TorchCheckpoint
            from lockstep.torch.config import _set_threads

            worker.unwraps_models = True
            _wrappers.load_plain_names()
            worker.checkpoint_type = TorchCheckpoint
            _set_threads()
            torch.seed()  # the fork server's generator is the same on every rank

    def on_function_start(self) -> None:
        """The run's rendezvous, which is another one in a worker's next run."""
        place = session._get("HorovodConfig.on_function_start").core.begin["extra"]["rendezvous"]
        os.environ.update(self._variables(place))
        if self.elastic:
            losses.watch(place, session.get_world_rank())

    def _variables(self, place: dict[str, Any]) -> dict[str, str]:
        nics = self._nics()
        timeout = self.timeout_s or 30
        variables = {
            "HOROVOD_HOSTNAME": place["host"],
            "HOROVOD_RANK": place["rank"],
            "HOROVOD_SIZE": place["size"],
            "HOROVOD_LOCAL_RANK": place["local_rank"],
            "HOROVOD_LOCAL_SIZE": place["local_size"],
            "HOROVOD_CROSS_RANK": place["cross_rank"],
            "HOROVOD_CROSS_SIZE": place["cross_size"],
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": place["address"],
            "HOROVOD_GLOO_RENDEZVOUS_PORT": place["port"],
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": nics[0],
            "NCCL_SOCKET_IFNAME": ",".join(nics),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": min(timeout, ELASTIC_TIMEOUT_S) if self.elastic else timeout,
            "HOROVOD_ELASTIC": int(self.elastic),
            "HOROVOD_LOG_LEVEL": os.environ.get("HOROVOD_LOG_LEVEL") or _log_level(self.verbose),
        }
        return {name: str(value) for name, value in variables.items()}

    def on_worker_end(self) -> None:
        """The end of one rank is an error to those that still exchange: they leave together.

        A rank that others keep waiting for long gives up its connections: one that waits for it in a collective, for
        ever, then fails at once.
        """
        worker = session._get("HorovodConfig.on_worker_end")
        if worker.world_size == 1:
            return _shut_down()
        if self.elastic:
            losses.tell_done(worker.core.begin["extra"]["rendezvous"], worker.rank)
        try:
            worker.core.meet(b"", LEAVE_TOGETHER_WITHIN)
            _shut_down()
        except LockstepTimeoutError:
            _shut_down()
            worker.core.meet(b"", FOR_EVER)

    def is_consequence(self, error: BaseException) -> bool:
        lost = isinstance(error, RuntimeError) and any(words in str(error) for words in _LOST_PEER)
        return lost or type(error).__name__ == "HorovodInternalError"


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _are_names(value: object) -> bool:
    if not isinstance(value, Collection) or isinstance(value, (str, Mapping)):
        return False
    return len(value) > 0 and all(isinstance(name, str) for name in value)


def _log_level(verbose: int) -> str:
    return "error" if verbose <= 0 else "warning" if verbose == 1 else "info"


def _shut_down() -> None:
    for name in _FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None and module.is_initialized():
            module.shutdown()
