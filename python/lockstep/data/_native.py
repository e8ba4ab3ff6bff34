"""Loads the extension module for the installed pyarrow, or says what to install."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

try:
    import pyarrow  # first: our module uses the libraries that it loads
except ImportError as error:
    raise ImportError("lockstep.data needs pyarrow: pip install pyarrow") from error


def load(version: str) -> Any:
    """The module for the libraries of this version, as in ``2500`` for pyarrow 25.0."""
    folder = Path(__file__).parent
    built = {name[1] for path in folder.glob("_arrow_*.so") if (name := re.match(r"_arrow_(\d+)\.", path.name))}
    if version in built:
        return importlib.import_module(f"lockstep.data._arrow_{version}")
    again = f"install Lockstep again with pyarrow {pyarrow.__version__} beside it"
    if not built:
        raise ImportError(f"lockstep.data was left out when Lockstep was built, because there was no pyarrow: {again}")
    majors = sorted(int(each) // 100 for each in built)
    wanted = " or ".join(f"'pyarrow=={major}.*'" for major in majors)
    raise ImportError(
        f"lockstep.data was built for pyarrow {' and '.join(map(str, majors))}, but {pyarrow.__version__} is "
        f"installed: pip install {wanted}, or {again}"
    )


native = load(pyarrow.cpp_build_info.so_version)
