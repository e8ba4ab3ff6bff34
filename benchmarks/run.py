"""Measures Lockstep against its goals, and against peers if they are installed.

    make bench                                   # all of it; tune_kills alone takes an hour
    .venv/bin/python benchmarks/run.py report    # some of it: start report checkpoint held recovery idle collective
                                                 # nodes launch torch data tensorflow horovod
                                                 # tune_quality tune_speed tune_kills dashboard

Prints a table and writes benchmarks/results/<date>.json. Times are medians; run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path

import checkpoint
import collective
import collective_nodes
import held
import horovod_gloo
import idle
import launch
import peers
import recovery
import report
import start
import tensorflow_keras
import torch_ddp
import tune_kills
import tune_quality
import tune_speed
from measure import Row

import dashboard
import data

PARTS = {
    "start": start.measure,
    "report": report.measure,
    "checkpoint": checkpoint.measure,
    "held": held.measure,
    "recovery": recovery.measure,
    "idle": idle.measure,
    "collective": collective.measure,
    "nodes": collective_nodes.measure,
    "torch": torch_ddp.measure,
    "launch": launch.measure,
    "data": data.measure,
    "tensorflow": tensorflow_keras.measure,
    "horovod": horovod_gloo.measure,
    "tune_quality": tune_quality.measure,
    "tune_speed": tune_speed.measure,
    "tune_kills": tune_kills.measure,
    "dashboard": dashboard.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure (default: all): " + " ".join(PARTS))
    parser.add_argument("--output", type=Path, help="where the JSON goes")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        parser.error(f"no such part: {unknown[0]}; choose from {' '.join(PARTS)}")
    rows: list[Row] = []
    for part in arguments.parts or PARTS:
        print(f"measuring {part} ...", flush=True)
        rows += PARTS[part]()
    rows += peer_rows(rows)
    print_table(rows)
    print(f"written to {write_json(rows, arguments.output)}")


def peer_rows(rows: list[Row]) -> list[Row]:
    """How many times longer (or slower) the same work takes on a peer, in the same run."""
    ours = {
        "cold": next((row.value for row in rows if row.what.startswith("cold script")), None),
        "warm": next((row.value for row in rows if row.what.startswith("warm fit")), None),
        "ddp": next((row.value for row in rows if row.what.startswith("torch, warm fit")), None),
        "rate": next((row.value for row in rows if row.what.startswith("reports accepted")), None),
    }
    if all(value is None for value in ours.values()):
        return []
    print("measuring Ray Train ...", flush=True)
    try:
        theirs = peers.ray_figures()
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"  {error}")
        return []
    if theirs is None:
        print("  not installed: see benchmarks/peers.py")
        return []
    more: list[Row] = []
    for name, what in (
        ("cold", "cold script: to the first line on 4 ranks"),
        ("warm", "second fit(): to the first line on 4 ranks"),
        ("ddp", "second TorchTrainer.fit(): to the first DDP step on 4 ranks"),
    ):
        if theirs[name] is None:
            continue
        more.append(Row(f"Ray Train, {what}", theirs[name], "s"))
        if ours[name]:
            wanted = 30 if name == "ddp" else None
            more.append(Row("  times ours", theirs[name] / ours[name], "x", wanted, at_least=True))
    more.append(Row("Ray Train, metrics-only reports from 2 workers", theirs["rate"], "/s"))
    if ours["rate"]:
        more.append(Row("  ours, times theirs", ours["rate"] / theirs["rate"], "x"))
    return more


def print_table(rows: list[Row]) -> None:
    header = ("what", "measured", "wanted", "")
    lines = [(row.what, row.text(), row.wanted_text(), row.verdict()) for row in rows]
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(4)]
    print()
    for line in [header, *lines]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()


def write_json(rows: list[Row], output: Path | None) -> Path:
    path = output or Path(__file__).parent / "results" / time.strftime("%Y-%m-%d_%H-%M-%S.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    path.write_text(json.dumps({"machine": machine, "rows": [row.to_dict() for row in rows]}, indent=2) + "\n")
    return path


if __name__ == "__main__":
    main()
