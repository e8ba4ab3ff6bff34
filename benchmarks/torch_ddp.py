"""PyTorch: from the start to the first DDP step, from a kill to the next one, and steps per second, compared with
torchrun.

torchrun runs the same training code on the same machine in the same run of this program.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from marks import MARK, kill_one_a_time, killing, last_mark
from measure import Row, median_row, quiet, scratch

WORKERS = 4
CPP_PROGRAM = Path(__file__).resolve().parent.parent / "build/benchmarks/cpp/cpp_ddp_benchmark"

STEP = (
    MARK
    + """
def first_step(place, name, wrap):
    import torch
    model = wrap(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    mark(place, name)
"""
)

OURS = (
    STEP
    + """
import sys
from lockstep import RunConfig, ScalingConfig, session
from lockstep.torch import TorchTrainer, prepare_model
import torch

place = sys.argv[1]

def train_func():
    first_step(place, f"0_{session.get_world_rank()}", prepare_model)

if __name__ == "__main__":
    TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=4),
                 run_config=RunConfig(storage_path=place + "/runs", verbose=0)).fit()
"""
)

THEIRS = (
    STEP
    + """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

place = sys.argv[1]
dist.init_process_group("gloo")
attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
first_step(place, f"{attempt}_{dist.get_rank()}", DistributedDataParallel)
if len(sys.argv) > 2:
    while int(attempt) < int(sys.argv[2]):
        time.sleep(0.05)
dist.destroy_process_group()
"""
)

STEPS = """
def steps_a_second(wrap):
    import time
    import torch
    torch.manual_seed(0)
    model = wrap(torch.nn.Sequential(*[torch.nn.Linear(1600, 1600) for _ in range(4)]))  # 10 M parameters
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(16, 1600)
    rates = []
    for _ in range(6):
        begin = time.perf_counter()
        for _ in range(10):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        rates.append(10 / (time.perf_counter() - begin))
    return sorted(rates[1:])[2]
"""

STEPS_THEIRS = (
    STEPS
    + """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rate = steps_a_second(DistributedDataParallel)
if dist.get_rank() == 0:
    open(sys.argv[1], "w").write(repr(rate))
dist.destroy_process_group()
"""
)

STEPS_OURS = (
    STEPS
    + """
import sys
from lockstep import RunConfig, ScalingConfig, session
from lockstep.torch import TorchConfig, TorchTrainer, prepare_model

def train_func():
    session.report({"rate": steps_a_second(prepare_model)})

if __name__ == "__main__":
    backend = sys.argv[2] if len(sys.argv) > 2 else None
    result = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2), torch_config=TorchConfig(backend),
                          run_config=RunConfig(storage_path=sys.argv[1] + ".runs", verbose=0)).fit()
    open(sys.argv[1], "w").write(repr(result.metrics["rate"]))
"""
)


def measure() -> list[Row]:
    ours_cold, theirs_cold = cold()
    warm_row = warm()
    ours_killed, theirs_killed = killed(), torchrun_killed()
    rate = rates()
    return [
        Row("torch, cold script: to the first DDP step on 4 ranks", ours_cold, "s"),
        Row("  torchrun", theirs_cold, "s"),
        Row("  ours, times torchrun's", ours_cold / theirs_cold, "x", 0.6),
        warm_row,
        median_row("torch, kill -9 of one of 4: to the next DDP step on all", ours_killed, "s", 0.3),
        Row("  torchrun", theirs_killed, "s"),
        Row("  ours, times torchrun's", statistics.median(ours_killed) / theirs_killed, "x", 1 / 15),
        Row("DDP steps/s, 10 M parameters, batch 16, 2 workers: plain DDP on Gloo by torchrun", rate["torchrun"], "/s"),
        Row("  ours on Gloo", rate["gloo"], "/s"),
        Row("    times torchrun's", rate["gloo"] / rate["torchrun"], "x", 0.98, True),
        Row("  ours as it comes (shared memory)", rate["default"], "/s"),
        Row("    times torchrun's", rate["default"] / rate["torchrun"], "x", 1.3, True),
        Row("  ours in C++", rate["C++"], "/s"),
        Row("    times ours in Python", rate["C++"] / rate["default"], "x", 1, True),
        *cpp_rows(),
        *checkpoint_rows(),
    ]


def torchrun(workers: int, *options: str) -> list[str]:
    return [
        sys.executable,
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers)),
        *options,
    ]


def run(command: list[object]) -> str:
    """Runs with one thread per worker, as Lockstep chooses on this machine; returns the output."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[1:4]} failed: {done.stderr[-3000:]}")
    return done.stdout


def cold(times: int = 5) -> tuple[float, float]:
    """Ours and theirs, alternating."""
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for mine, (code, command) in zip(samples, ((OURS, [sys.executable]), (THEIRS, torchrun(WORKERS))), strict=True):
            with scratch() as place:
                (place / "script.py").write_text(code)
                begin = time.time()
                run([*command, place / "script.py", place])
                mine.append(last_mark(place, 0, WORKERS) - begin)
    return statistics.median(samples[0]), statistics.median(samples[1])


