"""Finds the batch that a script's ids belong to, and keeps what was reported for it."""

from __future__ import annotations

import threading
from array import array
from math import nan
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from .wire import Plan

# A restarted cache makes a plan from the state of the previous epoch, which lacks the last reports
# of the epoch before that. The trainer that asks for the plan may be an epoch behind this one.
KEPT_EPOCHS = 2

# (epoch, batch, losses, embeddings), as sent to the door. The embeddings of all samples are one
# after another; None if there are none.
Told = Tuple[int, int, array, Optional[array]]


class _Row:
    """The losses of one batch, and which of them were reported: a loss may itself be NaN. With them
    are the samples' embeddings, if any, all of the same length."""

    __slots__ = ("losses", "reported", "numbers", "embeddings")

    def __init__(self, size: int, numbers: int = 0) -> None:
        self.losses, self.reported = array("f", [nan]) * size, bytearray(size)
        self.numbers = numbers
        self.embeddings = array("f", [nan]) * (size * numbers) if numbers else None

    def enter(
        self, places: Sequence[int], losses: Sequence[float], embeddings: Optional[array]
    ) -> None:
        d = self.numbers if embeddings else 0
        for i, (place, loss) in enumerate(zip(places, losses)):
            if not self.reported[place]:  # the first report of a draw counts
                self.losses[place], self.reported[place] = loss, 1
                if d:
                    self.embeddings[place * d : (place + 1) * d] = embeddings[i * d : (i + 1) * d]

    def told(self, epoch: int, number: int) -> Told:
        return epoch, number, self.losses, self.embeddings

    def complete(self) -> bool:
        return all(self.reported)


class Reports:
    """The losses of this epoch and of KEPT_EPOCHS before, by global batch, kept to be resent.

    The cache accepts one report per batch, the first, which also closes all batches before it. So a
    batch is sent when it is complete, or when no more of it can follow: a later batch was reported,
    or `close` called. A sent report no longer changes. `next` is the first batch of this epoch that
    may still be reported.
    """

    def __init__(self) -> None:
        self._told: Dict[int, Dict[int, _Row]] = {}
        # epoch, batch: the one that is reported in parts
        self._open: Optional[Tuple[int, int, _Row]] = None
        self._lock = threading.Lock()
        self.next = 0

    def begin(self, epoch: int, first: int) -> None:
        """Begins an epoch at batch `first`, after close; drops older epochs, and later ones."""
        with self._lock:
            self._told = {
                e: rows for e, rows in self._told.items() if epoch - KEPT_EPOCHS <= e <= epoch
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
        if not ids:
            return self._skip_empty(plan, current)
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
        goes_on = self._open is not None and self._open[:2] == (plan.epoch, number)
        told = [] if goes_on else self.close()
        if not goes_on:
            numbers = len(embeddings) // len(losses) if embeddings else 0
            self._open = plan.epoch, number, _Row(_size(plan, number), numbers)
        self.next = number
        row = self._open[2]
        row.enter(places, losses, embeddings)
        return told + self.close() if row.complete() else told

    def _over(self, epoch: int, number: int) -> bool:
        """Returns whether the cache no longer accepts a report of this batch; raises ValueError if
        it lacks losses."""
        told = self._told.get(epoch, {})
        if not told or number > max(told):
            return False
        if number in told and not told[number].complete():
            raise ValueError(
                f"rankpool: batch {number} of epoch {epoch} was reported in part, and ended by a "
                "report of a later batch, state_dict or set_epoch: the rest of it comes too late"
            )
        return True

    def _skip_empty(self, plan: Plan, current: int) -> List[Told]:
        """Closes the current batch if this trainer has no part of it, since it has nothing to
        report."""
        if (
            not self.next <= current < plan.batches
            or _size(plan, current)
            or self._over(plan.epoch, current)
        ):
            return []
        told = self.close()
        self._open = plan.epoch, current, _Row(0)
        return told + self.close()

    def close(self) -> List[Told]:
        """Closes the batch that was reported in part; returns the reports to send."""
        if self._open is None:
            return []
        epoch, number, row = self._open
        with self._lock:
            self._told.setdefault(epoch, {})[number] = row
        self._open, self.next = None, number + 1
        return [row.told(epoch, number)]

    def find(
        self, plan: Plan, current: int, ids: Sequence[int], exact: bool = False
    ) -> Tuple[int, List[int]]:
        """Returns the batch that ids belong to and the place of each in it; `exact` as of add."""
        candidates = list(self._candidates(plan, current, exact))
        for number in candidates:
            if _size(plan, number) == len(ids) and plan.batch(number) == ids:
                return number, list(range(len(ids)))
        for number in candidates:
            places = self._places(plan, number, ids)
            if places is not None:
                return number, places
        raise ValueError(
            f"rankpool: the ids {_some(ids)} are not a batch, or part of one, of epoch "
            f"{plan.epoch} from batch {self.next} to {current}"
        )

    def _candidates(self, plan: Plan, current: int, exact: bool) -> Iterator[int]:
        """Yields the batches that ids may belong to, the most likely first; the one reported last
        is the least likely."""
        current = min(current, plan.batches - 1)
        if exact and self.next <= current:
            yield current
        yield from range(self.next, current + 1 - (exact and self.next <= current))
        if 0 <= self.next - 1 <= current:
            yield self.next - 1

    def _places(self, plan: Plan, number: int, ids: Sequence[int]) -> Optional[List[int]]:
        if len(ids) > _size(plan, number):
            return None
        order = range(_size(plan, number))
        row = self._row(plan.epoch, number)
        if row is not None:  # a draw whose loss is missing comes before its twin that has one
            order = sorted(order, key=row.reported.__getitem__)
        free: Dict[int, List[int]] = {}
        batch = plan.batch(number)
        for place in order:
            free.setdefault(batch[place], []).append(place)
        try:
            return [free[id].pop(0) for id in ids]
        except (KeyError, IndexError):
            return None

    def _row(self, epoch: int, number: int) -> Optional[_Row]:
        if self._open is not None and self._open[:2] == (epoch, number):
            return self._open[2]
        return self._told.get(epoch, {}).get(number)

    def __iter__(self) -> Iterator[Told]:
        """Yields the reports that were sent, in the order of training; any thread may call it."""
        with self._lock:
            told = [
                row.told(e, n)
                for e, rows in sorted(self._told.items())
                for n, row in sorted(rows.items())
            ]
        return iter(told)


def _size(plan: Plan, number: int) -> int:
    return plan.starts[number + 1] - plan.starts[number]


def _some(ids: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, ids[:4])) + (", …]" if len(ids) > 4 else "]")
