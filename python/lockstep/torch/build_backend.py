"""Compiles the backend "lockstep" of torch.distributed for the installed torch::

    python -m lockstep.torch.build_backend

``pip install`` does this if torch is already installed; use this if torch was installed or changed afterwards. It needs
CMake, a C++20 compiler and Python's headers, and takes about a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lockstep.torch.backend import module_name

PACKAGE = Path(__file__).resolve().parents[1]


def main() -> None:
    """Puts the compiled module next to this file; exits with a message if that fails."""
    cmake = shutil.which("cmake") or sys.exit("[build_backend] there is no cmake in the PATH: pip install cmake")
    package = (PACKAGE / "cmake").resolve()
    if not os.access(PACKAGE / "torch", os.W_OK):
        sys.exit(f"[build_backend] {PACKAGE / 'torch'} cannot be written: run this as the user who owns it")
    print(f"compiling the backend for torch {torch.__version__}; this takes about a minute", flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep_backend_") as build:
        _run(
            [
                cmake,
                *("-S", str(package.parent / "c10d_module")),
                *("-B", build),
                f"-DLockstep_DIR={package}",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-DLOCKSTEP_LIBTORCH={torch.__path__[0]}",
                f"-DLOCKSTEP_MODULE={module_name()}",
            ]
        )
        _run([cmake, "--build", build, "--parallel", str(os.cpu_count() or 1)])
        (made,) = Path(build).glob("_c10d_*.so")
        # Copied under another name first, so that a concurrent import sees the complete file or none.
        part = PACKAGE / "torch" / f".{made.name}.partial"
        shutil.copyfile(made, part)
        os.replace(part, PACKAGE / "torch" / made.name)
    print(f"made {PACKAGE / 'torch' / made.name}")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n[build_backend] {' '.join(command)} failed; see above")


if __name__ == "__main__":
    main()
