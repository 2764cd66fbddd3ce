"""The sentinel: notices that the cache was restarted while the training process waits for
something else."""

from __future__ import annotations

import atexit
import os
import socket
import threading
import weakref

from . import connection
from .connection import Connection
from .errors import Away, RankpoolError


class Sentinel(Connection):
    """A second connection, on a thread of its own, beside the connection `main` of a training
    process.

    A trainer that waits in an all-reduce does not look at its connection. Trainers that meanwhile
    wait for a plan of a cache that was restarted would wait forever, because the plan needs
    what every trainer has opened and reported. The sentinel reports that; it asks for no samples,
    and leaves `main` alone.
    """

    def __init__(self, main: Connection) -> None:
        super().__init__(main.path, main.trainer, main.world)
        self.in_worker = True  # the training process prints the messages
        self._main = weakref.ref(main)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rankpool sentinel", daemon=True)
        self._thread.start()

    def _resume(self, again: bool) -> bool:
        main = self._main()
        self.listeners = main.listeners if main else weakref.WeakSet()
        return super()._resume(again)

    def _watch(self) -> None:
        """Stays connected for as long as main exists."""
        while self._main() is not None and not self._over.is_set():
            try:
                if self.connect() and not self._over.is_set():
                    self._hear_the_end()
            except (OSError, RankpoolError):
                pass  # a cache that refuses us refuses main too, which raises it
            self._drop()
            self._over.wait(connection.RETRY_SECONDS)
        self._forget_memory()

    def _hear_the_end(self) -> None:
        """Returns when the door, which sends nothing unasked, hangs up or was replaced."""
        while not self._over.is_set():
            try:
                self._sock.recv(1)
                return
            except BlockingIOError:  # it lives, or hangs
                if os.stat(self.path).st_ino != self._door:
                    return

    def _late(self) -> Away:
        """Says nothing: the training process does."""
        self._drop()
        self._try_later()
        return Away(f"rankpool: the cache at {self.path} does not answer")

    def end(self) -> None:
        """Ends the thread: it must not wake up in an interpreter that is shutting down."""
        self._over.set()
        sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended by itself
                pass
        self._thread.join(connection.HELLO_SECONDS)


_sentinels: "weakref.WeakKeyDictionary[Connection, Sentinel]" = weakref.WeakKeyDictionary()


def watch_over(main: Connection) -> None:
    """Starts a sentinel beside main, unless there is one or this process is a loader's worker."""
    if not main.in_worker and main not in _sentinels:
        _sentinels[main] = Sentinel(main)


@atexit.register
def _end_all() -> None:
    for sentinel in list(_sentinels.values()):
        sentinel.end()


def _after_fork() -> None:
    for sentinel in _sentinels.values():
        sentinel._abandon_to_parent()
    _sentinels.clear()


os.register_at_fork(after_in_child=_after_fork)
