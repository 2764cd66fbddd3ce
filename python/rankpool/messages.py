"""Messages on stderr, which training never waits for."""

from __future__ import annotations

import mmap
import select
import sys
from typing import Any
from zlib import crc32

# Which sentences were said, by their hash: shared with workers that are forked, which come anew in
# each epoch.
_said = mmap.mmap(-1, 1 << 16)


def say(what: str) -> None:
    """Prints a message, unless stderr is a pipe without a reader, or one that is full."""
    if _takes(sys.stderr):
        print(f"rankpool: {what}", file=sys.stderr, flush=True)


def say_once(text: str) -> None:
    """Prints a sentence on stderr, once per trainer."""
    place = crc32(text.encode()) % len(_said)
    if not _said[place] and getattr(worker(), "id", 0) == 0:
        _said[place] = 1
        say(text)


def worker() -> Any:
    """Returns what torch says of the DataLoader's worker that this process is, None if it is
    none."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def _takes(stream) -> bool:
    """Returns whether a line can be written without waiting: a pipe that polls as writable has room
    for 4 KiB."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        ((_, events),) = poll.poll(0) or [(0, 0)]
        return bool(events & select.POLLOUT) and not events & select.POLLERR
    except (AttributeError, OSError, ValueError):  # none, closed, or without a descriptor
        return stream is not None and not getattr(stream, "closed", False)
