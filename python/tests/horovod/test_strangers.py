"""Other clients of an elastic job's rendezvous, which do not know its secret, and lost connections."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lockstep import session
from lockstep.horovod import HorovodTrainer, losses


def disturb() -> list[str]:
    """The rendezvous's answer to a stranger's request for what belongs to the ranks."""
    answers = []
    place = (os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
    paths = [f"/{scope}{rank}" for scope in ("losses/", "rank_and_size/localhost:") for rank in range(4)]
    for path in paths:
        connection = http.client.HTTPConnection(*place, timeout=1)
        with contextlib.suppress(TimeoutError):
            connection.request("GET", path)
            answer = connection.getresponse()
            answers.append(f"{answer.status} {answer.read().decode()}")
        connection.close()
    return answers


def train_among_strangers(config: dict[str, Any]) -> None:
    """Rank 0 plays the strangers, then rank 2 dies."""
    import horovod.torch as hvd

    hvd.init()
    died, answers = Path(config["died"]), []

    @hvd.elastic.run
    def loop(state: Any) -> None:
        while state.step < 20:
            if state.step == 5 and session.get_world_rank() == 0 and not answers:
                answers.extend(disturb())
            if state.step == 10 and session.get_world_rank() == 2 and not died.exists():
                died.write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1000))
            if state.step == 10:
                state.back = time.time()
            state.step += 1
            session.report({"step": state.step, "back": state.back, "answers": answers})
            state.commit()

    loop(hvd.elastic.TorchState(step=0, back=0.0))


def test_strangers_hear_nothing_and_disturb_nobody(
    horovod_trainer: Callable[..., HorovodTrainer], tmp_path: Path
) -> None:
    died = tmp_path / "died"
    trainer = horovod_trainer(train_among_strangers, 4, {"died": str(died)}, max_failures=1, elastic=True)
    result = trainer.fit()
    assert result.metrics["step"] == 20
    assert [failure.rank for failure in result.failures] == [2]
    assert result.metrics["answers"] == ["404 "] * 4 + ["200 -1,-1,-1,-1,-1,-1"] * 4
    waited = result.metrics["back"] - float(died.read_text())
    assert waited < 8, "nobody waits for Gloo's timeout of 10 s"


@pytest.fixture
def listener() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def watch(server: socket.socket) -> threading.Thread:
    place = {"address": "127.0.0.1", "port": server.getsockname()[1], "secret": "s"}
    thread = threading.Thread(target=losses._watch, args=(place, 3), daemon=True)
    thread.start()
    return thread


def test_a_lost_connection_is_made_again(listener: socket.socket) -> None:
    """So is an answer without losses: the rendezvous was busy, or it was another server."""
    thread = watch(listener)
    for answer in (
        b"",
        b"HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    ):
        lost, _ = listener.accept()
        assert lost.recv(1000).startswith(b"GET /losses/3-s HTTP/1.1")
        lost.sendall(answer)
        lost.close()
    told, _ = listener.accept()
    told.recv(1000)
    told.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
    told.close()
    last, _ = listener.accept()
    listener.close()
    last.close()
    thread.join(20)
    assert not thread.is_alive(), "the rendezvous is closed"


def test_a_rendezvous_that_does_not_know_the_rank_is_left(listener: socket.socket) -> None:
    thread = watch(listener)
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    thread.join(20)
    assert not thread.is_alive()
    connection.close()
