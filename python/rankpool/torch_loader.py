"""The loader: a torch DataLoader that asks the cache once per batch."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Callable, Iterator, List, Optional

from torch.utils.data import DataLoader

from .batch import Batch
from .connection import Connection
from .dataset import Dataset, collate
from .errors import RankpoolError
from .stopping import Spared
from .wire import Tally


class Loader(DataLoader):
    """A DataLoader over a rankpool data set and sampler; it yields (ids, *fields). Made by
    Dataset.loader."""

    def __init__(
        self, data: Dataset, sampler, collate_fn: Optional[Callable[[List[Any]], Any]],
        options: dict,
    ) -> None:
        reader = _Reader(data, collate_fn or collate)
        if options["num_workers"]:
            options["worker_init_fn"] = Spared(options.get("worker_init_fn"))
        super().__init__(reader, sampler=sampler, batch_size=None, collate_fn=_as_it_is, **options)
        sampler._loader_workers = self.num_workers

    def __iter__(self) -> Iterator[tuple]:
        """Yields the batches of the sampler's epoch; raises SampleError if a sample cannot be
        read."""
        sampler = self.sampler
        sampler._loader_workers = self.num_workers
        with (
            self.worker_init_fn.starting(self.multiprocessing_context)
            if self.num_workers
            else nullcontext()
        ):
            batches = super().__iter__()
        for fetched in batches:
            if isinstance(fetched, _Failed):
                try:
                    raise fetched.error
                finally:
                    # the error's traceback has this frame: the workers would outlive the loop
                    del fetched
            counts, fields = fetched
            sampler._handed_out(counts)
            yield tuple(fields)


class _Reader(Dataset):
    """The data set as a loader's workers use it: with the loader's collate function, and errors
    passed on whole."""

    def __init__(self, data: Dataset, collate_fn: Callable[[List[Any]], Any]) -> None:
        self.__dict__.update(data.__dict__)
        self._collate = collate_fn

    def __getitem__(self, key):
        """Returns a batch's counts and its fields: workers come and go, so the training process
        adds up the counts."""
        if not isinstance(key, Batch):
            return super().__getitem__(key)
        self._counts = ()
        try:
            fields = self.read(key, self._collate)
            return self._counts, fields
        except RankpoolError as error:
            return _Failed(error)

    def _counted(self, link: Connection, tally: Tally) -> None:
        self._counts = tally.take()
        link.send_tally(tally)


class _Failed:
    """A worker's error: torch would make another error from its text."""

    def __init__(self, error: RankpoolError) -> None:
        self.error = error


def _as_it_is(batch):
    return batch
