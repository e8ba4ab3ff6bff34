"""Values taken through a checkpoint and back; the tests of tensors import it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from lockstep import Checkpoint
from lockstep._encoding import decode, encode


def through_memory(value: Any) -> Any:
    encoded = encode(value)
    tensors = [(name, word, shape, memoryview(bytes(buffer))) for name, word, shape, buffer in encoded.tensors]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return decode(encoded.data, lambda: tensors, lambda: encoded.objects or b"")


def through_files(value: Any, path: Path) -> Any:
    return Checkpoint.from_directory(Checkpoint.from_dict(value).to_directory(path)).to_dict()


def bits(tensor: torch.Tensor) -> list[int]:
    """Its elements' bytes, in C order, also of types that cannot be compared."""
    physical = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    bytes_: list[int] = physical.reshape(-1).view(torch.uint8).tolist()
    return bytes_


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (type(a), a.dtype, a.shape, a.requires_grad, bits(a)) == (
        type(b),
        b.dtype,
        b.shape,
        b.requires_grad,
        bits(b),
    )


def stored(value: Any) -> int:
    """How many bytes tensors.safetensors holds, without its header."""
    return sum(len(memoryview(buffer)) for _, _, _, buffer in encode(value).tensors)
