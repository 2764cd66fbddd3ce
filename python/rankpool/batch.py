"""A batch: what a sampler yields, how its samples are requested, and where they are read if the
cache does not serve them."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from contextlib import suppress
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from . import wire
from .connection import Connection, Spec
from .dataloader_hook import under_way
from .errors import Away, NotReady, SampleError
from .index import Index, Members
from .lease import Lease


class Batch(list):
    """The ids of one trainer's part of a global batch, in the order of the plan.

    `stream` is the stream's number at the door, `number` the global batch's place in `epoch`, and
    `spec` lets a worker request the batch by itself. It is small and can be pickled. `repeats` has
    for each id how often the epoch drew it before; None: never. The cache does not serve a stream
    below 0, which may lack a spec. `evaluated`: the batch is not trained on. `key` stands for the
    pass over the data, in the seeds of transforms; None: there are none. `reads` counts, by place,
    how often this process has read a sample of the batch. `pieces`, by place, are the rows of the
    index that a sample is known to read; None: the index says it.
    """

    __slots__ = (
        "stream", "epoch", "number", "spec", "repeats", "evaluated", "key", "reads", "pieces",
    )  # fmt: skip

    def __init__(
        self, ids: List[int], stream: int, epoch: int, number: int, spec: Optional[Spec],
        repeats: Optional[List[int]] = None, evaluated: bool = False, key: Optional[int] = 0,
    ) -> None:
        super().__init__(ids)
        self.stream, self.epoch, self.number, self.spec = stream, epoch, number, spec
        self.repeats, self.evaluated, self.key = repeats, evaluated, key
        self.reads: Dict[int, int] = {}
        self.pieces: Optional[List[List[int]]] = None

    def indices(self) -> Iterator[Index]:
        """Yields the ids as a torch sampler does, each with its batch."""
        for place, id in enumerate(self):
            yield Index(id, self, place)


class Index(int):
    """An id that knows its batch and its place in it: a torch DataLoader hands ids over one by one.

    Indices of one batch that are pickled together, as for a worker, share one Batch when unpickled.
    """

    batch: Batch
    place: int

    def __new__(cls, id: int, batch: Batch, place: int) -> Index:
        index = int.__new__(cls, id)
        index.batch, index.place = batch, place
        return index

    def __reduce__(self):
        return Index, (int(self), self.batch, self.place)


class Samples:
    """The samples of one batch: `ids`, `labels`, and `views`, each a memoryview of a sample's
    bytes.

    `members` holds the Members of each sample: memoryviews by extension. A sample's bytes are those
    of its members, one after another. If samples share pieces, `views` are those of the batch's
    pieces, each once, in the order in which they first come, and `pieces` tells which are a
    sample's. The views point into the cache's memory. They are valid until
    the batch is closed, and raise ValueError afterwards. `copies()` returns bytes that stay valid.
    """

    __slots__ = ("ids", "_views", "_index", "_lease", "_connection")

    def __init__(
        self, ids: Batch, views: Optional[List[memoryview]], index: Index,
        lease: Optional[Lease], connection: Connection,
    ):
        # views is None if the lease has them
        self.ids, self._views, self._index = ids, views, index
        self._lease, self._connection = lease, connection

    @property
    def views(self) -> List[memoryview]:
        if self._views is None:
            if self._lease is None:
                raise ValueError("rankpool: the batch was closed")
            self._views = self._lease.views
        return self._views

    def copies(self) -> List[bytes]:
        """Returns the bytes of each sample, as [bytes(view) for view in views] does, and faster."""
        if self._views is None and self._lease is not None:
            return self._lease.copies()
        return list(map(bytes, self.views))

    def pieces(self, place: int) -> List[Tuple[str, int, memoryview]]:
        """Returns the pieces of the sample at a place in the batch, in order: the path of the file,
        the offset in it, and a view of the bytes."""
        index = self._index
        rows = dict(zip(index.rows(self.ids), self.views))
        return [
            (os.fsdecode(index.path(row)), index.offset(row), rows[row])
            for row in index.rows([self.ids[place]])
        ]

    @property
    def members(self) -> List[Members]:
        return [self._index.split(id, view) for id, view in zip(self.ids, self.views)]

    @property
    def labels(self) -> List[int]:
        return [self._index.label(id) for id in self.ids]

    def close(self) -> None:
        """Releases the views; the cache may reuse their memory."""
        if self._lease is not None:
            self._connection.end(self._lease)
            self._lease = None


def ask(connection: Connection, batches: Sequence[Batch]) -> List[Optional[int]]:
    """Requests batches of one epoch together; returns a ticket for each, or None for each if the
    cache is away or not ready."""
    with suppress(Away, NotReady):
        if batches and batches[0].stream >= 0 and connection.connect():
            first = batches[0]
            connection.open(first.spec)
            return connection.get(first.stream, first.epoch, [batch.number for batch in batches])
    return [None] * len(batches)


def fetch(connection: Connection, index: Index, batch: Batch) -> List[bytes]:
    """Returns the bytes of each sample of a batch; raises SampleError for one that cannot be
    read."""
    tally = connection.tally(batch.stream, batch.epoch)
    before = dict(tally.counts)
    samples = take(connection, index, batch, ask(connection, [batch])[0])
    try:
        found = samples.copies()
        if samples._lease is None or not connection.lost(samples._lease):
            return found
    finally:
        samples.close()
    tally.counts = before
    return take(connection, index, batch, None).copies()


def take(
    connection: Connection, index: Index, batch: Batch, ticket: Optional[int], in_hand: bool = False
) -> Samples:
    """Returns the samples of a requested batch; what the cache does not have is read from storage.

    `in_hand`: the views stay valid as long as the script has them: no rank writes there. Raises
    SampleError for a sample that cannot be read.
    """
    tally = connection.tally(batch.stream, batch.epoch)
    began = time.perf_counter_ns()
    reply = _reply(connection, batch, ticket)
    if reply is not None and in_hand and not connection.lend(reply[1]):
        connection.end(reply[1])
        reply = None
    counts: Dict[str, int] = defaultdict(int)
    if reply is None:
        samples = _from_storage(connection, index, batch, counts)
    else:
        samples = _from_cache(connection, index, batch, counts, *reply)
    (tally.evaluate if batch.evaluated else tally.add)(counts)
    now = time.perf_counter_ns()
    tally.touch(now)
    if not connection.in_worker and under_way() is None:
        tally.waited(began, now)
    return samples


def _reply(
    connection: Connection, batch: Batch, ticket: Optional[int]
) -> Optional[Tuple[wire.BatchReply, Lease]]:
    """Returns the reply and its lease, or None if the cache has none."""
    for again in (True, False):
        try:
            return None if ticket is None else connection.batch(ticket)
        except NotReady:
            return None
        except Away:  # it may be back already
            ticket = ask(connection, [batch])[0] if again else None
    return None


def _from_cache(
    connection: Connection, index: Index, batch: Batch, counts: Dict[str, int],
    reply: wire.BatchReply, lease: Lease,
) -> Samples:
    rows = index.rows(batch)
    # The plan decides the stream, whatever the cache answers; and what the end of the slab cuts off
    # is not a sample, or one that no rank has.
    if not reply.has(rows) or max(lease.ends, default=0) > len(lease.slab):
        connection.end(lease)
        return _from_storage(connection, index, batch, counts)
    counts["hits_local"] = reply.sources.count(wire.LOCAL)
    views = None
    if counts["hits_local"] != len(rows):
        try:
            views = _mixed(index, rows, counts, reply, lease.views)
        except BaseException:
            connection.end(lease)
            raise
    return Samples(batch, views, index, lease, connection)


def _mixed(
    index: Index, rows: List[int], counts: Dict[str, int], reply: wire.BatchReply,
    views: List[memoryview],
) -> List[memoryview]:
    """Returns the views of a batch whose samples are not all local hits, and counts the others."""
    views = list(views)
    for place, source in enumerate(reply.sources):
        substitute, source = source & wire.SUBSTITUTE, source & ~wire.SUBSTITUTE
        if source == wire.UNREADABLE:
            path = index.path(rows[place]).decode("utf-8", "replace")
            raise SampleError(
                rows[place], path, reply.failures.get(place, "the cache could not read it")
            )
        if source in (wire.LOCAL, wire.REMOTE):
            if substitute:
                counts["substituted"] += 1
            elif source == wire.REMOTE:
                counts["hits_remote"] += 1
            continue
        if source not in (wire.STORAGE, wire.FALLBACK):
            views[place] = memoryview(index.read(rows[place]))
        reader = "storage" if source == wire.STORAGE else "fallback"
        counts[f"{reader}_reads"] += 1
        counts[f"{reader}_bytes"] += len(views[place])
        counts["substitute_reads"] += bool(substitute)
    return views


def _from_storage(
    connection: Connection, index: Index, batch: Batch, counts: Dict[str, int]
) -> Samples:
    views = [memoryview(index.read(row)) for row in index.rows(batch)]
    counts["fallback_reads"], counts["fallback_bytes"] = len(views), sum(map(len, views))
    return Samples(batch, views, index, None, connection)
