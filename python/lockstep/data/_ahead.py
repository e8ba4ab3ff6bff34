"""Makes the items of a loop ahead of their use, in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class Ahead:
    """Calls `make` in a thread until it gives None; at most `count` items wait. close() ends the thread.

    What `make` raises, the loop gets in its turn.
    """

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        self._make = make
        self._room = threading.Semaphore(count)
        self._items: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="lockstep-batches", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            if self._closed:
                return
            try:
                item = self._make()
            except BaseException as error:
                self._items.put((None, error))
                return
            self._items.put((item, None))
            if item is None:
                return

    def __call__(self) -> Any:
        """The next item; None at the end."""
        item, error = self._items.get()
        if error is not None:
            raise error
        self._room.release()
        return item

    def close(self) -> None:
        """Waits for the item that is being made, and drops it."""
        self._closed = True
        self._room.release()
        self._thread.join()
