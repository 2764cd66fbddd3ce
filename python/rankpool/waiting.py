"""Waiting for a cache that is away: not silently, and not forever."""

from __future__ import annotations

import os
import time
from math import inf

from .errors import CacheAwayError
from .saying import say

SAY_SECONDS = 10.0
DEFAULT_TIMEOUT_SECONDS = 600.0
DEFAULT_BATCH_TIMEOUT_SECONDS = 30.0
LEAST_BATCH_TIMEOUT_SECONDS = 0.01
PAUSE_SECONDS = 0.1


def batch_timeout() -> float:
    """Returns how many seconds a trainer waits for a batch from the cache before it reads
    storage."""
    return max(
        _seconds("RANKPOOL_BATCH_TIMEOUT", DEFAULT_BATCH_TIMEOUT_SECONDS),
        LEAST_BATCH_TIMEOUT_SECONDS,
    )


def _seconds(name: str, otherwise: float) -> float:
    """Returns a variable as a number of seconds, 0 or more."""
    text = os.environ.get(name)
    try:
        seconds = float(text) if text else otherwise
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise ValueError(
            f"rankpool: the variable {name} must be a number of seconds, 0 or more, not {text!r}"
        )
    return seconds


class Waiting:
    """One wait for the cache, for `purpose`; it begins with the first pause."""

    def __init__(self, purpose: str, at_most_seconds: float = inf) -> None:
        self.purpose, self._at_most = purpose, at_most_seconds
        self._until = self._say_at = 0.0
        self.reason = ""  # what the cache gives as the reason; "": it is away

    def pause(self) -> None:
        """Sleeps a little; raises CacheAwayError after RANKPOOL_PLAN_TIMEOUT (600) or
        at_most_seconds."""
        now = time.monotonic()
        timeout = min(self._at_most, _seconds("RANKPOOL_PLAN_TIMEOUT", DEFAULT_TIMEOUT_SECONDS))
        if not self._until:
            self._until, self._say_at = now + timeout, now + SAY_SECONDS
        if now >= self._until:
            reason = self.reason and f": {self.reason}"
            raise CacheAwayError(
                f"rankpool: waited {timeout:g} s in vain for the cache {self.purpose}{reason}"
            )
        if now >= self._say_at:
            self._say_at = now + SAY_SECONDS
            if self.reason:
                say(f"the cache waits {self.purpose}: {self.reason}")
            else:
                say(f"waiting for the cache to come back {self.purpose}")
        time.sleep(PAUSE_SECONDS)
