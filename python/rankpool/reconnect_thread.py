"""The sentinel: a thread that notices a restarted cache while the training process waits for
something else.

A trainer that waits in an all-reduce does not look at its connection. Trainers that meanwhile wait
for a plan of a cache that was restarted would wait forever, because the plan needs what every
trainer has opened and reported.
"""

from __future__ import annotations

import atexit
import threading
from typing import Optional

from .connection import HELLO_SECONDS, Connection, _connections, ended

WATCH_SECONDS = 0.5  # between two looks at the connections
_sentinel: Optional[threading.Thread] = None
_over = threading.Event()


def watch_over(main: Connection) -> None:
    """Starts the sentinel, unless there is one or this process is a loader's worker."""
    global _sentinel
    if not main.in_worker and (_sentinel is None or not _sentinel.is_alive()):
        _sentinel = threading.Thread(target=_watch, name="rankpool sentinel", daemon=True)
        _sentinel.start()


def _watch() -> None:
    while not _over.wait(WATCH_SECONDS):
        for link in list(_connections.values()):
            if link.listeners:
                _renew(link)


def _renew(link: Connection) -> None:
    """Connects again if the connection has ended."""
    with link._lock:
        if link not in _connections.values():  # training has closed it
            return
        try:
            if link._sock is not None and ended(link._sock):
                link._lost()
            link.connect()
        except (OSError, RuntimeError):
            # A cache that refuses us refuses training too, which raises it; and training may just
            # have changed what is sent again.
            link._drop()


@atexit.register
def _end() -> None:
    """Ends the thread: it must not wake up in an interpreter that is shutting down."""
    _over.set()
    if _sentinel is not None:
        _sentinel.join(HELLO_SECONDS)
