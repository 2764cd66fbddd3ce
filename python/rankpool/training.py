"""What this process trains on: what training resumes from and what its plans were made from, kept
beyond the cache's life."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .wire import Plan

KEPT_PLANS = 2  # a cache that is restarted resumes from the newest, or from the one before it
_COPIED_BYTES = 1 << 30  # at a time, of a state


class _Planned(NamedTuple):
    """An epoch that was planned, the digest of the importance scores that it was planned from, and
    their file, open."""

    epoch: int
    scores: str
    path: str
    fd: Optional[int]


class Training:
    """One stream of batches that this process trains on, over all its samplers of that stream.

    The ranks keep what a plan was made from in a folder. This process holds those files open, so
    that they are still there when somebody clears the folder, and puts them back for ranks that are
    restarted.
    """

    def __init__(self) -> None:
        self.life, self.turn = _number(), 0
        self.checkpoint: Optional[Dict[str, Any]] = None
        self._planned: List[_Planned] = []
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
            self._forget(len(self._planned))

    def note(self, plan: Plan) -> None:
        """Keeps what a plan was made from."""
        with self._lock:
            if not plan.source:
                return
            self._planned = [p for p in self._planned if p.epoch != plan.epoch or self._close(p)]
            self._planned.append(
                _Planned(plan.epoch, plan.source, plan.source_path, _opened(plan.source_path))
            )
            self._forget(len(self._planned) - KEPT_PLANS)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._close(self._planned.pop(0))

    def _close(self, planned: _Planned) -> bool:
        if planned.fd is not None:
            os.close(planned.fd)
        return False

    def describe(self) -> Dict[str, Any]:
        """Returns what OPEN sends to a rank."""
        with self._lock:
            planned = [{"epoch": p.epoch, "scores": p.scores} for p in self._planned]
            return {
                "life": self.life, "turn": self.turn, "checkpoint": self.checkpoint,
                "planned": planned,
            }

    def put_back(self, folder: str) -> None:
        """Writes back into a rank's folder what it had there, unless it is still there; an error
        leaves this to the other trainers."""
        with self._lock:
            for planned in self._planned:
                path = os.path.join(folder, os.path.basename(planned.path))
                if planned.fd is not None and not os.path.isfile(path):
                    try:
                        _copy(planned.fd, path)
                    except OSError:
                        pass


def _number() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _opened(path: str) -> Optional[int]:
    """Returns a descriptor of a state, or None if it is already gone: then the previous one must
    do."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None


def _copy(fd: int, path: str) -> None:
    """Writes what fd holds to path, whole or not at all."""
    new = f"{path}.{os.getpid()}.{threading.get_ident()}"
    to = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        at = 0
        while sent := os.sendfile(to, fd, at, _COPIED_BYTES):
            at += sent
        os.rename(new, path)
    except OSError:
        os.unlink(new)
        raise
    finally:
        os.close(to)


_trainings: Dict[Tuple[str, Any], Training] = {}


def training(door: str, spec) -> Training:
    """Returns this process's Training for a spec."""
    return _trainings.setdefault((door, spec), Training())
