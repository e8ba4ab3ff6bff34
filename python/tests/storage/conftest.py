"""An S3 server of the tests' own, and a cache for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "bucket"


class Server:
    """What the tests look at behind Lockstep's back."""

    def __init__(self, url: str) -> None:
        self.url = url
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        self.client: Any = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)

    def objects(self, prefix: str = "") -> dict[str, int]:
        """The sizes of all objects below the prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {each["Key"]: each["Size"] for page in pages for each in page.get("Contents", ())}

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())

    def open_uploads(self) -> list[str]:
        return [each["Key"] for each in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def server(moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """An empty bucket, and an environment in which Lockstep finds the server and an empty cache."""
    found = Server(moto)
    found.client.create_bucket(Bucket=BUCKET)
    use_server(moto, tmp_path / "cache", monkeypatch)
    for key in found.objects():
        found.client.delete_object(Bucket=BUCKET, Key=key)
    return found


def use_server(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "LOCKSTEP_CACHE_PATH": str(cache),
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Called, it makes Lockstep use another, empty cache, as on another machine."""
    count = 0

    def forget_cache() -> Path:
        nonlocal count
        count += 1
        place = tmp_path / f"cache-{count}"
        monkeypatch.setenv("LOCKSTEP_CACHE_PATH", str(place))
        return place

    return forget_cache
