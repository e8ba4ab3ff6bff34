#!/usr/bin/env bash
# The documentation site in build/site, by an environment of its own. Every sample of the pages runs in the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/environments.sh docs
.venv/bin/python scripts/site.py
NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict
echo "[docs] build/site/index.html"
