"""The hook in torch's DataLoader: samplers learn what iterates them, and training's waiting is
measured."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import nullcontext
from functools import lru_cache, update_wrapper
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional

from .errors import RankpoolError
from .stopping import Spared

# Classes of Accelerate and timm that hand out a batch after they have fetched the next one.
_PREFETCHERS = ("DataLoaderShard", "DataLoaderDispatcher", "PrefetchLoader")
_here = threading.local()


class Ours:
    """A data set or sampler whose DataLoaders are hooked; all others are left alone."""


class Fetched(NamedTuple):
    """What a worker made of a batch: its fields, or an error, of which torch would make another
    one; and what it counted meanwhile, since workers come and go."""

    fields: Any = ()
    counts: Optional[Dict[str, int]] = None
    error: Optional[RankpoolError] = None


class Loading:
    """One iteration of a DataLoader, or, without one, of a sampler alone.

    `handed` is the number of batches that training got or, unless `exact`, that were drawn for it,
    perhaps ahead of training. `between` makes batches out of batches:
    Accelerate's BatchSamplerShard or SkipBatchSampler. `prefetcher` is ahead of training.
    """

    def __init__(self, loader: Any = None, caller: Any = None, order: Any = None) -> None:
        self.batch_size: Optional[int] = None
        self.drop_last, self.handed, self.between = False, 0, None
        # what hands in the batches of the loader's data set, if something does
        self.order, self.dataset = order, getattr(loader, "dataset", None)
        self.states: Any = None  # of its samplers, as the iteration began
        self.in_order = getattr(loader, "in_order", True)
        name = type(caller).__name__
        self.prefetcher = name if name in _PREFETCHERS else ""
        self.exact = loader is not None
        self.samplers = [] if loader is None else list(_under(loader._index_sampler))
        # the stream that training waits for in this iteration, and the tally that counts how long
        self.stream: Any = None
        self.tally: Any = None

    def position(self, first: int, batch: Optional[int]) -> int:
        """Returns how many batches of an epoch, which was begun at batch `first`, training got:
        `batch`, unless None. Raises ValueError if nobody knows."""
        other = self.prefetcher or (self.between and type(self.between).__name__)
        if batch is None and other:
            raise ValueError(
                f"rankpool: {other} is between the DataLoader and the loop: say how many batches "
                "of the epoch were trained, as state_dict(batch=…)"
            )
        return first + self.handed if batch is None else batch

    def wait(self, call: Callable[[], Any], batch: bool = True) -> Any:
        """Returns what call() does, for which training waits: a batch, or else an iterator."""
        outer, _here.loading = under_way(), self
        began, ended = time.perf_counter_ns(), 0
        try:
            result = self._opened(call())
            ended = time.perf_counter_ns()
            self.handed += batch
            return result
        finally:
            _here.loading = outer
            if self.stream is not None:
                if ended:  # a wait in which no batch was handed out is none for samples
                    self.tally.waited(began, ended)
                if ended and batch:
                    self.tally.touch(ended)
                self.stream._goes_on(last=not (ended and batch))

    def _opened(self, result: Any) -> Any:
        """Returns what training gets: the fields of a batch that was fetched."""
        if not isinstance(result, Fetched):
            return result
        if result.error is not None:
            try:
                raise result.error
            finally:
                # the error's traceback has this frame: the workers would outlive the loop
                del result
        if result.counts:
            self.tally.add(result.counts)
        return tuple(result.fields)


def under_way() -> Optional[Loading]:
    """Returns the iteration that this thread waits for, and that measures it; None if there is
    none."""
    return getattr(_here, "loading", None)


def loading_of(sampler: Any) -> Loading:
    """Returns the iteration of a sampler that begins now, with what is made of the ids."""
    found = under_way() or Loading()
    for batches in found.samplers:
        if getattr(batches, "sampler", None) is sampler and hasattr(batches, "batch_size"):
            found.batch_size, found.drop_last = batches.batch_size, batches.drop_last
            found.between = None if batches is found.samplers[0] else found.samplers[0]
    return found


def _under(sampler: Any) -> Iterator[Any]:
    """Yields a sampler, and those that it draws from."""
    yield sampler
    data = sys.modules["torch.utils.data"]
    for inner in list(getattr(sampler, "__dict__", {}).values()):
        if isinstance(inner, (Ours, data.Sampler)) and not isinstance(inner, data.Dataset):
            yield from _under(inner)


@lru_cache(maxsize=None)
def _watched(kind: type) -> type:
    """Returns a class of iterators that does the same and measures next()."""

    class Watched(kind):
        _watched = True

        def __next__(self):
            return self._loading.wait(super().__next__)

    return update_wrapper(Watched, kind, updated=())


def hook() -> None:
    """Hooks DataLoader.__iter__, if the process has imported torch and this was not done."""
    data = sys.modules.get("torch.utils.data")
    if data is None or hasattr(data.DataLoader.__iter__, "_plain"):
        return
    plain = data.DataLoader.__iter__

    def __iter__(loader):
        from .any_sampler import order_of

        order, ours = order_of(loader)
        found = (loader.dataset, order, *_under(loader._index_sampler))
        if not any(isinstance(one, Ours) for one in found):
            return plain(loader)
        loading = Loading(loader, sys._getframe(1).f_locals.get("self"), order)
        starting = nullcontext()
        if loader.num_workers:
            ours["worker_init_fn"] = spared = Spared(loader.worker_init_fn)
            starting = spared.starting(loader.multiprocessing_context)
        own = {name: vars(loader)[name] for name in ours}
        vars(loader).update(ours)  # an iterator keeps what it began with
        try:
            with starting:
                iterator = loading.wait(lambda: plain(loader), batch=False)
        finally:
            vars(loader).update(own)
        if not hasattr(type(iterator), "_watched"):
            iterator.__class__ = _watched(type(iterator))
        iterator._loading = loading
        return iterator

    __iter__._plain = plain
    data.DataLoader.__iter__ = __iter__
