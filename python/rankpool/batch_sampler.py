"""The batch sampler: yields an epoch's global batches as the cache planned them, and reports losses
to it."""

from __future__ import annotations

import json
import time
import warnings
from array import array
from math import inf, isfinite
from operator import index
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import session, wire
from .batch import Batch
from .connection import Connection, Spec, connection
from .dataloader_hook import Loading, Ours, hook, under_way
from .errors import CacheAwayError, RankpoolError
from .messages import say
from .reports import Reports, Told
from .training import Training, identities
from .waiting import Waiting

STATE_VERSION = 2
# How long state_dict waits for a cache that is away. A restart takes a few seconds, or more if much
# memory is taken back.
SAVE_SECONDS = 60.0
LISTED = "listed"  # the sampler whose epochs trainers hand in
_SCORELESS = (LISTED, "chunks", "quiver", "sequential", "torch", "torch-sequential", "uniform")
# what to do where the state was saved by another rankpool, or another system of the cache
_REMEDIES = {
    "version": "continue with the rankpool that the state was saved with",
    "plan_version": "continue with the rankpool that the state was saved with",
    "options": "start the cache with the same --system",
    "choice": "start the cache with the same --system, and --memory as a share",
}
_TALLY_SECONDS = 1.0  # how often a training process reports its counts and waiting time


class BesideError(RankpoolError):
    """A second sampler over the data set that the process trains on."""


