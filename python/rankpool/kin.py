"""Identifies this process and the training process that it belongs to, so that a loader's worker
is not mistaken for an unrelated process."""

from __future__ import annotations

import os

_process = 0
_family = 0  # the number of the process that trains: its own, or what a worker has from it


def _begin() -> None:
    """In a forked child too: another process, of the same family."""
    global _process
    _process = int.from_bytes(os.urandom(8), "little") or 1


_begin()
os.register_at_fork(after_in_child=_begin)


def process() -> int:
    """Returns this process's number, a random one."""
    return _process


def family() -> int:
    """Returns the number of the training process that this one is, or belongs to."""
    global _family
    if not _family:
        _family = _process
    return _family


def adopt(number: int) -> None:
    """Belongs to a training process from now on, unless this process has begun as one already."""
    global _family
    _family = _family or number
