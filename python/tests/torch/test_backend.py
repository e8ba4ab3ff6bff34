"""The backend "lockstep" of torch.distributed: every collective beside Gloo's, errors, deaths, other launchers."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import ConfigError, FailureConfig, Result, TrainingFailedError, session
from lockstep.torch import TorchConfig, backend, prepare_model

Fit = Callable[..., Result]

LOCKSTEP = TorchConfig(backend="lockstep")
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
SIZES = (0, 1, 7, 1000, 65_537, 1_500_001)
"""Nothing, one, odd, and more than fits into the staging memory at once."""


def values(dtype: torch.dtype, size: int, seed: int) -> torch.Tensor:
    """Small whole numbers: sums are exact in every type, whatever the order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2 if dtype == torch.bool else 4, (size,), generator=generator).to(dtype)


def cases(seed: int, count: int) -> list[tuple[torch.dtype, int, int]]:
    """(dtype, size, seed of the values); the first ones are all pairs of a few."""
    generator = torch.Generator().manual_seed(seed)
    chosen = [(dtype, size, seed) for dtype in (torch.float32, torch.bfloat16, torch.int64) for size in SIZES]
    for _ in range(count):
        dtype = (*FLOATS, *INTEGERS, torch.bool)[int(torch.randint(0, 10, (1,), generator=generator))]
        size = int(torch.randint(0, 20_000, (1,), generator=generator))
        chosen.append((dtype, size, int(torch.randint(0, 1 << 30, (1,), generator=generator))))
    return chosen


