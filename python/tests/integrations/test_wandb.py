"""Weights & Biases, offline."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import wandb
from lockstep import Checkpoint, ConfigError, Result, TrainingFailedError, session
from lockstep.integrations.wandb import WandbLoggerCallback
from reported import Fit, three_reports
from wandb.proto import wandb_internal_pb2


def wandb_records(path: Path) -> list[Any]:
    """What an offline run holds: a seven byte header, then records in blocks of 32 KiB, as in LevelDB's log."""
    data, records, part, at = path.read_bytes(), [], b"", 7
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            records.append(wandb_internal_pb2.Record.FromString(part))
            part = b""
    return records


def offline_run(result: Result) -> Path:
    wandb.teardown()  # its process writes the last records after finish() has returned
    (found,) = (result.path / "wandb").glob("offline-run-*/run-*.wandb")
    return found


def rows(records: list[Any]) -> list[dict[str, str]]:
    histories = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): item.value_json for item in row.item} for row in histories]


def test_wandb_offline_holds_metrics_and_configuration(fit: Fit) -> None:
    tracker = WandbLoggerCallback(
        project="digits", group="g", excludes=["secret", "validation"], mode="offline", tags=["a"]
    )
    result = fit(three_reports(), name="first", config={"lr": 0.1, "secret": 1}, callbacks=[tracker])
    records = wandb_records(offline_run(result))
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.run_group, run.display_name, list(run.tags)) == ("digits", "g", "first", ["a"])
    config = {item.key: item.value_json for item in run.config.update}
    assert config["lr"] == "0.1" and "secret" not in config
    logged = rows(records)
    assert [(float(row["epoch"]), float(row["training_iteration"])) for row in logged] == [(0, 1), (1, 2), (2, 3)]
    assert not any("validation" in key or key in ("pid", "config") for row in logged for key in row)
    (end,) = [record.exit for record in records if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 0


def test_wandb_of_a_failed_run_with_checkpoints(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")

    def train_func(config: dict[str, Any]) -> None:
        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"epoch": 0}))
        session.get_checkpoint()
        raise ValueError("boom")

    tracker = WandbLoggerCallback("digits", upload_checkpoints=True, log_config=True)
    with pytest.raises(TrainingFailedError, match="boom") as caught:
        fit(train_func, workers=1, config={"lr": 0.1}, callbacks=[tracker])
    assert caught.value.result is not None
    records = wandb_records(offline_run(caught.value.result))
    (row,) = rows(records)
    assert (float(row["loss"]), float(row["config/lr"])) == (0.5, 0.1)
    (end,) = [record.exit for record in records if record.WhichOneof("record_type") == "exit"]
    assert end.exit_code == 1
    artifacts = [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    assert "data.json" in {file.path for artifact in artifacts for file in artifact.manifest.contents}


def test_a_wandb_key_file(tmp_path: Path) -> None:
    place = tmp_path / "key"
    with pytest.raises(ConfigError, match="cannot be read"):
        WandbLoggerCallback(api_key_file=place)
    place.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        WandbLoggerCallback(api_key_file=place)
    place.write_text("k" * 40 + "\n")
    assert WandbLoggerCallback(api_key_file=place)._settings(None) == {"console": "off", "api_key": "k" * 40}
    with pytest.raises(ConfigError, match="both given"):
        WandbLoggerCallback(api_key_file=place, api_key="k")


def test_wandb_that_cannot_start_ends_the_run(fit: Fit) -> None:
    with pytest.raises(TrainingFailedError, match=r"wandb\.init\(\) failed"):
        fit(
            lambda: session.report({"loss": 0.5}),
            workers=1,
            callbacks=[WandbLoggerCallback("p", mode="offline", no_such_option=1)],
        )
