"""Any sampler: the script hands in the order that it draws, and the ranks plan from it."""

from __future__ import annotations

import copy
import time
from array import array
from itertools import accumulate, chain
from operator import index
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Subset

from . import wire
from .batch import Batch
from .batch_sampler import place_of
from .dataloader_hook import Loading, Ours, _under, under_way
from .drop_in_samplers import _place
from .index import distinct
from .listed import Listed, listed, words_of
from .map_dataset import Served, claimed
from .messages import say_once
from .seeding import keep

BLOCK = 64  # batches that are handed in at once, where the whole epoch cannot be
# The next epoch is drawn once this many batches, or a 64th, were requested: workers have begun by
# then, and what is kept for it is decided from then on (at half of a short epoch, hits were 0.96 of
# MIN's).
_AHEAD_AT = 64


class Planned(Ours):
    """A batch sampler of what another one yields; see planned."""

    def __init__(
        self, batches, dataset, block: Optional[int] = None, single: bool = False,
        assign: str = "sampler",
    ) -> None:
        self.batches, self.dataset, self._single, self._assign = batches, dataset, single, assign
        self._block = block or None
        if not block:
            try:
                len(batches)
            except (TypeError, NotImplementedError):
                self._block = BLOCK
        self._loading = Loading()  # the iteration under way, which began at batch _first
        self._first = self._passes = self._epoch = 0
        self._total: Optional[int] = None  # batches of the epoch, once they are drawn
        self._state: Optional[Dict[str, Any]] = None  # where the next iteration begins
        self._foretold: Optional[bytes] = None
        self._foresees = self._block is None

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        if name == "batches":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_loading": Loading()}

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the samplers that have one."""
        for one in _with_epoch(self.batches):
            one.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        loading = under_way()
        if loading is not None and loading.order is not self:
            return iter(self.batches)  # another one hands in what becomes of these
        if loading is None:
            loading = Loading()
            say_once("training's waiting may not be measured: no DataLoader of torch's iterates")
        # a loader may begin twice, and draw its seed from the samplers' generator in between
        loading.states = loading.states or _states(self.batches)
        return self._train(iter(self.batches), loading, time.perf_counter_ns())

    def _train(self, drawn: Iterator[Any], loading: Loading, began: int) -> Iterator[Any]:
        data, self._indices, self._blocks = self.dataset, None, None
        if loading.dataset is data:  # else it fetches from a Subset itself
            data, self._indices = _below(data)
        state, self._state, self._total = self._state, None, None
        self._loading = loading
        self._epoch = next((one.epoch for one in _with_epoch(self.batches)), self._passes)
        resumes = state is not None and state["epoch"] == self._epoch
        number = self._first = state["batch"] if resumes else 0
        self._passes += 1
        for _ in range(number):
            next(drawn, None)
        served, more = getattr(data, "_data", None), True
        if served is not None and data._drawn is None:
            if self._assign == "local":
                raise ValueError('rankpool: assign="local" does not work with rankpool.learn')
            self._blocks = data.begin()
            served = self._blocks and served  # in a first epoch, nothing is known yet
        stream = None if served is None else listed(served, *_place(None, None), self._assign)
        while more:
            counts, ids, more = self._draw(drawn, stream)
            if not more:
                self._total = number + len(counts)
            if not counts and number > self._first:
                break
            epoch = self._begin(stream, counts, ids)
            # what has no plan, since other trainers did not come, counts in no epoch of the cache
            counted = epoch is not None and not stream.alone
            if counted:
                stream._measure(epoch, began)
            at = 0
            for place, count in enumerate(counts):
                batch = ids[at : at + count].tolist()
                if epoch is not None:
                    if self._assign == "local":
                        batch = stream._plan.batch(place)
                    number_at_door = stream._stream if counted else -1
                    batch = Batch(batch, number_at_door, epoch, place, stream.spec, key=None)
                    batch.pieces = self._blocks and self._blocks.of(batch)
                    batch = list(batch.indices())
                if not loading.exact:
                    loading.handed += 1
                yield batch[0] if self._single else batch
                at += count
                if place == min(_AHEAD_AT, len(counts) // 64) and epoch is not None:
                    self._foresee(stream)
            number, began = number + len(counts), time.perf_counter_ns()

    def _begin(self, stream: Optional[Listed], counts: array, ids: array) -> Optional[int]:
        """Hands in a part; returns its epoch, None if the cache serves none."""
        if stream is None:
            return None
        words = self._words(counts, ids)
        foretold, self._foretold = self._foretold, None
        if foretold not in (None, words):
            self._foresees = False
            say_once(
                f"{type(self.batches).__name__} has not drawn what set_epoch foretold: epochs are "
                "handed in when they begin"
            )
        return stream.begin(words)

    def _draw(self, drawn: Iterator[Any], stream) -> Tuple[array, array, bool]:
        """Returns the lengths of the batches of the next part, their ids, and whether more may
        follow."""
        counts, ids = array("I"), array("I")
        most = stream._batches // 2 if stream else BLOCK
        if self._blocks is not None:
            most //= self._blocks.widest
        for batch in drawn:
            if isinstance(batch, int) and not self._single:
                raise ValueError(
                    f"rankpool: {type(self.batches).__name__} yields single ids: say how many are "
                    "a batch, planned(…, batch_size=…)"
                )
            found = self._numbers([batch] if self._single else batch)
            ids.extend(found)
            counts.append(len(found))
            if len(counts) == self._block or len(ids) >= most:
                return counts, ids, True
        return counts, ids, False

    def _words(self, counts: array, ids: array) -> bytes:
        """Returns what is handed in of a part: the ids, or the blocks that they read."""
        if self._blocks is not None:
            ends = list(accumulate(counts, initial=0))
            rows = [distinct(self._blocks.of(ids[a:b])) for a, b in zip(ends, ends[1:])]
            counts, ids = array("I", map(len, rows)), array("I", chain.from_iterable(rows))
        return words_of(counts, ids)

    def _numbers(self, ids) -> array:
        """Returns the ids of samples that a batch consists of."""
        if self._indices is not None:
            ids = [self._indices[i] for i in ids]
        try:
            return array("I", ids)
        except OverflowError:  # they count from the end
            return array("I", [index(i) % len(_below(self.dataset)[0]) for i in ids])

    def _foresee(self, stream: Listed) -> None:
        """Hands in what the next epoch will be, if the samplers' set_epoch says it."""
        if not (self._foresees and self._total and _with_epoch(self.batches)):
            return
        if self._blocks is not None and not self._blocks.final:
            return
        restore = keep()
        try:
            held = [value for one in _under(self.batches) for value in vars(one).values()]
            known = [self.dataset, *(one for one in held if isinstance(one, TorchDataset))]
            twin = copy.deepcopy(self.batches, {id(one): one for one in known})
            for one in _with_epoch(twin):
                one.set_epoch(self._epoch + 1)
            counts, ids, more = self._draw(iter(twin), stream)
        except Exception:  # it cannot be copied: then nobody knows
            self._foresees = False
            return
        finally:
            restore()
        if not more:
            self._foretold = self._words(counts, ids)
            stream.foresee(self._foretold)

    # --- checkpoints ---

    def state_dict(self, batch: Optional[int] = None) -> Dict[str, Any]:
        """Returns the position of training: the epoch, its first batch that the loop has not got
        yet, and what the samplers need to draw the epoch again.

        Call it between two steps, and pass the number of batches of the epoch that were trained as
        `batch` where rankpool.DistributedSampler needs it.
        """
        if self._state is not None:
            return dict(self._state)
        batch = self._loading.position(self._first, batch)
        if batch == self._total:
            epoch = self._epoch + 1
            return {"epoch": epoch, "batch": 0, "samplers": _states(self.batches)}
        states = self._loading.states or _states(self.batches)
        return {"epoch": self._epoch, "batch": batch, "samplers": states}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Resumes at the state's position at the next iteration. With another number of trainers,
        the samplers decide what comes."""
        epoch = place_of(state, "epoch", wire.MAX_EPOCH)
        place_of(state, "batch", wire.MAX_EPOCH)
        samplers = list(_under(self.batches))
        if len(samplers) != len(state.get("samplers", ())):
            raise ValueError("rankpool: the saved state is not that of these samplers")
        for one, own in zip(samplers, state["samplers"]):
            if "generator" in own:
                one.generator.set_state(own["generator"])
            if "state" in own:
                one.load_state_dict(own["state"])
        self.set_epoch(epoch)
        self._passes, self._state = epoch, dict(state)


def planned(
    sampler, dataset, batch_size: Optional[int] = None, drop_last: bool = False,
    block: Optional[int] = None, assign: str = "sampler",
) -> Planned:
    """Returns a batch sampler that yields what a sampler of the script does, with its samples
    planned: a batch sampler, or a sampler of ids, of which `batch_size` are a batch.

        batches = rankpool.planned(MySampler(train), train, batch_size=64)
        loader = DataLoader(train, batch_sampler=batches, num_workers=4)

    It draws a whole epoch when that begins, and hands it in to the rank; if the sampler has
    set_epoch, also the next epoch. A sampler without a length is drawn by blocks of 64 batches; say
    block=K for one that looks at what happened in the epoch. With assign="local" a trainer gets as
    many samples of a global batch as it draws, those in its node's memory first. `dataset` is a
    rankpool.ImageFolder, DatasetFolder or WebDataset, or a Subset of one.
    """
    if not isinstance(_below(dataset)[0], Served):
        raise TypeError(
            "rankpool: planned draws from rankpool.ImageFolder, DatasetFolder or WebDataset, not "
            f"{type(dataset)}"
        )
    if batch_size:
        sampler = TorchBatchSampler(sampler, batch_size, drop_last)
    if assign not in ("sampler", "local"):
        raise ValueError(f'rankpool: assign must be "sampler" or "local", not {assign!r}')
    return Planned(sampler, dataset, block, assign=assign)


def order_of(loader) -> Tuple[Optional[Planned], Dict[str, Any]]:
    """Returns what hands in the batches of a DataLoader that begins to iterate, None if nothing
    does, and what takes the place of its attributes meanwhile."""
    own, data = loader._index_sampler, _below(loader.dataset)[0]
    if isinstance(own, Planned):
        return own, {"dataset": data} if own.dataset is loader.dataset else {}
    if not isinstance(data, Served) or data._data is None or data._data.name in claimed:
        return None, {}
    order = vars(loader).get("_rankpool")
    if order is None or order.batches is not own:
        order = Planned(own, loader.dataset, single=not loader._auto_collation)
        vars(loader)["_rankpool"] = order
    return order, {"batch_sampler" if loader._auto_collation else "sampler": order, "dataset": data}


def _below(dataset) -> Tuple[Any, Any]:
    """Returns the data set under Subsets, and its ids by theirs; None: they are the same."""
    indices = None
    while type(dataset) is Subset:
        own = dataset.indices
        indices, dataset = own if indices is None else [own[i] for i in indices], dataset.dataset
    return dataset, indices


def _with_epoch(batches) -> List[Any]:
    """Returns the samplers that draw by an epoch."""
    return [
        one for one in _under(batches)
        if hasattr(one, "set_epoch") and isinstance(getattr(one, "epoch", None), int)
    ]


def _states(batches) -> List[Dict[str, Any]]:
    """Returns what samplers need to draw the same epoch again."""
    states: List[Dict[str, Any]] = []
    for one in _under(batches):
        generator, own = getattr(one, "generator", None), {}
        if isinstance(generator, torch.Generator):
            own["generator"] = generator.get_state()
        if hasattr(one, "state_dict") and not isinstance(one, Ours):
            own["state"] = one.state_dict()
        states.append(own)
    return states
