"""Every style and type check of the tree: ruff, mypy, clang-format, clang-tidy. `--fix` formats instead.

clang-tidy looks at src/ and cli/ as the development build compiled them, so build first. What it has passed is
remembered by content in ~/.cache/lockstep-lint, and only what changed is looked at again.
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
BUILD = ROOT / "build"
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

    headers = headers_of_objects()
    setup = (ROOT / ".clang-tidy").read_text() + subprocess.check_output(["clang-tidy", "--version"], text=True)
    # clang reads no precompiled header of GCC's.
    units = json.loads((BUILD / "compile_commands.json").read_text())
    for unit in units:
        unit["command"] = re.sub(r" -Winvalid-pch| -include \S+cmake_pch\.hxx", "", unit["command"])
    (BUILD / "tidy").mkdir(exist_ok=True)
    (BUILD / "tidy" / "compile_commands.json").write_text(json.dumps(units))
    pending = []
    for unit in units:
        source = Path(unit["file"])
        if source.relative_to(ROOT).parts[0] not in TIDY_FOLDERS:
            continue
        output = unit["command"].split(" -o ")[1].split(" ")[0]
        if output not in headers:
            print(f"[lint] {source} is not compiled; run `make build` first", file=sys.stderr)
            return False
        passed = CACHE / key_of(setup, unit, headers[output])
        if passed.exists():
            passed.touch()
        else:
            pending.append((source, passed))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(lambda item: tidy_one(*item), pending)))


def headers_of_objects() -> dict[str, list[Path]]:
    """What each object was compiled from, as ninja recorded it; only files of this tree."""
    result: dict[str, list[Path]] = {}
    current: list[Path] = []
    for line in subprocess.check_output(["ninja", "-C", BUILD, "-t", "deps"], text=True).splitlines():
        if line.startswith("    "):
            path = Path(os.path.normpath(BUILD / line.strip()))
            if path.is_relative_to(ROOT):
                current.append(path)
        elif ": #deps" in line:
            current = result.setdefault(line.split(":")[0], [])
    return result


def key_of(setup: str, unit: dict[str, str], files: list[Path]) -> str:
    digest = hashlib.sha256(setup.encode())
    digest.update(unit["command"].replace(str(ROOT), ".").encode())
    for path in sorted(files):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def tidy_one(source: Path, passed: Path) -> bool:
    command = ["clang-tidy", "-p", str(BUILD / "tidy"), "--quiet", str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        passed.touch()
        return True
    print(f"[lint] {shlex.join(command)}\n{done.stdout}{done.stderr}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
