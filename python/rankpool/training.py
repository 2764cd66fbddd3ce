"""What this process trains on: which data sets, which are compared with what a cache serves when it
comes back, what training resumes from, and what its plans were made from."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional, Tuple

from .errors import IdentityError
from .wire import Plan

KEPT_PLANS = 2  # a cache that is restarted resumes from the newest, or from the one before it


class Training:
    """One stream of batches that this process trains on, over all its samplers of that stream."""

    def __init__(self) -> None:
        self.life, self.turn = int.from_bytes(os.urandom(8), "little"), 0
        self.checkpoint: Optional[Dict[str, Any]] = None
        self.iterated: Any = None  # the sampler that is
        # the newest plans: of each the epoch, and the digest of the scores it was made from
        self._planned: List[Dict[str, Any]] = []
        self._lock = threading.Lock()  # the sentinel's thread sends it too

    def resume(self, epoch: int, batch: int, state: Optional[str], processes: int = 0) -> None:
        """Begins another turn, which resumes from a checkpoint; `state` is the digest of its
        importance scores, and `processes` how many the training began with; 0: as many as resume.

        Turns are counted because the sentinel may still be reporting the previous one.
        """
        with self._lock:
            self.turn += 1
            self.checkpoint = {"epoch": epoch, "batch": batch, "state": state or ""}
            if processes:
                self.checkpoint["processes"] = processes
            self._planned = []

    def note(self, plan: Plan) -> None:
        """Keeps the digest of what a plan was made from."""
        with self._lock:
            if plan.source:
                others = [one for one in self._planned if one["epoch"] != plan.epoch]
                newest = {"epoch": plan.epoch, "scores": plan.source}
                self._planned = [*others, newest][-KEPT_PLANS:]

    def describe(self) -> Dict[str, Any]:
        """Returns what OPEN sends to a rank."""
        with self._lock:
            return {
                "life": self.life, "turn": self.turn, "checkpoint": self.checkpoint,
                "planned": self._planned,
            }


class Identities:
    """What this process knows about the data sets behind one door, the version of their plans, and
    the cache's options; and what it trains on there."""

    def __init__(self) -> None:
        self.trainings: Dict[Any, Training] = {}  # by spec
        self.first: Dict[Tuple[str, str], Any] = {}  # the first sampler's spec, by data set and job
        self._data: Dict[str, Tuple[str, str]] = {}  # by name: identity and times
        self._cache: Optional[dict] = None  # its plan version and options
        self.sampler = ""

    def expect(self, name: str, identity: str, times: str) -> None:
        """Records what training began with; the first record stays."""
        self._data.setdefault(name, (identity, times))

    def check(self, welcome) -> None:
        """Raises IdentityError unless a rank serves what training began with."""
        now = {"plan version": welcome.plan_version, "options": welcome.options}
        if self._cache not in (None, now):
            raise IdentityError(
                f"rankpool: the cache came back with {now}, and training began with {self._cache}: "
                "use one rankpool on all nodes, and the same --system"
            )
        self._cache, self.sampler = now, welcome.sampler
        served = {data["name"]: (data["identity"], data["times"]) for data in welcome.data}
        for name, began in self._data.items():
            if name not in served:
                raise IdentityError(f"rankpool: the cache came back without data set {name!r}")
            if served[name] != began:
                identity, times = served[name]
                raise IdentityError(
                    f"rankpool: data set {name!r} is not the one that training began with: its "
                    f"identity is {identity} now, and was {began[0]}, and its times {times} and "
                    f"{began[1]}; start the training anew"
                )


_by_door: Dict[str, Identities] = {}


def identities(path: str) -> Identities:
    """Returns what this process, or the one it was forked from, knows about the data sets behind
    the door at path."""
    return _by_door.setdefault(path, Identities())
