"""Image files."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy
import pyarrow

from lockstep.data._files import Decoded, opened
from lockstep.data._tensors import column_type, nested_column, nested_type, to_column
from lockstep.errors import ConfigError

EXTENSIONS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp")
_FILES_OF_BLOCK = 16


def pillow() -> Any:
    """The module PIL.Image, or what to install."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("lockstep.data.read_images needs Pillow: pip install pillow") from error
    return Image


class ImageFiles(Decoded):
    """Each file is a row. Images of one size are one array per batch; of different sizes, lists of lists."""

    def __init__(
        self, files: Any, on_error: str, size: tuple[int, int] | None, mode: str | None, include_paths: bool
    ) -> None:
        super().__init__(files, on_error)
        self._pillow = pillow()
        self._size = _checked(size)
        self._mode = mode
        headers: list[Any] = [] if size and mode else self.each_file(self._header)
        modes = {header[1] for header in headers if header}
        if mode is None:
            self._mode = modes.pop() if len(modes) == 1 else "RGB"
        try:
            sample = numpy.asarray(self._pillow.new(self._mode, (1, 1)))
        except (ValueError, KeyError) as error:
            raise ConfigError(f"[data] mode is {mode!r}; it must be a mode of Pillow, as 'RGB' or 'L'") from error
        sizes = {self._size} if self._size else {header[0] for header in headers if header}
        self._fixed = len(sizes) == 1
        bands = sample.shape[2:]
        if self._fixed:
            self._type = column_type(sample.dtype, (*sizes.pop(), *bands))
        else:
            self._type = nested_type(sample.dtype, sample.ndim)
        fields = {"image": self._type, "path": pyarrow.string()}
        self.schema = pyarrow.schema(dict(list(fields.items())[: 2 if include_paths else 1]))
        self._numbers = [number for number in range(len(files)) if number not in self._skipped]
        self.description = f"read_images: {len(files)} file{'' if len(files) == 1 else 's'}"
        self.identity = f"images {self._size} {self._mode}" + files.identity()

    def _header(self, number: int) -> tuple[tuple[int, int], str]:
        with opened(self.files, number) as file, self._pillow.open(file) as image:
            width, height = image.size
            return (height, width), "RGB" if image.mode == "P" else image.mode  # numbers of a palette mean nothing

    def _decoded(self, number: int) -> numpy.ndarray[Any, Any]:
        with self._pillow.open(io.BytesIO(self.files.read(number))) as image:
            picture = image.convert(self._mode)
        if self._size and picture.size != (self._size[1], self._size[0]):
            picture = picture.resize((self._size[1], self._size[0]))
        return numpy.asarray(picture)

    def rows_of_blocks(self) -> list[int]:
        """One per file. If broken ones are skipped, all are decoded to find them."""
        if self.skips:
            self.each_file(lambda number: len(self._decoded(number)))
            self._numbers = [number for number in self._numbers if number not in self._skipped]
        count = len(self._numbers)
        return [min(_FILES_OF_BLOCK, count - begin) for begin in range(0, count, _FILES_OF_BLOCK)]

    def read(self, block: int, columns: list[int]) -> pyarrow.Table:
        """The next files."""
        numbers = self._numbers[block * _FILES_OF_BLOCK : (block + 1) * _FILES_OF_BLOCK]
        arrays: dict[str, Any] = {}
        for name in (self.schema.names[column] for column in columns):
            if name == "path":
                arrays[name] = pyarrow.array([self.files.path(number) for number in numbers], pyarrow.string())
                continue
            images = [self.named(number, partial(self._decoded, number)) for number in numbers]
            arrays[name] = to_column(name, numpy.stack(images)) if self._fixed else nested_column(images, self._type)
        return pyarrow.table(arrays)


def _checked(size: tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    if len(size) != 2 or any(int(number) < 1 for number in size):
        raise ConfigError(f"[data] size is {size!r}; it must be height and width, both 1 or more")
    return int(size[0]), int(size[1])
