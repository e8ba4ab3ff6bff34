#!/usr/bin/env bash
# Every test, after `make build`. What only computes or loads (clang-tidy, the sanitizers' builds, environments of
# frameworks) runs beside the tests that mostly wait for processes, and only when these leave a core idle.
set -euo pipefail
cd "$(dirname "$0")/.."

idle=(nice -n 19)
if chrt --idle 0 true 2>/dev/null; then idle=(chrt --idle 0); fi
jobs=()

# beside NAME COMMAND: starts it in a process group of its own, with its output in build/NAME.log.
beside() {
  set -m
  "${idle[@]}" sh -c "$2" >"build/$1.log" 2>&1 &
  set +m
  jobs+=("$!")
}
trap 'for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null || true; done' EXIT

# await NAME PID: shows what it printed when it failed.
await() {
  if ! wait "$2"; then
    cat "build/$1.log" >&2
    exit 1
  fi
}

beside environments 'scripts/environments.sh tf jax horovod'
beside checks '.venv/bin/python scripts/lint.py && make build-asan build-tsan'
make test-cpp test-python
await environments "${jobs[0]}"
make test-frameworks
await checks "${jobs[1]}"
grep -F '[lint]' build/checks.log
make test-asan test-tsan test-wheel
