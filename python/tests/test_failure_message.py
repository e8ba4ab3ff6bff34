"""The texts of a failed run's error and of an interrupt."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockstep._failure_message import failure_message, interrupt_message
from lockstep.errors import Failure

BOOM = 'Traceback (most recent call last):\n  File "train.py", line 3, in f\n    boom()\nValueError: boom\n'


def test_a_rank_that_failed_twice_is_named_once() -> None:
    deaths = [Failure("signal", 1, "n1", 0, "the worker was killed by SIGKILL")] * 3
    lines = failure_message(deaths, "", "HorovodTrainer").splitlines()
    assert "rank 1: the same error" in lines


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The directory of a run."""
    (tmp_path / "run.json").write_text('{"created": 4e9}')
    return str(tmp_path)


def test_message_tells_first_rank_first_and_groups_the_others(run: str) -> None:
    first = Failure("exception", 1, "n1", 2, "boom", "ValueError", BOOM, ("epoch 3", *BOOM.splitlines()))
    same = [Failure("exception", rank, "n1", 2, "boom", "ValueError", BOOM) for rank in (0, 2, 3)]
    other = Failure("signal", 4, "n1", 2, "the worker was killed by SIGKILL")
    before = Failure("exit", 0, "n1", 1, "the worker ended with exit code 3")
    text = failure_message([before, first, *same, other], run, "TorchTrainer")
    lines = text.splitlines()
    assert lines[0] == "[trainer] rank 1 failed on n1 (exception, attempt 2): ValueError: boom"
    assert "ranks 0, 2 and 3: the same error" in lines
    assert "rank 4: the worker was killed by SIGKILL" in lines
    assert "Before, in attempt 1: rank 0: the worker ended with exit code 3" in lines
    assert f'To continue from the last checkpoint: TorchTrainer.restore("{run}", train_func).fit()' in lines
    assert text.count("boom()") == 1, "the log's copy of the traceback is left out"
    assert "    epoch 3" in lines


def test_message_keeps_log_lines_that_are_no_traceback() -> None:
    failure = Failure("signal", 0, message="killed", log_lines=("one", "two"))
    assert failure_message([failure], "/r", "T").count("    two") == 1


def test_message_of_an_exception_advises_to_pass_the_mended_function(run: str) -> None:
    raised = [Failure("exception", 0, message="boom", type="ValueError")]
    killed = [Failure("signal", 0, message="killed")]
    assert failure_message(raised, run, "T").splitlines()[-2:] == [
        f'To continue from the last checkpoint: T.restore("{run}", train_func).fit()',
        "Without train_func, the stored function runs again: the old one, without your fix.",
    ]
    assert failure_message(killed, run, "T").splitlines()[-1].endswith(f': T.restore("{run}").fit()')


def test_message_of_a_storage_error_says_that_it_must_be_mended_first(run: str) -> None:
    damaged = [Failure("storage", -1, message="every checkpoint is damaged")]
    advice = f'To continue from the last checkpoint, when the storage is mended: T.restore("{run}").fit()'
    assert failure_message(damaged, run, "T").splitlines()[-1] == advice


def test_message_says_when_there_is_no_checkpoint_or_no_directory(run: str) -> None:
    killed = [Failure("signal", 0, message="killed")]
    text = failure_message(killed, run, "T", has_checkpoint=False)
    assert text.endswith(f'There is no checkpoint yet. To start from the beginning: T.restore("{run}").fit()')
    assert "restore(" not in failure_message(killed, "/nowhere", "T")
    assert "continues from the last checkpoint" in interrupt_message(run, "T", "SIGINT", has_checkpoint=True)
    assert "there is no checkpoint yet" in interrupt_message(run, "T", "SIGINT", has_checkpoint=False)
    assert "restore(" not in interrupt_message("/nowhere", "T", "SIGINT", has_checkpoint=True)


def test_message_of_a_hang_has_the_line_where_it_hangs_and_names_the_file(run: str) -> None:
    stack = f'Stack (most recent call first):\n  File "{__file__}", line 1 in f\n'
    hangs = [Failure("hang", 2, message="no progress", traceback=stack), Failure("hang", 0, message="waiting")]
    same_words = Failure("hang", 1, message="no progress", traceback="elsewhere")
    text = failure_message([*hangs, same_words], run, "T")
    with open(__file__) as source:
        assert "        " + source.readline().strip() in text.splitlines()
    assert "rank 0: waiting" in text and "rank 1: no progress" in text and "the same error" not in text
    assert f"The stacks of all ranks are in {run}/logs/stacks_attempt_0.txt" in text
    Path(run, "run.json").write_text('{"created": 1}')
    assert '"""' not in failure_message(hangs, run, "T"), "the file has changed since the run was begun"


def test_a_prompt_before_the_traceback_is_what_was_printed() -> None:
    first = Failure(
        "exception", 0, traceback=BOOM, log_lines=("hello", "name? " + BOOM.splitlines()[0], *BOOM.splitlines()[1:])
    )
    lines = failure_message([first], "", "T").splitlines()
    assert lines[-2:] == ["    hello", "    name? "]


def test_the_drivers_own_failure_comes_last_and_is_told_first() -> None:
    failures = [
        Failure("exit", 1, attempt=0, message="exit code 3"),
        Failure("callback", -1, attempt=0, message="Mine.on_result raised"),
    ]
    lines = failure_message(failures, "/r", "T").splitlines()
    assert lines[0] == "[trainer] the driver failed (callback, attempt 0): Mine.on_result raised"
    assert "Before, in attempt 0: rank 1: exit code 3" in lines


def test_message_without_failures_says_what_the_core_said() -> None:
    assert failure_message([], "", "T", "disk full") == "[trainer] the run failed: disk full"


def test_message_begins_with_what_the_user_called_and_needs_no_path() -> None:
    text = failure_message([Failure("exit", 0, message="exit code 3")], "", "Trainer", where="worker_group")
    assert text == "[worker_group] rank 0 failed (exit, attempt 0): exit code 3"
    assert (
        failure_message([], "", "Trainer", "disk full", where="worker_group")
        == "[worker_group] the run failed: disk full"
    )
