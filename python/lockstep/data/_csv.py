"""Options of CSV files, as Arrow's own and as ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.csv

from lockstep.data._native import native
from lockstep.errors import ConfigError


def csv_options(
    delimiter: str | None,
    column_names: Sequence[str] | None,
    column_types: Mapping[str, Any] | pyarrow.Schema | None,
    block_bytes: int | None,
    parse: pyarrow.csv.ParseOptions | None,
    read: pyarrow.csv.ReadOptions | None,
    convert: pyarrow.csv.ConvertOptions | None,
) -> dict[str, Any]:
    """What the extension module wants. What is given directly wins over what is given in Arrow's options."""
    parse = parse or pyarrow.csv.ParseOptions()
    read = read or pyarrow.csv.ReadOptions()
    if parse.invalid_row_handler is not None:
        raise ConfigError("[data] parse_options has an invalid_row_handler; give on_error='skip' instead")
    if str(read.encoding).lower().replace("-", "") not in ("utf8", "ascii"):
        raise ConfigError(f"[data] the encoding is {read.encoding!r}; only UTF-8 can be read")
    types = dict(convert.column_types) if convert is not None else {}
    types.update({} if column_types is None else _types(column_types))
    return {
        "delimiter": _character("delimiter", delimiter or parse.delimiter),
        "quote_char": _character("quote_char", parse.quote_char or ""),
        "escape_char": _character("escape_char", parse.escape_char or ""),
        "double_quote": bool(parse.double_quote),
        "ignore_empty_lines": bool(parse.ignore_empty_lines),
        "column_names": list(column_names or read.column_names or ()),
        "autogenerate_column_names": bool(read.autogenerate_column_names),
        "skip_rows": read.skip_rows,
        "skip_rows_after_names": read.skip_rows_after_names,
        "column_types": pyarrow.schema(list(types.items())) if types else None,
        "block_bytes": checked_block(read.block_size if block_bytes is None else block_bytes),
        "convert": convert,
        "timestamp_formats": [] if convert is None else [_format(each) for each in convert.timestamp_parsers],
    }


def checked_block(block_bytes: int | None) -> int:
    """The size of blocks of text."""
    if block_bytes is None:
        return int(native.TEXT_BLOCK)
    if block_bytes < 1:
        raise ConfigError(f"[data] block_bytes is {block_bytes}; it must be 1 or more")
    return block_bytes


def _types(types: Mapping[str, Any] | pyarrow.Schema) -> dict[str, Any]:
    if isinstance(types, pyarrow.Schema):
        return dict(zip(types.names, types.types, strict=True))
    return {name: getattr(pyarrow, kind)() if isinstance(kind, str) else kind for name, kind in types.items()}


def _character(name: str, text: str) -> str:
    if len(text.encode()) > 1 or (name == "delimiter" and not text):
        raise ConfigError(f"[data] {name} is {text!r}; it must be one ASCII character")
    return text


def _format(parser: Any) -> str:
    return parser if isinstance(parser, str) else ""  # ISO8601 is an object without a text
