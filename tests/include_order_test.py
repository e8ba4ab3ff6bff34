"""The order of the folders of src/: which folder may include which, and that CMake says the same.

CONTRIBUTING.md explains the order; ALLOWED below is what the tests check, that table included
(python/tests/test_docs.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FOUNDATION = {"base", "sys"}
SERVICES = FOUNDATION | {"wire", "store", "metrics", "data", "engine", "collective"}
ROLES = {"agent", "worker", "driver"}
ALLOWED = {
    "base": set(),
    "sys": {"base"},
    "wire": FOUNDATION,
    "store": FOUNDATION,
    "metrics": FOUNDATION,
    "data": FOUNDATION,
    "engine": FOUNDATION,
    "collective": FOUNDATION,
    "agent": SERVICES,
    "worker": SERVICES,
    "driver": SERVICES,
    "horovod": SERVICES | {"driver"},
    "train": SERVICES | ROLES | {"horovod"},
    "storage": FOUNDATION | {"store"},
    "tune": SERVICES | ROLES | {"horovod", "train", "storage"},
    "torch": {"collective", "data"},
    "dashboard": FOUNDATION | {"store", "metrics", "tune"},
}

# Where a folder may use only some headers of another.
INTERFACES = {("horovod", "driver"): {"driver/service.h"}, ("torch", "data"): {"data/order.h"}}

# Libraries that stay in one place: prefix of the header, and the files that may name it.
CONFINED = {
    "openssl/": r"src/(agent|dashboard)/.*\.cpp",
    "boost/": r"src/dashboard/.*\.cpp",
    "CLI/": r"cli/.*",
    "pybind11/": r"python/src/.*",
    "Python.h": r"python/src/.*",
    "torch/": r"((python/)?src/torch|include/lockstep/torch)/.*",
    "arrow/": r"(python/)?src/data/.*|src/storage/.*|include/lockstep/data\.h",
    "parquet/": r"src/data/.*",
    "Eigen/": r"src/tune/.*",
    "sqlite3.h": r"src/tune/.*",
}
# Slow to compile: never in a header, where every file that includes it pays.
SOURCES_ONLY = ("asio.hpp", "asio/", "boost/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
CMAKE_CALL = re.compile(r"lockstep_(library|executable|test)\(([^)]*)\)")


def cpp_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".cpp"))


def includes(path: Path) -> list[tuple[str, str]]:
    """The (bracket, header) pairs of a file."""
    return INCLUDE.findall(path.read_text())


def cmake_calls(list_file: Path) -> list[tuple[str, dict[str, list[str]]]]:
    """The lockstep_*() calls of a CMakeLists.txt: kind, and the words after each keyword ('' is the name)."""
    calls = []
    for kind, body in CMAKE_CALL.findall(re.sub(r"#.*", "", list_file.read_text())):
        keyword, words = "", {"": []}
        for word in body.split():
            if word.isupper():
                keyword = word
                words.setdefault(keyword, [])
            else:
                words[keyword].append(word)
        calls.append((kind, words))
    return calls


def folders_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "src").iterdir() if path.is_dir() and cpp_files(path))


def folder_of(library: str, folders: list[str]) -> str:
    """The folder that a library belongs to: parts that others link alone are named after it, as in data_order."""
    return next((folder for folder in folders if library == folder or library.startswith(f"{folder}_")), library)


def order_violations(root: Path) -> list[str]:
    """Includes that violate the order."""
    found = []
    for folder in folders_of(root):
        if folder not in ALLOWED:
            found.append(f"src/{folder}: has no place in the order")
            continue
        for path in cpp_files(root / "src" / folder):
            name = path.relative_to(root)
            for bracket, header in includes(path):
                if bracket == "<":
                    continue
                target = header.split("/")[0]
                if not (root / "src" / header).is_file():
                    found.append(f"{name}: {header}: write the path from src/ of a file that exists")
                elif target != folder and target not in ALLOWED[folder]:
                    found.append(f"{name}: {header}: {folder} may not include {target}")
                elif header not in INTERFACES.get((folder, target), {header}):
                    found.append(f"{name}: {header}: no part of the interface that {folder} may use")
    for path in cpp_files(root / "include"):
        found += [
            f"{path.relative_to(root)}: {header}: a public header includes only <lockstep/...> and libraries"
            for bracket, header in includes(path)
            if bracket == '"'
        ]
    return found


def library_violations(root: Path) -> list[str]:
    """Third-party headers outside their place."""
    found = []
    for top in ("include", "src", "cli", "python/src"):
        for path in cpp_files(root / top):
            name = path.relative_to(root).as_posix()
            for _, header in includes(path):
                for prefix, place in CONFINED.items():
                    if header.startswith(prefix) and not re.fullmatch(place, name):
                        found.append(f"{name}: {header}: only {place} may include it")
                if header.startswith(SOURCES_ONLY) and path.suffix == ".h":
                    found.append(f"{name}: {header}: include it in .cpp files only")
    return found


def cmake_violations(root: Path) -> list[str]:
    """Link lines that differ from the includes, and files that no target compiles."""
    found = []
    folders = folders_of(root)
    for folder in folders:
        list_file = root / "src" / folder / "CMakeLists.txt"
        if not list_file.is_file():
            found.append(f"src/{folder}: has no CMakeLists.txt")
            continue
        calls = cmake_calls(list_file)
        libraries = {words[""][0]: words for kind, words in calls if kind == "library"}
        if folder not in libraries or {folder_of(name, folders) for name in libraries} != {folder}:
            found.append(f"src/{folder}/CMakeLists.txt: must define the library lockstep_library({folder} ...)")
            continue
        # What only the folder's executables compile (an agent's main) they link themselves.
        mains = {source for kind, words in calls if kind == "executable" for source in words.get("SOURCES", [])}
        used = {
            header.split("/")[0]
            for path in cpp_files(root / "src" / folder)
            if path.relative_to(root / "src" / folder).as_posix() not in mains
            for bracket, header in includes(path)
            if bracket == '"'
        } - {folder}
        depends = [name for words in libraries.values() for name in words.get("DEPENDS", [])]
        linked = {folder_of(name, folders) for name in depends} - {folder}
        if used != linked:
            found.append(f"src/{folder}/CMakeLists.txt: DEPENDS says {sorted(linked)}, its includes say {sorted(used)}")
        found += uncompiled(root, root / "src" / folder, "*.cpp")
    for folder in sorted(path for path in (root / "tests").glob("*") if path.is_dir()):
        found += uncompiled(root, folder, "*_test.cpp")
    return found


def uncompiled(root: Path, folder: Path, pattern: str) -> list[str]:
    list_file = folder / "CMakeLists.txt"
    calls = cmake_calls(list_file) if list_file.is_file() else []
    listed = {source for _, words in calls for source in words.get("SOURCES", [])}
    return [
        f"{path.relative_to(root)}: no target of {list_file.relative_to(root)} compiles it"
        for path in sorted(folder.rglob(pattern))
        if path.relative_to(folder).as_posix() not in listed
    ]


def test_includes_follow_the_order() -> None:
    assert folders_of(ROOT)
    assert order_violations(ROOT) == []


def test_public_headers_leave_names_to_users() -> None:
    """After `using namespace lockstep`, a function `train` of the user's own would be ambiguous."""
    taken = re.compile(rf"namespace (?:lockstep::)?({'|'.join(ALLOWED.keys() - {'torch', 'data', 'tune'})})\b")
    headers = sorted((ROOT / "include").rglob("*.h"))
    assert headers and not [f"{path.name}: {found[0]}" for path in headers if (found := taken.search(path.read_text()))]


