#!/usr/bin/env bash
# A wheel and an sdist in dist/. The wheel's name says which glibc it needs; LIMIT=2.28 makes a newer one an error.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

rm -rf dist
mkdir dist
libtorch=$($python -c 'import torch; print(torch.__path__[0])')
pyarrow=$($python -c 'import pyarrow; print(pyarrow.__path__[0])')
pybind11=$($python -m pybind11 --cmakedir)
$python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist \
  -C build-dir=build-wheel -C cmake.define.pybind11_DIR="$pybind11" \
  -C cmake.define.LOCKSTEP_LIBTORCH="$libtorch" -C cmake.define.LOCKSTEP_ARROW="$pyarrow" .
$python - <<'END'
import os
from scikit_build_core.build import build_sdist
print("[wheel]", build_sdist("dist"))
END
$python scripts/check_wheel.py dist/*.whl --tag ${LIMIT:+--limit "$LIMIT"}
