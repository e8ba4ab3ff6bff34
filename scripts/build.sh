#!/usr/bin/env bash
# scripts/build.sh [PRESET] [TARGET...]: configures when needed and builds, with one line of progress.
# scripts/build.sh core: the part of the development build that needs no Python.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-dev}
shift || true
tree=build
options=()
name=$preset
if [ "$preset" = core ]; then
  preset=dev
  name="dev, what needs no Python"
  options=(-D LOCKSTEP_BUILD_PYTHON=OFF)
  set -- lockstep_train lockstep-agent lockstep_cli
elif [ "$preset" != dev ]; then
  tree=build/$preset
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT

is_configured() {
  [ -e "$tree/build.ninja" ] && [ ! CMakePresets.json -nt "$tree/build.ninja" ] || return 1
  [ "$preset" != dev ] || [ ${#options[@]} -gt 0 ] || grep -q '^LOCKSTEP_BUILD_PYTHON:BOOL=ON$' "$tree/CMakeCache.txt"
}
if ! is_configured; then
  if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
fi

jobs=(--parallel "${jobs:-$(nproc)}")
if [ $# -gt 0 ]; then jobs+=(--target "$@"); fi
if [ -t 1 ]; then # ninja redraws its line there
  NINJA_STATUS="[build] %f of %t, %e s: " cmake --build --preset "$preset" "${jobs[@]}"
  exit
fi
echo "[build] compiling for $name ..."
started=$SECONDS
if ! cmake --build --preset "$preset" "${jobs[@]}" >"$log" 2>&1; then
  grep -v -E '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" >&2
  exit 1
fi
echo "[build] done in $((SECONDS - started)) s"
