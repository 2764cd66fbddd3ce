"""A lease: the samples of one batch in the slab, and the promise that their bytes stay where they
are."""

from __future__ import annotations

from collections import deque
from pickle import PickleBuffer
from typing import List, Optional, Sequence

_release = memoryview.release


class Lease:
    """The samples of one batch in the slab, each from its place in `offsets` to its place in
    `ends`; `number` is the lease's number at the door, `generation` that of the connection.

    Between the slab and the views stands a guard with a buffer of its own: as long as any view,
    part of a view or array over a view is alive, the guard cannot be released. So a lease never
    ends while its bytes are still in use.
    """

    __slots__ = (
        "number", "generation", "slab", "offsets", "ends", "hands", "_views", "_base", "_guard",
    )  # fmt: skip

    def __init__(
        self, number: int, generation: int, slab, offsets: Sequence[int], ends: Sequence[int]
    ) -> None:
        self.number, self.generation = number, generation
        self.slab, self.offsets, self.ends = slab, offsets, ends
        self.hands = None  # the Hands that hold it (hands.py)
        self._views: Optional[List[memoryview]] = None

    @property
    def views(self) -> List[memoryview]:
        """A view of each sample, made at the first call. Raises ValueError after release."""
        if self._views is None:
            guard = memoryview(self._whole())
            with_export = PickleBuffer(guard)
            base = memoryview(with_export)
            with_export.release()
            self._guard, self._base = guard, base
            self._views = [base[at:end] for at, end in zip(self.offsets, self.ends)]
        return self._views

    def copies(self) -> List[bytes]:
        """Returns the bytes of each sample. Raises ValueError after release."""
        whole = self._whole()
        return [whole[at:end] for at, end in zip(self.offsets, self.ends)]

    def _whole(self):
        if self.slab is None:
            raise ValueError("rankpool: the batch was closed")
        return self.slab

    def release(self) -> bool:
        """Ends the use of all views; returns False while one is still exported: then call it again
        later.

        A view that was released raises ValueError when it is used.
        """
        if self._views is not None:
            try:
                deque(map(_release, self._views), 0)
                _release(self._base)
                _release(self._guard)
            except BufferError:
                self._release_what_can_be()
                return False
        self.slab = None
        if self.hands is not None:
            self.hands.give_back(self)
        return True

    def _release_what_can_be(self) -> None:
        for view in self._views:
            try:
                view.release()
            except BufferError:  # an array over this view is alive
                pass
