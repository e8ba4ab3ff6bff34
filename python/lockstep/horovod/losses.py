"""Releases ranks of an elastic job that wait in a collective after another rank has died.

In a ring of four, a rank that is not a neighbour of the dead one waits for data from living ranks that have already
left the ring; it would wait until Gloo's timeout. So every rank listens for losses, and then shuts down its own ends of
the connections of the broken collective. Horovod sees them closed, and raises the error that ``hvd.elastic.run``
recovers from.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["break_connections", "tell_done", "watch"]

PAUSE = 0.1
"""Delay before a retry after a connection that ended without an answer, in seconds."""


def watch(place: Mapping[str, Any], rank: int) -> None:
    """Listens, in its own thread, until the rendezvous at that address is closed."""
    threading.Thread(target=_watch, args=(place, rank), name="lockstep-losses", daemon=True).start()


def _watch(place: Mapping[str, Any], rank: int) -> None:
    while True:
        connection = http.client.HTTPConnection(place["address"], place["port"])
        answer = None
        try:
            connection.request("GET", f"/losses/{_name(place, rank)}")
            answer = connection.getresponse()
            text = answer.read()
            ports = {int(each) for each in text.split(b",") if each} if answer.status == 200 else None
        except ConnectionRefusedError:
            return  # the attempt is over
        except (OSError, ValueError, http.client.HTTPException):
            ports = None
        finally:
            connection.close()
        if ports is not None:
            break_connections(ports)
        elif answer is not None and answer.status == 404:
            return  # another rendezvous, which does not know this rank
        else:
            time.sleep(PAUSE)


def tell_done(place: Mapping[str, Any], rank: int) -> None:
    """Tells the rendezvous that this rank's function has returned, so that no rank waits in a round for it."""
    connection = http.client.HTTPConnection(place["address"], place["port"], timeout=5)
    with contextlib.suppress(OSError, http.client.HTTPException):  # the attempt is over
        connection.request("PUT", f"/done/{_name(place, rank)}", b"")
        connection.getresponse().read()
    connection.close()


def _name(place: Mapping[str, Any], rank: int) -> str:
    """The secret name by which the rendezvous knows this rank."""
    return f"{rank}-{place['secret']}"


def break_connections(ports: Collection[int]) -> int:
    """Shuts down this process's TCP connections within this machine from or to one of these ports; returns how many."""
    broken = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _borrowed(int(name)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                continue
            here, there = connection.getsockname(), connection.getpeername()
            if here[0] == there[0] and (here[1] in ports or there[1] in ports):
                connection.shutdown(socket.SHUT_RDWR)
                broken += 1
    return broken


def _borrowed(fd: int) -> socket.socket:
    """A duplicate descriptor of the same socket, because its owner may close the original meanwhile."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
