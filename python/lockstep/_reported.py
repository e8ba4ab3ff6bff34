"""Converts tensors and arrays in metrics to what the core accepts.

An array of one element becomes its number; others become numpy arrays. No framework is imported here: if a framework
has not been imported, no value can be of its types.
"""

from __future__ import annotations

import sys
from typing import Any

NUMBERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""The element types that the core knows, by numpy's names."""


def reported(value: Any) -> Any:
    """Converts `value`, which is not plain, to a plain value or a numpy array of NUMBERS in C order.

    Returns NotImplemented if it is neither an array nor a tensor. Raises TypeError, which says what to write instead,
    if it cannot be read::

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
        if isinstance(value, tuple(getattr(module, name, ()) for name in types)):  # (): partially imported
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
    elif dtype.type.__module__.startswith("ml_dtypes"):  # bfloat16 and smaller: float32 represents each value exactly
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
        tensor = tensor.float()  # numpy lacks bfloat16 and smaller; float32 represents each value exactly
    return tensor.numpy()


def _of_tensorflow(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except (AttributeError, NotImplementedError):  # inside a tf.function
        raise TypeError(
            "is a tensor of a graph, which has no value yet; report it outside of the tf.function"
        ) from None


def _of_jax(array: Any) -> Any:
    import numpy

    try:
        return numpy.asarray(array)
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"is a {type(array).__name__} that cannot be read here: {error}") from None
