"""Every style and type check of the tree: ruff, mypy, clang-format, clang-tidy. `--fix` formats instead.

clang-tidy checks src/ and cli/ with the compile commands of build/lint. It reads as many sources at once as a build
compiles at once, since headers take most of its time. The compiler then reads each source alone, which shows a missing
#include.
What passed is remembered by content in ~/.cache/lockstep-lint, so only what changed is checked again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "lint"
BIN = ROOT / ".venv" / "bin"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lockstep-lint"
CACHE_DAYS = 30
CPP_FOLDERS = ["include", "src", "cli", "python/src", "tests", "examples", "benchmarks"]
TIDY_FOLDERS = ("src", "cli")


class Unit(NamedTuple):
    """What one call of the compiler reads: one source, or a file of build/lint that includes several."""

    file: Path
    compile: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="format the files instead of checking them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()

    cpp_files = [
        str(path) for folder in CPP_FOLDERS for path in sorted((ROOT / folder).rglob("*.[ch]*")) if is_cpp(path)
    ]
    if arguments.fix:
        steps = [
            [f"{BIN}/ruff", "check", "--quiet", "--fix", "."],
            [f"{BIN}/ruff", "format", "--quiet", "."],
            ["clang-format", "-i", *cpp_files],
        ]
        return max(subprocess.run(step, cwd=ROOT).returncode for step in steps)

    checks = {
        "ruff check": [f"{BIN}/ruff", "check", "--quiet", "."],
        "ruff format": [f"{BIN}/ruff", "format", "--check", "--quiet", "."],
        "mypy": [f"{BIN}/mypy", "--no-error-summary"],
    }
    failed = [name for name, command in checks.items() if not timed(name, lambda command=command: passes(command))]
    if not timed("clang-format", lambda: formatted(cpp_files)):
        failed.append("clang-format")
    units = compiled_units()
    if not timed("clang-tidy", lambda: all_pass(units, tidy_command, arguments.jobs)):
        failed.append("clang-tidy")
    single = [source for unit in units for source in sources_of(unit)]
    if not timed("sources alone", lambda: all_pass(single, read_command, arguments.jobs)):
        failed.append("sources alone")
    if failed:
        print(f"[lint] failed: {', '.join(failed)} (`make format` mends what is only layout)", file=sys.stderr)
    return 1 if failed else 0


def is_cpp(path: Path) -> bool:
    return path.suffix in (".h", ".cpp")


def timed(name, check) -> bool:
    start = time.monotonic()
    ok = check()
    print(f"[lint] {name}: {'ok' if ok else 'FAILED'} ({time.monotonic() - start:.1f} s)", flush=True)
    return ok


def passes(command: list[str]) -> bool:
    return subprocess.run(command, cwd=ROOT).returncode == 0


def formatted(files: list[str]) -> bool:
    done = subprocess.run(["clang-format", "--dry-run", *files], cwd=ROOT, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: ", done.stderr, re.MULTILINE)))
    for path in wrong:
        print(f"{Path(path).relative_to(ROOT)}: not formatted")
    return done.returncode == 0 and not wrong


def compiled_units() -> list[Unit]:
    configured = subprocess.run(["cmake", "--preset", "lint"], cwd=ROOT, capture_output=True, text=True)
    if configured.returncode != 0:
        sys.exit(configured.stdout + configured.stderr)
    units = [
        Unit(Path(made["file"]), made["command"]) for made in json.loads((BUILD / "compile_commands.json").read_text())
    ]
    return [
        unit
        for unit in units
        if any(unit.file.is_relative_to(top / folder) for top in (ROOT, BUILD) for folder in TIDY_FOLDERS)
    ]


def sources_of(unit: Unit) -> list[Unit]:
    """Each source of the unit as a unit of its own, except those of src/torch: test-wheel compiles each of them."""
    sources = [unit.file]
    if unit.file.is_relative_to(BUILD):
        sources = [Path(name) for name in re.findall(r'^#include "(.+)"$', unit.file.read_text(), re.MULTILINE)]
    return [
        Unit(source, unit.compile.replace(str(unit.file), str(source)))
        for source in sources
        if not source.is_relative_to(ROOT / "src" / "torch")
    ]


def tidy_command(unit: Unit) -> list[str]:
    return ["clang-tidy", "-p", str(BUILD), "--quiet", str(unit.file)]


def read_command(unit: Unit) -> list[str]:
    return [*shlex.split(unit.compile), "-fsyntax-only"]


def all_pass(units: list[Unit], command_of: Callable[[Unit], list[str]], jobs: int) -> bool:
    """Runs the command of every unit that has not passed yet as it is now."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for entry in CACHE.iterdir():
        if time.time() - entry.stat().st_mtime > CACHE_DAYS * 24 * 3600:
            entry.unlink()
    tools = {shlex.split(unit.compile)[0] for unit in units} | {"clang-tidy"}
    setup = (ROOT / ".clang-tidy").read_text()
    setup += "".join(subprocess.check_output([tool, "--version"], text=True) for tool in sorted(tools))

    def passes_now(unit: Unit) -> bool:
        command = command_of(unit)
        passed = CACHE / key_of(setup, unit, command)
        if not passed.exists():
            done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
            if done.returncode != 0:
                print(f"[lint] {shlex.join(command)}\n{done.stdout}{done.stderr}", flush=True)
                return False
        passed.touch()
        return True

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(passes_now, units)))


def included_by(source: Path) -> set[Path]:
    """The source and all files of this tree that it includes, directly or indirectly."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r'^#include ["<]([^">]+)[">]', path.read_text(), re.MULTILINE):
            places = (path.parent, ROOT / "src", ROOT / "include", BUILD / "cli")
            waiting.extend(place / name for place in places if (place / name).is_file())
    return found


def key_of(setup: str, unit: Unit, command: list[str]) -> str:
    def anywhere(text: str) -> bytes:
        return text.replace(str(ROOT), ".").encode() + b"\0"

    digest = hashlib.sha256(setup.encode() + anywhere(unit.compile) + anywhere(shlex.join(command)))
    for path in sorted(included_by(unit.file)):
        digest.update(anywhere(str(path)) + anywhere(path.read_text()))
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
