"""Messages on stderr, which training never waits for."""

from __future__ import annotations

import select
import sys


def say(what: str) -> None:
    """Prints a message, unless stderr is a pipe without a reader, or one that is full."""
    if _takes(sys.stderr):
        print(f"rankpool: {what}", file=sys.stderr, flush=True)


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
