"""Every style and type check of the tree: ruff, mypy, clang-format, clang-tidy. `--fix` formats instead.

clang-tidy checks src/ and cli/, each source on its own, with the compile commands of build/lint. Files that passed are
remembered by content in ~/.cache/lockstep-lint, so only changed files are checked again.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "lint"
BIN = ROOT / ".venv" / "bin"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lockstep-lint"
CACHE_DAYS = 30
CPP_FOLDERS = ["include", "src", "cli", "python/src", "tests", "examples", "benchmarks"]
TIDY_FOLDERS = ("src", "cli")


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
    if not timed("clang-tidy", lambda: tidy(arguments.jobs)):
        failed.append("clang-tidy")
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


def tidy(jobs: int) -> bool:
    CACHE.mkdir(parents=True, exist_ok=True)
    for entry in CACHE.iterdir():
        if time.time() - entry.stat().st_mtime > CACHE_DAYS * 24 * 3600:
            entry.unlink()

    configured = subprocess.run(["cmake", "--preset", "lint"], cwd=ROOT, capture_output=True, text=True)
    if configured.returncode != 0:
        print(configured.stdout + configured.stderr, file=sys.stderr)
        return False
    setup = (ROOT / ".clang-tidy").read_text() + subprocess.check_output(["clang-tidy", "--version"], text=True)
    pending = []
    for unit in json.loads((BUILD / "compile_commands.json").read_text()):
        source = Path(unit["file"])
        if source.relative_to(ROOT).parts[0] not in TIDY_FOLDERS:
            continue
        passed = CACHE / key_of(setup, unit, included_by(source))
        if passed.exists():
            passed.touch()
        else:
            pending.append((source, passed))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(lambda item: tidy_one(*item), pending)))


def included_by(source: Path) -> set[Path]:
    """The source and all headers of this tree that it includes, directly or indirectly."""
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


def key_of(setup: str, unit: dict[str, str], files: set[Path]) -> str:
    digest = hashlib.sha256(setup.encode())
    digest.update(unit["command"].replace(str(ROOT), ".").encode())
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def tidy_one(source: Path, passed: Path) -> bool:
    command = ["clang-tidy", "-p", str(BUILD), "--quiet", str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        passed.touch()
        return True
    print(f"[lint] {shlex.join(command)}\n{done.stdout}{done.stderr}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
