"""How fast experiments are: trials that do nothing, results, decisions, reopening, and trials of a TorchTrainer; beside
Optuna and Ray Tune, if they are installed.

    .venv/bin/python benchmarks/run.py tune_speed
    .venv/bin/python benchmarks/tune_speed.py functions trainer    # some of it

Optuna is expected in .venv-optuna (see tune_quality.py), Ray in .venv-ray (see peers.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
from lockstep import ScalingConfig, session, tune
from measure import Row, quiet, scratch
from tune_quality import optuna_speed, trials_per_second

PROGRAM = Path(__file__).resolve().parent.parent / "build/benchmarks/micro/tune_benchmark"
TURNS = 3


def core(*arguments: object) -> dict[str, float]:
    done = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"tune_benchmark {arguments[0]} failed: {done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure_core() -> list[Row]:
    with scratch() as place:
        rates = [core("trials", place / f"trials_{turn}", 100_000)["rate"] for turn in range(TURNS)]
        million = core("trials", place / "million", 1_000_000)
        opened = [core("reopen", place / "million")["seconds"] for _ in range(TURNS)]
        results = [core("results", place / f"results_{turn}", 300_000)["rate"] for turn in range(TURNS)]
    asha = [core("asha", 1_000_000)["microseconds"] for _ in range(TURNS)]
    return [
        rate_row("no-op trials in C++, durable", rates, 100_000),
        Row("memory per finished trial, of 1 M", million["bytes"], "bytes", 1000),
        Row("1 M trials: reopened", statistics.median(opened), "s", 5, samples=opened),
        rate_row("results in C++, durable", results, 50_000),
        Row("ASHA: one decision", statistics.median(asha), "us", 10, samples=asha),
    ]


def rate_row(what: str, rates: list[float], wanted: float | None = None) -> Row:
    return Row(what, statistics.median(rates), "/s", wanted, at_least=True, samples=rates)


def nothing(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": config["x"]}


def many(config: dict[str, Any]) -> None:
    for i in range(config["count"]):
        session.report({"loss": 1.0 / (i + 1)})


def fit_functions(place: Path, count: int, **options: Any) -> float:
    """Trials per second of fit(), with the start of its workers."""
    tuner = tune.Tuner(
        nothing,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=count, **options),
        run_config=quiet(place),
    )
    begin = time.perf_counter()
    grid = tuner.fit()
    rate = count / (time.perf_counter() - begin)
    assert grid.num_terminated == count
    return rate


def fit_results(place: Path, count: int) -> float:
    """Results per second of two trials, in the database, result.json, progress.csv and TensorBoard."""
    tuner = tune.Tuner(
        many,
        param_space={"count": count, "x": tune.grid_search([0, 1])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=quiet(place),
    )
    begin = time.perf_counter()
    grid = tuner.fit()
    rate = 2 * count / (time.perf_counter() - begin)
    for result in grid:
        with open(Path(result.path) / "result.json", "rb") as lines:
            assert sum(1 for _ in lines) == count
    return rate


def measure_functions() -> list[Row]:
    with scratch() as place:
        fit_functions(place, 100)  # the first one starts the fork server
        warm = [fit_functions(place, 5000) for _ in range(TURNS)]
        fresh = [fit_functions(place, 1000, reuse_workers=False) for _ in range(TURNS)]
        results = [fit_results(place, 100_000) for _ in range(TURNS)]
    rows = [
        rate_row("no-op trials, Python function on warm workers", warm, 1000),
        rate_row("no-op trials, each in a fresh process", fresh, 200),
        rate_row("results of Python functions, all loggers", results, 50_000),
    ]
    theirs = ray("trials", 20)
    if theirs:
        rows.append(Row("  Ray Tune, no-op trials", theirs["fresh"], "/s"))
        rows.append(Row("  Ray Tune, no-op trials, reuse_actors", theirs["reused"], "/s"))
        rows.append(Row("  ours, times theirs", rows[0].value / theirs["reused"], "x"))
    return rows


def step(config: dict[str, Any]) -> None:
    import torch
    from lockstep.torch import prepare_model

    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(3):
        loss = model(torch.ones(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        session.report({"loss": float(loss)})


def fit_trainers(place: Path) -> float:
    from lockstep.torch import TorchTrainer

    tuner = tune.Tuner(
        TorchTrainer(step, scaling_config=ScalingConfig(num_workers=2)),
        param_space={"train_loop_config": {"lr": tune.uniform(0.001, 0.1)}},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4),
        run_config=quiet(place),
    )
    begin = time.perf_counter()
    grid = tuner.fit()
    seconds = time.perf_counter() - begin
    assert grid.num_terminated == 4
    return seconds


def measure_trainer() -> list[Row]:
    with scratch() as place:
        cold = fit_trainers(place)
        warm = [fit_trainers(place) for _ in range(TURNS)]
    rows = [
        Row("4 trials of a 2-worker TorchTrainer, first fit() of the process", cold, "s", 3),
        Row("4 trials of a 2-worker TorchTrainer, later fit()", statistics.median(warm), "s", samples=warm),
    ]
    if theirs := ray("trainer", 4):
        rows.append(Row("  Ray Tune", theirs["seconds"], "s"))
        rows.append(Row("  times ours", theirs["seconds"] / cold, "x", 10, at_least=True))
    return rows


def measure_tpe() -> list[Row]:
    rows = []
    for after, wanted in ((1000, 3000), (10_000, 1000)):
        what = f"TPE, 5 floats: trials at {after:,}"
        rows.append(rate_row(what, [trials_per_second(after) for _ in range(TURNS)], wanted))
    if theirs := optuna_speed():
        rows.append(Row("  Optuna, at 1,000", theirs, "/s"))
        rows.append(Row("  ours, times theirs", rows[0].value / theirs, "x"))
    return rows


RAY_SCRIPT = """
import json, os, sys, time
import ray
from ray import tune

