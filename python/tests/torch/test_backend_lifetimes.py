"""The backend "lockstep": callbacks of futures, children of fork(), groups that come and go, odd tensors."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lockstep import Result, session
from lockstep.torch import TorchConfig, prepare_model

Fit = Callable[..., Result]

LOCKSTEP = TorchConfig(backend="lockstep")


def torchrun(tmp_path: Path, script: str, workers: int = 2) -> list[str]:
    """The lines that ranks of a script printed, sorted."""
    path = tmp_path / "script.py"
    path.write_text("import torch\nimport torch.distributed as dist\nimport lockstep.torch.backend\n" + script)
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", str(path)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    return sorted(run.stdout.splitlines())


def test_callbacks_may_wait_for_other_exchanges(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        rank, one = dist.get_rank(), torch.ones(3)
        nested = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        nested = nested.then(lambda _: dist.all_reduce(one, async_op=True).get_future().wait()[0])
        assert nested.wait().tolist() == [2, 2, 2]

        first, second = torch.ones(2), torch.ones(2)
        futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in (first, second)]
        assert futures[0].then(lambda done: (futures[1].wait(), done.value())[1]).wait()[0].tolist() == [2, 2]

        mine, theirs = torch.full((4,), float(rank)), [torch.zeros(4), torch.zeros(4)]
        received = dist.irecv(theirs[0], 1 - rank).get_future()
        received = received.then(lambda _: dist.recv(theirs[1], 1 - rank))
        for _ in range(2):
            dist.send(mine, 1 - rank)
        received.wait()
        assert theirs[0].eq(1 - rank).all() and theirs[1].eq(1 - rank).all()
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_power_sgd_hook_of_ddp(torch_fit: Fit) -> None:
    """Its futures wait for exchanges that they start themselves."""

    def train_func() -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        model = prepare_model(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)))
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).square().mean().backward()
            optimizer.step()
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_what_cannot_be_stored_is_an_error_of_the_receiver(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        if session.get_world_rank() == 0:
            dist.send(torch.ones(4, 4), 1)
            dist.send(torch.ones(4, 4), 1)
        else:
            with pytest.raises(RuntimeError, match="single memory location"):
                dist.recv(torch.empty(4, 1).expand(4, 4), 0)
            with torch.inference_mode():
                tensor = torch.empty(4, 4).t()
                dist.recv(tensor, 0)
                assert tensor.eq(1).all()
        with torch.inference_mode():
            tensor = torch.ones(4, 2).t()
            dist.all_reduce(tensor, async_op=True).wait()
            assert tensor.eq(2).all()
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_arguments_that_would_overrun_memory_are_refused(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        with pytest.raises(ValueError, match="size"):
            dist.all_gather_coalesced([[torch.zeros(2)], [torch.zeros(2)]], [torch.ones(100_000)])
        with pytest.raises(ValueError, match="negative"):
            dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [-4, 8], [-4, 8])
        with pytest.raises(ValueError, match="peer"):
            dist.distributed_c10d._get_default_group().send([torch.ones(1)], dist.get_rank(), 0)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        session.report({"sum": tensor.item()})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["sum"] == 2


def test_an_input_may_be_the_output_of_another_rank(torch_fit: Fit) -> None:
    def train_func() -> None:
        import torch.distributed as dist

        rank = dist.get_rank()
        outputs = [torch.full((2,), float(rank)) for _ in range(2)]
        dist.all_gather(outputs, outputs[1 - rank])
        assert [output.tolist() for output in outputs] == [[0, 0], [1, 1]]
        session.report({"done": True})

    assert torch_fit(train_func, 2, torch_config=LOCKSTEP).metrics["done"]


def test_a_group_can_be_made_again_on_the_same_store(tmp_path: Path) -> None:
    script = """
    for turn in range(4):
        dist.init_process_group("lockstep")
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        print(f"{turn} {tensor.tolist()}\\n", end="")
        dist.destroy_process_group()
    """
    lines = torchrun(tmp_path, textwrap.dedent(script))
    assert lines == [f"{turn} [2.0, 2.0, 2.0]" for turn in range(4) for _ in range(2)]


def test_a_message_that_is_on_its_way_arrives_though_its_sender_leaves(tmp_path: Path) -> None:
    script = """
    import time
    dist.init_process_group("lockstep")
    if dist.get_rank() == 0:
        dist.isend(torch.ones(1_000_000), 1)
    else:
        time.sleep(1)
        tensor = torch.empty(1_000_000)
        dist.recv(tensor, 0)
        print(tensor.sum().item())
    dist.destroy_process_group()
    """
    assert torchrun(tmp_path, textwrap.dedent(script)) == ["1000000.0"]


def test_a_child_of_fork_hears_that_it_is_none_and_ends(tmp_path: Path) -> None:
    script = """
    import os, sys

    def child(what):
        if what == "destroy":
            dist.destroy_process_group()
            return "ok"
        try:
            {
                "collective": lambda: dist.all_reduce(torch.ones(1)),
                "asynchronous": lambda: dist.all_reduce(torch.ones(1), async_op=True),
                "send": lambda: dist.send(torch.ones(1), 1 - dist.get_rank()),
                "receive": lambda: dist.recv(torch.ones(1), 1 - dist.get_rank()),
            }[what]()
        except (RuntimeError, ValueError) as error:
            return "ok" if "fork" in str(error) or "child" in str(error) else str(error)

    dist.init_process_group("lockstep")
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    for what in ("collective", "asynchronous", "send", "receive", "destroy"):
        pid = os.fork()
        if pid == 0:
            sys.exit(0 if child(what) == "ok" else 1)
        print(f"{what} {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\\n", end="")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    print(f"{tensor.item()}\\n", end="")
    dist.destroy_process_group()
    """
    lines = torchrun(tmp_path, textwrap.dedent(script))
    expected = [f"{what} 0" for what in ("collective", "asynchronous", "send", "receive", "destroy")] + ["2.0"]
    assert lines == sorted(2 * expected)


def test_a_process_of_multiprocessing_that_ends_has_left(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, time
            import torch
            import torch.distributed as dist
            import torch.multiprocessing as multiprocessing
            import lockstep.torch.backend

            def work(rank, place):
                dist.init_process_group("lockstep", init_method=f"file://{place}", rank=rank, world_size=3)
                if rank == 0:
                    return
                time.sleep(0.5)
                tensor = torch.ones(1)
                dist.send(tensor, 3 - rank) if rank == 1 else dist.recv(tensor, 3 - rank)

            if __name__ == "__main__":
                multiprocessing.start_processes(work, (os.path.abspath("store"),), nprocs=3, start_method="fork")
                print("done")
            """
        )
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert run.stdout == "done\n", run.stderr


def test_a_rank_that_cannot_share_memory_takes_all_to_gloo_at_once(tmp_path: Path) -> None:
    script = """
    import os, resource, time
    begin = time.monotonic()
    if os.environ["RANK"] == "0":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    dist.init_process_group("lockstep")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    print(f"{tensor.item()} {time.monotonic() - begin < 20}\\n", end="")
    dist.destroy_process_group()  # else Gloo may abort when the interpreter ends
    """
    assert torchrun(tmp_path, textwrap.dedent(script)) == ["2.0 True", "2.0 True"]