def first_step(place: str, name: str) -> None:
    from lockstep.torch import prepare_model

    scope: dict[str, object] = {}
    exec(STEP, scope)
    scope["first_step"](place, name, prepare_model)  # type: ignore[operator]


def warm(times: int = 15) -> Row:
    from lockstep import ScalingConfig, session
    from lockstep.torch import TorchTrainer

    with scratch() as place:

        def train_func() -> None:
            first_step(str(place), f"0_{session.get_world_rank()}")

        trainer = TorchTrainer(
            train_func, scaling_config=ScalingConfig(num_workers=WORKERS), run_config=quiet(place / "runs")
        )
        samples = []
        for _ in range(times + 1):
            begin = time.time()
            trainer.fit()
            samples.append(last_mark(place, 0, WORKERS) - begin)
        return median_row("torch, warm fit(): to the first DDP step on 4 ranks", samples[1:], "s", 0.3)


def killed(times: int = 10) -> list[float]:
    from lockstep import FailureConfig, ScalingConfig, session
    from lockstep.torch import TorchTrainer

    with scratch() as place:

        def train_func() -> None:
            first_step(str(place), f"{session.get_attempt()}_{session.get_world_rank()}")
            if session.get_attempt() < times:
                time.sleep(600)

        trainer = TorchTrainer(
            train_func,
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=quiet(place / "runs", failure_config=FailureConfig(max_failures=-1)),
        )
        with killing(place, WORKERS, times) as samples:
            trainer.fit()
    return samples.result()


def torchrun_killed(times: int = 2) -> float:
    with scratch() as place:
        (place / "script.py").write_text(THEIRS)
        # Without the first option, restarts collide with the addresses of the dead ranks.
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
        options = ["--max-restarts", str(times), "--monitor-interval", "0.1"]
        command = [*torchrun(WORKERS, *options), str(place / "script.py"), str(place), str(times)]
        launcher = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        samples = kill_one_a_time(place, WORKERS, times)
        launcher.wait(timeout=60)
    return statistics.median(samples)


def rates(times: int = 5) -> dict[str, float]:
    """The rates of each side, alternating, so that changes in the machine's load affect all."""
    sides: dict[str, tuple[str, list[object], list[object]]] = {
        "torchrun": (STEPS_THEIRS, [*torchrun(2)], []),
        "gloo": (STEPS_OURS, [sys.executable], ["gloo"]),
        "default": (STEPS_OURS, [sys.executable], []),
    }
    samples: dict[str, list[float]] = {name: [] for name in (*sides, "C++")}
    for _ in range(times):
        for name, (code, command, arguments) in sides.items():
            with scratch() as place:
                (place / "script.py").write_text(code)
                run([*command, place / "script.py", place / "rate", *arguments])
                samples[name].append(float((place / "rate").read_text()))
        samples["C++"].append(float(run([CPP_PROGRAM, "steps", 2])))
    return {name: statistics.median(rates) for name, rates in samples.items()}


def cpp_rows(times: int = 10) -> list[Row]:
    """A C++ program: from its start to the first DDP step on all ranks, and from a kill to the next one."""
    starts: list[float] = []
    for _ in range(5):
        with scratch() as place:
            begin = time.time()
            run([CPP_PROGRAM, "start", WORKERS, place, 0])
            starts.append(last_mark(place, 0, WORKERS) - begin)
    with scratch() as place:
        program = subprocess.Popen([CPP_PROGRAM, "start", str(WORKERS), str(place), str(times)])
        kills = kill_one_a_time(place, WORKERS, times)
        program.wait(timeout=60)
    return [
        median_row("C++ program, start to the first DDP step on 4 ranks", starts, "s", 1.0),
        median_row("  kill -9 of one of 4: to the next DDP step on all", kills, "s", 0.2),
    ]


def checkpoint_rows() -> list[Row]:
    from lockstep import CheckpointConfig, ScalingConfig
    from lockstep.torch import TorchTrainer

    def train_func() -> None:
        import torch
        from lockstep import Checkpoint, session

        model = torch.nn.Sequential(*[torch.nn.Linear(1600, 1600) for _ in range(10)])  # 102 MB
        copies, blocked = [], []
        for _ in range(8):
            begin = time.perf_counter()
            copied = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            copies.append(time.perf_counter() - begin)
            del copied
            begin = time.perf_counter()
            session.report({}, checkpoint=Checkpoint.from_dict({"model": model.state_dict()}))
            blocked.append(time.perf_counter() - begin)
            session.get_checkpoint()
        session.report({"copies": copies, "blocked": blocked})

    with scratch() as place:
        metrics = (
            TorchTrainer(
                train_func,
                scaling_config=ScalingConfig(num_workers=1),
                run_config=quiet(place, checkpoint_config=CheckpointConfig(num_to_keep=1)),
            )
            .fit()
            .metrics
        )
    copy = statistics.median(metrics["copies"])
    return [
        Row(
            "100 MB state_dict: report() blocks, against a plain copy",
            statistics.median(metrics["blocked"]) / copy,
            "x",
            2,
        ),
        Row("  the first of the run", metrics["blocked"][0] / metrics["copies"][0], "x"),
    ]


if __name__ == "__main__":
    print(json.dumps([row.to_dict() for row in measure()], indent=2))
