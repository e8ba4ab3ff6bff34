"""What the tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lockstep import DataParallelTrainer, Result, RunConfig, ScalingConfig, session

# A shell that starts a job in the background makes it ignore Ctrl-C; the programs under test must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


_BFLOAT16 = """
import torch
with torch.autocast("cpu", dtype=torch.bfloat16):
    torch.nn.Linear(32, 64)(torch.randn(64, 32))
"""


def pytest_configure() -> None:
    """Some virtual machines offer AMX and lose its state, so that PyTorch itself dies of SIGILL: avoid AMX there."""
    if "amx_tile" not in Path("/proc/cpuinfo").read_text() or "ONEDNN_MAX_CPU_ISA" in os.environ:
        return
    probe = subprocess.run([sys.executable, "-c", _BFLOAT16], stderr=subprocess.DEVNULL, check=False)
    if probe.returncode == -signal.SIGILL:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


_TRAINER_OPTIONS = (
    "datasets",
    "dataset_config",
    "preprocessor",
    "resume_from_checkpoint",
    "torch_config",
    "tensorflow_config",
    "jax_config",
    "horovod_config",
)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call() -> None:
    """Deletes the variable that pytest changes for every test: a changed environment takes a new fork server."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Any]:
    """A trainer of `function` on `workers` workers that keeps its runs below the test's own directory, silently.

    It is of the class `trainer`; options that are not the trainer's own are those of its RunConfig.
    """

    def make(
        function: Callable[..., Any],
        workers: int = 2,
        config: dict[str, Any] | None = None,
        trainer: type[DataParallelTrainer] = DataParallelTrainer,
        **options: Any,
    ) -> DataParallelTrainer:
        own = {name: options.pop(name) for name in _TRAINER_OPTIONS if name in options}
        return trainer(
            function,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(**{"storage_path": tmp_path / "runs", "verbose": 0, **options}),
            **own,
        )

    return make


@pytest.fixture
def fit(make_trainer: Callable[..., DataParallelTrainer]) -> Callable[..., Result]:
    """As make_trainer, and runs it."""

    def run(*arguments: Any, **options: Any) -> Result:
        return make_trainer(*arguments, **options).fit()

    return run


@pytest.fixture
def on_nodes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this process rank 0 of workers whose nodes have these addresses, by rank. It meets nobody."""

    def enter(*addresses: str) -> None:
        core: Any = SimpleNamespace(
            keeps_checkpoints=True,
            begin=SimpleNamespace(
                rank=0,
                world_size=len(addresses),
                local_rank=0,
                local_world_size=1,
                node_rank=0,
                attempt=0,
                experiment_name="",
                trial_name="",
                trial_id="",
                run_dir="",
            ),
            node_address=addresses.__getitem__,
            meet=lambda value, timeout: value,
        )
        monkeypatch.setattr(session, "_session", session._Session(core))

    return enter
