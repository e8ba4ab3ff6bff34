"""Text files are read once to find their rows, by the process that makes the data set."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.data
import pytest
from lockstep import StorageError

READERS: list[tuple[Callable[..., Any], str, dict[str, Any]]] = [
    (lockstep.data.read_csv, "a,b\n1,x\n2,y\n", {}),
    (lockstep.data.read_csv, "a,b\n1,x\n2,y\n", {"unify_schemas": True}),
    (lockstep.data.read_json, '{"a": 1, "b": [1.5, null]}\n{"a": 2, "b": null}\n', {}),
    (lockstep.data.read_text, "one\ntwo\n", {}),
]


@pytest.mark.parametrize(("read", "text", "options"), READERS)
def test_another_process_does_not_read_them_again(
    tmp_path: Path, read: Callable[..., Any], text: str, options: dict[str, Any]
) -> None:
    for number in range(3):
        (tmp_path / str(number)).write_text(text)
    ds = read(str(tmp_path), **options)
    schema, sent = ds.schema(), pickle.dumps(ds.limit(5))
    (tmp_path / "0").write_text("?" * len(text))  # nobody looks
    there = pickle.loads(sent)
    assert there.count() == 5 and there.schema() == schema
    assert pickle.loads(pickle.dumps(there)).count() == 5
    (tmp_path / "0").write_text(text)
    assert there.take_all() == ds.take(5)


def test_the_index_of_other_files_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n2\n")
    sent = pickle.dumps(lockstep.data.read_csv(str(path)))
    path.write_text("a\n1\n2\n3\n")
    there = pickle.loads(sent)
    assert there.count() == 3 and len(there.take_all()) == 3
    path.unlink()
    with pytest.raises(StorageError, match="there is no such file"):
        pickle.loads(sent)


def test_what_was_skipped_is_counted_in_each_process(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n")
    ds = lockstep.data.read_csv(str(path), on_error="skip")
    assert ds.count() == 2 and ds.stats().skipped == 1
    there = pickle.loads(pickle.dumps(ds))
    assert there.take_all() == ds.take_all() and there.stats().skipped == 1
