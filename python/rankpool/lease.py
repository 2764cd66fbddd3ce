"""A lease: the samples of one batch in the slab, and the promise that their bytes stay where they
are, also while a script holds them and the rank is gone."""

from __future__ import annotations

import fcntl
import os
from collections import deque
from contextlib import suppress
from pickle import PickleBuffer
from typing import List, Optional, Sequence, Set

IN_PLACE = "in-place"  # the file in the rank's folder whose lock says that views are in use
_release = memoryview.release


class Lease:
    """The samples of one batch in the slab, each from its place in `offsets` to its place in
    `ends`; `number` is the lease's number at the door, `generation` that of the connection.

    Between the slab and the views stands a guard with a buffer of its own: as long as any view,
    part of a view or array over a view is alive, the guard cannot be released. So a lease never
    ends while its bytes are still in use.
    """

    __slots__ = (
        "number", "generation", "slab", "offsets", "ends", "hands", "_views", "_base", "_guard",
    )  # fmt: skip

    def __init__(
        self, number: int, generation: int, slab, offsets: Sequence[int], ends: Sequence[int]
    ) -> None:
        self.number, self.generation = number, generation
        self.slab, self.offsets, self.ends = slab, offsets, ends
        self.hands = None  # the Hands that hold it
        self._views: Optional[List[memoryview]] = None

    @property
    def views(self) -> List[memoryview]:
        """A view of each sample, made at the first call. Raises ValueError after release."""
        if self._views is None:
            guard = memoryview(self._whole())
            with_export = PickleBuffer(guard)
            base = memoryview(with_export)
            with_export.release()
            self._guard, self._base = guard, base
            self._views = [base[at:end] for at, end in zip(self.offsets, self.ends)]
        return self._views

    def copies(self) -> List[bytes]:
        """Returns the bytes of each sample. Raises ValueError after release."""
        whole = self._whole()
        return [whole[at:end] for at, end in zip(self.offsets, self.ends)]

    def _whole(self):
        if self.slab is None:
            raise ValueError("rankpool: the batch was closed")
        return self.slab

    def release(self) -> bool:
        """Ends the use of all views; returns False while one is still exported: then call it again
        later.

        A view that was released raises ValueError when it is used.
        """
        if self._views is not None:
            try:
                deque(map(_release, self._views), 0)
                _release(self._base)
                _release(self._guard)
            except BufferError:
                for view in self._views:
                    with suppress(BufferError):  # an array over this view is alive
                        view.release()
                return False
        self.slab = None
        if self.hands is not None:
            self.hands.give_back(self)
        return True


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
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, lease: Lease) -> bool:
        """Lets a script hold the views of a lease; returns False if other bytes may be there by
        now."""
        if not self._locked:
            self._lock()
        if self._locked:
            self._leases.add(lease)
            lease.hands = self
        return self._locked

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._locked = os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:  # then no rank takes the memory back
            self._locked = True
        except OSError:  # a rank has it
            pass

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
