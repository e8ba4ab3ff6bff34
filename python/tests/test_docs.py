"""The documents: links lead somewhere, and every block that is marked `python` runs.

Blocks of a page run one after the other in one process, each with names of its own. What is not a whole program is
marked otherwise (`py`, `cpp`, or indented).
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lockstep import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r'(?:getenv\(|insert_or_assign\(|environ[^"\n]{0,8})"(LOCKSTEP_\w+)"')
RUN_BLOCKS = """
import pathlib, sys
for name in sys.argv[1:]:
    code = compile(pathlib.Path(name).read_text(), name, "exec")
    exec(code, {"__name__": "__main__"})
"""


def blocks(page: Path, language: str) -> list[str]:
    return [body for word, body in FENCE.findall(page.read_text()) if word == language]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


WITH_PROGRAMS = [page for page in [*PAGES, ROOT / "README.md"] if blocks(page, "python")]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert broken == []


def test_the_index_names_every_page() -> None:
    named = set(LINK.findall((ROOT / "docs" / "index.md").read_text()))
    assert {page.name for page in PAGES} - {"index.md"} <= named


def test_there_are_programs_to_run() -> None:
    assert len([block for page in WITH_PROGRAMS for block in blocks(page, "python")]) >= 9


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.name)
def test_programs_run(page: Path, tmp_path: Path) -> None:
    files = []
    for number, block in enumerate(blocks(page, "python")):
        files.append(tmp_path / f"block_{number}.py")
        files[-1].write_text(block)
    done = subprocess.run(
        [sys.executable, "-c", RUN_BLOCKS, *map(str, files)],
        env={**os.environ, "LOCKSTEP_STORAGE_PATH": str(tmp_path / "runs")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_environment_variables_are_all_named() -> None:
    """Every LOCKSTEP_ variable in the sources stands in its page."""
    page = (ROOT / "docs" / "environment_variables.md").read_text()
    used = set()
    for folder in ("src", "cli", "python/lockstep", "python/src"):
        for source in (ROOT / folder).rglob("*"):
            if source.suffix in (".cpp", ".h", ".py"):
                used |= set(VARIABLE.findall(source.read_text()))
    assert "LOCKSTEP_STORAGE_PATH" in used and "LOCKSTEP_WORKER_FD" in used
    assert {name for name in used if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("kind", [ScalingConfig, RunConfig, CheckpointConfig, FailureConfig])
def test_every_field_of_the_configuration_has_a_row(kind: type[Any]) -> None:
    section = re.split(r"^## ", (ROOT / "docs" / "configuration.md").read_text(), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(f"{kind.__name__}\n")]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \| \S", text, re.MULTILINE))
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    assert rows.keys() == fields.keys()
    assert {name: ast.literal_eval(default) for name, default in rows.items()} == fields
