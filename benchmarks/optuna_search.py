"""The searches of tune_quality.py on Optuna, in Optuna's environment. Prints a line of JSON per search."""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from typing import Any

import optuna
from tune_functions import FUNCTIONS, Function

warnings.filterwarnings("ignore")
optuna.logging.set_verbosity(logging.ERROR)

SAMPLERS = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "sobol": lambda seed: optuna.samplers.QMCSampler(seed=seed, scramble=True),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True),
    "tpe_default": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}


def suggested(trial: Any, space: Any, name: str) -> Any:
    """The configuration of a trial: what Space.config makes of a point."""
    if not isinstance(space, dict):
        return space
    if "$domain" not in space:
        return {key: suggested(trial, part, f"{name}/{key}") for key, part in space.items()}
    options = space["$domain"]
    kind = options["kind"]
    if kind == "choice":
        values = options["values"]
        return suggested(trial, values[trial.suggest_categorical(name, range(len(values)))], name)
    lower, upper = options["lower"], options["upper"]
    if kind.endswith("randint"):
        return trial.suggest_int(name, lower, upper - 1, log=kind.startswith("log"))
    return trial.suggest_float(name, lower, upper, step=options.get("q"), log=kind.startswith("log"))


def best_of(sampler: Any, function: Function, trials: int) -> float:
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: function.value(suggested(trial, function.space, "")), n_trials=trials)
    return float(study.best_value)


def trials_per_second(after: int, measured: int) -> float:
    study = optuna.create_study(sampler=SAMPLERS["tpe"](1))
    function = FUNCTIONS["rosenbrock5"]
    begin = 0.0
    for number in range(after + measured):
        if number == after:
            begin = time.perf_counter()
        trial = study.ask()
        study.tell(trial, function.value(suggested(trial, function.space, "")))
    return measured / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("searchers", nargs="*")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    for searcher in arguments.searchers:
        for name, function in FUNCTIONS.items():
            for seed in range(arguments.seeds):
                try:
                    best = best_of(SAMPLERS[searcher](seed), function, arguments.trials)
                except ImportError:  # a package that this sampler needs
                    break
                print(json.dumps({"searcher": searcher, "function": name, "best": best}), flush=True)
    if arguments.speed:
        print(json.dumps({"searcher": "tpe", "function": "speed", "best": trials_per_second(1000, 100)}), flush=True)


if __name__ == "__main__":
    main()