what, place, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

def nothing(config):
    tune.report({"loss": config["x"]})

def step(config):
    import torch
    from ray import train
    from ray.train.torch import prepare_model
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(3):
        loss = model(torch.ones(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train.report({"loss": float(loss)})

def fit(trainable, space, cpus, **options):
    begin = time.time()
    tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(num_samples=count, **options),
               run_config=tune.RunConfig(storage_path=place, verbose=0)).fit()
    return time.time() - begin

if what == "trials":
    ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
    space = {"x": tune.uniform(0, 1)}
    found = {"fresh": count / fit(nothing, space, 1), "reused": count / fit(nothing, space, 1, reuse_actors=True)}
else:
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer
    trainer = TorchTrainer(step, scaling_config=ScalingConfig(num_workers=2))
    found = {"seconds": fit(trainer, {"train_loop_config": {"lr": tune.uniform(0.001, 0.1)}}, 3)}
print("RESULT" + json.dumps(found))
"""


def ray(what: str, count: int) -> dict[str, float] | None:
    if not peers.RAY.exists():
        print("  Ray is not installed: see benchmarks/peers.py")
        return None
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_V2_ENABLED": "0",
        "PYTHONWARNINGS": "ignore",
    }
    with scratch() as place:
        command = [str(peers.RAY), "-c", RAY_SCRIPT, what, str(place), str(count)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return json.loads(line.removeprefix("RESULT"))  # type: ignore[no-any-return]
    raise RuntimeError(f"Ray did not finish: {done.stderr[-2000:]}")


PARTS: dict[str, Callable[[], list[Row]]] = {
    "core": measure_core,
    "functions": measure_functions,
    "trainer": measure_trainer,
    "tpe": measure_tpe,
}


def measure(parts: list[str] | None = None) -> list[Row]:
    return [row for part in parts or PARTS for row in PARTS[part]()]


def main() -> None:
    from run import print_table, write_json

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: " + " ".join(PARTS))
    parser.add_argument("--output", type=Path, help="where the JSON goes")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        parser.error(f"no such part: {unknown[0]}; choose from {' '.join(PARTS)}")
    rows = measure(arguments.parts)
    print_table(rows)
    print(f"written to {write_json(rows, arguments.output)}")


if __name__ == "__main__":
    main()
