"""The job's limits on reading storage, applied to a node's trainers when they read it
themselves."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from contextlib import contextmanager
from struct import Struct
from typing import Iterator, Optional

FILE = "storage-limit"  # in the rank's folder, beside the index
MAX_WAIT_SECONDS = 60.0  # for one sample: what is in the file must not stop training
LOCK_SECONDS = 1.0  # a process that is stopped while it holds the lock must not stop the others
BURST_NS = 100_000_000  # what may be read at once after a pause, as in the ranks
_LIMIT = Struct("<8sddQ")
_UNTIL_AT = 24

_threads = threading.Lock()  # a file lock belongs to the process, not to a thread


class Throttle:
    """The share of one node, for all its processes: bytes and opened files per second.

    The file (docs/wire/README.md) holds the shares, and the time until which the reads so far use
    them up. Each reader advances that time by its own read, and begins when its turn comes. The
    file outlives the rank.
    """

    def __init__(self, path: str) -> None:
        """Opens the file; raises OSError or ValueError if there is none, or it has no limit."""
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(self._fd).st_size != _LIMIT.size:
                raise ValueError(f"rankpool: {path} is not a limit of reading")
            self._file = mmap.mmap(self._fd, _LIMIT.size)
            magic, self.bytes_per_second, self.opens_per_second, _ = _LIMIT.unpack_from(self._file)
            if magic != b"rplimit1":
                raise ValueError(
                    f"rankpool: {path} is not a limit of reading: it begins with {magic!r}"
                )
        except BaseException:
            os.close(self._fd)
            raise

    def wait(self, size: int) -> None:
        """Waits until a sample of size bytes may be read."""
        now = time.monotonic_ns()
        with self._locked():
            until = int.from_bytes(self._file[_UNTIL_AT:], "little")
            begin = min(max(until, now - BURST_NS), now + int(MAX_WAIT_SECONDS * 1e9))
            self._file[_UNTIL_AT:] = (begin + self._cost_ns(size)).to_bytes(8, "little")
        if begin > now:
            time.sleep((begin - now) / 1e9)

    def _cost_ns(self, size: int) -> int:
        seconds = size / self.bytes_per_second if self.bytes_per_second > 0 else 0.0
        if self.opens_per_second > 0:
            seconds = max(seconds, 1 / self.opens_per_second)
        return int(min(seconds, MAX_WAIT_SECONDS) * 1e9)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock, or after LOCK_SECONDS continues without it."""
        end = time.monotonic() + LOCK_SECONDS
        with _threads:
            while True:
                try:
                    fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > end:
                        break
                    time.sleep(0.001)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)


def throttle(folder: str) -> Optional[Throttle]:
    """Returns the throttle of a rank's folder, or None if the job has no limit."""
    try:
        return Throttle(os.path.join(folder, FILE))
    except (OSError, ValueError):
        return None


def _after_fork() -> None:
    global _threads
    _threads = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
