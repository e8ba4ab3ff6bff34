"""The methods of data sets that give all rows: to other libraries, or into files."""

from __future__ import annotations

import itertools
import json
import posixpath
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet

from lockstep.data import _watch
from lockstep.data._columns import table_to_rows
from lockstep.data._formats import converter, empty_batch
from lockstep.data._functions import as_batch
from lockstep.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from lockstep.data.dataset import Dataset

_Write = Callable[[Iterator[pyarrow.Table], Any], None]
"""Writes tables, at least one, into a stream."""
FILE_BYTES = 64 << 20  # blocks are written into one file until it holds this much


class Outputs:
    """See :class:`~lockstep.data.Dataset`."""

    _native: Any
    _is_partitioned: bool

    def to_arrow(self) -> pyarrow.Table:
        """All rows as a table.

        >>> lockstep.data.range(3).to_arrow()["id"].to_pylist()
        [0, 1, 2]
        """
        return pyarrow.table(self._native.read_all("to_arrow"))

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows as a ``DataFrame``. Raises ``ConfigError`` if there are more than `limit`."""
        rows = self._native if limit is None else self._native.limit(limit + 1)
        table = pyarrow.table(rows.read_all("to_pandas"))
        if limit is not None and table.num_rows > limit:
            raise ConfigError(f"[data] to_pandas() got limit={limit}, but there are more rows")
        return converter("pandas")(as_batch(table))

    def size_bytes(self) -> int:
        """About how much memory all rows take. If they are not there, it is estimated by the first block."""
        if self._native.is_borrowed():
            return sum(int(batch.nbytes) for batch in self._record_batches("size_bytes"))
        for batch in self._record_batches("size_bytes"):
            return int(batch.nbytes * self._native.count() / batch.num_rows)
        return 0

    def write_parquet(
        self,
        path: str,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] = dict,
        ray_remote_args: Any = None,
        **arrow_parquet_args: Any,
    ) -> None:
        """Writes Parquet files into a directory.

            >>> lockstep.data.range(1000).write_parquet("numbers")
            >>> lockstep.data.read_parquet("numbers").count()
            1000

        The files have new names, so that files that are there already stay. They appear only when all of them are
        written; after an error none does.

        Args:
            path: the directory, local or such as ``s3://bucket/folder``.
            filesystem: of pyarrow; else the path tells.
            try_create_dir: the directory is made if there is none.
            arrow_parquet_args: as ``compression="zstd"``, for ``pyarrow.parquet.ParquetWriter``;
                `arrow_parquet_args_fn` gives more of them.
        """
        write = _with(pyarrow.parquet.ParquetWriter, {**arrow_parquet_args_fn(), **arrow_parquet_args})
        self._write(path, "parquet", write, filesystem, try_create_dir)

    def write_csv(
        self,
        path: str,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        arrow_csv_args_fn: Callable[[], dict[str, Any]] = dict,
        ray_remote_args: Any = None,
        **arrow_csv_args: Any,
    ) -> None:
        """Writes CSV files into a directory, as :meth:`write_parquet` does. `arrow_csv_args` are those of
        ``pyarrow.csv.CSVWriter``, as ``write_options=``."""
        write = _with(pyarrow.csv.CSVWriter, {**arrow_csv_args_fn(), **arrow_csv_args})
        self._write(path, "csv", write, filesystem, try_create_dir)

    def write_json(
        self,
        path: str,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        pandas_json_args_fn: Callable[[], dict[str, Any]] = dict,
        ray_remote_args: Any = None,
        **pandas_json_args: Any,
    ) -> None:
        """Writes files with one JSON object per line into a directory, as :meth:`write_parquet` does. With
        `pandas_json_args`, pandas writes them: they are those of ``DataFrame.to_json``."""
        write = _as_lines({**pandas_json_args_fn(), **pandas_json_args})
        self._write(path, "json", write, filesystem, try_create_dir)

    def _write(self, path: str, kind: str, write: _Write, filesystem: Any, create: bool) -> None:
        system, folder = _file_system(str(path), filesystem)
        info = system.get_file_info(folder)
        if info.type == pyarrow.fs.FileType.File:
            raise StorageError(f"[data] {path} is a file; write_{kind}() needs a directory")
        if info.type == pyarrow.fs.FileType.NotFound:
            if not create:
                raise StorageError(f"[data] there is no directory {path}, and try_create_dir is False")
            system.create_dir(folder, recursive=True)
        run = secrets.token_hex(4)
        written: list[tuple[str, str]] = []
        try:
            for number, tables in enumerate(self._files(f"write_{kind}")):
                name = f"{run}_{number:06}.{kind}"
                # Readers leave out names that begin with a dot.
                partial, final = posixpath.join(folder, f".{name}.partial"), posixpath.join(folder, name)
                written.append((partial, final))
                with system.open_output_stream(partial) as stream:
                    write(iter(tables), stream)
            for partial, final in written:
                system.move(partial, final)
        except BaseException:
            for names in written:
                for name in names:
                    if system.get_file_info(name).type == pyarrow.fs.FileType.File:
                        system.delete_file(name)
            raise

    def _files(self, step: str) -> Iterator[list[Any]]:
        """The blocks of each file."""
        tables: list[Any] = []
        size, any_file = 0, False
        for batch in self._record_batches(step):
            tables.append(pyarrow.Table.from_batches([batch]))
            size += batch.nbytes
            if self._is_partitioned or size >= FILE_BYTES:
                yield tables
                tables, size, any_file = [], 0, True
        if tables or not any_file:  # who reads them back finds the columns
            yield tables or [pyarrow.Table.from_batches([empty_batch(pyarrow.schema(self._native))])]

    def _record_batches(self, step: str) -> Iterator[Any]:
        """One per block that has rows. Shows on a terminal how far they are read."""
        dataset: Dataset = self  # type: ignore[assignment]
        try:
            for number, batch in enumerate(dataset._batches(None)):
                _watch.show(step, number, dataset.num_blocks())
                yield pyarrow.record_batch(batch)
        finally:
            _watch.close()


def _with(writer: Any, options: dict[str, Any]) -> _Write:
    """By a writer of pyarrow."""

    def write(tables: Iterator[pyarrow.Table], stream: Any) -> None:
        first = next(tables)
        with writer(stream, first.schema, **options) as file:
            for table in itertools.chain([first], tables):
                file.write_table(table)

    return write


def _as_lines(options: dict[str, Any]) -> _Write:
    """As JSON, by pandas if there are options."""

    def text(table: pyarrow.Table) -> str:
        if not options:
            return "\n".join(json.dumps(row, default=_to_json, allow_nan=True) for row in table_to_rows(table))
        frame = converter("pandas")(as_batch(table))
        return str(frame.to_json(**{"orient": "records", "lines": True, **options})).removesuffix("\n")

    def write(tables: Iterator[pyarrow.Table], stream: Any) -> None:
        for table in tables:
            if table.num_rows:
                stream.write((text(table) + "\n").encode())

    return write


def _file_system(path: str, given: Any) -> tuple[Any, str]:
    if given is not None:
        return given, path.rstrip("/")
    try:
        if "://" in path:
            system, folder = pyarrow.fs.FileSystem.from_uri(path)
            return system, folder.rstrip("/")
    except (ValueError, pyarrow.ArrowException) as error:
        raise ConfigError(f"[data] {path!r} is not understood: {error}") from error
    return pyarrow.fs.LocalFileSystem(), path


def _to_json(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
