"""Data sets: rows from files or memory, in an order that can be repeated and resumed. For example::

import lockstep.data

ds = lockstep.data.read_parquet("train/*.parquet")
it = ds.iterator(seed=0)
for epoch in range(3):
    for batch in it.iter_torch_batches(batch_size=256):
        ...

It needs pyarrow, whose Arrow library does the reading.
"""

from lockstep.data import _native as _native  # first: says what to install
from lockstep.data import aggregate, preprocessors
from lockstep.data.dataset import Dataset
from lockstep.data.grouped_data import GroupedData
from lockstep.data.iterator import DataIterator
from lockstep.data.preprocessor import Preprocessor
from lockstep.data.read import (
    from_arrow,
    from_arrow_refs,
    from_huggingface,
    from_items,
    from_numpy,
    from_numpy_refs,
    from_pandas,
    from_pandas_refs,
    from_torch,
    range,
    read_binary_files,
    read_csv,
    read_images,
    read_json,
    read_numpy,
    read_parquet,
    read_text,
)

__all__ = [
    "DataIterator",
    "Dataset",
    "GroupedData",
    "Preprocessor",
    "aggregate",
    "from_arrow",
    "from_arrow_refs",
    "from_huggingface",
    "from_items",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "from_torch",
    "preprocessors",
    "range",
    "read_binary_files",
    "read_csv",
    "read_images",
    "read_json",
    "read_numpy",
    "read_parquet",
    "read_text",
]
