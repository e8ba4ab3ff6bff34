"""The backend "lockstep" between nodes, compared with flat Gloo over the same links: python
benchmarks/collective_nodes.py

Two nodes with two ranks each, as network namespaces of this machine that a veth pair connects; needs root. All ranks
have both groups and use them in turn. The link is as fast as the kernel copies; then it is slowed down to 1 Gbit/s
each way (tbf), where two nodes that send each byte once can gain 1.5 times on a ring of four ranks, and latency a bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import Row

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/cluster"))

from namespaces import Network

MB = 1 << 20
TURNS = 3
PORT = 29511
LINKS = {"veth": None, "1 Gbit/s": "1gbit"}
# Bytes, and samples of a turn.
SIZES = [(MB, 30), (25 * MB, 4)]
STEPS = 8
"""DDP steps of a turn."""


class Ranks:
    """Four processes that do what they are told, all at once."""

    def __init__(self, network: Network) -> None:
        self.processes = [
            subprocess.Popen(
                network.command("ab"[rank // 2], [sys.executable, __file__, str(rank), network.addresses["a"]]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"},
            )
            for rank in range(4)
        ]

    def run(self, what: str, backend: str, amount: int, count: int) -> list[float]:
        for process in self.processes:
            assert process.stdin
            process.stdin.write(json.dumps([what, backend, amount, count]) + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self.processes if process.stdout]
        seconds: list[float] = json.loads(answers[0])
        return seconds

    def close(self) -> None:
        for process in self.processes:
            process.communicate()


def serve(rank: int, master: str) -> None:
    import lockstep.torch.backend  # noqa: F401
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("lockstep", init_method=f"tcp://{master}:{PORT}", rank=rank, world_size=4)
    groups: dict[str, Any] = {"lockstep": None, "gloo": dist.new_group(backend="gloo")}
    models = {name: ddp(group) for name, group in groups.items()}
    for line in sys.stdin:
        what, backend, amount, count = json.loads(line)
        group = groups[backend]
        tensor = torch.ones(amount // 4)
        seconds = []
        for _ in range(count + 2):
            dist.barrier(group)
            start = time.perf_counter()
            if what == "all_reduce":
                dist.all_reduce(tensor, group=group)
            else:
                models[backend]()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds[2:]), flush=True)
    dist.destroy_process_group()


def ddp(group: Any) -> Any:
    """A function that makes a training step of 10 million parameters."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(1600, 1600) for _ in range(4)])
    model = DistributedDataParallel(layers, process_group=group, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(16, 1600)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


@contextmanager
def slowed(network: Network, rate: str | None) -> Iterator[None]:
    for node in network.names if rate else ():
        shaped = network.run(
            node, ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "200ms"]
        )
        assert shaped.returncode == 0, shaped.stderr
    yield
    for node in network.names if rate else ():
        network.run(node, ["tc", "qdisc", "del", "dev", "eth0", "root"])


def compare(ranks: Ranks, what: str, amount: int, count: int) -> tuple[list[float], list[float]]:
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(TURNS):
        theirs += ranks.run(what, "gloo", amount, count)
        mine += ranks.run(what, "lockstep", amount, count)
    return mine, theirs


def measure() -> list[Row]:
    rows: list[Row] = []
    with Network(["a", "b"]) as network:
        ranks = Ranks(network)
        for link, rate in LINKS.items():
            with slowed(network, rate):
                for size, count in SIZES:
                    what = f"2 nodes x 2 ranks, {link}: all-reduce of {size // MB} MB"
                    rows += figures(what, *compare(ranks, "all_reduce", size, count), 1.5)
                what = f"2 nodes x 2 ranks, {link}: DDP step of 10 M parameters"
                rows += figures(what, *compare(ranks, "ddp", 0, STEPS), 1.2)
        ranks.close()
    return rows


def figures(what: str, mine: list[float], theirs: list[float], wanted: float) -> list[Row]:
    us, them = sorted(mine)[len(mine) // 2], sorted(theirs)[len(theirs) // 2]
    return [
        Row(what, us * 1e3, "ms", samples=mine),
        Row(f"{what}: Gloo", them * 1e3, "ms", samples=theirs),
        Row(f"{what}: times faster", them / us, "x", wanted, at_least=True),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]), sys.argv[2])
    else:
        for row in measure():
            print(f"{row.what:70} {row.text():>14} {row.wanted_text():>10} {row.verdict()}")
