"""Kills the driver of an experiment (kill -9) at a random moment and restores it: the trials and the best must be those
of the undisturbed experiment. 100 experiments per kind, each killed once.

    .venv/bin/python benchmarks/run.py tune_kills
    .venv/bin/python benchmarks/tune_kills.py tpe class --rounds 10 --trials 50 --kills 3    # some kinds

Trials of `random` run two at a time. The others choose by earlier results, so their trials run one at a time: the order
in which parallel trials end is not the same twice, with or without kills.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lockstep import CheckpointConfig, DataParallelTrainer, RunConfig, session, tune
from lockstep.checkpoint import Checkpoint

STEPS = 4


def loss(config: dict[str, Any], step: int) -> float:
    return float((config["x"] - 1) ** 2 + config["y"] + 1 / (step + 1))


def function(config: dict[str, Any]) -> None:
    """Continues from its checkpoints, which it makes in every other step."""
    checkpoint = session.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(first, STEPS):
        saved = Checkpoint.from_dict({"step": step}) if step % 2 else None
        session.report({"loss": loss(config, step), "step": step}, checkpoint=saved)


def returning(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": loss(config, 0), "step": 0}


class Steps(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"loss": loss(self.config, self.count - 1), "step": self.count - 1, "done": self.count == STEPS}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "random": (function, {}),
    "returning": (returning, {"search_alg": tune.search.TPESearch(n_startup=5), "max_concurrent_trials": 1}),
    "tpe": (function, {"search_alg": tune.search.TPESearch(n_startup=5), "max_concurrent_trials": 1}),
    "cmaes": (function, {"search_alg": tune.search.CMAESSearch(), "max_concurrent_trials": 1}),
    "asha": (
        function,
        {
            "search_alg": tune.search.TPESearch(n_startup=5),
            "scheduler": tune.schedulers.ASHAScheduler(max_t=STEPS, reduction_factor=2),
            "max_concurrent_trials": 1,
        },
    ),
    "class": (
        Steps,
        {
            "scheduler": tune.schedulers.ASHAScheduler(max_t=STEPS, reduction_factor=2),
            "max_concurrent_trials": 1,
        },
    ),
    "hyperband": (
        Steps,
        {
            "search_alg": tune.search.TPESearch(n_startup=5),
            "scheduler": tune.schedulers.HyperBandScheduler(max_t=STEPS, reduction_factor=2),
            "max_concurrent_trials": 1,
        },
    ),
    "pbt": (
        Steps,
        {
            "scheduler": tune.schedulers.PopulationBasedTraining(
                perturbation_interval=1, hyperparam_mutations={"y": tune.uniform(0, 1)}
            ),
            "max_concurrent_trials": 1,
        },
    ),
    "trainer": (
        DataParallelTrainer(function),
        {"search_alg": tune.search.TPESearch(n_startup=3), "max_concurrent_trials": 1},
    ),
}
"""Trainables, and arguments of their TuneConfig."""


def run_experiment(kind: str, place: Path, trials: int) -> None:
    """Runs it, or what is left of it."""
    path = place / "experiment"
    if tune.Tuner.can_restore(path):
        tune.Tuner.restore(path).fit()
        return
    trainable, options = KINDS[kind]
    space = {"x": tune.uniform(-5, 5), "y": tune.uniform(0, 1)}
    every = 1 if trainable is Steps else 0
    tune.Tuner(
        trainable,
        param_space={"train_loop_config": space} if kind == "trainer" else space,
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, seed=5, **options),
        run_config=RunConfig(
            name="experiment",
            storage_path=place,
            verbose=0,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=every, num_to_keep=1),
        ),
    ).fit()


def run_process(kind: str, place: Path, trials: int, kill_after: float | None = None) -> str:
    """Runs it in a process of its own. Returns what went wrong; killing it is no wrong."""
    command = [sys.executable, str(Path(__file__).resolve()), "--experiment", str(place), kind, "--trials", str(trials)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, errors = process.communicate(timeout=300 if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
            if kill_after is None:
                return f"it did not end: {errors[-2000:]}"
            return ""
    return "" if process.returncode == 0 else errors[-2000:]


def outcome(place: Path) -> tuple[Any, list[Any]]:
    """The best trial and all trials: configurations, states and reports."""
    grid = tune.Tuner.restore(place / "experiment").get_results()
    rows = [each.metrics_dataframe for each in grid]
    trials = [
        (each.config, each.state, each.metrics["loss"], each.metrics["training_iteration"], list(table["step"]))
        for each, table in zip(grid, rows, strict=True)
    ]
    best = grid.get_best_result()
    return (best.config, best.metrics["loss"]), trials


def differences(kind: str, trials: int, rounds: int, kills: int, seed: int = 1) -> list[str]:
    """What differs in experiments that were killed `kills` times each."""
    generator = random.Random(seed)
    found = []
    with tempfile.TemporaryDirectory(prefix="lockstep-kills-") as scratch:
        whole = Path(scratch, "whole")
        begin = time.monotonic()
        if problem := run_process(kind, whole, trials):
            return [f"undisturbed: {problem}"]
        took = time.monotonic() - begin
        expected = outcome(whole)
        for number in range(rounds):
            place = Path(scratch, str(number))
            moments = [generator.uniform(0, took / kills if kills > 1 else took) for _ in range(kills)]
            problems = [run_process(kind, place, trials, moment) for moment in moments]
            problems.append(run_process(kind, place, trials))
            what = next(filter(None, problems), "")
            if not what:
                what = difference(outcome(place), expected)
            if what:
                found.append(f"killed after {', '.join(f'{each:.3f}' for each in moments)} s: {what}")
    return found


def difference(got: tuple[Any, list[Any]], expected: tuple[Any, list[Any]]) -> str:
    if got == expected:
        return ""
    if len(got[1]) != len(expected[1]):
        return f"{len(got[1])} trials instead of {len(expected[1])}"
    for number, (one, other) in enumerate(zip(got[1], expected[1], strict=True)):
        if one != other:
            return f"trial {number} is {one} instead of {other}"
    return f"the best is {got[0]} instead of {expected[0]}"


def measure(kinds: Sequence[str] = tuple(KINDS), rounds: int = 100, trials: int = 200, kills: int = 1) -> list[Any]:
    from measure import Row

    rows = []
    for kind in kinds:
        number = max(10, trials // 10) if kind == "trainer" else trials
        found = differences(kind, number, rounds, kills)
        for each in found:
            print(f"  {kind}: {each}", flush=True)
        what = f"{kind}: experiments of {number} trials, killed and restored, that differ; of {rounds}"
        rows.append(Row(what, len(found), "", 0))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="default: " + " ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=100, help="experiments per kind")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--kills", type=int, default=1, help="of one experiment")
    parser.add_argument("--experiment", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := [kind for kind in arguments.kinds if kind not in KINDS]:
        parser.error(f"no such kind: {unknown[0]}; choose from {' '.join(KINDS)}")
    if arguments.experiment is not None:
        run_experiment(arguments.kinds[0], arguments.experiment, arguments.trials)
        return
    from run import print_table

    print_table(measure(arguments.kinds or tuple(KINDS), arguments.rounds, arguments.trials, arguments.kills))


if __name__ == "__main__":
    main()
