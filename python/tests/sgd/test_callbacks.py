"""Callbacks of lockstep.sgd, called as a trainer calls them."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy
import pytest
from lockstep.errors import ConfigError, LockstepError, StorageError
from lockstep.sgd.callbacks import (
    JsonLoggerCallback,
    PrintCallback,
    SGDCallback,
    TBXLoggerCallback,
    TrainingCallback,
    call_hook,
)
from lockstep.sgd.names import BASIC_AUTOFILLED_KEYS, DETAILED_AUTOFILLED_KEYS, TRAINING_ITERATION
from lockstep.sgd.paths import construct_path
from lockstep.sgd.trainer import _callbacks


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run, with what the core has written at its start."""
    place = tmp_path / "run_001"
    place.mkdir()
    (place / "result.json").write_text("")
    return place


def reported(index: int, workers: int = 3) -> list[dict[str, Any] | None]:
    return [{"index": index, "rank": rank, TRAINING_ITERATION: index + 1} for rank in range(workers)]


# ------------------------------------------------------------------ hooks


def test_hooks_get_what_they_have_parameters_for() -> None:
    calls: list[Any] = []

    class Few(SGDCallback):
        def start_training(self, place: str) -> None:  # type: ignore[override]
            calls.append(place)

        def handle_result(self, all_results: list[Any], **info: Any) -> None:  # type: ignore[override]
            calls.append((all_results, info))

        def finish_training(self) -> None:  # type: ignore[override]
            calls.append("end")

    callback = Few()
    call_hook(callback.start_training, "/run", {"lr": 1})
    call_hook(callback.handle_result, [{"loss": 1}])
    call_hook(callback.finish_training, True)
    assert calls == ["/run", ([{"loss": 1}], {}), "end"]


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (lambda logdir, config: (logdir, config), ("/run", {})),
        (lambda logdir, config, **info: (logdir, config, info), ("/run", {}, {})),
        (lambda logdir, **info: (logdir, info), ("/run", {})),
        (lambda logdir, config=None, more=5: (logdir, config, more), ("/run", {}, 5)),
        (lambda *args, **info: (args, info), (("/run", {}), {})),
        (lambda **info: info, {}),
        (lambda: "nothing", "nothing"),
        (mock.Mock(return_value="mock"), "mock"),
    ],
)
def test_arguments_are_passed_without_their_names(hook: Callable[..., Any], expected: Any) -> None:
    assert call_hook(hook, "/run", {}) == expected


def test_a_mock_gets_every_argument_by_position() -> None:
    hook = mock.Mock()
    call_hook(hook, "/run", {})
    hook.assert_called_once_with("/run", {})


def test_keyword_only_parameters_get_theirs_by_name() -> None:
    class Named(SGDCallback):
        def start_training(self, logdir: str, *, config: dict[str, Any], other: int = 7) -> Any:  # type: ignore[override]
            return logdir, config, other

        def finish_training(self, *, error: bool = False) -> Any:  # type: ignore[override]
            return error

    assert call_hook(Named().start_training, "/run", {"lr": 1}) == ("/run", {"lr": 1}, 7)
    assert call_hook(Named().finish_training, True) is True


def test_a_hook_that_wants_more_fails_as_a_call_does() -> None:
    with pytest.raises(TypeError, match="more"):
        call_hook(lambda results, more: None, [])


def test_compiled_hooks_get_everything() -> None:
    assert call_hook(dict.fromkeys, ["a"], 1) == {"a": 1}


def test_every_body_of_the_base_is_empty() -> None:
    callback = TrainingCallback()
    assert TrainingCallback is SGDCallback
    assert call_hook(callback.start_training, "/run", {}) is None
    assert call_hook(callback.handle_result, []) is None
    assert call_hook(callback.finish_training, False) is None
    callback.finish_training()


# ------------------------------------------------------------------ JSON


