"""What the tests of integrations share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # reported


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """No calls to the outside world."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("DO_NOT_TRACK", "true")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("WANDB_SILENT", "true")
        yield


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MLflow store without a server; it takes MLflow seconds to make one."""
    return f"sqlite:///{tmp_path_factory.mktemp('database')}/mlflow.db"
