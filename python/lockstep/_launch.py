"""``lockstep run -n 4 train.py``: starts a script written for torchrun on many workers, with torchrun's options."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from lockstep import _core, _installed, _script
from lockstep._failure_message import failure_message
from lockstep.config import FailureConfig, RunConfig, ScalingConfig
from lockstep.errors import ConfigError, LockstepError, TrainingFailedError
from lockstep.trainer import DataParallelTrainer

USAGE = "lockstep run -n N [OPTIONS] SCRIPT|-m MODULE [ARGS...]"
HEAVY = ("torchvision", "transformers", "accelerate", "lightning", "pytorch_lightning", "pandas", "scipy", "sklearn")
"""Packages that workers are forked with if the script imports them."""
WITHOUT_EFFECT = [
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_conf",
    "node_rank",
    "master_addr",
    "master_port",
    "local_addr",
    "start_method",
    "monitor_interval",
    "event_log_handler",
    "logs_specs",
    "numa_binding",
    "signals_to_handle",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
]
"""Options of torchrun that have no effect here."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        text = f"unknown option {unknown[1]}" if unknown else message
        sys.stderr.write(
            f"lockstep: [run] {text}; usage: {USAGE}; see `lockstep run --help`; "
            "a script that calls fit() needs no option: ScalingConfig(num_workers=4)\n"
        )
        sys.exit(2)


def main(words: Sequence[str]) -> int:
    """Runs the script to the end. Returns the exit code."""
    given = parse(words)
    try:
        trainer = trainer_for(given)
        if given.dry_run:
            print(plan_text(given, trainer))
            return 0
        trainer.fit()
        return 0
    except TrainingFailedError as error:
        sys.stderr.write(_message(error) + "\n")
    except LockstepError as error:
        sys.stderr.write(f"lockstep: {error}\n")
    return 1


def _message(error: TrainingFailedError) -> str:
    result = error.result
    if result is None or not result.failures:
        return f"lockstep: {error}"
    # Without the path, because the text would show how a trainer continues the run.
    told = failure_message(result.failures, "", "", where="run")
    return f"{told}\n\nThe whole output is in {result.path}/logs"


# ---------------------------------------------------------------- options


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options, checked. As with torchrun, a variable such as PET_NPROC_PER_NODE replaces an option's default."""
    parser = _Parser(prog="lockstep run", usage=USAGE, add_help=False, allow_abbrev=False)

    def add(*names: str, default: Any = None, **kwargs: Any) -> None:
        name = names[-1].lstrip("-").replace("-", "_")
        spellings = [*names, *([f"--{name}"] if "_" in name else [])]
        parser.add_argument(*spellings, dest=name, default=os.environ.get(f"PET_{name.upper()}", default), **kwargs)

    add("-n", "--nproc-per-node", default="1")
    add("--nnodes", default="1:1")
    add("--max-restarts", default=0, type=int)
    add("--rdzv-id", default="none")
    add("--role", default="default")
    add("--log-dir", "--storage-path")
    add("--name")
    add("-r", "--redirects", default="0")
    add("-t", "--tee", default="0")
    add("--local-ranks-filter", default="")
    add("--hang-timeout", type=float)
    for name in WITHOUT_EFFECT:
        add("--" + name.replace("_", "-"))
    for name in ("standalone", "no-python", "run-path", "fast-collectives", "dry-run"):
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", action="store_true")
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(list(words))
    before = list(words)[: len(words) - len(given.arguments) - 1]
    given.launches = any(word not in ("--dry-run", "--dry_run", "-m", "--module") for word in before)
    try:
        given.workers = workers_per_node(given.nproc_per_node)
        _check_nodes(given.nnodes)
        given.hidden = hidden_streams(given)
        if given.max_restarts < 0:
            raise ConfigError(f"--max-restarts is {given.max_restarts}; it must be 0 or more")
        _check_script(given)
    except ConfigError as error:
        parser.error(str(error))
    return given


def workers_per_node(text: str) -> int:
    """
    >>> workers_per_node("4")
    4
    """
    gpus = int(_core.total_resources().get("GPU", 0))
    cores = os.cpu_count() or 1
    if text == "gpu":
        if gpus == 0:
            raise ConfigError("--nproc-per-node is gpu, but this machine has no GPU")
        return gpus
    if text in ("cpu", "auto"):
        return gpus if text == "auto" and gpus > 0 else cores
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigError(f"--nproc-per-node is {text!r}; it must be a number of 1 or more, auto, gpu or cpu")


def _check_nodes(text: str) -> None:
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigError(f"--nnodes is {text!r}; it must be a number or MIN:MAX")
    least, most = int(parts[0]), int(parts[-1])
    if not 1 <= least <= most:
        raise ConfigError(f"--nnodes is {text!r}; MIN must be at least 1, and at most MAX")
    if least > 1:
        raise ConfigError(
            f"--nnodes is {text!r}, but `lockstep run` starts workers on this machine only; MIN must be 1"
        )


def _check_script(given: argparse.Namespace) -> None:
    if given.module and given.no_python:
        raise ConfigError("--no-python and -m contradict each other; give one")
    if not given.module and not given.no_python and not os.path.exists(given.script):
        raise ConfigError(f"there is no script {given.script!r}; check the path")


# ---------------------------------------------------------------- what is shown


