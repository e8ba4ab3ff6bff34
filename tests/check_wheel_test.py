"""scripts/check_wheel.py: which glibc a wheel needs."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest
from lockstep import _core

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_wheel.py"
specification = importlib.util.spec_from_file_location("check_wheel", SCRIPT)
assert specification is not None and specification.loader is not None
check_wheel = sys.modules["check_wheel"] = importlib.util.module_from_spec(specification)
specification.loader.exec_module(check_wheel)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "made-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(_core.__file__, "made/_core.so")
        archive.writestr("made/__init__.py", "")
    return path


def test_a_binary_says_what_it_needs(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs = check_wheel.needs_of(wheel)
    assert needs.glibc >= (2, 14)
    assert needs.highest["GLIBCXX"][1] == "made/_core.so"
    assert not needs.foreign
    assert check_wheel.main([str(wheel), "--limit", "2.5"]) == 1
    assert "glibc 2.5 is not enough" in capsys.readouterr().err
    assert check_wheel.main([str(wheel), "--limit", "9.0", "--tag"]) == 0
    major, minor = needs.glibc
    assert (wheel.parent / f"made-1-cp311-cp311-manylinux_{major}_{minor}_x86_64.whl").exists()


def test_versions_and_libraries_are_read_as_readelf_prints_them() -> None:
    needs = check_wheel.Needs()
    versions = "  0x0010:   Name: GLIBC_2.4  Flags: none  Version: 3\n  Name: GLIBC_2.17  Name: GLIBCXX_3.4.21\n"
    dynamic = " 0x1 (NEEDED)  Shared library: [libc.so.6]\n 0x1 (NEEDED)  Shared library: [libprotobuf.so.32]\n"
    needs.add("a.so", dynamic, versions)
    assert needs.glibc == (2, 17)
    assert needs.foreign == {"a.so": {"libprotobuf.so.32"}}
