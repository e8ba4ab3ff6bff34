#!/usr/bin/env bash
# Makes this clone ready to build: Debian packages (only those that are missing) and .venv.
# A second run does nothing unless requirements-dev.txt or this file has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build ccache
  libasio-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  clang-format clang-tidy python3-dev python3-venv
)
python=${PYTHON:-python3.11}

# .venv belongs to this place: it names absolute paths.
stamp=.venv/setup-$( (echo "$PWD" && cat requirements-dev.txt scripts/setup.sh) | sha256sum | cut -c1-16)
[ -e "$stamp" ] && exit 0

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
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
  fi
else
  echo "[setup] no dpkg here; these packages, or what your system calls them, must be installed: ${packages[*]}"
fi

if ! command -v "$python" >/dev/null; then
  echo "[setup] $python is not installed; install it, or choose another with PYTHON=python3.x make setup" >&2
  exit 1
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt

# The development build places its files into python/lockstep; .venv imports the package from there.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
echo "$PWD/python" >"$site/lockstep-development.pth"

rm -f .venv/setup-*
touch "$stamp"
echo "[setup] done"
