"""Messages on stderr, which training never waits for."""

from __future__ import annotations

import select
import sys

_left_out = 0


def say(what: str) -> None:
    """Prints a message; drops and counts it if stderr is a pipe without a reader, or one that is
    full."""
    global _left_out
    if not _takes(sys.stderr):
        _left_out += 1
        return
    if _left_out:
        what += f" ({_left_out} messages were left out before this one: nobody took them)"
        _left_out = 0
    print(f"rankpool: {what}", file=sys.stderr, flush=True)


def _takes(stream) -> bool:
    """Returns whether a line can be written without waiting: a pipe that polls as writable has room
    for 4 KiB."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        ((_, events),) = poll.poll(0) or [(0, 0)]
        return bool(events & select.POLLOUT) and not events & select.POLLERR
    except (
        AttributeError, OSError, ValueError,
    ):  # no stderr, one that is closed, or one without a descriptor
        return stream is not None and not getattr(stream, "closed", False)
