"""Tensors and arrays among metrics, as the core takes them.

An array of one element is its number; others are numpy arrays. No framework is imported here: a value of one that
nobody has imported cannot be there.
"""

from __future__ import annotations

import sys
from typing import Any

NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""Types of elements, by numpy's names, that the core knows."""


def reported(value: Any) -> Any:
    """What `value`, which is not plain, is reported as: a plain value, or a numpy array of NUMBERS in C order.

    NotImplemented for what is neither array nor tensor; raises TypeError, which says what to write instead, for one
    that cannot be read::

        reported(torch.tensor([2.5], requires_grad=True))  # 2.5
        reported(torch.zeros(2, 3, dtype=torch.bfloat16))  # numpy.zeros((2, 3), "float32")
    """
    import numpy

    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return _of_numpy(value)
    for package, types, read in (
        ("torch", ("Tensor",), _of_torch),
        ("tensorflow", ("Tensor", "Variable"), _of_tensorflow),
        ("jax", ("Array",), _of_jax),
    ):
        module = sys.modules.get(package)
        if isinstance(value, tuple(getattr(module, name, ()) for name in types)):  # () when it is half imported
            return _of_numpy(read(value))
    return NotImplemented


def _of_numpy(value: Any) -> Any:
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        raise TypeError("is a masked array; write .filled(...)")
    array = numpy.asarray(value)
    dtype = array.dtype
    if dtype.kind == "c":
        raise TypeError(f"is an array of {dtype.name}; report its .real and .imag")
    if dtype.kind == "f" and dtype.itemsize > 8:
        array = array.astype(numpy.float64)
    elif dtype.type.__module__.startswith("ml_dtypes"):  # bfloat16 and smaller: float32 holds each of them exactly
        array = array.astype(numpy.int8 if "int" in dtype.name else numpy.float32)
    elif dtype.name not in NUMBERS:  # text and objects
        return array.tolist()
    if array.size == 1:
        return array.item()
    return numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))


def _of_torch(tensor: Any) -> Any:
    import torch

    if hasattr(tensor, "full_tensor"):
        raise TypeError("is a DTensor, spread over ranks; write .full_tensor() on every rank, or .to_local()")
    if tensor.layout != torch.strided or tensor.is_nested:
        raise TypeError("is a sparse or nested tensor; write .to_dense(), or report its .values()")
    if tensor.is_quantized:
        raise TypeError("is a quantized tensor; write .dequantize()")
    if tensor.is_meta:
        raise TypeError("is a meta tensor, which has no values")
    if tensor.is_complex():
        raise TypeError("is a tensor of complex numbers; report its .real and .imag")
    tensor = tensor.detach().cpu().resolve_neg()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()  # numpy lacks bfloat16 and smaller; float32 holds each of them exactly
    return tensor.numpy()


def _of_tensorflow(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except (AttributeError, NotImplementedError):  # inside of a tf.function
        raise TypeError(
            "is a tensor of a graph, which has no value yet; report it outside of the tf.function"
        ) from None


def _of_jax(array: Any) -> Any:
    import numpy

    try:
        return numpy.asarray(array)
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"is a {type(array).__name__} that cannot be read here: {error}") from None
