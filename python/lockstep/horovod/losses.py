"""Ends what a rank of an elastic job waits for in vain when another rank has died.

In a ring of four, a rank that is no neighbour of the dead one waits for data from living ranks, which have left the
ring already: it would sit there until Gloo's timeout. So every rank listens for losses, and then shuts down its own
ends of the connections of the exchange that broke: Horovod sees them closed, and raises what ``hvd.elastic.run``
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
"""After a connection that ended without an answer, in seconds."""


def watch(place: Mapping[str, Any], rank: int) -> None:
    """Listens, in a thread of its own, until the rendezvous at that place is closed."""
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
            return  # another rendezvous, which knows nothing of this rank
        else:
            time.sleep(PAUSE)


def tell_done(place: Mapping[str, Any], rank: int) -> None:
    """Says that this rank's function has returned, so that nobody is kept for a round to which it does not come."""
    connection = http.client.HTTPConnection(place["address"], place["port"], timeout=5)
    with contextlib.suppress(OSError, http.client.HTTPException):  # the attempt is over
        connection.request("PUT", f"/done/{_name(place, rank)}", b"")
        connection.getresponse().read()
    connection.close()


def _name(place: Mapping[str, Any], rank: int) -> str:
    """What the rendezvous knows this rank by, and nobody else does."""
    return f"{rank}-{place['secret']}"


def break_connections(ports: Collection[int]) -> int:
    """Shuts down this process's TCP connections within this machine from or to one of these ports; how many."""
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
    """Another descriptor of the same socket: whoever owns the first may close it meanwhile."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
