"""What the drop-in data sets have in common: samples from the cache if it serves them, and
reproducible tensors."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import get_worker_info

from . import piece_files, session
from .batch import Batch, Index, Samples, ask, fetch, take
from .dataloader_hook import Ours, hook
from .dataset import Dataset, name_of
from .messages import say_once
from .seeding import keep, number_of, seed_all

hook()

# What was fetched of a batch: the bytes of each sample, or of each piece by its row.
Fetched = Union[List[bytes], Dict[int, memoryview]]

# The data sets of the cache that samplers of rankpool draw from: other orders are not planned.
claimed: Set[str] = set()


def claim(dataset: Any) -> None:
    """Records that a sampler of rankpool draws from a data set."""
    data = dataset._drawn if isinstance(dataset, Served) else None
    if data is not None:
        claimed.add(data.name)


class Served(TorchDataset, Ours):
    """A map-style data set whose samples come from the cache if it serves them, a batch at a time,
    or else from storage.

    `root` is its folder; `_data` is the cache's data set, None if samples are read from storage. A
    subclass makes the items, in `_item`.
    """

    def __init__(self, root, rng: Optional[str]) -> None:
        if rng not in ("sample", None):
            raise ValueError(f'rankpool: rng must be "sample" or None, not {rng!r}')
        self.root, self.rng = root, rng
        self._data: Optional[Dataset] = None
        self._readers: Dict[int, _Reader] = {}  # by process: a forked worker begins with its own
        self._kept = False  # the script's generators will be restored
        self._passes = 0  # over it, by samplers without set_epoch

    @property
    def _drawn(self) -> Optional[Dataset]:
        """The cache's data set if ranks draw from it, and do not only plan what others draw."""
        return self._data

    def _find_served(self) -> Optional[Dataset]:
        """Returns the cache's data set for this root, or None if it has none."""
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
        if data.index.pieces is not None:
            say_once(f"samples of {self.root} are made of pieces: rankpool.Arrays reads them")
            return None
        return data

    def _item(self, index: int) -> Any:
        raise NotImplementedError

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_readers": {}, "_kept": False}

    def __getitem__(self, index: int) -> Any:
        with self._keeps_generators([index]):
            return self._item(index)

    def __getitems__(self, indices: List[int]) -> List[Any]:
        """Returns the items of a batch, as torch 2 asks for them; a subclass may make them in its
        own __getitem__."""
        with self._keeps_generators(indices):
            return [self[index] for index in indices]

    @contextmanager
    def _keeps_generators(self, indices: List[int]) -> Iterator[None]:
        """Within this context items are made, and their transforms perhaps seeded; then the
        script's own random numbers go on. A worker has no others."""
        kept = self._kept or get_worker_info() is not None or not any(map(self._seeds, indices))
        if kept:
            yield
            return
        self._kept, restore = True, keep()
        try:
            yield
        finally:
            self._kept = False
            restore()

    def _seeds(self, index: int) -> bool:
        return self.rng is not None and isinstance(index, Index) and index.batch.key is not None

    def _seed(self, index: int) -> None:
        """Seeds the generators for the transforms of a sample that a sampler of rankpool drew."""
        if self._seeds(index):
            batch, place = index.batch, index.place
            k = batch.repeats[place] if batch.repeats else 0
            read = batch.reads[place] = batch.reads.get(place, -1) + 1
            seed_all(number_of(batch.key, int(index), k, read))

    def _bytes(self, index: int) -> bytes:
        if self._planned(index):
            return self._fetched(index.batch)[index.place]
        return self._data.index.read(int(index) % len(self))

    @contextmanager
    def _hand(self, index: int) -> Iterator[None]:
        """Within this context files that rankpool.open has made read the pieces of a sample."""
        found, before = self._data.index, piece_files.unplanned_bytes
        planned = self._planned(index)
        of = planned and index.batch.pieces
        of = of[index.place] if of else found.pieces.of(int(index))
        rows = self._fetched(index.batch) if planned else {
            row: memoryview(found.read(row)) for row in set(of)
        }  # fmt: skip
        with piece_files.in_hand(found, of, rows):
            yield
        if planned and piece_files.unplanned_bytes > before:
            link = self._data._connection(index.batch)
            tally = link.tally(index.batch.stream, index.batch.epoch)
            tally.counts["unplanned_bytes"] += piece_files.unplanned_bytes - before
            link.send_tally(tally)

    def _fetched(self, batch: Batch) -> Fetched:
        # all threads that come at the same time get the reader of one of them
        return self._readers.setdefault(os.getpid(), _Reader(self._data)).take(batch)

    def _planned(self, index: int) -> bool:
        """Returns whether a sampler of rankpool drew a sample, which the reader then has."""
        spec = index.batch.spec if isinstance(index, Index) else None
        if spec is not None and spec.data == self._data.name:
            return True
        say_once(
            f"samples of {self.root} are read from storage one by one: a sampler of rankpool trains "
            "on them too, or no DataLoader over this data set draws them (see rankpool.planned)"
        )
        return False


class _Reader:
    """The batches that this process reads, one per thread."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._lock = threading.Lock()
        # by thread; two may have the same
        self._open: Dict[int, Tuple[Batch, Fetched, Optional[Samples]]] = {}

    def take(self, batch: Batch) -> Fetched:
        """Returns the bytes of the samples of a batch by their places in it, or of its pieces by
        their rows; raises SampleError for one that cannot be read."""
        thread = threading.get_ident()
        with self._lock:
            if thread not in self._open or self._open[thread][0] is not batch:
                _, _, left = self._open.pop(thread, (None, None, None))
                others = list(self._open.values())
                if left is not None and all(one[2] is not left for one in others):
                    left.close()
                same = next((one for one in others if one[0] is batch), None)
                self._open[thread] = same or (batch, *self._fetch(batch))
            return self._open[thread][1]

    def _fetch(self, batch: Batch) -> Tuple[Fetched, Optional[Samples]]:
        """Returns what take returns; of pieces, which libraries read in place, what must be closed."""
        link, index = self._data._connection(batch), self._data.index
        if index.pieces is None:
            found, samples = fetch(link, index, batch), None
        else:
            samples = take(link, index, batch, ask(link, [batch])[0], in_hand=True)
            found = dict(zip(index.rows(batch), samples.views))
        link.send_tally(link.tally(batch.stream, batch.epoch))
        return found, samples
