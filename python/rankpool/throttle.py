"""The job's limits on reading storage, applied to a node's trainers when they read it
themselves."""

from __future__ import annotations

import fcntl
import os
import time
from struct import Struct, error
from typing import Optional

from .same_user import open_file

FILE = "storage-limit"  # in the rank's folder, beside the index
MAX_WAIT_SECONDS = 60.0  # for one sample: what is in the file must not stop training
LOCK_SECONDS = 1.0  # a process that is stopped while it holds the lock must not stop the others
BURST_NS = 100_000_000  # what may be read at once after a pause, as in the ranks
_LIMIT = Struct("<8sddQ")
_UNTIL_AT = 24


class Throttle:
    """The share of one node, for all its processes: bytes and opened files per second.

    The file (docs/wire/README.md) holds the shares, and the time until which the reads so far use
    them up. Each reader advances that time by its own read, and begins when its turn comes. The
    file outlives the rank.
    """

    def __init__(self, path: str) -> None:
        """Opens the file; raises OSError or struct.error if there is none, or it has no limit."""
        self._file = open(path, "rb", opener=open_file)
        _, self.bytes_per_second, self.opens_per_second, _ = _LIMIT.unpack(self._file.read())

    def wait(self, size: int) -> None:
        """Waits until a sample of size bytes may be read."""
        seconds = size / self.bytes_per_second if self.bytes_per_second > 0 else 0.0
        if self.opens_per_second > 0:
            seconds = max(seconds, 1 / self.opens_per_second)
        cost_ns = int(min(seconds, MAX_WAIT_SECONDS) * 1e9)
        now = time.monotonic_ns()
        # opened again, since the lock belongs to what was opened: each thread and process needs one
        fd = os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_RDWR | os.O_CLOEXEC)
        try:
            _lock(fd)
            until = int.from_bytes(os.pread(fd, 8, _UNTIL_AT), "little")
            begin = min(max(until, now - BURST_NS), now + int(MAX_WAIT_SECONDS * 1e9))
            os.pwrite(fd, (begin + cost_ns).to_bytes(8, "little"), _UNTIL_AT)
        finally:
            os.close(fd)
        if begin > now:
            time.sleep((begin - now) / 1e9)


def _lock(fd: int) -> None:
    """Locks the file until it is closed, or after LOCK_SECONDS continues without the lock."""
    end = time.monotonic() + LOCK_SECONDS
    while time.monotonic() <= end:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.001)


def throttle(folder: str) -> Optional[Throttle]:
    """Returns the throttle of a rank's folder, or None if the job has no limit."""
    try:
        return Throttle(os.path.join(folder, FILE))
    except (OSError, error):
        return None