def test_libraries_stay_in_their_place() -> None:
    assert library_violations(ROOT) == []


def test_cmake_links_what_is_included() -> None:
    assert cmake_violations(ROOT) == []


def test_cmake_adds_folders_in_the_order() -> None:
    listed = re.search(r"^set\(folders ([^)]+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert listed
    order = listed[1].split()
    for position, folder in enumerate(order):
        assert not ALLOWED[folder] & set(order[position:]), f"{folder} is added before what it may include"
    assert set(folders_of(ROOT)) == set(order)


def test_roles_never_meet() -> None:
    assert not any(ALLOWED[role] & ROLES for role in ROLES)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree without fault."""
    write(tmp_path / "include/lockstep/value.h", "#include <string>\n")
    write(tmp_path / "src/base/json.h", "#include <lockstep/value.h>\n")
    write(tmp_path / "src/base/json.cpp", '#include "base/json.h"\n')
    write(tmp_path / "src/base/CMakeLists.txt", "lockstep_library(base SOURCES json.cpp)\n")
    write(tmp_path / "src/wire/codec.cpp", '#include "base/json.h"\n')
    write(tmp_path / "src/wire/codec.h", "")
    write(tmp_path / "src/wire/CMakeLists.txt", "lockstep_library(wire SOURCES codec.cpp DEPENDS base)\n")
    write(tmp_path / "tests/wire/codec_test.cpp", '#include "wire/codec.h"\n')
    write(tmp_path / "tests/wire/CMakeLists.txt", "lockstep_test(wire SOURCES codec_test.cpp DEPENDS lockstep_wire)\n")
    assert order_violations(tmp_path) == library_violations(tmp_path) == cmake_violations(tmp_path) == []
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("src/base/bad.h", '#include "wire/codec.h"\n', "base may not include wire"),
        ("src/agent/bad.h", '#  include "driver/step.h"\n', "agent may not include driver"),
        ("src/horovod/bad.h", '#include "driver/step.h"\n', "no part of the interface"),
        ("src/torch/bad.h", '#include "data/files.h"\n', "no part of the interface"),
        ("src/base/bad.h", '#include "json.h"\n', "write the path from src/"),
        ("src/misc/bad.h", "", "has no place in the order"),
        ("include/lockstep/bad.h", '#include "base/json.h"\n', "a public header includes only"),
    ],
)
def test_a_wrong_include_is_found(tree: Path, path: str, text: str, complaint: str) -> None:
    write(tree / "src/driver/step.h", "")
    write(tree / "src/data/files.h", "")
    write(tree / path, text)
    assert [line for line in order_violations(tree) if complaint in line]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/base/bad.cpp", "#include <CLI/CLI.hpp>\n"),
        ("src/wire/bad.cpp", "#include <openssl/ssl.h>\n"),
        ("src/base/bad.cpp", "#include <Eigen/Core>\n"),
        ("src/wire/bad.h", "#include <asio.hpp>\n"),
    ],
)
def test_a_wrong_library_is_found(tree: Path, path: str, text: str) -> None:
    write(tree / path, text)
    assert len(library_violations(tree)) == 1


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("src/wire/CMakeLists.txt", "lockstep_library(wire SOURCES codec.cpp)\n", "DEPENDS says []"),
        ("src/wire/CMakeLists.txt", "lockstep_library(wire SOURCES codec.cpp DEPENDS base sys)\n", "DEPENDS says"),
        ("src/wire/CMakeLists.txt", "lockstep_library(wire SOURCES DEPENDS base)\n", "compiles it"),
        ("src/wire/CMakeLists.txt", "lockstep_library(wire SOURCES codec.cpp DEPENDS base_x bases)\n", "bases"),
        ("src/sys/socket.h", "", "has no CMakeLists.txt"),
        ("tests/wire/lost_test.cpp", "", "compiles it"),
    ],
)
def test_a_wrong_link_line_is_found(tree: Path, path: str, text: str, complaint: str) -> None:
    write(tree / path, text)
    assert [line for line in cmake_violations(tree) if complaint in line]
