"""The documents: links lead somewhere, every block marked `python` runs, and tables agree with the code.

The blocks of a page run one after the other in one process, each in a namespace of its own. Fragments of programs have
another mark (`py`, `cpp`) or are indented.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lockstep import Callback, CheckpointConfig, EngineConfig, FailureConfig, RunConfig, ScalingConfig, _core, session

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r'(?:"(?=\w+")|\$\{?)(LOCKSTEP_[A-Z_]+)')
MESSAGE = re.compile(
    r'^struct (\w+) \{\n  static constexpr const char\* kName = "(\w+)";\n(?:(?!^\};).)*?LOCKSTEP_FIELDS\(([^)]*)\);',
    re.MULTILINE | re.DOTALL,
)
VARIANT = re.compile(r"^using (\w+) =\s+std::variant<([^>]*)>;$", re.MULTILINE)
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
        timeout=240,  # against hangs; programs take seconds on a quiet machine
    )
    assert done.returncode == 0, done.stderr


def section(page: Path, heading: str) -> str:
    """The text between this heading and the next one of its level."""
    _, found, rest = page.read_text().partition(f"\n## {heading}\n")
    assert found, f"{page.name} has no section {heading}"
    return rest.partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every row of the tables in `text`, without the rules below their headings."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_environment_variables_and_their_page_agree() -> None:
    used = set()
    for folder in ("src", "cli", "python/lockstep", "python/src"):
        for source in (ROOT / folder).rglob("*"):
            if source.suffix in (".cpp", ".h", ".py"):
                used |= set(VARIABLE.findall(source.read_text()))
    assert "LOCKSTEP_STORAGE_PATH" in used and "LOCKSTEP_AGENT_ID" in used
    page = ROOT / "docs" / "environment_variables.md"
    text = section(page, "Read") + section(page, "Set")
    named = {name for first, *_ in rows(text) for name in re.findall(r"`(LOCKSTEP_\w+)`", first)}
    assert named == used


def allowed_folders() -> dict[str, set[str]]:
    """What tests/include_order_test.py allows each folder of src/ to include, of the folders that exist."""
    spec = importlib.util.spec_from_file_location("include_order_test", ROOT / "tests" / "include_order_test.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    present = set(module.folders_of(ROOT))
    return {folder: module.ALLOWED[folder] & present for folder in present}


def test_the_order_of_folders_in_contributing() -> None:
    table = rows(section(ROOT / "CONTRIBUTING.md", "The order of the folders"))
    levels = {name.strip("`"): int(level) for level, name, *_ in table[1:]}
    allowed = allowed_folders()
    assert set(levels) == set(allowed) | {"cli", "python"}
    for _, name, _, may_use in table[1:]:
        folder = name.strip("`")
        if folder not in allowed:
            continue
        said = set(re.findall(r"`(\w+)`", may_use))
        if bounds := re.search(r"levels (\d) to (\d)", may_use):
            low, high = int(bounds[1]), int(bounds[2])
            said |= {other for other, level in levels.items() if low <= level <= high}
        assert said == allowed[folder], folder
        assert all(levels[other] <= levels[folder] for other in said), folder


def test_the_folders_in_architecture() -> None:
    names = " ".join(folder for _, folder, _ in rows(section(ROOT / "docs" / "architecture.md", "Folders")))
    assert sorted(re.findall(r"`src/(\w+)`", names)) == sorted(allowed_folders())


def test_the_messages_in_wire() -> None:
    """Each table lists the messages of one direction, and each row all fields of its message."""
    header = (ROOT / "src" / "wire" / "messages.h").read_text()
    messages = {struct: (name, set(re.findall(r"\w+", fields))) for struct, name, fields in MESSAGE.findall(header)}
    variants = {name: re.findall(r"\w+", structs) for name, structs in VARIANT.findall(header)}
    assert set(messages) == {struct for structs in variants.values() for struct in structs}
    table: dict[str, dict[str, set[str]]] = {}
    for first, fields in rows(section(ROOT / "docs" / "wire.md", "Messages")):
        if heading := re.fullmatch(r"(\w+) to (\w+)", first):
            direction = table.setdefault(f"{heading[1].title()}To{heading[2].title()}", {})
        else:
            direction[first.strip("`")] = set(re.findall(r"\w+", fields))
    assert set(table) == set(variants)
    for name, structs in variants.items():
        expected = dict(messages[struct] for struct in structs)
        assert set(table[name]) == set(expected), name
        for message, fields in expected.items():
            assert fields <= table[name][message], message


def test_the_functions_of_the_session() -> None:
    written = " ".join(first for first, *_ in rows(section(ROOT / "docs" / "training_functions.md", "The session")))
    functions = {
        name
        for name, value in vars(session).items()
        if inspect.isfunction(value) and value.__module__ == session.__name__ and not name.startswith("_")
    }
    assert set(re.findall(r"`(\w+)\(", written)) == functions


def test_the_hooks_of_callbacks() -> None:
    page = section(ROOT / "docs" / "reports_and_callbacks.md", "Callbacks").partition("\n### ")[0]
    written = {name for first, *_ in rows(page) for name in re.findall(r"`(\w+)\(", first)}
    assert written == {name for name in vars(Callback) if not name.startswith("_")} - {"request_stop"}


def test_the_autofilled_keys() -> None:
    source = (ROOT / "src" / "metrics" / "autofill.cpp").read_text()
    names = re.search(r"kNames\{(.*?)\};", source, re.DOTALL)
    assert names
    text = section(ROOT / "docs" / "reports_and_callbacks.md", "Autofilled keys")
    missing = {name for name in re.findall(r'"(\w+)"', names[1]) if f"`{name}`" not in text}
    assert missing == set()
    listed = {name for first, *_ in rows(text)[1:] for name in re.findall(r"`(\w+)`", first)}
    assert listed <= set(re.findall(r'"(\w+)"', names[1]))


def test_the_kinds_of_failures() -> None:
    words = re.findall(r'FailureKind::\w+, "(\w+)"', (ROOT / "src" / "base" / "error.cpp").read_text())
    assert len(words) >= 10
    table = rows(section(ROOT / "docs" / "failures.md", "What counts"))
    assert [first.strip("`") for first, _ in table[1:]] == words


def test_the_run_directory_page_names_every_setting_of_run_json() -> None:
    (row,) = re.findall(r"^\| `config_run` \|.*$", (ROOT / "docs" / "run_directory.md").read_text(), re.MULTILINE)
    kinds: list[Any] = [_core.ScalingConfig, _core.RunConfig, _core.CheckpointConfig, _core.FailureConfig]
    kinds += [_core.EngineConfig]
    elsewhere = {"name", "storage_path", "resume", "failure_config", "checkpoint_config", "engine"}
    stored = {name for kind in kinds for name in kind.names} - elsewhere
    assert {name for name in stored if f"`{name}`" not in row} == set()


@pytest.mark.parametrize("kind", [ScalingConfig, RunConfig, EngineConfig, CheckpointConfig, FailureConfig])
def test_every_field_of_the_configuration_has_a_row(kind: type[Any]) -> None:
    text = section(ROOT / "docs" / "configuration.md", kind.__name__)
    described = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \| \S", text, re.MULTILINE))
    fields = {field.name: field.default for field in dataclasses.fields(kind)}
    assert described.keys() == fields.keys()
    assert {name: ast.literal_eval(default) for name, default in described.items()} == fields
