"""What this process trains on: what training resumes from, and what its plans were made from."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any, Dict, Optional

from .wire import Plan

KEPT_PLANS = 2  # a cache that is restarted resumes from the newest, or from the one before it


class Training:
    """One stream of batches that this process trains on, over all its samplers of that stream."""

    def __init__(self) -> None:
        self.life, self.turn = int.from_bytes(os.urandom(8), "little"), 0
        self.checkpoint: Optional[Dict[str, Any]] = None
        self.iterated: Any = None  # the sampler that is
        self._planned: Dict[int, str] = {}  # by epoch: the digest of the scores of its plan
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
            self._planned.clear()

    def note(self, plan: Plan) -> None:
        """Keeps the digest of what a plan was made from."""
        with self._lock:
            if plan.source:
                self._planned.pop(plan.epoch, None)
                self._planned[plan.epoch] = plan.source
            if len(self._planned) > KEPT_PLANS:
                del self._planned[next(iter(self._planned))]

    def describe(self) -> Dict[str, Any]:
        """Returns what OPEN sends to a rank."""
        with self._lock:
            planned = [{"epoch": e, "scores": scores} for e, scores in self._planned.items()]
            return {
                "life": self.life, "turn": self.turn, "checkpoint": self.checkpoint,
                "planned": planned,
            }


@lru_cache(maxsize=None)
def training(door: str, spec) -> Training:
    """Returns this process's Training for a spec."""
    return Training()
