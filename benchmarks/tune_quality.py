"""How good searchers are, compared with the same samplers of Optuna: the best of 100 trials, the median of 30 seeds.

    .venv/bin/python benchmarks/run.py tune_quality
    .venv/bin/python benchmarks/tune_quality.py tpe cmaes --seeds 200    # some searchers, less chance

Optuna is expected in .venv-optuna, made by

    scripts/environments.sh optuna

Its samplers: TPESampler(multivariate=True, group=True, constant_liar=True), CmaEsSampler, GPSampler (which needs
torch), NSGAIISampler, QMCSampler(scramble=True) for sobol, RandomSampler. Medians of 30 seeds vary by chance: on
Rosenbrock by a fifth for cmaes and a third for those that do not learn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from lockstep._core import tune
from measure import Row
from tune_functions import FUNCTIONS, Function

OPTUNA = Path(__file__).resolve().parent.parent / ".venv-optuna" / "bin" / "python"
SEARCHERS = ("tpe", "cmaes", "gp", "nsga2", "sobol", "random")
TRIALS = 100
MARGIN = 0.05


def best_of(searcher: str, function: Function, seed: int) -> float:
    space = tune.Space(function.space)
    model = tune.make_searcher({"kind": searcher}, space, seed, 1)
    best = float("inf")
    for trial in range(TRIALS):
        value = function.value(space.config(model.ask(trial, []).point))
        model.tell(trial, [value])
        best = min(best, value)
    return best


def trials_per_second(after: int, measured: int = 500) -> float:
    """Choices of TPE with five floats, when it has heard of `after` trials."""
    function = FUNCTIONS["rosenbrock5"]
    space = tune.Space(function.space)
    model = tune.make_searcher({"kind": "tpe"}, space, 1, 1)
    begin = 0.0
    for trial in range(after + measured):
        if trial == after:
            begin = time.perf_counter()
        model.tell(trial, [function.value(space.config(model.ask(trial, []).point))])
    return measured / (time.perf_counter() - begin)


def optuna_bests(searchers: Sequence[str], seeds: int) -> dict[tuple[str, str], list[float]]:
    """Best values of Optuna's searches, by searcher and function; nothing if it is not installed."""
    bests: dict[tuple[str, str], list[float]] = defaultdict(list)
    if not OPTUNA.exists():
        print("  Optuna is not installed: see benchmarks/tune_quality.py")
        return bests
    script = Path(__file__).parent / "optuna_search.py"
    command = [str(OPTUNA), str(script), *searchers, "--seeds", str(seeds), "--trials", str(TRIALS)]
    if not searchers:
        command.append("--speed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # small matrices: more threads are slower
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"Optuna did not finish: {done.stderr[-2000:]}")
    for line in done.stdout.splitlines():
        result = json.loads(line)
        bests[result["searcher"], result["function"]].append(result["best"])
    return bests


def optuna_speed() -> float | None:
    """Choices per second of Optuna's TPE with five floats, when it has heard of 1,000 trials."""
    found = optuna_bests((), 0).get(("tpe", "speed"))
    return found[0] if found else None


def measure(searchers: Sequence[str] = SEARCHERS, seeds: int = 30) -> list[Row]:
    theirs = optuna_bests(searchers, seeds)
    rows: list[Row] = []
    for searcher in searchers:
        for name, function in FUNCTIONS.items():
            ours = [best_of(searcher, function, seed) for seed in range(seeds)]
            other = theirs.get((searcher, name))
            wanted = None
            if other:
                median = statistics.median(other)
                wanted = median + MARGIN * abs(median)
            rows.append(
                Row(f"{searcher} on {name}: best of {TRIALS}", statistics.median(ours), "", wanted, samples=ours)
            )
            if other:
                rows.append(Row("  Optuna", median, "", samples=other))
    return rows


def main() -> None:
    from run import print_table, write_json

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("searchers", nargs="*", metavar="SEARCHER", help="default: " + " ".join(SEARCHERS))
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--output", type=Path, help="where the JSON goes")
    arguments = parser.parse_args()
    if unknown := [it for it in arguments.searchers if it not in SEARCHERS]:
        parser.error(f"no such searcher: {unknown[0]}; choose from {' '.join(SEARCHERS)}")
    rows = measure(arguments.searchers or SEARCHERS, arguments.seeds)
    print_table(rows)
    print(f"written to {write_json(rows, arguments.output)}")


if __name__ == "__main__":
    main()
