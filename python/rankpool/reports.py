"""Which batch a script's ids belong to, and the losses that were reported."""

from __future__ import annotations

import threading
from array import array
from itertools import chain
from math import isnan, nan
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from .wire import Plan

# A cache that is started again makes a plan from the state of the epoch before, which lacks the last reports of the
# epoch before that. The trainer that asks for it may be an epoch behind this one.
KEPT_EPOCHS = 2


class Reports:
    """The losses of this epoch and of KEPT_EPOCHS before, by global batch, kept for sending them again.

    `next` is the first batch of this epoch whose losses are not all known.
    """

    def __init__(self) -> None:
        self._losses: Dict[int, Dict[int, array]] = {}
        self._lock = threading.Lock()
        self.next = 0

    def begin(self, epoch: int, first: int) -> None:
        """Begins an epoch at batch `first`; forgets older epochs, and later ones."""
        with self._lock:
            self._losses = {e: losses for e, losses in self._losses.items() if epoch - KEPT_EPOCHS <= e <= epoch}
        self.next = first

    def add(self, plan: Plan, current: int, ids: Sequence[int], losses: Sequence[float]) -> Tuple[int, array]:
        """Enters losses; returns the batch they belong to and all that is known of its losses, NaN the rest.

        `current` is the batch that training is at, as far as is known. Raises ValueError when no batch of the
        plan, from the next unreported one on, has these ids.
        """
        if len(ids) != len(losses):
            raise ValueError(f"rankpool: {len(ids)} ids and {len(losses)} losses")
        number, places = self.find(plan, current, ids)
        with self._lock:
            known = self._losses.setdefault(plan.epoch, {})
            row = known.setdefault(number, array("f", [nan]) * (plan.starts[number + 1] - plan.starts[number]))
            for place, loss in zip(places, losses):
                row[place] = loss
        self.next = number if any(map(isnan, row)) else number + 1
        return number, row

    def find(self, plan: Plan, current: int, ids: Sequence[int]) -> Tuple[int, List[int]]:
        """Returns the batch that ids belong to and the place of each in it."""
        likely = [b for b in (self.next, current) if self.next - 1 <= b < plan.batches and b >= 0]
        later = range(self.next, plan.batches)
        for number in chain(likely, later):
            if _size(plan, number) == len(ids) and plan.batch(number) == ids:
                return number, list(range(len(ids)))
        for number in chain(likely, later):
            places = self._places(plan, number, ids)
            if places is not None:
                return number, places
        raise ValueError(
            f"rankpool: the ids {_some(ids)} are no batch, nor part of one, of epoch {plan.epoch} "
            f"from batch {self.next} on"
        )

    def _places(self, plan: Plan, number: int, ids: Sequence[int]) -> Optional[List[int]]:
        if len(ids) > _size(plan, number):
            return None
        row = self._losses.get(plan.epoch, {}).get(number)
        order = range(_size(plan, number))
        if row is not None:  # a draw whose loss is missing comes before its twin that has one
            order = sorted(order, key=lambda place: not isnan(row[place]))
        free: Dict[int, List[int]] = {}
        batch = plan.batch(number)
        for place in order:
            free.setdefault(batch[place], []).append(place)
        try:
            return [free[id].pop(0) for id in ids]
        except (KeyError, IndexError):
            return None

    def __iter__(self) -> Iterator[Tuple[int, int, array]]:
        """Yields (epoch, batch, losses) in the order of training, from any thread.

        The newest batch is left out while losses of it are missing: add tells it when they come.
        """
        with self._lock:
            kept = [(e, n, row[:]) for e, losses in sorted(self._losses.items()) for n, row in sorted(losses.items())]
        if kept and any(map(isnan, kept[-1][2])):
            kept.pop()
        return iter(kept)


def _size(plan: Plan, number: int) -> int:
    return plan.starts[number + 1] - plan.starts[number]


def _some(ids: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, ids[:4])) + (", …]" if len(ids) > 4 else "]")
