"""Finds the batch that a script's ids belong to, and keeps what was reported for it."""

from __future__ import annotations

import reprlib
import threading
from array import array
from math import nan
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .wire import Plan

# A restarted cache makes a plan from the state of the previous epoch, which lacks the last reports
# of the epoch before that. The trainer that asks for the plan may be an epoch behind this one.
KEPT_EPOCHS = 2

# (epoch, batch, losses, embeddings), as sent to the door. The embeddings of all samples are one
# after another; None if there are none. NaN: not reported.
Told = Tuple[int, int, array, Optional[array]]


class Reports:
    """The losses of this epoch and of KEPT_EPOCHS before, by global batch, kept to be resent.

    The cache accepts one report per batch, the first, which also closes all batches before it. So a
    batch is sent when it is complete, or when no more of it can follow: a later batch was reported,
    or `close` called. A sent report no longer changes. `next` is the first batch of this epoch that
    may still be reported.
    """

    def __init__(self) -> None:
        self._told: Dict[int, Dict[int, Told]] = {}
        self._short: Set[Tuple[int, int]] = set()  # epoch, batch: losses of it are missing
        self._open: Optional[Tuple[int, int]] = None  # the one that is reported in parts
        self._losses = self._embeddings = array("f")  # of it
        self._missing: Set[int] = set()  # its places without a report
        self._lock = threading.Lock()
        self.next = 0

    def begin(self, epoch: int, first: int) -> None:
        """Begins an epoch at batch `first`, after close; drops older epochs, and later ones."""
        with self._lock:
            self._told = {
                e: told for e, told in self._told.items() if epoch - KEPT_EPOCHS <= e <= epoch
            }
        self.next = first

    def add(
        self, plan: Plan, current: int, ids: Sequence[int], losses: Sequence[float],
        exact: bool = False, embeddings: Optional[array] = None,
    ) -> List[Told]:
        """Records losses and embeddings; returns the reports to send now.

        `current` is the batch that training got last or, without `exact`, that a loader got,
        perhaps ahead of training. Earlier reports are not changed. Raises ValueError if no batch
        from `next` to `current` has these ids, TypeError if a loss is not a number.
        """
        if len(ids) != len(losses):
            raise ValueError(f"rankpool: {len(ids)} ids and {len(losses)} losses")
        losses = array("f", losses)
        if not ids:  # with no part of the current batch, this trainer has nothing to report of it
            none = self.next <= current < plan.batches and not _size(plan, current)
            return self._enter(plan, current, (), losses, None) if none else []
        number, places = self.find(plan, current, ids, exact)
        return self._enter(plan, number, places, losses, embeddings)

    def add_batch(
        self, plan: Plan, number: int, losses: Sequence[float], embeddings: Optional[array] = None
    ) -> List[Told]:
        """Records the losses and embeddings of a whole batch, in the order of the plan; returns the
        reports to send now."""
        places = range(_size(plan, number))
        return self._enter(plan, number, places, array("f", losses), embeddings)

    def _enter(
        self, plan: Plan, number: int, places: Sequence[int], losses: array,
        embeddings: Optional[array],
    ) -> List[Told]:
        if self._over(plan.epoch, number):
            self.next = max(self.next, number + 1)
            return []
        d = len(embeddings) // len(losses) if embeddings else 0
        told = []
        if self._open != (plan.epoch, number):
            told, size = self.close(), _size(plan, number)
            self._open, self._missing = (plan.epoch, number), set(range(size))
            self._losses = array("f", [nan]) * size
            self._embeddings = array("f", [nan]) * (size * d)
        self.next = number
        for i, (place, loss) in enumerate(zip(places, losses)):
            if place in self._missing:  # the first report of a draw counts
                self._missing.remove(place)
                self._losses[place] = loss
                if d:
                    own = embeddings[i * d : (i + 1) * d]
                    self._embeddings[place * d : (place + 1) * d] = own
        return told if self._missing else told + self.close()

    def _over(self, epoch: int, number: int) -> bool:
        """Returns whether the cache no longer accepts a report of this batch; raises ValueError if
        it lacks losses."""
        told = self._told.get(epoch, {})
        if not told or number > max(told):
            return False
        if (epoch, number) in self._short:
            raise ValueError(
                f"rankpool: batch {number} of epoch {epoch} was reported in part, and ended by a "
                "report of a later batch, state_dict or set_epoch: the rest of it comes too late"
            )
        return True

    def close(self) -> List[Told]:
        """Closes the batch that was reported in part; returns the reports to send."""
        if self._open is None:
            return []
        epoch, number = self._open
        (self._short.add if self._missing else self._short.discard)(self._open)
        told = epoch, number, self._losses, self._embeddings or None
        with self._lock:
            self._told.setdefault(epoch, {})[number] = told
        self._open, self.next = None, number + 1
        return [told]

    def find(
        self, plan: Plan, current: int, ids: Sequence[int], exact: bool = False
    ) -> Tuple[int, List[int]]:
        """Returns the batch that ids belong to and the place of each in it; `exact` as of add."""
        last = min(current, plan.batches - 1)
        # the most likely first; the batch that was reported last is the least likely
        candidates = sorted(
            range(max(0, self.next - 1), last + 1),
            key=lambda number: (number < self.next, not exact or number != last, number),
        )
        for number in candidates:
            if _size(plan, number) == len(ids) and plan.batch(number) == ids:
                return number, list(range(len(ids)))
        for number in candidates:
            places = self._places(plan, number, ids)
            if places is not None:
                return number, places
        raise ValueError(
            f"rankpool: the ids {reprlib.repr(list(ids))} are not a batch, or part of one, of "
            f"epoch {plan.epoch} from batch {self.next} to {current}"
        )

    def _places(self, plan: Plan, number: int, ids: Sequence[int]) -> Optional[List[int]]:
        if len(ids) > _size(plan, number):
            return None
        order = range(_size(plan, number))
        if self._open == (plan.epoch, number):
            # a draw whose loss is missing comes before its twin that has one
            order = sorted(order, key=lambda place: place not in self._missing)
        free: Dict[int, List[int]] = {}
        batch = plan.batch(number)
        for place in order:
            free.setdefault(batch[place], []).append(place)
        try:
            return [free[id].pop(0) for id in ids]
        except (KeyError, IndexError):
            return None

    def __iter__(self) -> Iterator[Told]:
        """Yields the reports that were sent, in the order of training; any thread may call it."""
        with self._lock:
            told = [one for of_epoch in self._told.values() for one in of_epoch.values()]
        return iter(sorted(told, key=lambda one: one[:2]))


def _size(plan: Plan, number: int) -> int:
    return plan.starts[number + 1] - plan.starts[number]