@pytest.mark.parametrize(
    ("workers", "ranks"), [(0, [0]), (2, [2]), ([0, 2], [0, 2]), ((1,), [1]), ([2, 0], [2, 0]), (None, [0, 1, 2])]
)
def test_json_is_a_list_of_lists_at_every_moment(run: Path, workers: Any, ranks: list[int]) -> None:
    callback = JsonLoggerCallback(workers_to_log=workers)
    assert callback.log_path is None and callback.logdir is None
    call_hook(callback.start_training, str(run), {})
    assert callback.log_path == run / "results.json" and callback.logdir == run
    expected: list[Any] = []
    for index in range(5):
        assert json.loads(callback.log_path.read_text()) == expected
        callback.handle_result(reported(index))
        expected.append([{"index": index, "rank": rank, TRAINING_ITERATION: index + 1} for rank in ranks])
    assert json.loads(callback.log_path.read_text()) == expected
    call_hook(callback.finish_training, False)
    assert callback.log_path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(run)) == ["result.json", "results.json"], "nothing temporary is left"


def test_json_is_appended_in_place(run: Path) -> None:
    callback = JsonLoggerCallback()
    callback.start_training(str(run), {})
    assert callback.log_path is not None
    callback.handle_result(reported(0))
    before, inode = callback.log_path.read_bytes(), callback.log_path.stat().st_ino
    callback.handle_result(reported(1))
    assert callback.log_path.stat().st_ino == inode
    assert callback.log_path.read_bytes().startswith(before[:-1] + b",\n")


def test_json_goes_to_a_logdir_of_its_own_which_the_next_run_begins_anew(run: Path, tmp_path: Path) -> None:
    callback = JsonLoggerCallback(tmp_path / "mine" / "deep", "curve.json")
    assert callback.log_path == tmp_path / "mine" / "deep" / "curve.json", "known before the first run"
    for index in range(2):
        callback.start_training(str(run), {})
        callback.handle_result(reported(index))
        log = json.loads(callback.log_path.read_text())
        assert [entry[0]["index"] for entry in log] == [index]
    assert not (run / "curve.json").exists()
    assert callback.log_path.parent.stat().st_mode & 0o777 == 0o700


def test_json_understands_a_home_directory(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert JsonLoggerCallback("~/curves").log_path == tmp_path / "curves" / "results.json"


def test_json_holds_null_for_a_rank_that_ended(run: Path) -> None:
    callback = JsonLoggerCallback(workers_to_log=None)
    callback.start_training(str(run), {})
    callback.handle_result([{"loss": 1}, None])
    assert callback.log_path is not None
    assert json.loads(callback.log_path.read_text()) == [[{"loss": 1}, None]]


def test_json_holds_values_of_any_kind(run: Path) -> None:
    callback = JsonLoggerCallback()
    callback.start_training(str(run), {})
    callback.handle_result(
        [
            {
                "scalar": numpy.float32(0.5),
                "count": numpy.int64(3),
                "flag": numpy.bool_(True),
                "array": numpy.arange(4).reshape(2, 2),
                "tuple": (1, "zwei"),
                "nested": {3: numpy.float64(1.5), "x": [numpy.int8(1)]},
                "text": "Grüße 🚀",
                "half": "\ud800",
                "object": Path("/a"),
            }
        ]
    )
    assert callback.log_path is not None
    assert json.loads(callback.log_path.read_text(encoding="utf-8")) == [
        [
            {
                "scalar": 0.5,
                "count": 3,
                "flag": True,
                "array": {"shape": [2, 2], "dtype": "int64", "values": [[0, 1], [2, 3]]},
                "tuple": [1, "zwei"],
                "nested": {"3": 1.5, "x": [1]},
                "text": "Grüße 🚀",
                "half": repr("\ud800"),
                "object": repr(Path("/a")),
            }
        ]
    ]


@pytest.mark.parametrize("workers", [-1, True, "0", [], [0, -1], 1.0, [None]])
def test_json_refuses_what_are_no_ranks(workers: Any) -> None:
    with pytest.raises(ConfigError, match=r"\[JsonLoggerCallback\] workers_to_log is .*; it must be a rank"):
        JsonLoggerCallback(workers_to_log=workers)


@pytest.mark.parametrize("name", ["", "a/b.json", "..", "/results.json"])
def test_json_refuses_what_is_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="a name without a path"):
        JsonLoggerCallback(filename=name)


