"""A data set that the cache serves, for torch's DataLoader and for plain loops."""

from __future__ import annotations

import json
import os
from collections import deque
from itertools import islice
from typing import Any, Callable, Deque, Iterator, List, Optional, Tuple, Union

from . import piece_files, session, wire
from .batch import Batch, Samples, ask, fetch, take
from .connection import Connection, connection
from .dataloader_hook import Fetched, Loading, hook
from .errors import IdentityError, RankpoolError
from .index import Index, Members
from .training import identities
from .waiting import Waiting
from .wire import Tally

# Small batches are requested several at a time: a request and its answer cost some 30 µs, whatever
# their size.
AHEAD_BYTES = 2 << 20
MAX_AHEAD = 8
CONNECT_SECONDS = 60.0  # a cache step that starts beside the training step takes seconds

Transform = Callable[[Union[memoryview, Members], int], Any]


class Dataset:
    """The samples of one data set, as a torch map-style data set.

    `split` is the data set's name; None: the first that the cache serves. `transform(view, label)`
    makes an item from a sample's bytes, in the worker: a tuple's fields become the fields of a
    batch, any other value x becomes (x, label). Without a transform the item is the sample's
    `bytes`.

    With `members`, a dict of the sample's members by extension, {"jpg": …, "json": …}, replaces the
    view or the bytes. None: only if some sample of the data set has several members, as in tar
    shards.

    data[batch], with a Batch of a BatchSampler, is the collated batch (ids, *fields), fetched with
    one request to the cache. data[i], i an int, is (i, *fields), read from storage.

    `name`, `classes` and `labels` (by id) describe it. It can be pickled; each process has its own
    connection. Raises RankpoolError if the process was not started under `rankpool run`, or the
    cache does not serve the data set.
    """

    def __init__(
        self,
        split: Optional[str] = None,
        transform: Optional[Transform] = None,
        members: Optional[bool] = None,
    ) -> None:
        self.transform = transform
        self.door = session.door()
        served = data_sets(self.door)
        found = next((d for d in served if split in (None, d["name"])), None)
        if found is None:
            names = ", ".join(repr(d["name"]) for d in served) or "none"
            raise RankpoolError(
                f"rankpool: the cache serves no data set {split!r}; it serves {names}"
            )
        self.name: str = found["name"]
        self.samples: int = found["samples"]
        self.identity: str = found["identity"]
        self.times: str = found["times"]
        self.index_path: str = found["index"]
        self._index: Optional[Index] = None
        identities(self.door).expect(self.name, self.identity, self.times)
        self.members = self.index.has_members if members is None else members

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_index": None, "_family": session.family()}

    def __setstate__(self, state: dict) -> None:
        session.family(state.pop("_family"))
        self.__dict__.update(state)

    @property
    def index(self) -> Index:
        """The sample index, mapped when it is first needed; it outlives the cache."""
        if self._index is None:
            index = Index(self.index_path)
            if (index.identity, index.times) != (self.identity, self.times):
                raise IdentityError(
                    f"rankpool: {self.index_path} is of another data set than {self.name!r}, "
                    "which training began with"
                )
            if index.pieces is not None:
                piece_files.serve(index)
            self._index = index
        return self._index

    @property
    def classes(self) -> List[str]:
        """The names of the classes by label."""
        return self.index.classes

    @property
    def labels(self) -> memoryview:
        """The labels by id."""
        return self.index.labels

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, key):
        if isinstance(key, Batch):
            return self.read(key, collate)
        if not 0 <= key < self.samples:
            raise IndexError(f"rankpool: no sample {key} among {self.samples}")
        return key, *self._fields(key, self.index.read(key))

    def __getitems__(self, batch: List[int]) -> List[tuple]:
        """Returns the items (id, *fields) of a batch, for DataLoader(data, batch_sampler=…) in
        torch 2."""
        if not isinstance(batch, Batch):
            return [self[id] for id in batch]
        return [(id, *fields) for id, fields in zip(batch, self._items(batch))]

    def read(self, batch: Batch, join: Callable[[List[tuple]], Any]) -> tuple:
        """Returns (ids, *fields) of a batch, its fields made from its items by join(items)."""
        import torch

        if batch:
            fields = join(self._items(batch))
        else:  # it has the fields of any item
            fields = _emptied(join([self._fields(0, self.index.read(0))]))
        ids = torch.tensor(batch, dtype=torch.int64)
        return (ids, *fields) if isinstance(fields, (tuple, list)) else (ids, fields)

    def _counted(self, link: Connection, tally: Tally) -> None:
        """Sends what this worker has counted, and that the lease of its batch has ended."""
        link.send_tally(tally)

    def loader(
        self,
        sampler,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        **options: Any,
    ):
        """Returns a torch DataLoader that yields (ids, *fields) and asks the cache once per batch.

        `sampler` is a BatchSampler. `collate_fn(items)` joins the items of a batch, as torch's
        does; a tuple it returns becomes the fields. Other options are DataLoader's
        (persistent_workers, pin_memory, multiprocessing_context, …).
        """
        from torch.utils.data import DataLoader

        hook()
        reader = _Reader(self, collate_fn or collate)
        return DataLoader(
            reader, batch_size=None, sampler=sampler, num_workers=num_workers,
            collate_fn=_as_it_is, **options,
        )

    def batches(self, sampler) -> Iterator[Samples]:
        """Yields the Samples of each batch of the sampler's epoch, requesting ahead; needs no
        torch.

        Each is valid until the next one is taken. No transform is applied.
        """
        link, coming, loading = sampler._connection, iter(sampler), Loading()
        loading.exact = True
        asked: Deque[Tuple[Batch, Optional[int]]] = deque()
        ahead = 1  # batches in a request
        samples = None

        def request() -> None:
            while len(asked) <= ahead and (more := list(islice(coming, ahead))):
                asked.extend(zip(more, ask(link, more)))

        loading.wait(request, batch=False)  # for the plan; take measures the rest
        try:
            while asked:
                samples = take(link, self.index, *asked.popleft(), in_hand=True)
                loading.handed += 1
                # requests carry the counts too, but up to MAX_AHEAD batches may lie between two
                sampler._goes_on()
                if ahead == 1:
                    size = sum(map(self.index.sizes.__getitem__, self.index.rows(samples.ids)))
                    ahead = max(1, min(MAX_AHEAD, AHEAD_BYTES // (1 + size)))
                yield samples
                samples.close()
                request()
        finally:
            if samples is not None:
                samples.close()
            for _, ticket in asked:
                if ticket is not None:
                    link.abandon(ticket)
            sampler._goes_on(last=True)

    def next_chunk(self) -> int:
        """Returns the chunk that comes next for most of the trainings that share this data set and
        use the sampler "chunks"; 0 if there are none.

        A training that joins them can begin with it: BatchSampler(…, "chunks", first_chunk=…). All
        trainers of a training must pass the same chunk, so one calls this and tells the others; a
        training that resumes passes the chunk of its checkpoint.
        """
        status = json.loads(_ask(self.door, lambda link: link.request(wire.STATUS, b"")))
        used = [
            one["next_chunk"] for one in status["data"]
            if one["name"] == self.name and one["next_chunk"] >= 0
        ]
        return max(sorted(set(used)), key=used.count, default=0)

    def _connection(self, batch: Batch) -> Connection:
        if batch.spec.data != self.name:
            raise ValueError(
                f"rankpool: a batch of data set {batch.spec.data!r} was asked of {self.name!r}"
            )
        # a spawned worker knows nothing yet
        identities(self.door).expect(self.name, self.identity, self.times)
        return connection(self.door, batch.spec.trainer, batch.spec.world)

    def _items(self, batch: Batch) -> List[tuple]:
        link = self._connection(batch)
        found = fetch(link, self.index, batch)
        if link.in_worker:
            self._counted(link, link.tally(batch.stream, batch.epoch))
        return list(map(self._fields, batch, found))

    def _fields(self, id: int, content: bytes) -> tuple:
        if self.index.pieces is not None:
            raise RankpoolError(
                f"rankpool: samples of {self.name!r} are made of pieces of files: use "
                "rankpool.Arrays, or batches(sampler) and the pieces of its Samples"
            )
        label = self.labels[id]
        item: Any = content if self.transform is None else memoryview(content)
        if self.members:
            item = self.index.split(id, item)
        if self.transform is not None:
            item = self.transform(item, label)
        return item if isinstance(item, tuple) else (item, label)


class _Reader(Dataset):
    """The data set as the workers of Dataset.loader use it: with its collate function, and what
    they count and errors passed on to the training process."""

    def __init__(self, data: Dataset, collate_fn: Callable[[List[Any]], Any]) -> None:
        self.__dict__.update(data.__dict__)
        self._collate, self._counts = collate_fn, None

    def __getitem__(self, key):
        if not isinstance(key, Batch):
            return super().__getitem__(key)
        self._counts = None
        try:
            return Fetched(self.read(key, self._collate), self._counts)
        except RankpoolError as error:
            return Fetched(error=error)

    def _counted(self, link: Connection, tally: Tally) -> None:
        self._counts = tally.take()
        link.send_tally(tally)


def _as_it_is(batch):
    return batch


def data_sets(door: Optional[str] = None) -> List[dict]:
    """Returns what the cache serves: for each data set its name, samples, index and root."""
    return _ask(door or session.door(), lambda link: link.welcome.data)


def _ask(door: str, question: Callable[[Connection], Any]) -> Any:
    link = connection(door, *session.seat())
    return Waiting(f"at {door}", CONNECT_SECONDS).until(link, lambda: question(link))


def name_of(root: Union[str, os.PathLike]) -> Optional[str]:
    """Returns the name of the data set that the cache serves from a folder, or None if it serves
    none."""
    root = os.path.realpath(root)
    return next((d["name"] for d in data_sets() if os.path.realpath(d["root"]) == root), None)


def collate(items: List[tuple]) -> List[Any]:
    """Joins items field by field with torch's default_collate; views, and Members, stay a list."""
    from torch.utils.data import default_collate

    columns = [list(column) for column in zip(*items)]
    return [
        column if isinstance(column[0], (memoryview, Members)) else default_collate(column)
        for column in columns
    ]


def _emptied(fields):
    """Returns the fields of a batch with no elements left."""
    if isinstance(fields, dict):
        return {key: _emptied(value) for key, value in fields.items()}
    if isinstance(fields, (tuple, list)):
        return [_emptied(field) if isinstance(field, dict) else field[:0] for field in fields]
    return fields[:0]
