"""What programs for Ray Tune give to ``RunConfig(sync_config=...)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.errors import NotAvailableError


@dataclass
class SyncConfig:
    """Accepted without effect, as trials write straight to ``storage_path``. An `upload_dir` is refused."""

    upload_dir: str | None = None
    syncer: Any = "auto"
    sync_period: float = 300
    sync_timeout: float = 1800
    sync_artifacts: bool = True
    sync_artifacts_on_checkpoint: bool = True
    sync_on_checkpoint: bool = True
    sync_to_cloud: Any = None
    sync_to_driver: Any = None
    node_sync_period: int = -1
    cloud_sync_period: int = -1

    def __post_init__(self) -> None:
        if self.upload_dir:
            raise NotAvailableError(
                f"[SyncConfig] upload_dir is {self.upload_dir!r}, but nothing is uploaded; "
                "trials write straight to RunConfig(storage_path=...), which may be a shared directory"
            )
