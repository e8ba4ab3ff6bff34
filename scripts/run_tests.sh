#!/usr/bin/env bash
# Runs tests, and once more those that failed, if they are at most three:
#   scripts/run_tests.sh pytest PYTHON [ARGUMENT...]
#   scripts/run_tests.sh ctest [ARGUMENT...]     of the development build
# Most tests start processes and wait for them, so a busy machine can fail one that is right. The names of those that
# passed only the second time are printed: each is worth a look, because some of them are races. What a sanitizer finds
# counts the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
runner=$1
shift
most=3

# few_failed FILE: shows the failed tests, one per line in FILE, and succeeds if they are few.
few_failed() {
  local count
  count=$(grep -c . "$1" || true)
  if [ "$count" -lt 1 ] || [ "$count" -gt $most ]; then return 1; fi
  printf '[tests] failed, and run again now:\n%s\n' "$(cat "$1")"
}

case $runner in
  pytest)
    python=$1
    shift
    cache=$(mktemp -d)
    trap 'rm -rf "$cache"' EXIT
    status=0
    "$python" -m pytest -o cache_dir="$cache/pytest" "$@" || status=$?
    [ $status -eq 1 ] || exit $status # 1: tests failed; the others: they did not all run
    "$python" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' \
      "$cache/pytest/v/cache/lastfailed" >"$cache/failed"
    few_failed "$cache/failed" || exit $status
    "$python" -m pytest -o cache_dir="$cache/pytest" --last-failed --last-failed-no-failures=none "$@"
    ;;
  ctest)
    failed=build/Testing/Temporary/LastTestsFailed.log
    rm -f "$failed"
    if ctest "$@"; then exit; fi
    [ -e "$failed" ] && few_failed "$failed" || exit 1
    ctest "$@" --rerun-failed --output-on-failure
    ;;
esac
