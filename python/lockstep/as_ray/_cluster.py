"""``ray.init`` and similar functions; the cluster is this machine, and the object store is this process."""

from __future__ import annotations

import os
import socket
from concurrent.futures import Future
from typing import Any, NoReturn

from lockstep import _core, session
from lockstep.as_ray._errors import NotAvailableError
from lockstep.errors import ConfigError


class Context(dict[str, Any]):
    """What ``init()`` returns: the addresses as a dict, and a ``with`` block that ends in ``shutdown()``."""

    dashboard_url = ""

    @property
    def address_info(self) -> dict[str, Any]:
        """The same as the dict itself."""
        return dict(self)

    def disconnect(self) -> None:
        """The same as ``shutdown()``."""
        shutdown()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *error: object) -> None:
        shutdown()


_started: Context | None = None


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    ignore_reinit_error: bool = False,
    **ignored: Any,
) -> Context:
    """Starts nothing: workers are started by trainers, on this machine.

    The resources given here replace what the machine has, for ``ScalingConfig(resources_per_worker=...)`` and
    ``cluster_resources()``; more CPUs than cores is fine. A second call without ``shutdown()`` raises ConfigError,
    which is a RuntimeError, unless `ignore_reinit_error` is set.
    """
    global _started
    if is_initialized():
        if not ignore_reinit_error:
            raise ConfigError(
                "[ray.init] init() was called before; call shutdown() first, or pass ignore_reinit_error=True"
            )
        return _started if _started is not None else _context()
    given = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
    _core.declare_resources({name: float(amount) for name, amount in given.items() if amount is not None})
    _started = _context()
    return _started


def shutdown(*args: Any, **kwargs: Any) -> None:
    """Undoes ``init()``. Runs are not affected."""
    global _started
    _started = None
    _core.declare_resources({})


def is_initialized() -> bool:
    """Whether ``init()`` was called, or put() or get(), which call it. Always True in a worker."""
    return _started is not None or session._session is not None


def _context() -> Context:
    node = get_node_ip_address()
    return Context(address="local", node_ip_address=node, raylet_ip_address=node, webui_url="", session_dir="")


class ObjectRef:
    """A value that was ``put()``, or that a task returns. It is in this process, and is pickled together with the
    reference."""

    _value: Any = None
    _future: Future[Any] | None = None
    """Of a task; a value that was put() has none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(
            "ObjectRef", "references cannot be made from an id, as there is no shared object store", "use ray.put()"
        )

    @classmethod
    def _of(cls, value: Any) -> ObjectRef:
        made = cls.__new__(cls)
        made._value = value
        return made

    @classmethod
    def _later(cls, future: Future[Any]) -> ObjectRef:
        made = cls.__new__(cls)
        made._future = future
        return made

    def _wait(self, timeout: float | None) -> Any:
        """The value; raises TimeoutError, or the error of the task."""
        return self._value if self._future is None else self._future.result(timeout)

    def _is_there(self) -> bool:
        return self._future is None or self._future.done()

    def future(self) -> Future[Any]:
        """As a future of the standard library."""
        if self._future is not None:
            return self._future
        made: Future[Any] = Future()
        made.set_result(self._value)
        return made

    def __reduce__(self) -> Any:
        return ObjectRef._of, (self._wait(None),)

    def __repr__(self) -> str:
        if self._future is not None:
            return f"ObjectRef(of a task{'' if self._is_there() else ' that runs'})"
        return f"ObjectRef(of a {type(self._value).__name__})"


def put(value: Any, **ignored: Any) -> ObjectRef:
    """A reference to the value itself, not to a copy."""
    if isinstance(value, ObjectRef):
        raise ConfigError("[ray.put] the value is an ObjectRef already; put what it refers to")
    init(ignore_reinit_error=True)
    return ObjectRef._of(value)


def cluster_resources() -> dict[str, float]:
    """The resources of this machine, or those passed to ``init()``: CPU, GPU if there are any, memory in bytes, the
    node."""
    return _with_memory(_core.total_resources())


def available_resources() -> dict[str, float]:
    """The part of ``cluster_resources()`` that no worker holds. A worker that asked for no CPU counts as one CPU."""
    return _with_memory(_core.available_resources())


def _with_memory(resources: dict[str, float]) -> dict[str, float]:
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    there = {name: amount for name, amount in resources.items() if amount}
    return {"memory": memory, f"node:{get_node_ip_address()}": 1.0, **there}


def nodes() -> list[dict[str, Any]]:
    """This machine."""
    name, node = socket.gethostname(), get_node_ip_address()
    return [
        {
            "NodeID": name,
            "Alive": True,
            "alive": True,
            "NodeName": name,
            "NodeManagerHostname": name,
            "NodeManagerAddress": node,
            "Resources": cluster_resources(),
        }
    ]


def get_node_ip_address() -> str:
    """The address of this machine as others see it; the loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))  # chooses an interface; nothing is sent
        except OSError:
            return _core.LOOPBACK
        return str(unsent.getsockname()[0])


def get_gpu_ids() -> list[Any]:
    """The GPUs that this process may use."""
    ids = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [int(id) if id.isdecimal() else id for id in ids if id]


# ---------------------------------------------------------------- what has no meaning here


def _refuse(name: str, what: str, instead: str) -> NoReturn:
    raise NotAvailableError(f"[ray.{name}] {what}; {instead}")


def placement_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotAvailableError."""
    what = "there are no placement groups"
    _refuse("util.placement_group", what, "ScalingConfig(resources_per_worker=...) says what each worker gets")


remove_placement_group = placement_group
