"""The process group of a PyTorch run."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import struct
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from lockstep import _wrappers, session
from lockstep.backend import BackendConfig
from lockstep.config import seconds
from lockstep.errors import ConfigError, LockstepError, LockstepTimeoutError
from lockstep.torch import _context
from lockstep.torch import backend as shared_memory
from lockstep.torch.checkpoint import TorchCheckpoint

BACKENDS = ("lockstep", "gloo", "nccl", "mpi", "ucc")
SIOCGIFADDR = 0x8915
"""The request of netdevice(7) for an interface's address."""
LEAVE_TOGETHER_WITHIN = 30.0
"""After this many seconds, a rank whose function has ended closes its connections to the others."""
_held_store: Store | None = None
"""Kept until the process ends: other ranks may need it after this one has left the group."""
_LOST_PEER = (
    "closed by peer",
    "reset by peer",
    "Broken pipe",
    "Connection refused",
    "NCCL error",
    ") died; see its log",
    ") left the group, and is needed",
    " aborted the group",
    " gave up waiting for ",
)


@dataclass
class TorchConfig(BackendConfig):
    """How workers connect.

    >>> TorchConfig(backend="gloo", timeout_s=60).timeout_s
    60
    """

    preload: ClassVar[tuple[str, ...]] = ("lockstep.torch._preload",)

    backend: str | None = None
    """"lockstep", "gloo", "nccl" or another backend of torch. None: nccl if workers have GPUs, otherwise lockstep
    (shared memory on a node, TCP between nodes)."""
    init_method: str = "env"
    """"env" or "tcp". In both cases rank 0 hosts the store on a port that the system chooses, and the variables of
    torchrun (MASTER_ADDR and so on) are set."""
    timeout_s: float | timedelta = 1800
    """Timeout of a collective, in seconds."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        if self.backend is not None and (not isinstance(self.backend, str) or not _is_known(self.backend)):
            raise ConfigError(
                f"[TorchConfig] backend is {self.backend!r}; it must be None, "
                f"{', '.join(map(repr, BACKENDS))} or one that was registered with torch.distributed"
            )
        if self.backend is not None and shared_memory.NAME in _names(self.backend):
            _require_shared_memory()
        if self.init_method not in ("env", "tcp"):
            raise ConfigError(f"[TorchConfig] init_method is {self.init_method!r}; it must be 'env' or 'tcp'")
        seconds(self.timeout_s, "[TorchConfig] timeout_s")

    def on_worker_start(self) -> None:
        """Makes the process group, also for a single worker."""
        worker = session._get("TorchConfig.on_worker_start")
        worker.unwraps_models = True
        _wrappers.load_plain_names()
        worker.checkpoint_type = TorchCheckpoint
        _set_threads()
        torch.seed()  # forked workers inherit the fork server's generator, the same on every rank
        device = _context.device()
        if device.type == "cuda":
            torch.cuda.set_device(device)
        timeout = timedelta(seconds=seconds(self.timeout_s, "[TorchConfig] timeout_s"))
        global _held_store
        _held_store = store = _store(timeout)
        os.environ.update(
            RANK=str(worker.rank),
            WORLD_SIZE=str(worker.world_size),
            LOCAL_RANK=str(worker.local_rank),
            LOCAL_WORLD_SIZE=str(worker.local_world_size),
            NODE_RANK=str(worker.node_rank),
            GROUP_RANK=str(worker.node_rank),
            ACCELERATE_TORCH_DEVICE=str(device),
        )
        _keep_gloo_inside()
        backend = self.backend or _default_backend(device)
        if not _is_built(backend):
            raise LockstepError(
                f"[TorchConfig] this torch ({torch.__version__}) has no backend {backend!r}; "
                'use TorchConfig(backend="gloo") or install another torch'
            )
        dist.init_process_group(backend, store=store, rank=worker.rank, world_size=worker.world_size, timeout=timeout)

    def on_worker_end(self) -> None:
        """Rank 0 hosts the store, and every rank may be in the middle of a collective, so all ranks leave together.

        A rank that has waited too long for the others closes its connections, so that a rank that waits for it in a
        collective fails at once instead of waiting forever.
        """
        worker = session._get("TorchConfig.on_worker_end")
        if worker.world_size == 1:
            return
        try:
            worker.core.meet(b"", LEAVE_TOGETHER_WITHIN)
        except LockstepTimeoutError:
            if dist.is_initialized():
                dist.destroy_process_group()
            worker.core.meet(b"", 10 * 365 * 86400.0)

    def is_consequence(self, error: BaseException) -> bool:
        return isinstance(error, RuntimeError) and any(words in str(error) for words in _LOST_PEER)


def _store(timeout: timedelta) -> Store:
    """Rank 0 binds a socket, passes it to the store, and sends its port to the others. No port is guessed."""
    worker = session._get("TorchConfig")
    address = session.get_node_address(0)
    if worker.rank == 0:
        listener = socket.create_server((address, 0), backlog=max(128, worker.world_size))
        port = listener.getsockname()[1]
        store = TCPStore(
            address,
            port,
            worker.world_size,
            is_master=True,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        session.broadcast_from_rank_zero(port, timeout)
    else:
        port = session.broadcast_from_rank_zero(0, timeout)
        store = TCPStore(address, port, worker.world_size, is_master=False, timeout=timeout)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    return store


def _keep_gloo_inside() -> None:
    """Gloo listens on the interface by which other nodes reach this one: on one machine, the loopback."""
    name = _interface_of(session.get_node_address(session.get_world_rank()))
    if name and (name != "lo" or session._is_on_loopback()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _interface_of(address: str) -> str:
    """The network interface that has this IPv4 address; empty if there is none.

    >>> _interface_of(socket.gethostbyname("localhost"))
    'lo'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                found = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""


def _set_threads() -> None:
    """Sets this worker's number of threads; the fork server had one."""
    threads = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if threads.isdecimal() and int(threads) > 0:
        torch.set_num_threads(int(threads))


def _default_backend(device: torch.device) -> str:
    if device.type == "cuda":
        return "nccl"
    try:
        shared_memory.load()
        return shared_memory.NAME
    except ImportError as error:
        if session.get_world_rank() == 0:
            logging.getLogger("lockstep").warning("%s; these ranks use Gloo, which is slower", error)
        return "gloo"


def _require_shared_memory() -> None:
    try:
        shared_memory.load()
    except ImportError as error:
        raise ConfigError(str(error)) from error


def _is_known(backend: str) -> bool:
    return all(name in BACKENDS or name in dist.Backend.backend_list for name in _names(backend))


def _is_built(backend: str) -> bool:
    return all(dist.is_backend_available(name) for name in _names(backend))


def _names(backend: str) -> list[str]:
    """The names of the backends: one, or, as in "cpu:gloo,cuda:nccl", one for each kind of device."""
    return [part.split(":")[-1].lower() for part in backend.split(",")]
