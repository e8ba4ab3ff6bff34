"""The texts of TrainingFailedError and TrainingInterrupted."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from lockstep import _sources
from lockstep._failed_error import last_attempt
from lockstep.errors import Failure

_FRAME = re.compile(r'  File "(.*)", line (\d+) in ')


def failure_message(
    failures: Sequence[Failure],
    path: str,
    trainer: str,
    error: str = "",
    *,
    where: str = "trainer",
    has_checkpoint: bool = True,
) -> str:
    """The text of a TrainingFailedError about `failures` of all attempts of the run at `path`.

    The first failing rank of the last attempt comes first, in detail; the others are grouped by what happened to them.
    `error` is the core's message; it is used alone if no rank failed. `where` is the word in brackets: what the run
    was started on; "tune": it is a trial. Without a `path` there is no advice on restoring.
    """
    last = last_attempt(failures)
    lines: list[str] = []
    if last:
        first = last[0]
        node = f" on {first.node}" if first.node else ""
        trial = f"trial {os.path.basename(path)}: " if where == "tune" else ""
        lines.append(
            f"[{where}] {trial}{first.who} failed{node} ({first.kind}, attempt {first.attempt}): {first.summary}"
        )
        if first.traceback:
            lines += ["", f"Traceback of {first.who}:", *_indented(_traceback(first, path))]
        printed = _without_traceback(first)
        if printed:
            lines += ["", f"Last lines that {first.who} printed:", *_indented(printed)]
        others = _grouped(first, last[1:])
        if others:
            lines += ["", *others]
        if path and first.kind in ("hang", "heartbeat"):
            lines += ["", f"The stacks of all ranks are in {path}/logs/stacks_attempt_{first.attempt}.txt"]
        earlier = failures[: len(failures) - len(last)]
        if earlier:
            lines += ["", *(f"Before, in attempt {f.attempt}: {f.who}: {f.summary}" for f in _firsts(earlier))]
    else:
        lines.append(f"[{where}] the run failed: {error or 'unknown error'}")
    if path and where == "tune":
        experiment = os.path.dirname(path)
        call = f'tune.Tuner.restore("{experiment}", trainable, resume_errored=True).fit()'
        lines += ["", f"To continue it from its newest checkpoint, or from the beginning if there is none: {call}"]
    elif path:
        lines += ["", *_how_to_go_on(path, trainer, last[0].kind if last else "", has_checkpoint=has_checkpoint)]
    return "\n".join(lines)


def interrupt_message(path: str, trainer: str, signal: str, *, has_checkpoint: bool) -> str:
    """The text of a TrainingInterrupted."""
    return f"[trainer] the run was interrupted by {signal}; {_advice(path, trainer, has_checkpoint=has_checkpoint)}"


def preemption_message(path: str, trainer: str, *, has_checkpoint: bool) -> str:
    """The text of a TrainingPreempted."""
    advice = _advice(path, trainer, has_checkpoint=has_checkpoint)
    return f"[trainer] the run ended because its machine is taken away (preemption); {advice}"


def _advice(path: str, trainer: str, *, has_checkpoint: bool) -> str:
    call = f'{trainer}.restore("{path}").fit()'
    if not _is_there(path):
        return f"its directory {path} is gone, so it cannot be restored"
    if has_checkpoint:
        return f"{call} continues from the last checkpoint"
    return f"there is no checkpoint yet: {call} starts from the beginning"


def _how_to_go_on(path: str, trainer: str, kind: str, *, has_checkpoint: bool) -> list[str]:
    if not _is_there(path):
        return [f"The run directory {path} no longer exists, so the run cannot be restored."]
    in_function = kind == "exception"
    call = f'{trainer}.restore("{path}", train_func).fit()' if in_function else f'{trainer}.restore("{path}").fit()'
    mended = ", when the storage is mended" if kind == "storage" else ""
    lines = [
        f"To continue from the last checkpoint{mended}: {call}"
        if has_checkpoint
        else f"There is no checkpoint yet. To start from the beginning: {call}"
    ]
    if in_function:
        lines.append("Without train_func, the stored function runs again: the old one, without your fix.")
    return lines


def _is_there(path: str) -> bool:
    return os.path.exists(os.path.join(path, "run.json"))


def _traceback(failure: Failure, path: str) -> list[str]:
    """The lines of the traceback; source lines are added to the stacks of a hang, which have none."""
    told = failure.traceback.rstrip().splitlines()
    if failure.kind != "hang" or not path:
        return told
    begun = _sources.created(path)
    lines: list[str] = []
    for line in told:
        lines.append(line)
        frame = _FRAME.match(line)
        source = _sources.line_before(frame[1], int(frame[2]), begun) if frame else ""
        if source:
            lines.append("    " + source)
    return lines


def _grouped(first: Failure, others: Sequence[Failure]) -> list[str]:
    groups: dict[str, list[int]] = {}
    for failure in others:
        same = (failure.kind, failure.summary, failure.traceback) == (first.kind, first.summary, first.traceback)
        ranks = groups.setdefault("the same error" if same else failure.summary, [])
        if failure.rank not in ranks:
            ranks.append(failure.rank)
    return [f"{'rank' if len(ranks) == 1 else 'ranks'} {_listed(ranks)}: {what}" for what, ranks in groups.items()]


def _firsts(failures: Sequence[Failure]) -> list[Failure]:
    firsts: dict[int, Failure] = {}
    for failure in failures:
        firsts.setdefault(failure.attempt, failure)
    return [firsts[attempt] for attempt in sorted(firsts)][-5:]


def _without_traceback(failure: Failure) -> list[str]:
    """The log lines before the traceback, because the worker prints the traceback too."""
    lines = [line.rstrip("\n") for line in failure.log_lines]
    told = failure.traceback.rstrip().splitlines()
    for start in range(len(lines)):
        tail = lines[start:]
        while tail and not tail[-1].strip():
            tail.pop()
        if tail and told[-len(tail) :] == tail:
            return _without_end(lines[:start], told[: -len(tail)])
    return lines


def _without_end(printed: list[str], told: list[str]) -> list[str]:
    """An unfinished line, such as a prompt, is followed by the traceback's first line."""
    if not printed or not told or not printed[-1].endswith(told[-1]):
        return printed
    rest = printed[-1].removesuffix(told[-1])
    return [*printed[:-1], rest] if rest.strip() else printed[:-1]


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]


def _listed(items: Sequence[object]) -> str:
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
