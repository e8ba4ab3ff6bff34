#!/usr/bin/env bash
# Makes this clone ready: Debian packages (only those that are missing) and .venv.
#   scripts/setup.sh run             what building and running need
#   scripts/setup.sh [dev]           what tests and checks need too
#   scripts/setup.sh STAGE packages  the Debian packages alone
#   scripts/setup.sh STAGE check     exits with 1 if there is something to do
# A second run does nothing unless the requirements or this file have changed.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build ccache
  libasio-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libeigen3-dev libsqlite3-dev libssl-dev libboost-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3-dev python3-venv
)
requirements=requirements.txt
stage=${1:-dev}
part=${2:-all}
if [ "$stage" = dev ]; then
  packages+=(clang-format clang-tidy)
  packages+=(chromium chromium-driver) # tests of the dashboard
  packages+=(iproute2 openssh-client openssh-server) # the machines of tests/cluster
  packages+=(slurmctld slurmd slurm-client munge) # and their Slurm
  requirements=requirements-dev.txt
fi
python=${PYTHON:-python3.11}
source scripts/venv_cache.sh

# .venv belongs to this place: it names absolute paths.
stamp=.venv/setup-$stage-$({ echo "$PWD" && cat requirements*.txt scripts/setup.sh scripts/venv_cache.sh; } | sha256sum | cut -c1-16)
[ -e "$stamp" ] && exit 0
[ "$part" != check ] || exit 1

# quietly COMMAND...: shows what it printed only when it failed.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "[setup] failed: $*" >&2
    exit 1
  fi
  rm -f "$log"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if command -v dpkg-query >/dev/null; then
  missing=()
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "[setup] installing: ${missing[*]}"
    quietly as_root apt-get update -q
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
  fi
else
  echo "[setup] no dpkg here; these packages, or what your system calls them, must be installed: ${packages[*]}"
fi
[ "$part" != packages ] || exit 0

if ! command -v "$python" >/dev/null; then
  echo "[setup] $python is not installed; install it, or choose another with PYTHON=python3.x make setup" >&2
  exit 1
fi

key=${stage}-$(key_of "$(cat scripts/setup.sh)")
if [ ! -e .venv ] && take_venv .venv "$key"; then
  echo "[setup] .venv: from $venv_cache"
else
  echo "[setup] .venv: $(grep -E -o '^[a-z-]+' "$requirements" | tr '\n' ' ')"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  quietly .venv/bin/python -m pip install --no-compile --disable-pip-version-check -r "$requirements"
  # Compiling every module of torch takes longer than installing it. To run, it is enough to compile what training imports
  # (torch.optim imports torch._dynamo at its first step); tests import most of them, in many processes.
  if [ "$stage" = run ]; then
    env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c \
      'import sklearn.datasets, torch._dynamo, torch.distributed, torch.nn.parallel, torch.utils.data'
  else
    .venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null || true # some packages carry templates that are no Python
  fi
  keep_venv .venv "$key"
fi
link_tree .venv # the development build places its files into python/lockstep

rm -f .venv/setup-"$stage"-*
touch "$stamp"
echo "[setup] done"
