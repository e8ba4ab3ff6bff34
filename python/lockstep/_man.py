"""``lockstep man``: manual pages, made of the commands' own help."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from lockstep.__main__ import PLACES

COMMANDS = (
    *(
        "run",
        "submit slurm",
        "agent",
        "runs",
        "dashboard",
        "stop",
        "prune",
        "logs",
        "checkpoint list",
        "checkpoint verify",
    ),
    *("tune show", "tune plot", "new cpp", "new python", "doctor", "bench", "man", "completion"),
)


def page(command: str) -> str:
    """The manual page of a command; of the program if it is empty."""
    words = command.split()
    shown = subprocess.run([_program(), *words, "--help"], capture_output=True, text=True, check=True, timeout=60)
    name = "-".join(["lockstep", *words])
    what, *rest = _sections(shown.stdout)
    lines = [f'.TH "{name.upper()}" 1 "" "Lockstep" "Lockstep"', ".SH NAME", f"{name} \\- {_escaped(what[1][0])}"]
    for title, body in rest:
        lines += [f'.SH "{title.upper()}"', ".nf", *map(_escaped, body), ".fi"]
    others = [f"lockstep-{each.replace(' ', '-')}(1)" for each in COMMANDS if each != command]
    lines += ['.SH "SEE ALSO"', *(["lockstep(1),"] if command else []), ", ".join(others)]
    return "\n".join(lines) + "\n"


def _program() -> str:
    for place in PLACES:
        if os.access(place, os.X_OK):
            return place
    raise SystemExit("lockstep: [man] the command line program is not installed")


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """The help in parts: first what the command does, then usage, options and so on by their titles."""
    lines = text.strip().splitlines()
    found: list[tuple[str, list[str]]] = [("description", [lines[0] if lines else ""])]
    for line in lines[1:]:
        usage = re.match(r"Usage: (.*)", line)
        title = re.match(r"([A-Z][A-Za-z ,]*):$", line)
        if usage:
            found.append(("synopsis", [usage[1]]))
        elif title:
            found.append((title[1], []))
        elif line.strip() or found[-1][1]:
            found[-1][1].append(line)
    return [(title, body) for title, body in found if any(body)]


def _escaped(line: str) -> str:
    line = line.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + line if line.startswith((".", "'")) else line


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lockstep man", description=__doc__)
    parser.add_argument("command", nargs="*", help="a command: run, or `tune show`")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write all pages into this directory")
    given = parser.parse_args(words)
    if given.output is not None:
        given.output.mkdir(parents=True, exist_ok=True)
        for command in ("", *COMMANDS):
            path = given.output / f"{'-'.join(['lockstep', *command.split()])}.1"
            path.write_text(page(command), encoding="utf-8")
            print(path)
        return 0
    command = " ".join(given.command)
    if command and command not in COMMANDS:
        sys.stderr.write(f"lockstep: [man] there is no command {command!r}; there are {', '.join(COMMANDS)}\n")
        return 2
    print(page(command), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
