"""Drop-in samplers for a plain torch DataLoader: they yield single ids that carry their batch."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import islice
from math import ceil, floor
from numbers import Real
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import torch
from torch.utils.data import DistributedSampler as TorchDistributedSampler
from torch.utils.data import Sampler

from . import session, wire
from .batch import Batch, Index
from .batch_sampler import BatchSampler, BesideError, compare, place_of
from .connection import Spec
from .dataloader_hook import Loading, Ours, loading_of
from .errors import CacheAwayError
from .map_dataset import Served, claim
from .messages import say_once
from .seeding import number_of

_UNASKED = 64  # ids in a batch of unknown size, which only carries seed and epoch


def _place(num_replicas: Optional[int], rank: Optional[int]) -> Tuple[int, int]:
    """Returns (rank, num_replicas): those given, else the process group's, else the
    environment's."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
        rank = dist.get_rank() if rank is None else rank
    return session.seat(rank, num_replicas)


class DistributedSampler(TorchDistributedSampler, Ours):
    """torch's DistributedSampler: the same ids in the same order; under `rankpool run`, samples
    come from the cache. Without a process group, RANK and WORLD_SIZE say which replica this is, and
    without them it is the only one.

    The cache learns the batch size from the DataLoader that iterates it, or from `batch_size`.
    assign="local" gives each trainer the samples of a global batch that are in its node's memory:
    the same global batches, divided differently.

    state_dict() and load_state_dict() resume in mid-epoch, with any number of trainers, at the next
    iteration.
    """

    def __init__(
        self,
        dataset,
        num_replicas: Optional[int] = None,
        rank: Optional[int] = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        batch_size: Optional[int] = None,
        assign: str = "sampler",
    ) -> None:
        if assign not in ("sampler", "local"):
            raise ValueError(f'rankpool: assign must be "sampler" or "local", not {assign!r}')
        rank, num_replicas = _place(num_replicas, rank)
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        claim(dataset)
        self._batch_size, self._assign = batch_size, assign
        self._streams: Dict[Tuple[int, bool], BatchSampler] = {}
        self._loading = Loading()  # the iteration under way, which began at batch _first
        self._first = 0
        self._state: Optional[Dict[str, Any]] = None  # where the next iteration begins
        # how often this epoch was iterated: before set_epoch, by any sampler of the data set
        self._passes = getattr(dataset, "_passes", 0)
        self._yielded = 0  # ids of this pass
        self._told = False  # set_epoch was called

    def __getstate__(self) -> dict:
        """Leaves out what belongs to this process: a copy opens its own streams, and knows no
        loader."""
        return {**self.__dict__, "_streams": {}, "_loading": Loading()}

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self._told = True
        if epoch != self.epoch:
            self._state = None
        if self._state is None:
            self._passes = 0
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        began = time.perf_counter_ns()
        ids = list(super().__iter__())
        if not isinstance(self.dataset, Served):
            return iter(ids)
        loading = self._loading = loading_of(self)
        if self.num_replicas > 1 and getattr(loading.between, "num_processes", 1) > 1:
            raise ValueError(
                f"rankpool: {type(loading.between).__name__} gives each process a part of the part "
                "that DistributedSampler gives it: leave the DataLoader out of Accelerate's "
                "prepare()"
            )
        size = loading.batch_size or self._batch_size
        self._yielded = (self._state or {}).get("yielded", 0)
        first = self._first = self._resumed(size)
        # all passes in order are alike, and each is an epoch of its own for the cache
        epoch = self.epoch if self.shuffle else self.epoch + self._passes
        repeats = None
        # some are drawn again, to make the parts of all trainers equal
        if self.total_size > len(self.dataset):
            repeats = [
                (self.rank + n * self.num_replicas) // len(self.dataset) for n in range(len(ids))
            ]
        stream = self._stream(size, loading.drop_last, first, epoch) if size else None
        if stream is None:
            batches = _cut(ids, repeats, size or _UNASKED, -1, epoch, None, first)
        elif self._assign == "local":
            batches = iter(stream)
        else:
            stream._measure(epoch, began)
            batches = _cut(ids, repeats, size, stream._stream, epoch, stream.spec, first)
        key = number_of(self.seed, self.epoch, self._passes)
        self._passes += 1
        if not self._told:
            self.dataset._passes = self._passes
        return self._counted(_indices(batches, key))

    def _counted(self, ids: Iterator[int]) -> Iterator[int]:
        """Yields the ids that were not yielded before a resume, and counts them."""
        begun = self._yielded
        for self._yielded, id in enumerate(islice(ids, begun, None), begun + 1):
            yield id

    def _stream(self, size: int, drop_last: bool, first: int, epoch: int) -> Optional[BatchSampler]:
        """Returns the cache's stream, with this epoch planned from batch `first` if the cache is
        there; None when it serves nothing."""
        if self.dataset._drawn is None or self.num_samples < (size if drop_last else 1):
            return None  # it serves nothing, or the epoch has no batch
        stream = self._streams.get((size, drop_last))
        if stream is None:
            try:
                stream = self._streams[size, drop_last] = BatchSampler(
                    self.dataset._data, size, self.seed,
                    "torch" if self.shuffle else "torch-sequential",
                    drop_last=drop_last,
                    sampler_drop_last=self.drop_last, rank=self.rank, world_size=self.num_replicas,
                    assign=self._assign,
                )  # fmt: skip
            except BesideError:
                say_once(f"a sampler beside the training on {self.dataset.root} reads storage")
                return None
        stream.set_epoch(epoch)
        if first:
            stream._start, stream._plan = first, None
            stream._training.resume(epoch, first, None)
        if self._assign != "local":
            # the ids are known without it, but not where they are
            with suppress(CacheAwayError):
                stream._plan_epoch(at_most_seconds=0)
            stream._start = 0
        return stream

    # --- checkpoints ---

    def state_dict(self, batch: Optional[int] = None) -> Dict[str, Any]:
        """Returns the position of training, the same on every trainer: the epoch and its first
        batch that the loop has not got yet.

        Call it between two steps, or after an epoch, which is the beginning of the next. If
        something between the DataLoader and the loop fetches batches ahead or skips some, pass the
        number of batches of the epoch that were trained as `batch`, including those before a
        resume. Raises ValueError if that is required, or if the DataLoader's batches have no size.
        Where no DataLoader of torch's iterates the sampler, as with torchdata's StatefulDataLoader,
        the position is behind the id that was yielded last.
        """
        if self._state is not None:
            return dict(self._state)
        loading = self._loading
        if not loading.exact and isinstance(self.dataset, Served):
            place = {"epoch": self.epoch, "pass": max(0, self._passes - 1), "batch": 0}
            return {**place, "yielded": self._yielded, **self._identity(None)}
        if not loading.batch_size:
            raise ValueError(
                "rankpool: state_dict says how far a DataLoader has come, and none with batches "
                "iterates this sampler"
            )
        whole = floor if loading.drop_last else ceil
        batches = whole(self.num_samples / loading.batch_size)
        batch = loading.position(self._first, batch)
        if not 0 <= batch <= batches:
            raise ValueError(
                f"rankpool: batch must be from 0 to {batches}, the batches of an epoch, not {batch}"
            )
        place = {"epoch": self.epoch, "pass": self._passes - 1, "batch": batch}
        if batch == batches:  # a script that never calls set_epoch stays in its epoch
            place = {"epoch": self.epoch + 1, "pass": 0, "batch": 0}
            if not self._told:
                place.update({"epoch": self.epoch, "pass": self._passes})
        return {**place, **self._identity(loading.batch_size)}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Resumes at the state's position at the next iteration, which raises ValueError if the
        state belongs to another stream."""
        self.epoch = place_of(state, "epoch", wire.MAX_EPOCH)
        place_of(state, "batch", len(self.dataset))
        place_of({"yielded": 0, **state}, "yielded", len(self))
        self._passes = place_of({"pass": 0, **state}, "pass", wire.MAX_EPOCH)
        self._state = dict(state)

    def _resumed(self, size: Optional[int]) -> int:
        """Returns the batch that this iteration begins with."""
        state, self._state = self._state, None
        if state is None:
            return 0
        for field, ours in self._identity(size).items():
            theirs = state.get(field)
            # only a cache knows the identity of its data; an epoch begins with any batches
            unknown = {
                "identity": None in (ours, theirs),
                "global_batch": None in (ours, theirs) and not state["batch"],
            }
            if not unknown.get(field):
                compare(state, field, ours)
        if state.get("yielded") and self._loading.exact:
            raise ValueError(
                "rankpool: the saved state counts ids, not batches: resume with the kind of loader "
                "that it was saved with"
            )
        return state["batch"] and place_of(state, "batch", ceil(self.num_samples / size))

    def _identity(self, size: Optional[int]) -> Dict[str, Any]:
        data = getattr(self.dataset, "_data", None)  # a plain data set has none
        return {
            "identity": None if data is None else data.identity,
            "samples": len(self.dataset),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "global_batch": size and size * self.num_replicas,
            "sampler_drop_last": self.drop_last,
        }


def _cut(
    ids: List[int], repeats: Optional[List[int]], size: int, stream: int, epoch: int,
    spec: Optional[Spec], first: int = 0,
) -> Iterator[Batch]:
    """Yields ids in batches of a size, from batch number `first` on."""
    for number in range(first, ceil(len(ids) / size)):
        at = number * size
        again = repeats[at : at + size] if repeats else None
        yield Batch(
            ids[at : at + size], stream, epoch, number, spec,
            again if again and any(again) else None,
        )


def _indices(batches: Iterator[Batch], key: int) -> Iterator[Index]:
    for batch in batches:
        batch.key = key
        yield from batch.indices()


class ImportanceSampler(Sampler, Ours):
    """Draws samples by their importance, which is computed from the losses that training reports.

        sampler = rankpool.ImportanceSampler(dataset, "pads")
        loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=4)
        for epoch in range(90):
            sampler.set_epoch(epoch)
            for images, targets in loader:
                loss = sampler.update(cross_entropy(model(images), targets, reduction="none"))
                loss.backward()

    Call `update` or `skip` once for each batch that the loader returns. `ahead` is the number of
    batches that something between the loader and the loop fetches in advance: 1 for Accelerate and
    for prefetchers to the GPU. `epochs` and `embeddings` are those of BatchSampler. `reads`, `room`
    and `draws` are of the sampler "thrifty": storage reads a draw ("uniform": 1, all samples are
    drawn once; "auto": as few as leave the gradient as steady as that of uniform draws), and as
    shares of the data set the memory that it counts with, and an epoch's draws.

    Where the cache does not serve the data set, and outside `rankpool run`, samples are drawn as by
    DistributedSampler, with one warning, and `update` returns the mean.
    """

    def __init__(
        self,
        dataset: Served,
        sampler: str = "pads",
        seed: int = 0,
        num_replicas: Optional[int] = None,
        rank: Optional[int] = None,
        *,
        batch_size: Optional[int] = None,
        ahead: int = 0,
        epochs: Optional[int] = None,
        embeddings: Optional[int] = None,
        reads: Union[float, str, None] = None,
        room: Optional[float] = None,
        draws: Optional[float] = None,
    ) -> None:
        if not isinstance(dataset, Served):
            raise TypeError(
                "rankpool: ImportanceSampler draws from rankpool.ImageFolder, DatasetFolder or "
                f"WebDataset, not {type(dataset)}"
            )
        claim(dataset)
        words = {"uniform": 1, "auto": 0}
        for name, value in ("reads", reads), ("room", room), ("draws", draws):
            if name == "reads" and value in words:
                sampler += f",reads={words[value]}"
            elif value is not None:
                if not (isinstance(value, Real) and 0 < value <= 1):
                    raise ValueError(
                        f"rankpool: {name} of ImportanceSampler must be above 0, and at most 1, "
                        f"not {value!r}"
                    )
                sampler += f",{name}={float(value)!r}"
        self.dataset, self.sampler, self.seed, self.ahead = dataset, sampler, seed, ahead
        self.rank, self.num_replicas = _place(num_replicas, rank)
        self.epoch = 0
        self._batch_size = batch_size
        self._options = {"epochs": epochs, "embeddings": embeddings}
        self._stream: Optional[BatchSampler] = None
        self._state: Optional[Dict[str, Any]] = None  # to be loaded once the stream is open
        self._loading = Loading()
        self._passes = 0  # how often this epoch was iterated
        self._key = 0  # of this iteration, in the seeds of transforms
        # batches of this iteration without an update, the oldest first
        self._batches: List[Batch] = []
        self._trained = Loading()  # counts them, with or without losses
        self._drawn = 0

    def __getstate__(self) -> dict:
        """Leaves out what belongs to this process: a copy opens its own stream, and knows no
        loader."""
        none = {"_stream": None, "_loading": Loading(), "_trained": Loading(), "_batches": []}
        return {**self.__dict__, **none, "_drawn": 0}

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        if self._state is None or epoch != self.epoch:
            self._passes = 0
        self.epoch = epoch
        if self._stream is not None:
            self._stream.set_epoch(epoch)

    def __len__(self) -> int:
        plan = self._stream._plan if self._stream is not None else None
        if plan is not None and plan.epoch == self.epoch:
            return plan.starts[_whole(plan, self._stream.spec)]
        return ceil(len(self.dataset) / self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        loading = self._loading = loading_of(self)
        if loading.between is not None:
            raise ValueError(
                f"rankpool: losses are attributed to batches, and {type(loading.between).__name__} "
                "leaves some out: leave the DataLoader out of Accelerate's prepare(), and resume "
                "by load_state_dict()"
            )
        size = loading.batch_size or self._batch_size
        if size is None:
            raise ValueError(
                "rankpool: nobody says how large the batches are: give ImportanceSampler "
                "batch_size="
            )
        if not loading.in_order:
            raise ValueError(
                "rankpool: losses are attributed to batches in order, and the DataLoader has "
                "in_order=False"
            )
        if self._drawn and not self._trained.handed:
            say_once(
                "ImportanceSampler draws by losses, and got none: report those of each batch by "
                "loss = sampler.update(losses)"
            )
        self._batches, self._drawn, self._trained = [], 0, Loading()
        self._trained.exact = True
        self._key = number_of(self.seed, self.epoch, self._passes)
        self._passes += 1
        return self._draw(
            iter(self._open(size)) if self.dataset._drawn is not None else self._plain(size)
        )

    def _open(self, size: int) -> BatchSampler:
        if self._stream is None or self._stream.spec.batch_size != size:
            self._stream = BatchSampler(
                self.dataset._data, size, self.seed, self.sampler, rank=self.rank,
                world_size=self.num_replicas, **self._options,
            )
            self._stream.set_epoch(self.epoch)
        if self._state is not None:
            state, self._state = self._state, None
            self._stream.load_state_dict(state)
        return self._stream

    def _plain(self, size: int) -> Iterator[Batch]:
        if self._state is not None:
            raise ValueError(
                "rankpool: the saved state needs the cache, which computes importance, and there is "
                f"no cache for {self.dataset.root}: resume under rankpool run"
            )
        why = f"no cache serves {self.dataset.root}"
        if self.dataset._data is not None:
            why = f"the cache serves blocks of {self.dataset.root}, not its samples"
        say_once(f"{why}: samples are drawn equally often, whatever their losses are")
        plain = TorchDistributedSampler(self.dataset, self.num_replicas, self.rank, True, self.seed)
        plain.set_epoch(self.epoch)
        return _cut(list(plain), None, size, -1, self.epoch, None)

    def _draw(self, batches: Iterator[Batch]) -> Iterator[Index]:
        for batch in batches:
            if self._stream is not None:
                self._stream._loading = self._trained
                if batch.number >= _whole(self._stream._plan, self._stream.spec):
                    return
            self._batches.append(batch)
            batch.key = self._key
            for index in batch.indices():
                if index.place == len(batch) - 1:
                    self._drawn += 1
                yield index

    # --- called by training ---

    def update(self, losses: torch.Tensor, embeddings=None, importance=None) -> torch.Tensor:
        """Reports the losses of the current batch, one per sample; returns their unbiased mean, to
        call backward on. `embeddings` are those of rankpool.BatchSampler.report. `importance` is
        reported in place of the losses: numbers of the same shape, such as gradient norms.

        The mean over all trainers' results is an unbiased estimate of the mean loss over the data
        set, for finite losses of any sign; no loss is multiplied by more than 5 in it, or 1/F with
        `--system rankpool,floor=F` (BatchSampler.weights). Raises ValueError if it is uncertain
        which batch the losses belong to: a batch was skipped or reported before, or these are only
        part of one.
        """
        waiting = self._waiting()
        if waiting > 1 + self.ahead:
            raise ValueError(
                f"rankpool: the loader handed out {waiting} batches since the last update, and it "
                "is not known which one the losses are of: call skip() for a batch that is not "
                f"trained, or say ImportanceSampler(…, ahead={waiting - 1}) if something between "
                "the loader and the loop fetches batches ahead"
            )
        batch = self._batches[0]
        told = losses if importance is None else importance
        if not losses.numel() == told.numel() == len(batch):
            raise ValueError(
                f"rankpool: {told.numel()} losses for batch {batch.number}, which has "
                f"{len(batch)} samples"
            )
        rows = self._stream and self._stream._embedded(embeddings, len(batch))
        self._take()
        if self._stream is None:
            return losses.mean()
        plan, spec = self._stream._plan, self._stream.spec
        flat, told = losses.reshape(-1), told.detach().reshape(-1).tolist()
        self._stream._tell(self._stream._reports.add_batch(plan, batch.number, told, rows))
        if plan.weights is not None:
            weights = plan.weights[
                plan.starts[batch.number] : plan.starts[batch.number + 1]
            ].tolist()
            flat = flat * torch.tensor(weights, dtype=torch.float32, device=flat.device)
        size = spec.batch_size * spec.world
        # of the whole global batch: the last one may be smaller
        drawn = min(size, plan.draws - batch.number * size)
        return flat.sum() * (spec.world / drawn)

    def skip(self) -> None:
        """Declares that the current batch is not trained: its losses count as not reported."""
        self._waiting()
        self._take()

    def _waiting(self) -> int:
        """Returns how many of the returned batches still lack update or skip; raises ValueError if
        none does."""
        counts = self._loading.batch_size is not None
        waiting = (self._loading.handed if counts else self._drawn) - self._trained.handed
        if waiting < 1:
            raise ValueError(
                "rankpool: update or skip was called already for every batch that the loader "
                "handed out"
            )
        return waiting

    def _take(self) -> None:
        del self._batches[0]
        self._trained.handed += 1

    def metric(self, name: str, value: float) -> None:
        """Records a value of this epoch, such as "accuracy", with the run."""
        if self._stream is not None:
            self._stream.metric(name, value)

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position of training; see rankpool.BatchSampler.state_dict. Call it between
        two steps."""
        if self._state is not None:
            return self._state
        if self._stream is None:
            return {"epoch": self.epoch, "batch": 0}
        state = self._stream.state_dict()
        return {**state, "pass": max(0, self._passes - 1) if state["epoch"] == self.epoch else 0}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Resumes at the state's position at the next iteration, which raises ValueError if the
        state belongs to another stream."""
        epoch, begun = place_of(state, "epoch", wire.MAX_EPOCH), "sampler" in state
        # of a sampler that had not begun, there is no more
        if not begun and (state.get("batch") != 0 or len(state) > len(("epoch", "batch"))):
            raise ValueError("rankpool: the saved state is not that of an ImportanceSampler")
        self._state, self.epoch = state if begun else None, epoch
        self._passes = place_of({"pass": 0, **state}, "pass", wire.MAX_EPOCH)


def _whole(plan, spec: Spec) -> int:
    """Returns the number of batches that every trainer has a part of: in the others, some trainers
    would wait forever."""
    last = plan.draws - (plan.batches - 1) * spec.batch_size * spec.world
    return plan.batches - (last < spec.world)
