"""Waiting for a cache that is away: not silently, and not forever."""

from __future__ import annotations

import os
import time
from math import inf
from typing import Any, Callable

from .errors import Away, CacheAwayError, NotReady
from .messages import say
from .stopping import stopping

SAY_SECONDS = 10.0
DEFAULT_TIMEOUT_SECONDS = 600.0
DEFAULT_BATCH_TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 0.1
# how long training waits once a signal has ended its time: Slurm kills it 30 s after SIGTERM
STOPPING_SECONDS = 10.0


def batch_timeout() -> float:
    """Returns how many seconds a trainer waits for a batch from the cache before it reads
    storage."""
    # the system takes 0 for no limit
    return max(0.01, _seconds("RANKPOOL_BATCH_TIMEOUT", DEFAULT_BATCH_TIMEOUT_SECONDS))


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
        self._begun = self._stops = False
        self._until = self._say_at = self._seconds = 0.0
        self.reason = ""  # what the cache gives as the reason; "": it is away

    def until(self, link, call: Callable[[], Any]) -> Any:
        """Returns what call() does once the cache is connected and does it; raises CacheAwayError
        as pause does."""
        while True:
            self.reason = ""
            try:
                if link.connect():
                    return call()
            except Away:
                pass
            except NotReady as why:  # other trainers are missing
                self.reason = str(why)
            self.pause()

    def pause(self) -> None:
        """Sleeps a little; raises CacheAwayError after RANKPOOL_PLAN_TIMEOUT (600) or
        at_most_seconds, and STOPPING_SECONDS after a signal that ends training's time."""
        now = time.monotonic()
        if not self._begun:
            self._begun, self._say_at = True, now + SAY_SECONDS
            most = _seconds("RANKPOOL_PLAN_TIMEOUT", DEFAULT_TIMEOUT_SECONDS)
            self._end_at(now, min(self._at_most, most))
        if stopping() and not self._stops:
            self._stops = True
            if now + STOPPING_SECONDS < self._until:
                self._end_at(now, STOPPING_SECONDS)
        if now >= self._until:
            reason = self.reason and f": {self.reason}"
            raise CacheAwayError(
                f"rankpool: waited {self._seconds:g} s in vain for the cache {self.purpose}{reason}"
            )
        if now >= self._say_at:
            self._say_at = now + SAY_SECONDS
            if self.reason:
                say(f"the cache waits {self.purpose}: {self.reason}")
            else:
                say(f"waiting for the cache to come back {self.purpose}")
        time.sleep(PAUSE_SECONDS)

    def _end_at(self, now: float, seconds: float) -> None:
        self._until, self._seconds = now + seconds, seconds
