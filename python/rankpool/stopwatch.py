"""How long training waits: the time that it spends in next() of what hands it its batches."""

from __future__ import annotations

import sys
import threading
import time
from functools import lru_cache
from typing import Any, Optional

_FRAMES = 12  # to search; there are seven between a loader's iterator and its batch sampler
_here = threading.local()


def measuring() -> bool:
    """Returns whether a Stopwatch runs in this thread: what is waited for now is counted by it."""
    return getattr(_here, "running", False)


class Stopwatch:
    """Measures how long training waits in one iteration of a sampler, and tells the sampler's
    tally. `began`: the perf_counter_ns from which it runs."""

    def __init__(self, sampler, epoch: Optional[int] = None, began: Optional[int] = None) -> None:
        self._sampler, self._epoch, self._began = sampler, epoch, began
        self._tally: Any = None  # of the epoch, which is known after the first wait
        self.in_next = False  # it was started within the next() that it measures

    def start(self) -> None:
        """Begins a wait, unless one has begun."""
        if self._began is None:
            self._began = time.perf_counter_ns()
        _here.running = True

    def stop(self, handed: bool = True) -> None:
        """Ends a wait for a batch, or, unless one was `handed` out, for the epoch's plan."""
        now, began = time.perf_counter_ns(), self._began
        if self._reset() and began is not None:
            self._tally.waited(began, now)
            if handed:
                self._tally.touch(now)
            self._sampler._goes_on(last=not handed)

    def end(self) -> None:
        """Ends the iteration: a wait in which no batch was handed out is none for samples."""
        if self._reset():
            self._sampler._goes_on(last=True)

    def _reset(self) -> bool:
        """Returns whether the epoch that is measured is still iterated."""
        self._began, self.in_next, _here.running = None, False, False
        if self._tally is None:
            self._tally = self._sampler._tally(self._epoch)
        return self._sampler._counts_in(self._tally)


def watch(iterator, stopwatch: Stopwatch) -> None:
    """Measures every next() of a DataLoader's iterator from now on, also the one that runs."""
    iterator._stopwatch = stopwatch
    if not hasattr(type(iterator), "_watched"):
        iterator.__class__ = _watched(type(iterator))
    # without workers, a sampler is asked within the first next(), which goes on
    stopwatch.in_next = getattr(iterator, "_num_workers", 1) == 0
    stopwatch.start()
    if not stopwatch.in_next:
        stopwatch.stop(handed=False)


@lru_cache(maxsize=None)
def _watched(kind: type) -> type:
    """Returns a class of iterators that does the same and measures next()."""

    class Watched(kind):
        _watched = True

        def __next__(self):
            self._stopwatch.start()
            try:
                batch = super().__next__()
            except BaseException:
                self._stopwatch.end()
                raise
            self._stopwatch.stop()
            return batch

        @property
        def _num_yielded(self) -> int:
            return self.__dict__["_num_yielded"]

        @_num_yielded.setter
        def _num_yielded(self, number: int) -> None:
            """The iterator sets it at the end of next(): also of the one that ran when it got this
            class."""
            self.__dict__["_num_yielded"] = number
            if self._stopwatch.in_next and number:
                self._stopwatch.stop()

    Watched.__name__, Watched.__qualname__ = kind.__name__, kind.__qualname__
    Watched.__module__ = kind.__module__
    return Watched


def iterator_above() -> Any:
    """Returns the iterator of a torch DataLoader that asks the caller for its next batch; None if
    none does."""
    torch = sys.modules.get("torch.utils.data.dataloader")
    frame = sys._getframe(1) if torch is not None else None
    for _ in range(_FRAMES):
        if frame is None:
            return None
        if isinstance(caller := frame.f_locals.get("self"), torch._BaseDataLoaderIter):
            return caller
        frame = frame.f_back
    return None
