#!/usr/bin/env bash
# Environments of frameworks that do not fit into .venv: scripts/environments.sh NAME... makes .venv-NAME, one function
# below for each. A second run does nothing unless the function, the tools' versions or the place of this clone changed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
source scripts/venv_cache.sh

install() {
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# The pins of .venv, so that tests have the same tools everywhere.
pinned() {
  for package in "$@"; do grep -h "^$package==" requirements.txt requirements-dev.txt; done
}

# The last release of Horovod is older than this PyTorch, whose headers need C++17; nothing else has to change.
# Building takes minutes, so the wheel is kept for all clones, named by what it was built from and how.
horovod() {
  local version=0.28.1 torch key wheels work
  install $(pinned torch numpy)
  install $(pinned cloudpickle safetensors scikit-learn pytest pytest-timeout) psutil pyyaml packaging setuptools wheel
  torch=$("$venv/bin/python" -c 'import torch; print(torch.__version__)')
  key=$({ declare -f horovod; echo "$torch"; "$venv/bin/python" -VV; uname -m; } | sha256sum | cut -c1-16)
  wheels=$cache/horovod-$version-$key
  if ! compgen -G "$wheels/*.whl" >/dev/null; then
    echo "[environments] building Horovod $version for torch $torch; this takes some minutes"
    work=$(mktemp -d)
    "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-binary :all: --no-deps \
      --no-build-isolation --dest "$work" "horovod==$version"
    tar -xf "$work/horovod-$version.tar.gz" -C "$work"
    sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' \
      "$work/horovod-$version/CMakeLists.txt" "$work/horovod-$version/horovod/torch/CMakeLists.txt"
    HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1 \
      HOROVOD_WITH_GLOO=1 HOROVOD_CMAKE=$(command -v cmake) CMAKE_POLICY_VERSION_MINIMUM=3.5 MAKEFLAGS=-j$(nproc) \
      "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
      --wheel-dir "$work/wheels" "$work/horovod-$version"
    mkdir -p "$cache"
    rm -rf "$wheels"
    mv "$work/wheels" "$wheels"
    rm -rf "$work"
  fi
  install --no-deps "$wheels"/*.whl
}

# tf-keras asks for the package tensorflow, which would put the CUDA build over the CPU build: without its dependencies.
tf() {
  install tensorflow-cpu==2.21.0 $(pinned numpy cloudpickle pandas safetensors scikit-learn pytest pytest-timeout) \
    "pyarrow==$(.venv/bin/python -c 'import pyarrow; print(pyarrow.__version__)')" # for which the module is built
  install --no-deps tf-keras==2.21.0
}

# What its samplers need, for benchmarks/tune_quality.py.
optuna() {
  install $(pinned torch numpy optuna) cmaes==0.13.1 scipy==1.17.1
}

jax() {
  install "jax[cpu]==0.10.2" $(pinned numpy cloudpickle safetensors pytest pytest-timeout)
}

# XGBoost without its CUDA libraries, which are hundreds of megabytes.
libs() {
  install $(pinned torch numpy cloudpickle pandas safetensors scikit-learn pytest pytest-timeout) \
    "pyarrow==$(.venv/bin/python -c 'import pyarrow; print(pyarrow.__version__)')"
  install lightning==2.6.6 transformers==5.23.0 accelerate==1.15.0 xgboost-cpu==3.2.0 lightgbm==4.7.0
}

# What builds the documentation site; it reads the sources and imports nothing of ours.
docs() {
  install "mkdocs-material==9.8.1" "mkdocstrings-python==2.0.11"
}

# The engine's cluster of tests/cluster. Its dashboard and libraries are not needed.
ray() {
  install ray==2.60.0 $(pinned numpy cloudpickle)
}

# The command line finds the Python beside it: it cannot be a link.
command_line() {
  if [ -x .venv/bin/lockstep ]; then cp --update --preserve=timestamps .venv/bin/lockstep "$venv/bin/lockstep"; fi
}

for name in "$@"; do
  venv=.venv-$name
  stamp=$venv/made-$({ echo "$PWD"; declare -f "$name"; cat requirements*.txt; } | sha256sum | cut -c1-16)
  if [ -e "$stamp" ]; then
    command_line
    continue
  fi
  echo "[environments] making $venv"
  key=$name-$(key_of "$(declare -f "$name" pinned install)")
  if [ -e "$venv" ] || ! take_venv "$venv" "$key"; then
    [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
    "$name"
    keep_venv "$venv" "$key"
  fi
  link_tree "$venv"
  command_line
  rm -f "$venv"/made-*
  touch "$stamp"
done
