"""``lockstep bench``: the main figures on this machine. Medians; use a quiet machine."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep import _installed, session
from lockstep.checkpoint import Checkpoint
from lockstep.config import FailureConfig, RunConfig, ScalingConfig
from lockstep.trainer import DataParallelTrainer

WORKERS = 4


@dataclass
class Figure:
    """One row."""

    what: str
    value: float
    unit: str


def _mark(place: str) -> None:
    now = time.time()
    path = Path(place) / f"{session.get_attempt()}_{session.get_world_rank()}"
    part = path.with_suffix(".part")
    part.write_text(f"{now!r} {os.getpid()}")
    part.rename(path)


def _marks(place: Path, attempt: int, workers: int) -> list[tuple[float, int]]:
    deadline = time.time() + 120
    paths = [place / f"{attempt}_{rank}" for rank in range(workers)]
    while not all(path.exists() for path in paths):
        if time.time() > deadline:
            raise TimeoutError(f"[bench] attempt {attempt} did not start within two minutes")
        time.sleep(0.002)
    read = [path.read_text().split() for path in paths]
    return [(float(when), int(pid)) for when, pid in read]


def _trainer(place: Path, function: Callable[..., Any], workers: int = WORKERS, **options: Any) -> DataParallelTrainer:
    kind: type[DataParallelTrainer] = DataParallelTrainer
    if options.pop("torch", False):
        from lockstep.torch import TorchTrainer

        kind = TorchTrainer
    config = {"place": str(place), **options.pop("config", {})}
    return kind(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=place / "runs", verbose=0, **options),
    )


def _begins(config: dict[str, Any]) -> None:
    _mark(config["place"])


def start(place: Path) -> list[Figure]:
    """From ``fit()`` to the first line of the function on all workers."""
    trainer, samples = _trainer(place, _begins), []
    for _ in range(11):
        begin = time.time()
        trainer.fit()
        samples.append(max(when for when, _ in _marks(place, 0, WORKERS)) - begin)
    first, later = samples[0], statistics.median(samples[1:])
    return [
        Figure(f"first fit() to the first line on {WORKERS} workers", first, "s"),
        Figure("the same for later ones", later, "s"),
    ]


def _waits(config: dict[str, Any]) -> None:
    _mark(config["place"])
    if session.get_attempt() < config["times"]:
        time.sleep(600)


def recovery(place: Path, times: int = 5) -> list[Figure]:
    """From kill -9 of a worker to the first line of the next attempt on all."""
    samples: list[float] = []

    def kill() -> None:
        for attempt in range(times):
            pid = _marks(place, attempt, WORKERS)[attempt % WORKERS][1]
            time.sleep(0.1)
            begin = time.time()
            os.kill(pid, signal.SIGKILL)
            samples.append(max(when for when, _ in _marks(place, attempt + 1, WORKERS)) - begin)

    thread = threading.Thread(target=kill)
    thread.start()
    _trainer(place, _waits, config={"times": times}, failure_config=FailureConfig(max_failures=times)).fit()
    thread.join()
    return [Figure(f"kill -9 of one of {WORKERS} workers to the first line on all", statistics.median(samples), "s")]


def _reports(config: dict[str, Any]) -> float:
    begin = time.perf_counter()
    for step in range(config["number"]):
        session.report({"step": step, "loss": 0.5})
    return (time.perf_counter() - begin) / float(config["number"])


def report(place: Path, number: int = 20_000) -> list[Figure]:
    """Reports of metrics from two workers."""
    begin = time.perf_counter()
    result = _trainer(place, _reports, 2, config={"number": number}).fit()
    seconds = time.perf_counter() - begin
    return [
        Figure("metrics reports of 2 workers, with all that the run writes", 2 * number / seconds, "/s"),
        Figure("one report() blocks for", 1e6 * result.return_value, "us"),
    ]


def _saves(config: dict[str, Any]) -> float:
    import numpy

    data = {"weights": numpy.ones(config["bytes"] // 8)}
    blocked = []
    for _ in range(4):
        begin = time.perf_counter()
        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict(data))
        blocked.append(time.perf_counter() - begin)
        session.get_checkpoint()
    return statistics.median(blocked[1:])


def checkpoint(place: Path, size: int = 100_000_000) -> list[Figure]:
    """Checkpoints of 100 MB."""
    result = _trainer(place, _saves, 1, config={"bytes": size}).fit()
    return [Figure("report() with a checkpoint of 100 MB blocks for", 1e3 * result.return_value, "ms")]


def _ddp(config: dict[str, Any]) -> float:
    import torch

    from lockstep.torch import prepare_model

    model = prepare_model(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, rates = torch.randn(16, 512), []
    for round in range(4):
        begin = time.perf_counter()
        for _ in range(20):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            if round == 0:
                _mark(config["place"])
                break
        rates.append(20 / (time.perf_counter() - begin))
    return statistics.median(rates[1:])


def torch(place: Path) -> list[Figure]:
    """PyTorch's DistributedDataParallel."""
    if not _installed.is_installed("torch"):
        return []
    trainer, samples = _trainer(place, _ddp, torch=True), []
    for _ in range(3):
        begin = time.time()
        result = trainer.fit()
        samples.append(max(when for when, _ in _marks(place, 0, WORKERS)) - begin)
    return [
        Figure(f"TorchTrainer: later fit() to the first DDP step on {WORKERS} workers", samples[-1], "s"),
        Figure(f"DDP steps, 1 M parameters, {WORKERS} workers", result.return_value, "/s"),
    ]


PARTS: dict[str, Callable[[Path], list[Figure]]] = {
    "start": start,
    "recovery": recovery,
    "report": report,
    "checkpoint": checkpoint,
    "torch": torch,
}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lockstep bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure (all): {', '.join(PARTS)}")
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    given = parser.parse_args(words)
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    figures: list[Figure] = []
    for part in given.parts or PARTS:
        place = Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
        try:
            made = PARTS[part](place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        figures += made
        for each in made if not given.json else ():
            print(f"{each.what:<70} {each.value:>12,.4g} {each.unit}", flush=True)
    if given.json:
        print(json.dumps([asdict(each) for each in figures], indent=2))
    return 0


if __name__ == "__main__":
    # Its functions are pickled by name: workers import this module.
    from lockstep import _bench

    sys.exit(_bench.main(sys.argv[1:]))
