"""What the drop-in data sets have in common: samples from the cache when it serves them, and the
same tensors."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, List, Optional

from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import get_worker_info

from . import session
from .batch import Batch, Index, ask, take
from .connection import connection
from .dataset import Dataset, name_of
from .seeding import keep, number_of, seed_all

_said = set()


def say_once(text: str) -> None:
    """Prints a sentence on stderr, once a trainer."""
    worker = get_worker_info()
    if text not in _said and (worker is None or worker.id == 0):
        print(f"rankpool: {text}", file=sys.stderr, flush=True)
    _said.add(text)


class Served(TorchDataset):
    """A map-style data set whose samples come from the cache when it serves them, a batch at a
    time, else from storage.

    `root` is its folder; `_data` is the cache's data set, None when samples are read from storage.
    A class that derives from it makes the items, in `_item`.
    """

    def __init__(self, root, rng: Optional[str]) -> None:
        if rng not in ("sample", None):
            raise ValueError(f'rankpool: rng must be "sample" or None, not {rng!r}')
        self.root, self.rng = root, rng
        self._data: Optional[Dataset] = None
        self._reader: Optional[_Reader] = None
        # puts the script's generators back: not yet
        self._restore: Optional[Callable[[], None]] = None

    def _find_served(self, difference: Callable[[Dataset], str]) -> Optional[Dataset]:
        """Returns the cache's data set of this root, unless difference returns why its samples are
        others."""
        if not session.launched():
            return None
        name = name_of(self.root)
        if name is None:
            say_once(
                f"the cache does not serve {self.root}: it is read from storage "
                "(give it to `rankpool run --data`)"
            )
            return None
        data = Dataset(name)
        reason = difference(data)
        if reason:
            say_once(f"{self.root} is read from storage: {reason}")
            return None
        return data

    def _item(self, index: int) -> Any:
        raise NotImplementedError

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_reader": None, "_restore": None}

    def __getitem__(self, index: int) -> Any:
        if not self._restores(index):
            return self._item(index)
        self._restore = self._restore or keep()
        last = not index.batch.together or index.place == len(index.batch) - 1
        try:
            return self._item(index)
        except BaseException:
            last = True
            raise
        finally:
            if last:
                self._end()

    def __getitems__(self, indices: List[int]) -> List[Any]:
        """Returns the items of a batch, as torch 2 asks for them."""
        if any(map(self._restores, indices)):
            self._restore = self._restore or keep()
        try:
            return [self._item(index) for index in indices]
        finally:
            self._end()

    def _restores(self, index: int) -> bool:
        """Returns whether the generators are put back after this item: no others' are in a
        worker."""
        return self._seeds(index) and get_worker_info() is None

    def _end(self) -> None:
        restore, self._restore = self._restore, None
        if restore is not None:
            restore()

    def _seeds(self, index: int) -> bool:
        return self.rng is not None and isinstance(index, Index)

    def _seed(self, index: int) -> None:
        """Seeds the generators for the transforms of a sample that a sampler of rankpool drew."""
        if self._seeds(index):
            batch = index.batch
            k = batch.repeats[index.place] if batch.repeats else 0
            seed_all(number_of(batch.spec.seed, batch.epoch, int(index), k))

    def _bytes(self, index: int) -> bytes:
        if (
            isinstance(index, Index)
            and index.batch.stream >= 0
            and index.batch.spec.data == self._data.name
        ):
            if self._reader is None or self._reader.pid != os.getpid():
                self._reader = _Reader(self._data)
            return self._reader.read(index.batch, index.place)
        say_once(
            f"samples of {self.root} are read from storage one by one, "
            "because no sampler of rankpool draws them "
            "in whole batches"
        )
        return self._data.index.read(int(index) % len(self))


class _Reader:
    """The batch that this process reads: asked for at once, its samples given one by one."""

    def __init__(self, data: Dataset) -> None:
        self._data, self._batch, self._samples, self._left = data, None, None, 0
        self.pid = os.getpid()  # a forked worker begins with its own

    def read(self, batch: Batch, place: int) -> bytes:
        """Returns the bytes of the sample at a place of a batch; raises SampleError when it cannot
        be read."""
        if batch is not self._batch:
            self._close()
            link = self._data._connection(batch)
            self._samples = take(link, self._data.index, batch, ask(link, [batch])[0])
            self._batch, self._left = batch, len(batch)
        content = bytes(self._samples.views[place])
        if self._samples.lost():  # the cache went away meanwhile: they may be other bytes
            content = self._data.index.read(batch[place])
        self._left -= 1
        if not self._left:
            self._close()
        return content

    def _close(self) -> None:
        """Gives the lease back, and sends what was counted."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._samples.close()
            self._samples = None
            link = connection(self._data.door, batch.spec.trainer, batch.spec.world)
            link.send_tally(link.tally(batch.stream, batch.epoch))
