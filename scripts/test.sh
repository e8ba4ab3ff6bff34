#!/usr/bin/env bash
# Every test, after `make build`. Two lanes of tests run side by side, because most tests wait for processes: the larger
# part of Python's, shown as they run, then the wheel; and those of C++, the frameworks and the rest of Python's, then the
# sanitizers. clang-tidy and the sanitizers' builds only take the time that the tests leave idle. The outputs of what runs
# beside are in build/*.log, and shown when it failed.
set -euo pipefail
cd "$(dirname "$0")/.."

idle=(nice -n 19)
if chrt --idle 0 true 2>/dev/null; then idle=(chrt --idle 0); fi
jobs=()

# beside NAME COMMAND...: starts it in a process group of its own.
beside() {
  local name=$1
  set -m
  "${@:2}" >"build/$name.log" 2>&1 &
  set +m
  jobs+=("$!")
}
trap 'for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null || true; done' EXIT

# await NAME PID PATTERN: shows the lines that tell what it did, or all that it printed when it failed.
await() {
  if ! wait "$2"; then
    cat "build/$1.log" >&2
    exit 1
  fi
  grep -E "$3" "build/$1.log"
}

second=(python/tests/as_ray python/tests/tune tests)
beside checks "${idle[@]}" sh -c '.venv/bin/python scripts/lint.py && make build-asan build-tsan'
beside lane make --old-file=build test-cpp test-frameworks test-python pytest="${second[*]}"
make --old-file=build test-python test-wheel pytest="python/tests ${second[*]/#/--ignore=}"
await lane "${jobs[1]}" '^100% tests passed|^=.* passed|^\[tests\]|^FAILED'
await checks "${jobs[0]}" '^\[lint\]'
make test-asan test-tsan