class BatchSampler(Ours):
    """Yields this trainer's part of every global batch of an epoch; call set_epoch before each.

    `batch_size` is one trainer's; the global batch is batch_size · world_size. `sampler` names a
    sampler of the cache, for example "pads", "torch" or "sequential"; "system" is that of the
    cache's system (`run --system`). `assign` says which trainer gets which draw of a global batch:
    "local" by where the samples are in memory, "sampler" in turn, as DistributedSampler does; None:
    as the cache was started. `epochs` is how many will be trained, for systems that plan by it,
    such as NoPFS. `evaluates` promises that the script takes no step with batches that are
    `evaluating`, which IMPACT needs. `embeddings` is the length of the embedding that the script
    reports with each loss, which SpiderCache needs. `first_chunk` is the chunk that epoch 0 of the
    sampler "chunks" begins with: see Dataset.next_chunk. It belongs to the stream, as the seed
    does. `rank` and `world_size` are RANK and WORLD_SIZE unless given.

    The epoch's plan is requested at the first batch. While the cache is down, this waits up to
    RANKPOOL_PLAN_TIMEOUT seconds (default 600), or 10 seconds after a signal that a Stop has heard,
    then raises CacheAwayError. Everything else works without the cache: a batch that does not
    arrive within RANKPOOL_BATCH_TIMEOUT seconds (default 30) is read from storage.

    The first sampler over a data set in a process trains on it; one of another specification is
    refused. To evaluate on the same data, index it, or iterate a DataLoader that has no sampler.
    """

    def __init__(
        self,
        data,
        batch_size: int,
        seed: int = 0,
        sampler: str = "pads",
        *,
        drop_last: bool = False,
        sampler_drop_last: bool = False,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        assign: Optional[str] = None,
        epochs: Optional[int] = None,
        evaluates: bool = False,
        embeddings: Optional[int] = None,
        first_chunk: int = 0,
    ) -> None:
        hook()
        self.data, known = data, identities(data.door)
        if sampler == "system":
            sampler = known.sampler
        self.spec = Spec(
            data.name,
            data.identity,
            sampler,
            _whole("seed", seed, -(1 << 63), (1 << 63) - 1),
            _whole("batch_size", batch_size, int(sampler != LISTED), (1 << 31) - 1),
            bool(drop_last),
            bool(sampler_drop_last),
            assign or "",
            *session.seat(rank, world_size),
            epochs=0 if epochs is None else _whole("epochs", epochs, 1, wire.MAX_EPOCH),
            evaluates=bool(evaluates),
            embeddings=0 if embeddings is None else _whole("embeddings", embeddings, 1, 1 << 20),
            job=session.job(),
            first_chunk=_whole("first_chunk", first_chunk, 0, (1 << 31) - 1),
        )
        first = known.first.get((data.name, self.spec.job), self.spec)
        if first.sampler == LISTED != sampler:
            # what a plain DataLoader drew is another training on the data
            job = "-".join(filter(None, (self.spec.job, sampler)))
            self.spec = self.spec._replace(job=job)
        first = known.first.get((data.name, self.spec.job), self.spec)
        if _is_beside(self.spec, first):
            raise BesideError(
                f"rankpool: this process trains on data set {data.name!r} with another sampler, or "
                "with other trainers: to evaluate on it, use a DataLoader without a sampler"
            )
        self.epoch = 0
        self._start = 0  # where the next iteration begins: not 0 after load_state_dict
        self._fresh = True  # set_epoch was called since the last iteration
        self._warned = False
        self._plan: Optional[wire.Plan] = None
        # [epoch, accuracy], the newest two that this trainer has reported, the newest first
        self._accuracies: List[List[float]] = []
        self._loaded = False  # they are from a state, and the cache has not got them
        self._training = known.trainings.setdefault(self.spec, Training())
        self._processes = self.spec.world  # number of trainers that the training began with
        self._reports = Reports()
        self._loading = Loading()  # the iteration under way, which began at batch _first
        self._first = 0
        self._tally_at = 0.0
        self._tally: Optional[wire.Tally] = None  # of the epoch that was begun last
        link = self._connection
        self._stream, self._batches = Waiting(f"to open data set {data.name!r}").until(
            link, lambda: self._open_at(link)
        )
        known.first.setdefault((data.name, self.spec.job), self.spec)
        link.add_listener(self)

    @property
    def _connection(self) -> Connection:
        return connection(self.data.door, self.spec.trainer, self.spec.world)

    def _open_at(self, link: Connection) -> Tuple[int, int]:
        """Returns the stream's number and batches; describes this training to the cache, if it has
        not yet."""
        return link.open(self.spec, self._training.describe())

    # --- iteration ---

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration; raises ValueError unless it is a valid epoch."""
        epoch = _whole("epoch", epoch, 0, wire.MAX_EPOCH)
        if epoch != self.epoch:
            self._start = 0
        self.epoch, self._fresh = epoch, True

    def __len__(self) -> int:
        """Returns the number of global batches in the epoch, also after a resume in mid-epoch;
        before it is planned, an upper bound."""
        if self._plan is not None and self._plan.epoch == self.epoch:
            return self._plan.batches
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        if not self._fresh and self.spec.sampler == "sequential":
            self.epoch += 1  # every epoch is the same: set_epoch is not needed
        elif not self._fresh and not self._warned:
            self._warned = True
            warnings.warn(
                f"rankpool: set_epoch was not called; epoch {self.epoch} is trained again",
                stacklevel=2,
            )
        self._fresh = False
        training = self._training
        if self.spec.sampler not in _SCORELESS and training.iterated not in (None, self):
            raise RankpoolError(  # their scores would be mixed up
                f"rankpool: another sampler {self.spec.sampler} over data set {self.data.name!r} is "
                "being iterated in this process, and a training has one; end that iteration first"
            )
        training.iterated = self
        try:
            yield from self._train()
        finally:
            if training.iterated is self:
                training.iterated = None

    def _train(self) -> Iterator[Batch]:
        began = time.perf_counter_ns()
        self._tell(self._reports.close())
        plan, first = self._plan_epoch(), self._start
        self._measure(plan.epoch, began)
        # the cache refuses a batch that no epoch has; this epoch may have fewer than others
        if first > plan.batches:
            raise ValueError(
                f"rankpool: the saved state has batch = {first}, and epoch {plan.epoch} has "
                f"{plan.batches}"
            )
        loading = self._loading = under_way() or Loading()
        self._first, self._start = first, 0
        self._reports.begin(plan.epoch, first)
        for number in range(first, plan.batches):
            if not loading.exact:
                loading.handed += 1
            yield Batch(
                plan.batch(number), self._stream, plan.epoch, number, self.spec, plan.again(number),
                number in plan.evaluated,
            )  # fmt: skip

    def _plan_epoch(self, at_most_seconds: float = inf) -> wire.Plan:
        if self._plan is None or self._plan.epoch != self.epoch:
            waiting = Waiting(f"to plan epoch {self.epoch}", at_most_seconds)
            self._plan = waiting.until(self._connection, lambda: self._planned(self.epoch))
        return self._plan

    def _planned(self, epoch: int) -> wire.Plan:
        stream, _ = self._open_at(self._connection)
        plan = wire.Plan(
            self._connection.request(wire.PLAN, wire.pack_place(stream, epoch, self._start))
        )
        self._training.note(plan)
        if self._loaded:
            with self._connection._lock:
                self._measured_again(self._connection, stream)
            self._loaded = False
        return plan

    # --- called by training ---

    def report(self, ids, losses, embeddings=None) -> None:
        """Reports the losses of a batch, or of part of it: tensors (of any type and device), arrays
        or lists, one loss per id.

        `embeddings`, of shape [ids, D], are the model's embeddings of the samples, such as the
        input of its last layer, for a cache that scores samples by them (`--system spidercache`);
        other caches ignore them. They are rounded to float32; an embedding with a number that is
        not finite counts as not reported. Raises ValueError if the cache needs them and they are
        None.

        Losses are rounded to float32. A NaN or infinite loss, which mixed precision sometimes
        produces, counts as not reported: its sample keeps its score. A draw's first report counts.
        The parts of a batch are collected until a later batch is reported, state_dict is called or
        the epoch ends: draws without a report then count as not reported. Raises ValueError if the
        ids are not those of a batch of this epoch that may still be reported.
        """
        plan, ids = self._current_plan(), _listed(ids)
        self._tell(
            self._reports.add(
                plan, self._reached - 1, ids, _listed(losses), self._loading.exact,
                self._embedded(embeddings, len(ids)),
            )
        )

    def _embedded(self, embeddings, count: int) -> Optional[array]:
        """Returns the embeddings as the cache needs them, None if it does not need any."""
        numbers = self._connection.opened[self.spec].get("embeddings", 0)
        if not numbers or not count:
            return None
        if embeddings is None:
            raise ValueError(
                f"rankpool: {self.spec.sampler} scores samples by their embeddings, and none are "
                "reported: give them with the losses, as embeddings=z"
            )
        return _float32(embeddings, (count, numbers))

    def _tell(self, told: List[Told]) -> None:
        for report in told:
            self._connection.post(wire.REPORT, wire.pack_report(self._stream, *report))

    def weights(self, ids):
        """Returns 1/(N q) for each id, where q is its share of the epoch's draws, as a float32
        tensor, or a list without torch.

        The mean of the losses multiplied by these weights is an unbiased estimate of the mean over
        the data set, for finite losses of any sign. No weight of "weighted", "pads" or "subset"
        exceeds 5, or 1/F with `--system rankpool,floor=F`.
        """
        ids, plan = _listed(ids), self._current_plan()
        weights = [1.0] * len(ids)
        if plan.weights is not None:
            number, places = self._find(plan, ids)
            weights = [plan.weights[plan.starts[number] + place] for place in places]
        try:
            import torch
        except ImportError:
            return weights
        return torch.tensor(weights, dtype=torch.float32)

    def evaluating(self, ids) -> bool:
        """Returns whether a batch must not be trained on: only `report` its losses, from a forward
        pass.

        Only systems that evaluate samples (IMPACT) have such batches. `ids` are those of the batch,
        or of part of it. Raises ValueError if they are not those of a batch of this epoch that may
        still be reported.
        """
        plan, ids = self._current_plan(), _listed(ids)
        if not plan.evaluated or not ids:
            return False
        return self._find(plan, ids)[0] in plan.evaluated

    def _find(self, plan: wire.Plan, ids: List[int]) -> Tuple[int, List[int]]:
        return self._reports.find(plan, self._reached - 1, ids, self._loading.exact)

    def metric(self, name: str, value: float) -> None:
        """Records a value of this epoch, such as "accuracy", with the run; one trainer's call is
        enough. A value that is NaN or infinite is not recorded.

        SHADE and SpiderCache choose epoch e + 2 and later ones by the "accuracy" of epoch e, a
        share. Report it before the next epoch begins and before state_dict is called.
        """
        if not isfinite(value):
            say(f"the metric {name} is {value} in epoch {self.epoch}: that is not recorded")
            return
        value = float(value)
        if name == "accuracy":
            self._accuracies = [[self.epoch, value], *self._accuracies][:2]
        self._connection.post_metric(
            {"stream": self._stream, "epoch": self.epoch, "name": name, "value": value}
        )

    def _current_plan(self) -> wire.Plan:
        if self._plan is None:
            raise ValueError("rankpool: no epoch was begun yet")
        return self._plan

    def _reconnected(self, link: Connection) -> None:
        """Resends to a restarted cache what it may have lost."""
        stream, _ = self._open_at(link)
        self._measured_again(link, stream)
        for report in self._reports:
            link._send(wire.REPORT, wire.pack_report(stream, *report))

    def _measured_again(self, link: Connection, stream: int) -> None:
        """Resends the accuracies that the next plans may depend on."""
        for epoch, value in self._accuracies:
            again = {"name": "accuracy", "value": value, "to": "plans"}
            link._send(wire.METRIC, wire.compact({"stream": stream, "epoch": epoch, **again}))

    def _closing(self) -> None:
        """Sends the remaining reports before the connection is closed."""
        self._tell(self._reports.close())

    # --- checkpoints ---

    @property
    def batch(self) -> int:
        """The number of global batches of this epoch that the training loop got, without prefetched
        ones.

        It is exact if the loop iterates a DataLoader or Dataset.batches().
        """
        return self._start if self._fresh else self._reached

    @property
    def _reached(self) -> int:
        return self._first + self._loading.handed

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position of training, the same on every trainer, and has the cache save its
        scores for it.

        `epoch` and `batch` identify the first global batch that the loop has not got yet: call it
        between two steps. The end of an epoch is the beginning of the next.
        """
        epoch, batch = self.epoch, self.batch
        self._tell(self._reports.close())
        state = self._save(epoch, batch) if self._scorer else ""
        if self._plan is not None and self._plan.epoch == epoch and batch == self._plan.batches:
            epoch, batch = epoch + 1, 0
        place = {"epoch": epoch, "batch": batch, "state": state}
        if self._accuracies:
            place["accuracies"] = self._accuracies
        return {**self._identity(), "processes": self._processes, **place}

    def _save(self, epoch: int, batch: int) -> Optional[str]:
        """Has the cache save its importance scores; returns their digest, or None if it is not
        available."""
        link, waiting = self._connection, Waiting("to save its importance scores", SAVE_SECONDS)

        def save() -> Dict[str, str]:
            stream, _ = self._open_at(link)
            return json.loads(link.request(wire.SAVE, wire.pack_place(stream, epoch, batch)))

        try:
            saved, reason = waiting.until(link, save), "it lacks reports of other trainers"
        except CacheAwayError:
            saved, reason = {"state": ""}, "it is away"
        if not saved["state"]:
            warnings.warn(
                f"rankpool: the cache did not save its scores, since {reason}: a training that "
                "resumes from this checkpoint cannot continue with the same batches; keep the one "
                "before it", stacklevel=3,
            )
        elif not saved["saved"] and self._connection.welcome.rank == 0:
            warnings.warn(
                "rankpool: this run saves no importance scores (--state FILE): another run that "
                "resumes from this checkpoint cannot continue with the same batches", stacklevel=3,
            )
        return saved["state"] or None

    @property
    def _scorer(self) -> str:
        return self._connection.opened[self.spec]["scorer"]

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Resumes from the position in state, with any number of trainers.

        Raises ValueError, naming the field, if the state belongs to another stream of batches, or
        to a version of rankpool that draws differently. The cache refuses to plan from other
        importance scores than those that belong to the state (RequestError, at the first batch),
        unless it was started with --tune state-optional=true.
        """
        for field, ours in self._identity().items():
            compare(state, field, ours)
        epoch = place_of(state, "epoch", wire.MAX_EPOCH)
        batch = place_of(state, "batch", self._batches)
        processes = place_of(state, "processes", session.MAX_WORLD) if "processes" in state else 0
        self._processes = processes or self.spec.world
        self.set_epoch(epoch)
        self._start = batch
        self._plan = None  # the cache is told where this epoch begins
        self._accuracies = [[int(e), float(x)] for e, x in state.get("accuracies", [])]
        self._loaded = bool(self._accuracies)
        self._training.resume(epoch, batch, state.get("state"), processes)

    def _identity(self) -> Dict[str, Any]:
        spec, welcome = self.spec, self._connection.welcome
        first = {"first_chunk": spec.first_chunk} if spec.sampler == "chunks" else {}
        return {
            "version": STATE_VERSION,
            "plan_version": welcome.plan_version,
            "options": welcome.options,
            "choice": self._connection.opened[spec].get("choice", ""),
            "identity": spec.identity,
            "samples": len(self.data),
            "seed": spec.seed,
            "sampler": spec.sampler,
            "scorer": self._scorer,
            "global_batch": spec.batch_size * spec.world,
            "drop_last": spec.drop_last,
            "sampler_drop_last": spec.sampler_drop_last,
            **first,
        }

    # --- how long training waits ---

    def _measure(self, epoch: int, began: int) -> None:
        """Has what asks for the first batch, since `began`, count how long training waits; if it is
        not known, the cache is told so."""
        tally, loading = self._connection.tally(self._stream, epoch), under_way()
        self._tally = tally
        if loading is not None:
            loading.stream, loading.tally = self, tally
            return
        tally.waited(began, time.perf_counter_ns())
        tally.measured = False
        self._goes_on(last=True)

    def _goes_on(self, last: bool = False) -> None:
        """Sends the counts so far to the cache now and then, and at an epoch's end."""
        now = time.monotonic()
        if last or now >= self._tally_at:
            self._tally_at = now + _TALLY_SECONDS
            self._connection.send_tally(self._tally)


