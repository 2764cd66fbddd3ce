"""The parts of a rank's memory that a script holds, which no rank may write to meanwhile."""

from __future__ import annotations

import fcntl
import os
from typing import Set

from .lease import Lease

IN_PLACE = "in-place"  # the file in the rank's folder whose lock says that views are in use


class Hands:
    """The views of one rank's memory that a process uses in place, by their leases.

    While there are any, the process holds a shared lock on a file in the rank's folder. The rank
    that replaces a dead one takes the memory back only once it holds that lock exclusively, and
    then puts another file there. So a process that finds a file other than the one it opened before
    it connected is too late.

    The lock ends when the process dies. A forked child holds it too, because it may use its
    parent's views.
    """

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, IN_PLACE)
        self._leases: Set[Lease] = set()
        self._locked = self._left = False
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            self._fd = -1

    def take(self, lease: Lease) -> bool:
        """Lets a script hold the views of a lease; returns False if other bytes may be there by
        now."""
        if not self._locked and not self._lock():
            return False
        self._leases.add(lease)
        lease.hands = self
        return True

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._locked = os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:  # then no rank takes the memory back
            self._locked = True
        except (OSError, ValueError):  # a rank has it, or this process may not open more files
            pass
        return self._locked

    def give_back(self, lease: Lease) -> None:
        """Records that the script no longer holds a lease, whose views are gone."""
        self._leases.discard(lease)
        if self._left:
            self.leave()

    def leave(self) -> None:
        """Records that the connection has ended: the lock ends with the last view."""
        self._left = True
        if not self._leases and self._fd >= 0:
            os.close(self._fd)  # not an unlock, which would also unlock it for forked children
            self._fd, self._locked = -1, False
