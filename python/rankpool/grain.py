"""Records for Grain, from the cache, in an order that is handed in.

    source = rankpool.grain.Source()
    order = grain.MapDataset.range(len(source)).shuffle(seed=0).repeat(90)
    records = rankpool.grain.planned(order, source, batch_size=64)
    data = grain.MapDataset.source(records).map(decode).batch(64).to_iter_dataset()
"""

from __future__ import annotations

import threading
import time
from array import array
from contextlib import suppress
from itertools import chain
from multiprocessing.connection import Client, Listener
from typing import Any, Dict, List, Optional, Tuple

from . import session
from .batch import Batch, fetch
from .connection import Spec, connection
from .dataloader_hook import Loading
from .dataset import Dataset
from .listed import listed, words_of

# A part is an epoch, but not a short one: Grain reads up to 500 batches ahead, and the ranks serve
# two parts at a time.
_BLOCKS = 512
_KEPT = 32  # batches of which some records were not read, as after a jump


class Source:
    """The records of a data set that the cache serves, as bytes, by id: a RandomAccessDataSource.

    It reads storage; what `planned` returns reads the cache. `data` is the rankpool.Dataset, with
    the labels.
    """

    def __init__(self, split: Optional[str] = None) -> None:
        self.data = Dataset(split, members=False)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, id: int) -> bytes:
        return self.data[id][1]

    def __repr__(self) -> str:
        return f"rankpool.grain.Source({self.data.name!r}, identity={self.data.identity!r})"


class Planned:
    """This trainer's records in an order, by position; see planned.

    A part of the order is an epoch for the ranks. The training process hands it in when the first
    record of it is read; its workers have that done through a socket, at `main`.
    """

    def __init__(
        self, order, source: Source, batch_size: int, workers: int, start: int,
        main: Optional[str] = None,
    ) -> None:
        self.order, self.source, self._main = order, source, main
        self._made = batch_size, workers, start
        self._start, self._workers = start, max(1, workers)
        self._block = batch_size * self._workers  # in records, as a part
        self._rank, self._world = session.seat(None, None)
        self._part = self._block * max(_BLOCKS, len(source) // self._world // self._block)
        self._lock = threading.Condition()
        self._reading: List[int] = []  # the parts of which threads read records now
        self._open: Dict[Tuple[int, int], Dict[int, bytes]] = {}  # what was not read of batches
        # by part: stream, epoch and spec; None: it is read from storage
        self._begun: Dict[int, Optional[Tuple[int, int, Spec]]] = {}
        if main is None:
            self._listener = Listener(family="AF_UNIX")
            threading.Thread(target=self._serve, name="rankpool grain", daemon=True).start()

    def __reduce__(self):
        return Planned, (self.order, self.source, *self._made, self._main or self._listener.address)

    def __repr__(self) -> str:
        return f"rankpool.grain.planned({self.source!r}, start={self._start})"

    def __len__(self) -> int:
        return max(0, (len(self.order) - self._start) // self._world)

    def id(self, position: int) -> int:
        """Returns the id of the record at a position."""
        found = self.order[self._start + position * self._world + self._rank]
        return int(getattr(found, "record_key", found))

    def __getitem__(self, position: int) -> bytes:
        part, at = divmod(position, self._part)
        block, at = divmod(at, self._block)
        # the workers take the records of a block in turn
        number, place = block * self._workers + at % self._workers, at // self._workers
        self._reading.append(part)  # a part ends when its last batch is read
        with self._lock:
            try:
                self._lock.wait_for(lambda: min(self._reading) >= part)
                return self._read(part, number, place)
            finally:
                self._reading.remove(part)
                self._lock.notify_all()

    def _read(self, part: int, number: int, place: int) -> bytes:
        records = self._open.get((part, number), {})
        if place not in records:
            records = self._open[part, number] = dict(enumerate(self._fetch(part, number)))
        record = records.pop(place)
        if not records or len(self._open) > _KEPT:
            del self._open[next(iter(self._open)) if records else (part, number)]
        return record

    def _ids(self, part: int, number: int) -> List[int]:
        """Returns the ids of a batch of a part."""
        block, worker = divmod(number, self._workers)
        first = part * self._part + block * self._block
        end = min(first + self._block, len(self))
        return [self.id(at) for at in range(first + worker, end, self._workers)]

    def _fetch(self, part: int, number: int) -> List[bytes]:
        link = connection(self.source.data.door, self._rank, self._world)
        link.in_worker = link.in_worker or self._main is not None
        stream, epoch, spec = self._begin(part) or (-1, part, None)
        batch = Batch(self._ids(part, number), stream, epoch, number, spec, key=None)
        # what Grain's threads wait for, training may not
        found = Loading().wait(lambda: fetch(link, self.source.data.index, batch), batch=False)
        link.send_tally(link.tally(stream, epoch))
        return found

    def _begin(self, part: int) -> Optional[Tuple[int, int, Spec]]:
        """Has a part handed in, unless it was; returns how the ranks know it."""
        if part not in self._begun and self._main is not None:
            with Client(self._main) as main:
                main.send(part)
                self._begun[part] = main.recv()
        elif part not in self._begun:
            self._begun[part] = self._hand_in(part)
        return self._begun[part]

    def _serve(self) -> None:
        while True:
            with suppress(EOFError, OSError), self._listener.accept() as worker:  # it may be killed
                part = worker.recv()
                with self._lock:
                    worker.send(self._begin(part))

    def _hand_in(self, part: int) -> Optional[Tuple[int, int, Spec]]:
        began, stream = time.perf_counter_ns(), listed(self.source.data, self._rank, self._world)
        if stream is None or part < max(self._begun, default=0):
            return None
        epoch = stream.begin(self._words(part))
        if epoch is None:
            return None
        stream._measure(epoch, began)
        if (part + 1) * self._part < len(self):
            threading.Thread(target=self._foresee, args=(stream, part + 1)).start()
        return stream._stream, epoch, stream.spec

    def _foresee(self, stream, part: int) -> None:
        words = self._words(part)
        with self._lock:
            if part > max(self._begun):
                stream.foresee(words)

    def _words(self, part: int) -> bytes:
        batches = self._part // self._block * self._workers
        parts = [ids for number in range(batches) if (ids := self._ids(part, number))]
        return words_of(array("I", map(len, parts)), array("I", chain.from_iterable(parts)))


def planned(
    order: Any, source: Source, batch_size: int, workers: int = 0, start: int = 0
) -> Planned:
    """Returns a RandomAccessDataSource of the records of this trainer, by RANK and WORLD_SIZE, in
    an order: record i is that of the id order[start + i · WORLD_SIZE + RANK].

    `order` is a MapDataset of ids, a sampler such as IndexSampler, or a list, the same on all
    trainers, and not sharded. Grain reads the records in order: grain.MapDataset.source(records),
    or grain.DataLoader with a SequentialSampler(len(records)), whose worker_count is `workers`.
    `start` resumes on another number of trainers: the number of records that all of them together
    have trained on.
    """
    return Planned(order, source, batch_size, workers, start)
