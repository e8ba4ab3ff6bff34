"""The extension module: what it links, when it is loaded, what is said if it does not fit."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import lockstep.data
import numpy
import pandas
import pyarrow
import pytest
import torch
from lockstep.data import _native


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_lockstep_loads_no_arrow() -> None:
    code = "import lockstep, sys; print('pyarrow' in sys.modules, 'libarrow' in open('/proc/self/maps').read())"
    assert python(code) == "False False"


def test_without_pyarrow_the_import_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "try:\n    import lockstep.data\nexcept ImportError as error:\n    print(error)"
    )
    assert python(code) == "lockstep.data needs pyarrow: pip install pyarrow"


def test_another_version_of_pyarrow_is_named() -> None:
    major = pyarrow.__version__.split(".")[0]
    with pytest.raises(ImportError, match=rf"built for pyarrow {major}.*'pyarrow=={major}\.\*'"):
        _native.load("9900")


def test_a_build_without_pyarrow_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "__file__", str(tmp_path / "_native.py"))
    with pytest.raises(ImportError, match="left out when Lockstep was built"):
        _native.load("2500")


def test_the_module_links_only_arrow() -> None:
    dynamic = subprocess.run(["readelf", "-d", _native.native.__file__], check=True, capture_output=True, text=True)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic.stdout)
    system = r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|ld-linux-x86-64)\.so\.\d+"
    foreign = [name for name in needed if not re.fullmatch(system, name)]
    assert {re.sub(r"\.so\..*", "", name) for name in foreign} == {"libarrow", "libparquet"}


def test_examples_in_docstrings_are_right() -> None:
    from lockstep.data import dataset, read

    names = {"lockstep": lockstep, "numpy": numpy, "pandas": pandas, "pyarrow": pyarrow, "torch": torch}
    for module in (dataset, read):
        result = doctest.testmod(module, extraglobs=names)
        assert result.attempted > 0
        assert result.failed == 0
