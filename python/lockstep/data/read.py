"""Where data sets come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import pyarrow

from lockstep.data._arrays import ArrayFiles, check_extensions
from lockstep.data._columns import rows_to_table
from lockstep.data._csv import checked_block, csv_options
from lockstep.data._files import Paths, file_options, to_paths
from lockstep.data._images import EXTENSIONS, ImageFiles
from lockstep.data._items import TorchRows
from lockstep.data._native import native
from lockstep.data._plans import Table, step
from lockstep.data._tensors import to_column
from lockstep.data.dataset import Dataset
from lockstep.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow.csv
    import pyarrow.json


@step
def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    filter: Any = None,
    filesystem: Any = None,
    unify_schemas: bool = False,
    on_error: str = "raise",
    ignore_missing_paths: bool = False,
    piece_bytes: int = native.PARQUET_PIECE,
) -> Dataset:
    """Parquet files. Their footers are read now, row groups when they are needed.

        ds = lockstep.data.read_parquet("s3://bucket/train/*.parquet", columns=["x", "y"])

    Args:
        paths: files, directories, patterns (``*``, ``?``, ``[...]``, ``**``), or a list of them. They may begin with
            ``s3://`` or another scheme that Arrow knows.
        columns: the ones to read; else all.
        filter: an expression of ``pyarrow.compute``, or a list as pyarrow.parquet has it; row groups whose statistics
            exclude it are not read.
        filesystem: of pyarrow or fsspec; else what the paths say.
        unify_schemas: columns that a file lacks become nulls, and numbers widen; else all files must have the same.
        on_error: ``"skip"`` leaves out broken files and row groups, and counts them.
        ignore_missing_paths: leave out paths that name no file.
        piece_bytes: row groups of more than twice this size are read in pieces of about this size.
    """
    options = file_options(filesystem, on_error, unify_schemas, ignore_missing_paths)
    if piece_bytes < 1:
        raise ConfigError(f"[data] piece_bytes is {piece_bytes}; it must be 1 or more")
    ds = Dataset(native.read_parquet(to_paths(paths), options, piece_bytes))
    if filter is not None:
        ds = ds.filter(expr=_expression(filter))
    return ds if columns is None else ds.select_columns(columns)


@step
def read_csv(
    paths: Paths,
    *,
    delimiter: str | None = None,
    column_names: Sequence[str] | None = None,
    column_types: Mapping[str, Any] | pyarrow.Schema | None = None,
    block_bytes: int | None = None,
    filesystem: Any = None,
    unify_schemas: bool = False,
    on_error: str = "raise",
    ignore_missing_paths: bool = False,
    parse_options: pyarrow.csv.ParseOptions | None = None,
    read_options: pyarrow.csv.ReadOptions | None = None,
    convert_options: pyarrow.csv.ConvertOptions | None = None,
) -> Dataset:
    """CSV files. They are read once now, to find where rows begin; rows are parsed when they are needed.

        ds = lockstep.data.read_csv("train.csv", column_types={"zip": pyarrow.string()})

    Args:
        paths: files, directories, patterns, or a list of them; see :func:`read_parquet`. Files whose names end with
            ``.gz``, ``.zst``, ``.bz2``, ``.lz4`` or ``.br`` are unpacked.
        delimiter: between fields; a comma. Fields in double quotes may contain it, line breaks, and doubled quotes.
        column_names: of files whose first line is a row; else the first line of each file names the columns.
        column_types: pyarrow types by column; else they are inferred from the beginning of the first file.
        block_bytes: about how many bytes are parsed, and shuffled, as one block; 1 MiB.
        filesystem: of pyarrow or fsspec; else what the paths say.
        unify_schemas: columns that a file lacks become nulls, and types are inferred from the beginnings of all files;
            else all files must have the same columns.
        on_error: ``"skip"`` leaves out broken lines and unreadable files, and counts them. All lines are parsed once
            when their number is needed.
        ignore_missing_paths: leave out paths that name no file.
        parse_options: of ``pyarrow.csv``, as the next two.
    """
    options = csv_options(
        delimiter, column_names, column_types, block_bytes, parse_options, read_options, convert_options
    )
    files = file_options(filesystem, on_error, unify_schemas, ignore_missing_paths)
    ds = Dataset(native.read_csv(to_paths(paths), files, options))
    wanted = convert_options.include_columns if convert_options is not None else None
    return ds.select_columns(wanted) if wanted else ds


@step
def read_json(
    paths: Paths,
    *,
    schema: pyarrow.Schema | None = None,
    block_bytes: int | None = None,
    filesystem: Any = None,
    unify_schemas: bool = False,
    on_error: str = "raise",
    ignore_missing_paths: bool = False,
    parse_options: pyarrow.json.ParseOptions | None = None,
    read_options: pyarrow.json.ReadOptions | None = None,
) -> Dataset:
    """Files with one JSON object per line. They are read once now, to find where lines begin.

        ds = lockstep.data.read_json("events.jsonl.gz")

    Args:
        paths: as of :func:`read_csv`.
        schema: the columns; else they are inferred from the beginning of the first file.
        block_bytes: about how many bytes are parsed, and shuffled, as one block; 1 MiB.
        filesystem: of pyarrow or fsspec; else what the paths say.
        unify_schemas: columns are inferred from the beginnings of all files; else from the first.
        on_error: ``"skip"`` leaves out broken lines and unreadable files, and counts them.
        ignore_missing_paths: leave out paths that name no file.
        parse_options: of ``pyarrow.json``, as the next one.
    """
    if schema is None and parse_options is not None:
        schema = parse_options.explicit_schema
    if block_bytes is None and read_options is not None:
        block_bytes = read_options.block_size
    files = file_options(filesystem, on_error, unify_schemas, ignore_missing_paths)
    return Dataset(native.read_json(to_paths(paths), files, schema, checked_block(block_bytes)))


@step
def read_text(
    paths: Paths,
    *,
    drop_empty_lines: bool = True,
    block_bytes: int | None = None,
    filesystem: Any = None,
    on_error: str = "raise",
    ignore_missing_paths: bool = False,
) -> Dataset:
    """Lines of UTF-8 text, in the column ``text``. Files are read once now, to find where lines begin. The arguments
    are those of :func:`read_csv`.

        ds = lockstep.data.read_text("corpus/")
    """
    files = file_options(filesystem, on_error, False, ignore_missing_paths)
    return Dataset(native.read_text(to_paths(paths), files, drop_empty_lines, checked_block(block_bytes)))


@step
def read_binary_files(
    paths: Paths, *, include_paths: bool = False, filesystem: Any = None, ignore_missing_paths: bool = False
) -> Dataset:
    """Whole files: each is a row, with its contents in the column ``bytes``.

        ds = lockstep.data.read_binary_files("s3://bucket/audio/", include_paths=True)

    Args:
        paths: as of :func:`read_parquet`.
        include_paths: also a column ``path``.
        filesystem: of pyarrow or fsspec; else what the paths say.
        ignore_missing_paths: leave out paths that name no file.
    """
    files = file_options(filesystem, "raise", False, ignore_missing_paths)
    return Dataset(native.read_binary_files(to_paths(paths), files, include_paths))


@step
def read_numpy(
    paths: Paths, *, filesystem: Any = None, on_error: str = "raise", ignore_missing_paths: bool = False
) -> Dataset:
    """Arrays in ``.npy`` files, in the column ``data``, or in ``.npz`` files, with a column per array. Rows lie along
    the first axis. ``.npy`` files are read in parts, ``.npz`` files as a whole.

        ds = lockstep.data.read_numpy("embeddings/*.npy")

    Args:
        paths: as of :func:`read_parquet`; of directories, only files with these names.
        filesystem: of pyarrow or fsspec; else what the paths say.
        on_error: ``"skip"`` leaves out files that cannot be opened, and counts them.
        ignore_missing_paths: leave out paths that name no file.
    """
    options = file_options(filesystem, on_error, False, ignore_missing_paths, (".npy", ".npz"))
    files = native.find_files(to_paths(paths), options)
    check_extensions(files)
    return Dataset(native.from_python(ArrayFiles(files, on_error)))


@step
def read_images(
    paths: Paths,
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    include_paths: bool = False,
    filesystem: Any = None,
    on_error: str = "raise",
    ignore_missing_paths: bool = False,
) -> Dataset:
    """Images, decoded by Pillow when they are needed: each file is a row, in the column ``image``. Images of one size
    make up one array of height, width and channels per batch. Images of different sizes are nested lists.

        ds = lockstep.data.read_images("photos/", size=(224, 224), mode="RGB", include_paths=True)

    Args:
        paths: as of :func:`read_parquet`; of directories, only files with names of images.
        size: height and width that all images get; else they keep theirs, and all files are opened now to know them.
        mode: of Pillow (``"RGB"``, ``"L"``, ...) that all images get; else theirs, or RGB if they differ.
        include_paths: also a column ``path``.
        filesystem: of pyarrow or fsspec; else what the paths say.
        on_error: ``"skip"`` leaves out broken images, and counts them; all are decoded once to find them.
        ignore_missing_paths: leave out paths that name no file.
    """
    options = file_options(filesystem, on_error, False, ignore_missing_paths, EXTENSIONS)
    files = native.find_files(to_paths(paths), options)
    return Dataset(native.from_python(ImageFiles(files, on_error, size, mode, include_paths)))


def from_arrow(tables: Any) -> Dataset:
    """A pyarrow table or anything else with ``__arrow_c_stream__``, or a list of tables. Memory is shared, not copied.

    >>> lockstep.data.from_arrow(pyarrow.table({"x": [1, 2]})).take_all()
    [{'x': 1}, {'x': 2}]
    """
    if isinstance(tables, list | tuple):
        tables = pyarrow.concat_tables([pyarrow.table(table) for table in tables])
    return _from_stream(tables, "from_arrow")


def from_pandas(frames: Any) -> Dataset:
    """A pandas ``DataFrame`` without its index, or a list of them.

    >>> lockstep.data.from_pandas(pandas.DataFrame({"x": [1.5]})).take_all()
    [{'x': 1.5}]
    """
    frames = frames if isinstance(frames, list | tuple) else [frames]
    tables = [pyarrow.Table.from_pandas(frame, preserve_index=False) for frame in frames]
    return _from_stream(pyarrow.concat_tables(tables), "from_pandas")


def from_numpy(arrays: Any) -> Dataset:
    """An array, which becomes the column ``data``, or a list of arrays, one after the other, or arrays by column. Rows
    lie along the first axis.

    >>> lockstep.data.from_numpy({"x": numpy.zeros((5, 2, 3)), "y": numpy.arange(5)}).columns()
    ['x', 'y']
    """
    if isinstance(arrays, list | tuple) and arrays and all(isinstance(each, numpy.ndarray) for each in arrays):
        arrays = numpy.concatenate(arrays)
    named = dict(arrays) if isinstance(arrays, Mapping) else {"data": arrays}
    return _from_stream(pyarrow.table({name: to_column(name, array) for name, array in named.items()}), "from_numpy")


def from_arrow_refs(tables: Any) -> Dataset:
    """The same as :func:`from_arrow`, for programs that hold tables elsewhere in Ray."""
    return from_arrow(tables)


def from_pandas_refs(frames: Any) -> Dataset:
    """The same as :func:`from_pandas`."""
    return from_pandas(frames)


def from_numpy_refs(arrays: Any) -> Dataset:
    """The same as :func:`from_numpy`."""
    return from_numpy(arrays)


@step
def from_torch(dataset: Any) -> Dataset:
    """A map-style dataset of torch: one with ``len(dataset)`` and ``dataset[n]``. Items are read when they are needed,
    by the threads that read ahead. Dicts have a column per key, tuples the columns ``item_0``, ``item_1`` and so on,
    anything else the column ``item``. Tensors of one shape become tensors.

    >>> rows = torch.utils.data.TensorDataset(torch.arange(3), torch.eye(3))
    >>> lockstep.data.from_torch(rows).columns()
    ['item_0', 'item_1']
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ConfigError(
            f"[data] from_torch() got a {type(dataset).__name__}; it must have a length and items by number: "
            "give from_items() the items of an iterable one"
        )
    return Dataset(native.from_python(TorchRows(dataset)))


