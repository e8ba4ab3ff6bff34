#!/usr/bin/env bash
# Every test, after `make build`. What only computes (clang-tidy, the sanitizers' builds) runs beside the tests that
# mostly wait for processes, and only when these leave a core idle.
set -euo pipefail
cd "$(dirname "$0")/.."

idle=(nice -n 19)
if chrt --idle 0 true 2>/dev/null; then idle=(chrt --idle 0); fi
log=build/beside.log
set -m # a process group of its own, which can be ended as a whole
"${idle[@]}" sh -c '.venv/bin/python scripts/lint.py && make build-asan build-tsan' >"$log" 2>&1 &
beside=$!
set +m
trap 'kill -- "-$beside" 2>/dev/null || true' EXIT

make test-cpp test-python test-frameworks
if ! wait "$beside"; then
  cat "$log" >&2
  exit 1
fi
grep -F '[lint]' "$log"
make test-asan test-tsan test-wheel
