"""A lease: the views of one batch in the slab, and the promise that their bytes stay where they
are."""

from __future__ import annotations

from collections import deque
from pickle import PickleBuffer
from typing import Sequence

_release = memoryview.release


class Lease:
    """The views of one batch; `number` is the door's name for it, `generation` that of the
    connection.

    Between the slab and the views stands a guard with a buffer of its own: as long as any view,
    part of a view or array over a view is alive, the guard cannot be released. So a lease never
    ends under somebody who still looks.
    """

    __slots__ = ("number", "generation", "views", "hands", "_base", "_guard")

    def __init__(
        self, number: int, generation: int, slab, offsets: Sequence[int], lengths: Sequence[int]
    ) -> None:
        self.number, self.generation = number, generation
        self.hands = None  # that it is in (hands.py)
        self._guard = memoryview(slab)
        with_export = PickleBuffer(self._guard)
        base = self._base = memoryview(with_export)
        with_export.release()
        self.views = [base[at : at + length] for at, length in zip(offsets, lengths)]

    def release(self) -> bool:
        """Ends the use of all views, or returns False while something still exports one; then call
        it again later.

        A view that was released raises ValueError when it is used.
        """
        try:
            deque(map(_release, self.views), 0)
            _release(self._base)
            _release(self._guard)
        except BufferError:
            self._release_what_can_be()
            return False
        if self.hands is not None:
            self.hands.give_back(self)
        return True

    def _release_what_can_be(self) -> None:
        for view in self.views:
            try:
                view.release()
            except BufferError:  # an array over this view is alive
                pass