def from_huggingface(dataset: Any) -> Any:
    """A ``datasets.Dataset`` of Hugging Face; its memory, also of files, is shared. Of a ``DatasetDict``, a dict.

    ds = lockstep.data.from_huggingface(datasets.load_dataset("csv", data_files="train.csv", split="train"))
    """
    if isinstance(dataset, Mapping):
        return {name: from_huggingface(each) for name, each in dataset.items()}
    if not hasattr(dataset, "with_format") or not hasattr(dataset, "data"):
        raise ConfigError(
            f"[data] from_huggingface() got a {type(dataset).__name__}; it must be a datasets.Dataset or DatasetDict, "
            "which is not streamed"
        )
    chosen = getattr(dataset, "_indices", None) is not None  # by shuffle(), select() and so on
    table = dataset.with_format("arrow")[:] if chosen else dataset.data
    return _from_stream(getattr(table, "table", table), "from_huggingface")


def from_items(items: Iterable[Any]) -> Dataset:
    """Python values: dicts are rows, with a column per key; other values become the column ``item``.

    >>> lockstep.data.from_items(["a", "b"]).take_all()
    [{'item': 'a'}, {'item': 'b'}]
    """
    if not isinstance(items, Iterable):
        raise ConfigError(f"[data] from_items() got a {type(items).__name__}; it must be a list of values or of dicts")
    rows = list(items)
    if not all(isinstance(row, Mapping) for row in rows):
        rows = [{"item": row} for row in rows]
    return _from_stream(rows_to_table(rows, ""), "from_items")


@step
def range(count: int) -> Dataset:
    """The numbers from 0 to `count` - 1, in the column ``id``.

    >>> lockstep.data.range(2).take_all()
    [{'id': 0}, {'id': 1}]
    """
    return Dataset(native.range(count))


def _from_stream(table: Any, name: str) -> Dataset:
    if not hasattr(table, "__arrow_c_stream__"):
        raise ConfigError(f"[data] {name}() got a {type(table).__name__}, which has no __arrow_c_stream__")
    ds = Dataset(native.from_stream(table, name))
    ds._made = Table(ds._native, name)
    return ds


def _expression(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        return given
    import pyarrow.parquet

    return pyarrow.parquet.filters_to_expression(given)