def compare_collectives(config: dict[str, Any]) -> None:
    """On every rank: each collective of the default group gives what a group of Gloo's gives."""
    import torch.distributed as dist

    assert dist.get_backend() == "lockstep"
    gloo = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    def all_reduce(group: Any, mine: torch.Tensor, _: torch.Tensor, op: Any) -> list[torch.Tensor]:
        tensor = mine.clone()
        dist.all_reduce(tensor, op, group=group)
        return [tensor]

    def reduce(group: Any, mine: torch.Tensor, _: torch.Tensor, op: Any) -> list[torch.Tensor]:
        tensor = mine.clone()
        dist.reduce(tensor, root, op, group=group)
        return [tensor] if rank == root else []

    def reduce_scatter(group: Any, _: torch.Tensor, rows: torch.Tensor, op: Any) -> list[torch.Tensor]:
        outputs = [rows.new_empty(len(rows) // world) for _ in range(2)]
        dist.reduce_scatter(outputs[0], list(rows.split(len(rows) // world)), op, group=group)
        dist.reduce_scatter_tensor(outputs[1], rows, op, group=group)
        return outputs

    def broadcast(group: Any, mine: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
        tensor = mine.clone()
        dist.broadcast(tensor, root, group=group)
        return [tensor]

    def all_gather(group: Any, mine: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
        outputs = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(outputs, mine, group=group)
        output = mine.new_empty(len(mine) * world)
        dist.all_gather_into_tensor(output, mine, group=group)
        return [*outputs, output]

    def gather(group: Any, mine: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
        outputs = [torch.empty_like(mine) for _ in range(world)] if rank == root else None
        dist.gather(mine, outputs, root, group=group)
        return outputs or []

    def scatter(group: Any, _: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        output = rows.new_empty(len(rows) // world)
        dist.scatter(output, list(rows.split(len(rows) // world)) if rank == root else None, root, group=group)
        return [output]

    def all_to_all(group: Any, _: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        output = torch.empty_like(rows)
        dist.all_to_all_single(output, rows, group=group)
        return [output]

    def compare(dtype: torch.dtype, size: int, seed: int, run: Callable[..., list[torch.Tensor]], *op: Any) -> None:
        mine = values(dtype, size, seed * world + rank)
        rows = values(dtype, size * world, seed * world + rank + 1)
        # Gloo combines neither of these: numbers do what booleans mean.
        known = torch.int32 if dtype in (torch.int16, torch.bool) else dtype
        ours = run(None, mine, rows, *op)
        theirs = [tensor.to(dtype) for tensor in run(gloo, mine.to(known), rows.to(known), *op)]
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype and torch.equal(one, other), (run.__name__, *op, dtype, size, seed)

    for case in cases(config["seed"], config["cases"]):
        root = case[2] % world
        empty = case[1] == 0  # split() wants a size
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            for combining in (all_reduce, reduce, *([] if empty else [reduce_scatter])):
                compare(*case, combining, op)
        for moving in (broadcast, all_gather, gather, all_to_all, *([] if empty else [scatter])):
            compare(*case, moving)
    session.report({"done": True})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_every_collective_gives_what_gloo_gives(torch_fit: Fit, workers: int) -> None:
    result = torch_fit(
        compare_collectives, workers, {"seed": 100 + workers, "cases": 12}, torch_config=LOCKSTEP, verbose=0
    )
    assert result.metrics["done"]


def test_sums_of_half_precision_round_once(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        rank, world = dist.get_rank(), dist.get_world_size()
        for dtype in (torch.bfloat16, torch.float16):
            given = [torch.randn(9_999, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(world)]
            for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, world)):
                tensor = given[rank].clone()
                dist.all_reduce(tensor, op)
                exact = torch.stack([each.double() for each in given]).sum(0) / divisor
                # Half a unit in the last place, and what float32 rounds meanwhile.
                allowed = exact.abs() * torch.finfo(dtype).eps / 2 * 1.001 + torch.finfo(dtype).smallest_normal
                assert (tensor.double() - exact).abs().le(allowed).all(), (dtype, op)
        session.report({"done": True})

    assert torch_fit(train_func, 3, torch_config=LOCKSTEP).metrics["done"]


def test_averages_lists_coalesced_forms_and_strides(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        rank, world = dist.get_rank(), dist.get_world_size()
        mean = (world - 1) / 2
        average = torch.full((5,), float(rank))
        dist.all_reduce(average, dist.ReduceOp.AVG)
        assert average.tolist() == [mean] * 5

        # Every second column, and a transposed one: what lies between stays.
        table = torch.full((4, 6), float(rank))
        dist.all_reduce(table[:, ::2])
        assert table[:, 1].tolist() == [rank] * 4 and table[:, 2].tolist() == [mean * world] * 4
        turned = torch.arange(6.0).reshape(2, 3).t() * (rank + 1)
        dist.broadcast(turned, world - 1)
        assert turned.tolist() == (torch.arange(6.0).reshape(2, 3).t() * world).tolist()

        many = [torch.full((size,), rank + 1) for size in (3, 0, 4)]
        dist.all_reduce_coalesced(many)
        assert [each.tolist() for each in many] == [[sum(range(world + 1))] * size for size in (3, 0, 4)]
        with dist._coalescing_manager():
            sums = [torch.ones(3), torch.ones(2)]
            for each in sums:
                dist.all_reduce(each)
        assert [each.tolist() for each in sums] == [[world] * 3, [world] * 2]
        outputs = [torch.zeros(2 * world), torch.zeros(world)]
        with dist._coalescing_manager():
            for output in outputs:
                dist.all_gather_into_tensor(output, torch.full((len(output) // world,), float(rank)))
        assert outputs[1].tolist() == [float(each) for each in range(world)]
        halves = [torch.zeros(2), torch.zeros(1)]
        with dist._coalescing_manager():
            for half in halves:
                dist.reduce_scatter_tensor(half, torch.arange(float(len(half) * world)))
        assert halves[1].tolist() == [float(rank * world)]

        taken = [torch.empty(each + 1) for each in range(world)]
        dist.all_to_all(taken, [torch.full((rank + 1,), float(10 * rank + to)) for to in range(world)])
        assert [each[0].item() for each in taken] == [10 * each + rank for each in range(world)]
        uneven = torch.empty(sum(range(1, world + 1)))
        given = torch.full(((rank + 1) * world,), float(rank))
        dist.all_to_all_single(uneven, given, [each + 1 for each in range(world)], [rank + 1] * world)
        assert uneven.tolist() == [float(each) for each in range(world) for _ in range(each + 1)]

        number = torch.complex(torch.full((3,), 1.0), torch.full((3,), float(rank)))
        dist.all_reduce(number)
        assert number.tolist() == [complex(world, mean * world)] * 3
        objects: list[Any] = [None] * world
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": each} for each in range(world)]
        session.report({"done": True})

    assert torch_fit(train_func, 3, torch_config=LOCKSTEP).metrics["done"]


def test_sparse_gradients_are_added(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        rank = dist.get_rank()
        mine = torch.sparse_coo_tensor(torch.tensor([[rank, 3]]), torch.tensor([[1.0, 2.0]] * 2), (5, 2))
        dist.all_reduce(mine)
        assert mine.to_dense()[:, 1].tolist() == [2.0, 2.0, 0.0, 4.0, 0.0]

        embedding = torch.nn.Embedding(10, 3, sparse=True)
        model = prepare_model(embedding)
        model(torch.tensor([rank, 5])).sum().backward()
        gradient = model.module.weight.grad.to_dense()[:, 0]
        assert gradient.tolist() == [0.5, 0.5, 0, 0, 0, 1.0, 0, 0, 0, 0]
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_messages_asynchronous_calls_and_groups(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        rank, world = dist.get_rank(), dist.get_world_size()
        # In a ring, all at once, with two tags out of order.
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
            found = {dist.recv(torch.empty(1)) for _ in range(world - 1)}
            assert found == set(range(1, world))
        else:
            dist.send(torch.ones(1), 0)
        dist.barrier()  # what comes next could be taken for that
        ops = [dist.P2POp(dist.isend, torch.ones(2), right), dist.P2POp(dist.irecv, there[1][:2], left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

        tensors = [torch.full((1000,), float(i)) for i in range(20)]
        pending = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        futures = [work.get_future().then(lambda done: done.value()[0][0].item()) for work in pending[:3]]
        assert [future.wait() for future in futures] == [0.0, world, 2.0 * world]
        for work in pending:
            work.wait()
            assert work.is_completed()
        assert [tensor[0].item() for tensor in tensors] == [float(i * world) for i in range(20)]

        pair = dist.new_group([0, 2])
        if rank != 1:
            assert dist.get_backend(pair) == "lockstep"
            tensor = torch.ones(4)
            dist.all_reduce(tensor, group=pair)
            assert tensor[0] == 2
            dist.destroy_process_group(pair)
        dist.barrier()
        session.report({"done": True})

    assert torch_fit(train_func, 3, torch_config=LOCKSTEP).metrics["done"]


def test_wrong_arguments_are_told_at_once_and_the_group_lives_on(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        with pytest.raises(ValueError, match="only supports CPU tensors"):
            group.allreduce([torch.ones(2, device="meta")])
        with pytest.raises(ValueError, match="is not defined for elements of type Bool"):
            dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
        with pytest.raises(TypeError, match="cannot combine elements of type Float8"):
            dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn))
        with pytest.raises(ValueError, match="single-element tensor list"):
            group.allreduce([torch.ones(2)] * 2)
        with pytest.raises(ValueError, match="as large as 2 of the second"):
            dist.all_gather_into_tensor(torch.ones(5), torch.ones(2))
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2, 2]
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_ranks_that_make_different_calls_hear_both(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        with pytest.raises(dist.DistBackendError, match="every rank must make the same calls"):
            dist.all_reduce(torch.ones(2 + dist.get_rank()))
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_a_silent_rank_is_named_at_the_timeout(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        if dist.get_rank() == 0:
            with pytest.raises(dist.DistBackendError, match=r"nothing from rank 1 \(pid \d+\) for"):
                dist.all_reduce(torch.ones(2))
            session.broadcast_from_rank_zero("the error is there")
        else:
            session.broadcast_from_rank_zero(None)
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=TorchConfig(backend="lockstep", timeout_s=1)).metrics["done"]


def test_a_dead_rank_ends_the_others_wait_with_its_name(torch_fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        import torch.distributed as dist

        dist.barrier()
        place = Path(config["path"])
        if dist.get_rank() == 2:
            (place / "killed at").write_text(repr(time.monotonic()))
            os.kill(os.getpid(), 9)
        try:
            dist.all_reduce(torch.ones(100_000))
        except dist.DistBackendError as error:
            (place / f"rank {dist.get_rank()}").write_text(f"{time.monotonic()!r}\n{error}")
            raise

    with pytest.raises(TrainingFailedError, match="rank 2"):
        torch_fit(train_func, 3, {"path": str(tmp_path)}, torch_config=LOCKSTEP)
    killed = float((tmp_path / "killed at").read_text())
    for rank in (0, 1):
        seen, message = (tmp_path / f"rank {rank}").read_text().split("\n", 1)
        assert "rank 2 (pid" in message and "died" in message
        assert float(seen) - killed < 1  # 0.05 is promised; other load may be on the machine


def test_training_goes_on_after_a_rank_died_in_backward(torch_fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        model = prepare_model(torch.nn.Linear(1000, 1000))
        marker = Path(config["path"]) / "died"

        def die(_: Any) -> None:
            if session.get_world_rank() == 1 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), 9)

        next(model.parameters()).register_hook(die)
        for step in range(3):
            model(torch.ones(4, 1000)).sum().backward()
            session.report({"step": step})

    result = torch_fit(
        train_func,
        2,
        {"path": str(tmp_path)},
        torch_config=LOCKSTEP,
        failure_config=FailureConfig(max_failures=1),
    )
    assert (tmp_path / "died").exists() and result.metrics["step"] == 2


def test_it_needs_no_trainer(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os
            import lockstep.torch.backend
            import torch
            import torch.distributed as dist

            dist.init_process_group("lockstep")
            tensor = torch.full((3,), dist.get_rank() + 1.0)
            dist.all_reduce(tensor)
            names = os.listdir("/dev/shm")
            print(f"rank {dist.get_rank()}: {tensor.tolist()} {[n for n in names if 'lockstep' in n]}\\n", end="")
            dist.destroy_process_group()
            """
        )
    )
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.split("\n")[:-1]) == [f"rank {rank}: [6.0, 6.0, 6.0] []" for rank in range(3)]


def test_a_missing_module_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend.is_available()
    monkeypatch.setattr(backend, "_c10d", None)
    monkeypatch.setattr(torch, "__version__", "9.9.9+cpu")
    assert not backend.is_available()
    says = r'no backend "lockstep" for torch 9\.9\.9.* python -m lockstep\.torch\.build_backend'
    with pytest.raises(ImportError, match=says):
        backend.load()
    with pytest.raises(ConfigError, match=says):
        TorchConfig(backend="lockstep")


def test_ranks_that_cannot_share_memory_use_gloo(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    class Module:
        class CannotShareMemory(RuntimeError):
            pass

        @staticmethod
        def create(*_: Any) -> Any:
            raise Module.CannotShareMemory("[collective] rank 1 cannot join: no such process")

    from datetime import timedelta

    monkeypatch.setattr(backend, "_c10d", Module)
    made = backend.create(torch.distributed.HashStore(), 0, 1, timedelta(seconds=10))
    assert made.name() == "gloo"
    assert "rank 1 cannot join: no such process; these ranks use Gloo" in caplog.text
