"""The backend "lockstep" between nodes. Here a node is what the variable says; tests/cluster has real networks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lockstep.torch import backend

HERE = Path(__file__).parent

START = """
import datetime, hashlib, os, signal, sys, time
sys.path.insert(0, {here!r})
import lockstep.torch.backend
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("lockstep", init_method={store!r}, rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]), timeout=datetime.timedelta(seconds=120))
rank, world = dist.get_rank(), dist.get_world_size()
"""


@contextmanager
def ranks(place: Path, nodes: str, script: str, call_timeout: float = 120) -> Iterator[list[subprocess.Popen[str]]]:
    """A process for each letter of `nodes`, the name of its node."""
    path = place / "script.py"
    store = f"file://{place}/store"
    path.write_text(START.format(here=str(HERE), store=store) + textwrap.dedent(script))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(len(nodes))}
    environment["CALL_TIMEOUT"] = str(call_timeout)
    started = [
        subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "RANK": str(rank), backend.NODE_VARIABLE: node},
        )
        for rank, node in enumerate(nodes)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def lines(place: Path, nodes: str, script: str) -> list[str]:
    """What each rank printed."""
    place.mkdir(exist_ok=True)
    with ranks(place, nodes, script) as started:
        ended = [process.communicate(timeout=200) for process in started]
        for process, (_, errors) in zip(started, ended, strict=True):
            assert process.returncode == 0, errors
    return [output for output, _ in ended]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("nodes", ["aabb", "abaa"])
def test_every_collective_gives_what_gloo_gives(tmp_path: Path, nodes: str) -> None:
    lines(
        tmp_path,
        nodes,
        """
        from test_backend import compare_collectives

        compare_collectives({"seed": world, "cases": 2})
        dist.destroy_process_group()
        """,
    )


WORK = """
right, left = (rank + 1) % world, (rank - 1) % world
there = [torch.empty(70_000), torch.empty(3)]
works = [
    dist.irecv(there[1], left, tag=2),
    dist.irecv(there[0], left, tag=1),
    dist.isend(torch.full((70_000,), float(rank)), right, tag=1),
    dist.isend(torch.full((3,), rank + 0.5), right, tag=2),
]
for work in works:
    work.wait()
assert there[0][-1] == left and there[1][0] == left + 0.5
if rank == 0:
    assert {dist.recv(torch.empty(1)) for _ in range(world - 1)} == set(range(1, world))
else:
    dist.send(torch.ones(1), 0)
dist.barrier()

tensors = [torch.full((1000,), float(i)) for i in range(20)]
pending = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
futures = [work.get_future().then(lambda done: done.value()[0][0].item()) for work in pending[:3]]
assert [future.wait() for future in futures] == [0.0, world, 2.0 * world]
for work in pending:
    work.wait()

for members in ([0, 1], [0, 2], [1, 2, 3], [0, 1, 2, 3]):
    group = dist.new_group(members)
    if rank in members:
        tensor = torch.full((3000,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(sum(members)).all()
        given = [torch.full((i + 1,), float(rank)) for i in range(len(members))]
        taken = [torch.empty(members.index(rank) + 1) for _ in members]
        dist.all_to_all(taken, given, group=group)
        assert [each[0].item() for each in taken] == members
        dist.barrier(group=group)
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": each} for each in range(world)]
sparse = torch.sparse_coo_tensor(torch.tensor([[rank % 2, 3]]), torch.tensor([[1.0, 2.0]] * 2), (5, 2))
dist.all_reduce(sparse)
assert sparse.to_dense()[:, 1].tolist() == [4.0, 4.0, 0.0, 8.0, 0.0]

for dtype in (torch.bfloat16, torch.float16):
    given = [torch.randn(9_999, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(world)]
    for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, world)):
        tensor = given[rank].clone()
        dist.all_reduce(tensor, op)
        exact = torch.stack([each.double() for each in given]).sum(0) / divisor
        allowed = exact.abs() * torch.finfo(dtype).eps / 2 * 1.001 + torch.finfo(dtype).smallest_normal
        assert (tensor.double() - exact).abs().le(allowed).all(), (dtype, op)

# Training: every rank has the same bits, close to those of one process that has the whole batch.
from torch.nn.parallel import DistributedDataParallel

def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(300, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10))

def train(model, inputs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

batch = torch.randn(8 * world, 300, generator=torch.Generator().manual_seed(2))
alone = train(net(), batch)
together = train(DistributedDataParallel(net()), batch[rank * 8 : rank * 8 + 8])
torch.testing.assert_close(together, alone)
numbers = torch.randn(1_000_003, generator=torch.Generator().manual_seed(rank))
dist.all_reduce(numbers)
print(hashlib.sha256(together.numpy().tobytes() + numbers.numpy().tobytes()).hexdigest())
dist.destroy_process_group()
"""


@pytest.mark.timeout(300)
def test_messages_groups_and_training_with_the_same_bits_in_every_run(tmp_path: Path) -> None:
    first = lines(tmp_path / "first", "aabb", WORK)
    assert len(set(first)) == 1
    assert lines(tmp_path / "second", "aabb", WORK) == first


FAIL = """
dist.all_reduce(torch.ones(100_000))
group = dist.distributed_c10d._get_default_group()
group.set_timeout(datetime.timedelta(seconds=float(os.environ["CALL_TIMEOUT"])))
dist.barrier()
print("ready", flush=True)
try:
    while True:
        dist.all_reduce(torch.ones(100_000))
except dist.DistBackendError as error:
    print(error, flush=True)
"""


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "is lost"), (signal.SIGSTOP, "heard nothing from")])
def test_a_lost_node_is_named_on_the_other(tmp_path: Path, number: int, words: str) -> None:
    with ranks(tmp_path, "aabb", FAIL, 100 if number == signal.SIGKILL else 5) as started:
        for process in started:
            assert process.stdout and process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in started[2:]:
            os.kill(process.pid, number)
        for process in started[:2]:
            message, errors = process.communicate(timeout=100)
            assert words in message and "(node 1)" in message, (message, errors)
