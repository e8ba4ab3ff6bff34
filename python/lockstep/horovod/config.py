"""How the workers of a Horovod run connect."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lockstep import _core, session
from lockstep._installed import is_installed
from lockstep.backend import BackendConfig
from lockstep.errors import ConfigError, LockstepTimeoutError
from lockstep.horovod import losses

LOOPBACK = "lo"
"""The interface, which workers of one machine use."""
ELASTIC_TIMEOUT_S = 10
"""In elastic jobs a collective with a dead rank fails after this many seconds at the latest."""
LEAVE_TOGETHER_WITHIN = 30.0
"""After this many seconds, a rank whose function has ended closes its connections to the others."""
FOR_EVER = 10 * 365 * 86400.0
LONGEST_TIMEOUT_S = 2**31 - 1
"""Horovod reads its timeout as a signed 32-bit number; a larger value would become negative."""
_FRAMEWORKS = ("horovod.torch", "horovod.tensorflow", "horovod.mxnet")
_LOST_PEER = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "Horovod has been shut down")


@dataclass
class HorovodConfig(BackendConfig):
    """Sets the variables that ``hvd.init()`` reads, and makes the run host the store through which ranks find each
    other.

    >>> HorovodConfig(elastic=True).run_options()["replace_workers"]
    True
    """

    preload: ClassVar[tuple[str, ...]] = ("lockstep.horovod._preload",)

    nics: Collection[str] | None = None
    """Network interfaces to use; Gloo uses the first. None: the loopback if all workers are on one machine, otherwise
    what Horovod chooses."""
    verbose: int = 1
    """0: Horovod's errors only; 1: also warnings; 2: everything."""
    key: str | None = None
    """Accepted without effect, as are the four below: no worker is started through ssh."""
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    timeout_s: int | None = 300
    """How long ranks wait for each other in ``hvd.init()``, and for data in a collective that all have entered; None:
    Horovod's own 30 s. There is no timeout for a rank that is late to enter a collective."""
    placement_group_timeout_s: int = 100
    elastic: bool = False
    """For functions that train in ``hvd.elastic.run``: only a rank that dies is replaced, and the others continue from
    ``state.commit()``. Each death counts towards ``FailureConfig(max_failures=)``."""
    hosts: Sequence[str] | None = None
    """For each rank, the host name that Horovod sees; to try out code that depends on local and cross ranks. Ranks of
    one host must be adjacent. None: one host."""
    min_workers: int | None = None
    """With ``elastic``: if a rank has died and the new one is late, the others continue without it if there are at
    least this many, as a smaller world, until it is ready. None: they wait for it."""

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
        if self.nics is None:
            return [LOOPBACK] if session._is_on_loopback() else []
        nics = list(self.nics)
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
            torch.seed()  # forked workers inherit the fork server's generator, the same on every rank

    def on_function_start(self) -> None:
        """Sets the address of the run's rendezvous, which changes in a worker's next run."""
        place = session._get("HorovodConfig.on_function_start").core.begin.services["rendezvous"]
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
            "HOROVOD_GLOO_TIMEOUT_SECONDS": min(timeout, ELASTIC_TIMEOUT_S) if self.elastic else timeout,
            "HOROVOD_ELASTIC": int(self.elastic),
            "HOROVOD_LOG_LEVEL": os.environ.get("HOROVOD_LOG_LEVEL") or _log_level(self.verbose),
        }
        if nics:
            variables.update(HOROVOD_GLOO_IFACE=nics[0], NCCL_SOCKET_IFNAME=",".join(nics))
        return {name: str(value) for name, value in variables.items()}

    def on_worker_end(self) -> None:
        """The exit of one rank is an error to ranks that are still in a collective, so all ranks leave together.

        A rank that has waited too long for the others closes its connections, so that a rank that waits for it in a
        collective fails at once instead of waiting forever.
        """
        worker = session._get("HorovodConfig.on_worker_end")
        if worker.world_size == 1:
            return _shut_down()
        if self.elastic:
            losses.tell_done(worker.core.begin.services["rendezvous"], worker.rank)
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