def test_json_names_a_rank_that_there_is_not(run: Path) -> None:
    callback = JsonLoggerCallback(workers_to_log=[1, 7])
    callback.start_training(str(run), {})
    with pytest.raises(ConfigError, match="no rank 7: the run has 3 workers"):
        callback.handle_result(reported(0))


def test_json_never_replaces_a_file_of_the_run(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"result\.json is there already"):
        JsonLoggerCallback(filename="result.json").start_training(str(run), {})
    first, second = JsonLoggerCallback(), JsonLoggerCallback(logdir=run)
    first.start_training(str(run), {})
    with pytest.raises(ConfigError, match=r"results\.json is there already"):
        second.start_training(str(run), {})


def test_json_before_any_run_says_so() -> None:
    with pytest.raises(LockstepError, match="no run has started"):
        JsonLoggerCallback().handle_result(reported(0))


def test_json_names_the_file_that_the_disk_refuses(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"could not make the directory .*/file"):
        JsonLoggerCallback(logdir=tmp_path / "file").start_training(str(run), {})
    callback = JsonLoggerCallback()
    callback.start_training(str(run), {})
    (run / "results.json").unlink()
    with pytest.raises(StorageError, match=r"results\.json cannot be written: No such file"):
        callback.handle_result(reported(0))


def test_json_is_whole_after_a_full_disk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = JsonLoggerCallback()
    callback.start_training(str(run), {})
    callback.handle_result(reported(0))
    whole = (run / "results.json").read_bytes()
    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:20], offset))
        with pytest.raises(StorageError, match="only 20 of"):
            callback.handle_result(reported(1))
    assert (run / "results.json").read_bytes() == whole
    callback.handle_result(reported(2))
    assert [entry[0]["index"] for entry in json.loads((run / "results.json").read_text())] == [0, 2]


def test_json_leaves_a_file_alone_that_someone_else_changed(run: Path) -> None:
    callback = JsonLoggerCallback()
    callback.start_training(str(run), {})
    (run / "results.json").write_text("[1, 2]")
    with pytest.raises(StorageError, match="someone else changed it"):
        callback.handle_result(reported(0))
    assert (run / "results.json").read_text() == "[1, 2]"


