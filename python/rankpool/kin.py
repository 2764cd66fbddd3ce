"""Identifies this process and the training process that it belongs to, so that a loader's worker
is not mistaken for an unrelated process."""

from __future__ import annotations

import os

_process = 0
_family = 0  # the training process's number: this one's own, or received by a worker


def _begin() -> None:
    """Chooses this process's number; a forked child is another process of the same family."""
    global _process
    _process = int.from_bytes(os.urandom(8), "little") or 1


_begin()
os.register_at_fork(after_in_child=_begin)


def process() -> int:
    """Returns this process's random number."""
    return _process


def family() -> int:
    """Returns the number of the training process that this one is, or belongs to."""
    global _family
    if not _family:
        _family = _process
    return _family


def adopt(number: int) -> None:
    """Makes this process belong to a training process, unless it already belongs to one or is
    one."""
    global _family
    _family = _family or number
