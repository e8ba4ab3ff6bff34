"""Files of numpy arrays."""

from __future__ import annotations

import zipfile
from typing import Any, NamedTuple

import numpy
import pyarrow
from numpy.lib import format as npy

from lockstep.data._files import Decoded, opened
from lockstep.data._tensors import column_type, to_column
from lockstep.errors import ConfigError, StorageError

_BLOCK = 4 << 20


class _Array(NamedTuple):
    shape: tuple[int, ...]
    dtype: numpy.dtype[Any]
    fortran: bool
    offset: int

    @property
    def row_bytes(self) -> int:
        return max(1, int(numpy.prod(self.shape[1:])) * self.dtype.itemsize)


def _header(file: Any) -> _Array:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("the array holds Python objects, which are not unpickled")
    if not shape:
        raise ValueError("the array is a single number")
    return _Array(shape, dtype, fortran, file.tell())


class ArrayFiles(Decoded):
    """``.npy`` files, in parts, and ``.npz`` files, each a block."""

    def __init__(self, files: Any, on_error: str) -> None:
        super().__init__(files, on_error)
        found = [(number, arrays) for number, arrays in enumerate(self.each_file(self._headers)) if arrays]
        self._fields = {name: (array.dtype, array.shape[1:]) for name, array in (found[0][1] if found else {}).items()}
        self._blocks: list[tuple[int, int, int]] = []  # file, rows from, rows to
        self._arrays = dict(found)
        for number, arrays in found:
            self._add(number, arrays)
        self.schema = pyarrow.schema({name: column_type(*field) for name, field in self._fields.items()})
        self.description = f"read_numpy: {len(files)} file{'' if len(files) == 1 else 's'}"
        self.identity = "numpy" + files.identity()

    def _is_zip(self, number: int) -> bool:
        return str(self.files.name(number)).endswith(".npz")

    def _headers(self, number: int) -> dict[str, _Array]:
        with opened(self.files, number) as file:
            if not self._is_zip(number):
                return {"data": _header(file)}
            arrays = {}
            with zipfile.ZipFile(file) as archive:
                for name in archive.namelist():
                    with archive.open(name) as member:
                        arrays[name.removesuffix(".npy")] = _header(member)
        if len({array.shape[0] for array in arrays.values()}) > 1:
            raise ValueError("its arrays have different lengths")
        return arrays

    def _add(self, number: int, arrays: dict[str, _Array]) -> None:
        fields = {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
        if fields != self._fields:
            first = self.files.path(next(iter(self._arrays)))
            raise StorageError(
                f"[data] {self.files.path(number)} holds {_text(fields)}, but {first} "
                f"holds {_text(self._fields)}; all files of a data set must have the same columns"
            )
        array = next(iter(arrays.values()))
        rows = array.shape[0]
        whole = self._is_zip(number) or array.fortran
        step = max(1, rows) if whole else max(1, _BLOCK // array.row_bytes)
        self._blocks += [(number, begin, min(begin + step, rows)) for begin in range(0, rows, step)]

    def rows_of_blocks(self) -> list[int]:
        """Known from the headers."""
        return [end - begin for _, begin, end in self._blocks]

    def read(self, block: int, columns: list[int]) -> pyarrow.Table:
        """Rows of one file."""
        number, begin, end = self._blocks[block]
        names = [self.schema.names[column] for column in columns]
        try:
            arrays = self._zipped(number, names) if self._is_zip(number) else {"data": self._rows(number, begin, end)}
        except (ValueError, zipfile.BadZipFile) as error:
            raise StorageError(f"[data] {self.files.path(number)}: {error}") from error
        return pyarrow.table({name: to_column(name, arrays[name]) for name in names})

    def _rows(self, number: int, begin: int, end: int) -> numpy.ndarray[Any, Any]:
        array = self._arrays[number]["data"]
        first, last = array.offset + begin * array.row_bytes, array.offset + end * array.row_bytes
        data = numpy.frombuffer(self.files.read(number, first, last), array.dtype)
        return data.reshape((end - begin, *array.shape[1:]), order="F" if array.fortran else "C")

    def _zipped(self, number: int, names: list[str]) -> dict[str, numpy.ndarray[Any, Any]]:
        with opened(self.files, number) as file, numpy.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}


def _text(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {dtype} {list(shape)}" for name, (dtype, shape) in fields.items())


def check_extensions(files: Any) -> None:
    """Refuses files that are neither ``.npy`` nor ``.npz``."""
    for number in range(len(files)):
        if not str(files.name(number)).endswith((".npy", ".npz")):
            raise ConfigError(f"[data] read_numpy() got {files.path(number)}, which is neither .npy nor .npz")
