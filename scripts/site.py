"""Makes the sources of the documentation site, in build/site_source: the pages of docs/, the reference of Python's
modules from their docstrings, and that of C++ from the public headers. `make docs` builds the site from them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "site_source"
MODULES = (
    *("lockstep", "lockstep.session", "lockstep.train", "lockstep.callbacks", "lockstep.errors", "lockstep.torch"),
    *("lockstep.torch.backend", "lockstep.tensorflow", "lockstep.jax", "lockstep.horovod", "lockstep.data"),
    *("lockstep.data.preprocessors", "lockstep.predict", "lockstep.xgboost", "lockstep.lightgbm", "lockstep.tune"),
    *("lockstep.tune.schedulers", "lockstep.tune.search", "lockstep.sgd", "lockstep.worker_group"),
    *("lockstep.integrations.keras", "lockstep.integrations.lightning", "lockstep.integrations.mlflow"),
    *("lockstep.integrations.transformers", "lockstep.integrations.wandb", "lockstep.backend"),
)
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./(?!CONTRIBUTING\.md)[^)]*\)")
"""Links to files that the site does not have."""


def main() -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    (OUTPUT / "reference").mkdir(parents=True)
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]:
        text = OUTSIDE.sub(r"\1", page.read_text(encoding="utf-8"))
        text = text.replace("(../CONTRIBUTING.md", "(CONTRIBUTING.md").replace("](docs/", "](")
        (OUTPUT / page.name).write_text(text, encoding="utf-8")
    for module in MODULES:
        (OUTPUT / "reference" / f"{module}.md").write_text(f"# {module}\n\n::: {module}\n", encoding="utf-8")
    headers = ROOT / "include"
    for header in sorted((headers / "lockstep").rglob("*.h")):
        name = str(header.relative_to(headers))
        page = OUTPUT / "reference" / "cpp" / f"{name.replace('/', '_').removesuffix('.h')}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"# <{name}>\n\n```cpp\n{header.read_text(encoding='utf-8')}```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