def streams(text: str, option: str, workers: int) -> dict[int, set[int]]:
    """The descriptors that an option of torchrun names, by local rank: ``3`` or ``0:1,1:2``; 1 is stdout, 2 stderr.

    >>> streams("1", "--tee", 2), streams("0:3", "--tee", 2)
    ({0: {1}, 1: {1}}, {0: {1, 2}, 1: set()})
    """
    kinds: dict[str, set[int]] = {"0": set(), "1": {1}, "2": {2}, "3": {1, 2}}
    if text in kinds:
        return {rank: set(kinds[text]) for rank in range(workers)}
    found: dict[int, set[int]] = {rank: set() for rank in range(workers)}
    for part in text.split(","):
        rank, _, kind = part.partition(":")
        if not rank.isdecimal() or kind not in kinds:
            raise ConfigError(f"{option} is {text!r}; it must be 0, 1, 2 or 3, or such a number for ranks: 0:1,1:3")
        found[int(rank)] = set(kinds[kind])
    return found


def hidden_streams(given: argparse.Namespace) -> dict[int, set[int]]:
    """What the console does not show, by local rank: what is redirected without tee, and ranks that are filtered."""
    redirected = streams(given.redirects, "--redirects", given.workers)
    teed = streams(given.tee, "--tee", given.workers)
    shown = [rank.strip() for rank in given.local_ranks_filter.split(",") if rank.strip()]
    if not all(rank.isdecimal() for rank in shown):
        raise ConfigError(f"--local-ranks-filter is {given.local_ranks_filter!r}; it must be ranks such as 0,1")
    hidden = {}
    for rank in range(given.workers):
        hidden[rank] = redirected[rank] - teed[rank]
        if shown and str(rank) not in shown:
            hidden[rank] = {1, 2}
    return {rank: what for rank, what in hidden.items() if what}


def _shown_ranks(given: argparse.Namespace) -> str:
    """The ranks of which the console shows something, for RunConfig(log_to_console=...)."""
    whole = [rank for rank, what in given.hidden.items() if what == {1, 2}]
    shown = [str(rank) for rank in range(given.workers) if rank not in whole]
    return "all" if not whole else ",".join(shown) or "none"


# ---------------------------------------------------------------- the run


def trainer_for(given: argparse.Namespace) -> DataParallelTrainer:
    """The run of the script. It is named after the script unless it was given a name."""
    if not given.module and not given.no_python:
        given.script = os.path.abspath(given.script)
    script = _script.Script(given.script, list(given.arguments), given.module, given.no_python)
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path[0] = os.getcwd() if given.module else os.path.dirname(given.script)
    stem = given.script if given.module else Path(given.script).stem
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip(".") or "script"
    kind = type(name, (DataParallelTrainer,), {"_preload": preloads(given)})
    backend = _script.ScriptConfig(
        run_id="" if given.rdzv_id == "none" else given.rdzv_id,
        role=given.role,
        max_restarts=given.max_restarts,
        fast_collectives=given.fast_collectives,
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
        hidden={rank: what for rank, what in given.hidden.items() if what != {1, 2}},
    )
    if given.fast_collectives and not _installed.is_installed("torch"):
        raise ConfigError("[run] --fast-collectives needs PyTorch, which is not installed here")
    made: DataParallelTrainer = kind(
        _script.run,
        train_loop_config=asdict(script),
        backend_config=backend,
        scaling_config=ScalingConfig(num_workers=given.workers),
        run_config=RunConfig(
            name=given.name,
            storage_path=given.storage_path,
            failure_config=FailureConfig(max_failures=given.max_restarts),
            log_to_console=_shown_ranks(given),
            hang_timeout=given.hang_timeout,
        ),
    )
    return made


def preloads(given: argparse.Namespace) -> tuple[str, ...]:
    """What the server that workers are forked from imports: PyTorch, and what the script itself imports of HEAVY."""
    modules = ["cloudpickle", "numpy?"]
    if given.no_python or not _installed.is_installed("torch"):
        return tuple(modules)
    modules.append("lockstep.torch._preload")
    text = _source(given)
    for name in HEAVY:
        if re.search(rf"^\s*(?:import|from)\s+{name}\b", text, re.MULTILINE) and _installed.is_installed(name):
            modules.append(f"{name}?")
    return tuple(modules)


def _source(given: argparse.Namespace) -> str:
    path = given.script
    if given.module:
        path = os.path.join(*given.script.split("."))
        path = os.path.join(path, "__main__.py") if os.path.isdir(path) else f"{path}.py"
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def plan_text(given: argparse.Namespace, trainer: DataParallelTrainer) -> str:
    """What ``--dry-run`` prints."""
    what = f"module {given.script}" if given.module else given.script
    storage = trainer.run_config.storage_path or _core.default_storage_path()
    cores = os.cpu_count() or 1
    workers = str(given.workers) if given.launches else "the script starts them, as its ScalingConfig says,"
    lines = [
        f"would run   {what} {' '.join(given.arguments)}".rstrip(),
        f"with        {'the program itself' if given.no_python else sys.executable}",
        f"workers     {workers} on this machine, which has {cores} core{'' if cores == 1 else 's'}",
        f"forked with {', '.join(name.rstrip('?') for name in trainer._preload)}",
        f"restarts    at most {given.max_restarts}",
        f"run         {os.path.join(storage, given.name or type(trainer).__name__ + '_<time>')}",
        f"shown       output of {_described(trainer.run_config.log_to_console)}",
    ]
    if not given.launches:
        return "\n".join(lines[:3])
    if given.fast_collectives:
        lines.append('collectives "gloo" becomes "lockstep"')
    return "\n".join(lines)


def _described(shown: str) -> str:
    return {"all": "all ranks", "none": "no rank"}.get(shown, f"ranks {shown}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