def _is_beside(spec: Spec, first: Spec) -> bool:
    """Returns whether a sampler is beside the training of this process, whose first one is `first`:
    the ranks do not plan it."""
    alone = spec.world == 1 < session.world() and spec.sampler in _SCORELESS
    return alone or first._replace(trainer=0) != spec._replace(trainer=0)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    """Returns a script's integer, possibly NumPy's, which must be in [least, most]; raises
    ValueError."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"rankpool: {name} must be a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"rankpool: {name} must be in [{least}, {most}], not {number}")
    return number


def compare(state: Dict[str, Any], field: str, ours: Any) -> None:
    """Raises ValueError unless a saved state has this value: training would not continue with the
    same batches."""
    theirs = state.get(field)
    if theirs != ours:
        remedy = f"; {_REMEDIES[field]}" if field in _REMEDIES else ""
        raise ValueError(
            f"rankpool: the saved state has {field} = {theirs!r}, this sampler {ours!r}{remedy}"
        )


def place_of(state: Dict[str, Any], field: str, most: int) -> int:
    """Returns a number of a saved state, which must be in [0, most]."""
    value = state.get(field)
    try:
        return _whole(field, value, 0, most)
    except ValueError:
        raise ValueError(
            f"rankpool: the saved state has {field} = {value!r}, which must be in [0, {most}]"
        ) from None


def _float32(values, shape: Tuple[int, int]) -> array:
    """Returns a tensor, an array or a list of lists row by row; raises ValueError unless it has
    this shape."""
    import numpy

    if hasattr(values, "detach"):
        values = values.detach().cpu().float()
    rows = values if hasattr(values, "shape") else [_listed(row) for row in values]
    found = numpy.asarray(rows, "float32")
    if found.shape != shape:
        raise ValueError(
            f"rankpool: embeddings must be of shape {list(shape)}, not {list(found.shape)}"
        )
    return array("f", found.tobytes())


def _listed(values) -> List:
    """Returns the elements of a list, an array or a tensor, flattened."""
    if isinstance(values, list):
        return values
    if hasattr(values, "tolist"):
        return values.reshape(-1).tolist()
    return list(values)
