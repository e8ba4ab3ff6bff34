"""Files that are not local: S3, against a server that is started here, and file systems that Python gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import lockstep.data
import numpy
import pyarrow
import pyarrow.fs
import pyarrow.parquet
import pytest
from lockstep import StorageError
from moto.server import ThreadedMotoServer

ROWS = 5000


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server with the bucket `bucket`: train/0.csv to 2.csv, parquet/x.parquet, text/x.txt.gz."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    client.create_bucket(Bucket="bucket")

    def put(key: str, body: bytes) -> None:
        client.put_object(Bucket="bucket", Key=key, Body=body)

    for number in range(3):
        lines = "".join(f"{n},{n * n}\n" for n in range(number * ROWS, (number + 1) * ROWS))
        put(f"train/{number}.csv", f"x,y\n{lines}".encode())
    put("train/_SUCCESS", b"")
    put("train/notes with space.txt", b"a note\n")
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"n": numpy.arange(ROWS)}), sink, row_group_size=1000)
    put("parquet/deep/x.parquet", sink.getvalue().to_pybytes())
    put("text/x.txt.gz", pyarrow.compress(b"one\ntwo\n", "gzip", asbytes=True))
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in variables(endpoint).items():
        monkeypatch.setenv(name, value)
    return endpoint


def variables(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.mark.usefixtures("s3")
def test_csv_by_pattern_directory_and_list() -> None:
    ds = lockstep.data.read_csv("s3://bucket/train/*.csv")
    assert ds.count() == 3 * ROWS
    assert numpy.array_equal(numpy.concatenate([b["x"] for b in ds.iter_batches(999)]), numpy.arange(3 * ROWS))
    shuffled = numpy.concatenate([b["y"] for b in ds.iterator(seed=1, window=700).iter_batches(256)])
    assert numpy.array_equal(numpy.sort(shuffled), numpy.arange(3 * ROWS) ** 2)
    assert ds._native.files() == [f"s3://bucket/train/{n}.csv" for n in range(3)]
    listed = lockstep.data.read_csv(["s3://bucket/train/2.csv", "s3://bucket/train/0.csv"])
    assert listed.take(1) == [{"x": 2 * ROWS, "y": 4 * ROWS * ROWS}]
    assert lockstep.data.read_text("s3://bucket/train/notes with *").take_all() == [{"text": "a note"}]
    with pytest.raises(StorageError, match=r"notes with space.*the same columns"):
        lockstep.data.read_csv("s3://bucket/train/")  # the notes are no table


@pytest.mark.usefixtures("s3")
def test_other_formats() -> None:
    ds = lockstep.data.read_parquet("s3://bucket/parquet")
    assert [row["n"] for row in ds.take(3)] == [0, 1, 2]
    assert ds.count() == ROWS
    assert lockstep.data.read_text("s3://bucket/text/").take_all() == [{"text": "one"}, {"text": "two"}]
    (row,) = lockstep.data.read_binary_files("s3://bucket/text", include_paths=True).take_all()
    assert row["path"] == "s3://bucket/text/x.txt.gz"
    assert pyarrow.decompress(row["bytes"], 8, "gzip", asbytes=True) == b"one\ntwo\n"


@pytest.mark.usefixtures("s3")
def test_missing_files_are_named() -> None:
    for path in ("s3://bucket/nothing.csv", "s3://bucket/train/*.nothing", "s3://nowhere/x.csv"):
        with pytest.raises(StorageError) as raised:
            lockstep.data.read_csv(path)
        assert path in str(raised.value)


def test_the_address_may_be_part_of_the_path(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    host = endpoint.removeprefix("http://")
    query = f"?endpoint_override={host}&scheme=http&region=us-east-1"
    assert lockstep.data.read_csv(f"s3://bucket/train/1.csv{query}").count() == ROWS


def test_a_filesystem_of_pyarrow(endpoint: str) -> None:
    system = pyarrow.fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )
    for path in ("bucket/train/*.csv", "s3://bucket/train/*.csv"):
        ds = lockstep.data.read_csv(path, filesystem=system)
        assert sum(len(batch["x"]) for batch in ds.iterator().iter_batches(512)) == 3 * ROWS
    assert lockstep.data.read_parquet("bucket/parquet", filesystem=system).count() == ROWS


def test_other_filesystems(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    local = pyarrow.fs.LocalFileSystem()
    assert lockstep.data.read_text(tmp_path / "a.txt", filesystem=local).count() == 2
    below = pyarrow.fs.SubTreeFileSystem(str(tmp_path), local)
    for path in ("a.txt", "*.txt"):
        assert lockstep.data.read_text(path, filesystem=below).take_all() == [{"text": "one"}, {"text": "two"}]
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/folder/x.csv.gz", pyarrow.compress(b"a,b\n1,2\n", "gzip", asbytes=True))
    assert lockstep.data.read_csv("/folder", filesystem=memory).take_all() == [{"a": 1, "b": 2}]
    with pytest.raises(StorageError, match="nothing"):
        lockstep.data.read_text("nothing", filesystem=below)
    with pytest.raises(lockstep.ConfigError, match="filesystem is a int"):
        lockstep.data.read_text("a", filesystem=3)


class Broken(pyarrow.fs.FileSystemHandler):
    """Says that there is a file, and cannot open it."""

    def get_type_name(self) -> str:
        return "broken"

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=10) for path in paths]

    def open_input_file(self, path: str) -> Any:
        raise OSError(f"the disk of {path} is gone")

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


Broken.__abstractmethods__ = frozenset()


def test_errors_of_filesystems_are_ours() -> None:
    system = pyarrow.fs.PyFileSystem(Broken())
    with pytest.raises(StorageError, match=r"x\.csv: .*the disk of x\.csv is gone"):
        lockstep.data.read_csv("x.csv", filesystem=system)


PROGRAM = """
import lockstep.data, sys
ds = lockstep.data.read_csv("s3://bucket/train/*.csv")
it = ds.iterator().iter_batches(100)
next(it)
{end}
"""


@pytest.mark.parametrize("end", ["import pyarrow.fs", "sys.exit(3)", "import os; os.fork()"])
def test_processes_end_cleanly(endpoint: str, end: str) -> None:
    """Without an end of S3 they would abort."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end)],
        env={**os.environ, **variables(endpoint)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == (3 if "exit" in end else 0), process.stderr
    assert "S3" not in process.stderr
