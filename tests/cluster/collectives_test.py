"""The backend "lockstep" of torch.distributed on two machines, started by torchrun on each."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from namespaces import Network

SCRIPT = """
import datetime
import os
import lockstep.torch.backend
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("lockstep", timeout=datetime.timedelta(seconds=100))
rank, world = dist.get_rank(), dist.get_world_size()
tensor = torch.full((300_000,), rank + 1.0)
dist.all_reduce(tensor)
assert tensor.eq(10).all()
received = open("/sys/class/net/eth0/statistics/rx_bytes").read()
assert int(received) > 1_000_000, received  # half of the tensor at least

group = dist.distributed_c10d._get_default_group()
group.set_timeout(datetime.timedelta(seconds=5))
dist.barrier()
print(f"rank {rank} ready\\n", end="", flush=True)
try:
    while True:
        dist.all_reduce(tensor)
except dist.DistBackendError as error:
    print(f"rank {rank}: {error}\\n", end="", flush=True)
    os._exit(0)  # the store's host may be cut off
"""


@pytest.mark.timeout(200)
def test_nodes_of_torchrun_are_told_apart_and_a_cut_cable_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with Network(["one", "two"]) as network:
        started = [
            network.start(
                name,
                [
                    *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}"),
                    *("--nproc-per-node=2", f"--master-addr={network.addresses['one']}", "--master-port=29512"),
                    script,
                ],
                subprocess.PIPE,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for number, name in enumerate(network.names)
        ]
        said: list[list[str]] = [[], []]
        for lines, process in zip(said, started, strict=True):
            assert process.stdout
            while sum("ready" in line for line in lines) < 2:
                line = process.stdout.readline().decode()
                assert line, "".join(lines)
                lines.append(line)
        network.cut("two")
        for number, (lines, process) in enumerate(zip(said, started, strict=True)):
            assert process.stdout
            while sum("rank" in line and "node" in line for line in lines) < 2:
                line = process.stdout.readline().decode()
                assert line, "".join(lines)
                lines.append(line)
            other = 1 - number
            for line in lines:
                if "heard nothing" in line:
                    assert f"(node {other}, {network.addresses[network.names[other]]})" in line
            assert sum("heard nothing from rank" in line for line in lines) == 2, "".join(lines)
