#!/usr/bin/env bash
# scripts/prepare.sh STAGE [TARGET...]: setup and build. In a new clone the core, which needs no Python, is compiled while
# pip installs .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
stage=$1
shift

if ! scripts/setup.sh "$stage" check; then
  scripts/setup.sh "$stage" packages
  set -m # a process group of its own, so that all of it ends with us
  scripts/build.sh core </dev/null &
  set +m
  core=$!
  trap 'kill -- "-$core" 2>/dev/null || true' EXIT
  scripts/setup.sh "$stage"
  wait "$core"
  trap - EXIT
fi
scripts/build.sh dev "$@"