# ------------------------------------------------------------------ TensorBoard


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads there, by tag."""
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(directory))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def log(callback: TBXLoggerCallback, run: Path) -> None:
    callback.start_training(str(run), {})
    for index in range(3):
        callback.handle_result(
            [{"loss": index + rank, "nested": {"x": 1}, "list": [1], TRAINING_ITERATION: index + 1} for rank in (0, 10)]
        )
    callback.handle_result([None, None])
    callback.finish_training(False)


def test_tensorboard_has_one_workers_numbers_by_iteration(run: Path, tmp_path: Path) -> None:
    log(TBXLoggerCallback(tmp_path / "board", worker_to_log=1), run)
    found = scalars(tmp_path / "board")
    assert found["loss"] == [(1, 10.0), (2, 11.0), (3, 12.0)]
    assert found["nested/x"] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert set(found) == {"loss", "nested/x", TRAINING_ITERATION}
    assert not list(run.glob("events*"))


def test_tensorboard_writes_nothing_twice_into_the_run_directory(run: Path) -> None:
    log(TBXLoggerCallback(), run)
    log(TBXLoggerCallback(logdir=run), run)
    assert not list(run.rglob("events*"))


def test_tensorboard_has_other_workers_beside_rank_0(run: Path) -> None:
    log(TBXLoggerCallback(worker_to_log=1), run)
    assert not list(run.glob("events*"))
    assert scalars(run / "rank_1")["loss"] == [(1, 10.0), (2, 11.0), (3, 12.0)]


def test_tensorboard_has_the_tags_that_scripts_for_ray_know(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lockstep.as_ray", ModuleType("lockstep.as_ray"))
    log(TBXLoggerCallback(), run)
    found = scalars(run)
    assert found["ray/sgd/loss"] == [(1, 0.0), (2, 1.0), (3, 2.0)]
    assert all(tag.startswith("ray/sgd/") for tag in found) and "ray/sgd/nested/x" in found


def test_tensorboard_counts_reports_that_have_no_iteration(run: Path, tmp_path: Path) -> None:
    callback = TBXLoggerCallback(tmp_path)
    callback.start_training(str(run), {})
    for loss in (5, 6):
        callback.handle_result([{"loss": loss}])
    callback.finish_training(True)
    assert scalars(tmp_path)["loss"] == [(1, 5.0), (2, 6.0)]


@pytest.mark.parametrize("worker", [-1, None, [0], True, "0"])
def test_tensorboard_refuses_what_is_no_rank(worker: Any) -> None:
    with pytest.raises(ConfigError, match=r"\[TBXLoggerCallback\] worker_to_log is"):
        TBXLoggerCallback(worker_to_log=worker)


def test_tensorboard_names_a_rank_that_there_is_not(run: Path) -> None:
    callback = TBXLoggerCallback(worker_to_log=4)
    callback.start_training(str(run), {})
    with pytest.raises(ConfigError, match="no rank 4: the run has 3 workers"):
        callback.handle_result(reported(0))


# ------------------------------------------------------------------ printing, names


@pytest.mark.parametrize(
    ("arguments", "ranks"), [({}, [0, 1]), ({"workers_to_print": 1}, [1]), ({"workers_to_log": [0]}, [0])]
)
def test_printed_lines_are_json(
    capsys: pytest.CaptureFixture[str], arguments: dict[str, Any], ranks: list[int]
) -> None:
    callback = PrintCallback(**arguments)
    callback.handle_result([{"rank": numpy.int64(rank)} for rank in range(2)])
    callback.handle_result([{"rank": rank} for rank in range(2)])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [[{"rank": rank} for rank in ranks]] * 2


def test_print_refuses_two_spellings() -> None:
    with pytest.raises(ConfigError, match="both given"):
        PrintCallback(0, workers_to_log=0)
    with pytest.raises(ConfigError, match="workers_to_print is -1"):
        PrintCallback(-1)


def test_keys_have_the_names_that_results_have() -> None:
    assert {"_timestamp", "_time_this_iter_s", "_training_iteration"} == BASIC_AUTOFILLED_KEYS
    assert {"_date", "_hostname", "_node_ip", "_pid", "_time_total_s"} == DETAILED_AUTOFILLED_KEYS


@pytest.mark.parametrize(
    ("path", "parent", "expected"),
    [
        ("/a", "/b", "/a"),
        ("a", "/b", "/b/a"),
        ("./a", "/b", "/b/a"),
        ("../a", "/b/c", "/b/a"),
        ("~/a", "/b", "{home}/a"),
        ("a", "~/b", "{home}/b/a"),
        ("a", "b", "{here}/b/a"),
        ("../a", "./b", "{here}/a"),
    ],
)
def test_paths_are_below_their_parent_unless_absolute(
    path: str, parent: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.chdir(tmp_path)
    wanted = Path(expected.format(home="/somewhere", here=os.getcwd()))
    assert construct_path(Path(path), Path(parent)) == wanted == construct_path(path, parent)


def test_a_misspelled_hook_is_named() -> None:
    class Mine(SGDCallback):
        def handle_results(self, results: Any) -> None: ...

        def handle_all(self) -> None: ...

    with pytest.warns(
        UserWarning, match=r"Mine\.handle_results is not a hook .* did you mean handle_result\?"
    ) as caught:
        _callbacks([Mine(), JsonLoggerCallback(), PrintCallback()])
    assert len(caught) == 1
