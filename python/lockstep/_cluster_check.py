"""``lockstep cluster check``: starts the agents of an engine, and shows its nodes and the network between them.

The engine is that of the environment: LOCKSTEP_ENGINE and LOCKSTEP_ENGINE_OPTIONS, which the command sets.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from lockstep import CheckpointConfig, DataParallelTrainer, EngineConfig, RunConfig, ScalingConfig, _core, session
from lockstep._installed import is_installed
from lockstep.errors import LockstepError

PINGS = 200
STREAMED = 64 << 20
"""Bytes that measure the bandwidth."""
BLOCK = bytes(1 << 20)
TIMEOUT = 60.0
REDUCED = 1 << 20
"""Numbers that are added up, of 4 bytes each."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # waiting for nodes ends at Ctrl-C
    nodes = [node for node in _core.start_nodes(EngineConfig()._to_core()) if node["works"]]
    for node in nodes:
        amounts = ", ".join(f"{amount:g} {name}" for name, amount in sorted(node["resources"].items()) if amount)
        print(f"node {node['name']} at {node['address']}: {amounts}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep_check_") as folder:
        found = _run(DataParallelTrainer, _probe, len(nodes), folder)
        for each in found["nodes"]:
            print(f"{each['name']} has Lockstep {each['lockstep']}, Python {each['python']}, torch {each['torch']}")
        for each in found["nodes"][1:]:
            latency, bandwidth = each["latency"] * 1e6, each["bandwidth"] / 1e6
            first = found["nodes"][0]["name"]
            print(f"{first} to {each['name']}: latency {latency:.0f} us, bandwidth {bandwidth:.0f} MB/s")
        if is_installed("torch"):
            from lockstep.torch import TorchTrainer

            taken = _run(TorchTrainer, _all_reduce, len(nodes), folder)["seconds"]
            print(f"all-reduce of {REDUCED * 4 / 1e6:.0f} MB on {len(nodes)} ranks: {taken * 1e3:.1f} ms")
    print("all is well")
    return 0


def _run(kind: type[DataParallelTrainer], function: Any, nodes: int, folder: str) -> dict[str, Any]:
    """The metrics of a run with one worker on each node."""
    run = RunConfig(storage_path=folder, verbose=0, checkpoint_config=CheckpointConfig(num_to_keep=0))
    scaling = ScalingConfig(num_workers=nodes, placement_strategy="STRICT_SPREAD" if nodes > 1 else "PACK")
    return dict(kind(function, scaling_config=scaling, run_config=run).fit().metrics)


def _probe() -> None:
    """Rank 0 listens at its node's address. The others connect one after the other, say who they are, and answer."""
    rank = session.get_world_rank()
    listener = socket.create_server((session.get_node_address(0), 0)) if rank == 0 else None
    port = 0 if listener is None else listener.getsockname()[1]
    port, token = session.broadcast_from_rank_zero((port, os.urandom(32)))
    nodes = [_about()]
    for other in range(1, session.get_world_size()):
        session.barrier()
        if listener is not None:
            nodes.append(_measure(listener, token))
        elif rank == other:
            _answer(port, token)
    session.report({"nodes": nodes})


def _about() -> dict[str, Any]:
    versions = {package: _version_of(package) for package in ("lockstep", "torch")}
    return {"name": platform.node(), "python": platform.python_version(), **versions}


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _measure(listener: socket.socket, token: bytes) -> dict[str, Any]:
    """What the next rank says of its node, with the latency and the bandwidth to it."""
    listener.settimeout(TIMEOUT)
    link, _ = listener.accept()
    with link, link.makefile("rb") as received:
        link.settimeout(TIMEOUT)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if received.read(len(token)) != token:
            raise LockstepError("[cluster] another program connected to the check; run it again")
        about: dict[str, Any] = json.loads(received.readline())
        trips = []
        for _ in range(PINGS):
            started = time.perf_counter()
            link.sendall(b"?")
            received.read(1)
            trips.append(time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(STREAMED // len(BLOCK)):
            link.sendall(BLOCK)
        received.read(1)  # all of it has arrived
        taken = time.perf_counter() - started
    return about | {"latency": sorted(trips)[PINGS // 2] / 2, "bandwidth": STREAMED / taken}


def _answer(port: int, token: bytes) -> None:
    with (
        socket.create_connection((session.get_node_address(0), port), TIMEOUT) as link,
        link.makefile("rb") as received,
    ):
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(token + json.dumps(_about()).encode() + b"\n")
        for _ in range(PINGS):
            received.read(1)
            link.sendall(b"!")
        for _ in range(STREAMED // len(BLOCK)):
            received.read(len(BLOCK))
        link.sendall(b"!")


def _all_reduce() -> None:
    import torch
    import torch.distributed as dist

    for _ in range(3):  # the first makes connections
        tensor = torch.ones(REDUCED)
        started = time.perf_counter()
        dist.all_reduce(tensor)
        taken = time.perf_counter() - started
    if not bool((tensor == session.get_world_size()).all()):
        raise LockstepError("[cluster] the sum of the all-reduce is wrong")
    session.report({"seconds": taken})


if __name__ == "__main__":
    try:
        code = main()
    except LockstepError as error:
        code = 1
        print(f"lockstep: {error}", file=sys.stderr)
    sys.exit(code)
