"""The frames of the door's protocol, version 5 (docs/wire/README.md): bytes in, values out, no
I/O."""

from __future__ import annotations

import json
import time
from array import array
from itertools import accumulate
from struct import Struct, calcsize, pack, unpack_from
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

VERSION = 5
MAGIC = b"rankpool"
MAX_EPOCH = (1 << 31) - 2
NOT_MEASURED = (1 << 64) - 1  # stall_us of a training process whose waiting nobody measures

HELLO, OPEN, PLAN, GET, REPORT, RELEASE, METRIC, SAVE, STATUS, SHUTDOWN, LIST = range(1, 12)
REPLY = 100  # a reply's kind is its request's kind + REPLY
ERROR = 99

LIST_BYTES = 1 << 20  # of numbers in a LIST

CONTROL = 0xFFFFFFFF  # in place of a trainer: a client that requests nothing to train on

E_PROTOCOL, E_REQUEST, E_NOT_READY = 1, 2, 3

# Where a sample of a batch comes from.
LOCAL, REMOTE, STORAGE, FALLBACK, ELSEWHERE, UNREADABLE = range(6)
SUBSTITUTE = 0x80  # a bit added to these: the sample is served in place of another

HEADER = Struct("<IHHI")
_TALLY = Struct("<8I4Q")
# what a tally counts, in the order of the frame
COUNTED = (
    "hits_local", "hits_remote", "storage_reads", "fallback_reads", "substituted",
    "substitute_reads", "storage_bytes", "fallback_bytes", "evaluated", "evaluated_reads",
    "unplanned_bytes",
)  # fmt: skip


def frame(kind: int, ticket: int, payload: bytes = b"") -> bytes:
    """Returns the frame of one message."""
    return HEADER.pack(len(payload), kind, 0, ticket) + payload


def compact(value: Any) -> bytes:
    """Returns value as JSON without blanks, fields in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# --- what a client sends ---


def pack_hello(trainer: int, world: int, worker: int, process: int, family: int) -> bytes:
    return pack("<8sHHIIQQQ", MAGIC, VERSION, 0, trainer, world, worker, process, family)


def pack_open(spec: Any, training: Optional[dict]) -> bytes:
    """Packs a connection.Spec and what a training process reports of itself, None for a worker."""
    asked = spec._asdict()
    for field, otherwise in spec._field_defaults.items():
        if asked[field] == otherwise:
            del asked[field]
    return compact({**asked, "training": training})


def pack_place(stream: int, epoch: int, batch: int) -> bytes:
    """Packs a PLAN, whose first batch this is, or a SAVE."""
    return pack("<III", stream, epoch, batch)


def pack_list(stream: int, epoch: int, ahead: bool, total: int, first: int, words: bytes) -> bytes:
    """Packs a piece of a part of an epoch; `total` and `first` count its numbers of 4 bytes."""
    return pack("<5I", stream, epoch, ahead, total, first) + words


def pack_get(stream: int, epoch: int, batch: int, leases: Sequence[int], tally: bytes) -> bytes:
    n = len(leases)
    return pack(f"<{4 + n}I", stream, epoch, batch, n, *leases) + tally


def pack_report(
    stream: int, epoch: int, batch: int, losses: array, embeddings: Optional[array] = None
) -> bytes:
    """Packs arrays of type "f", the second with the embeddings of all samples one after the other;
    NaN means not reported."""
    packed = pack("<4I", stream, epoch, batch, len(losses)) + losses.tobytes()
    if not embeddings:
        return packed
    return packed + pack("<I", len(embeddings) // len(losses)) + embeddings.tobytes()


def pack_release(leases: Sequence[int], tally: bytes) -> bytes:
    return pack(f"<{1 + len(leases)}I", len(leases), *leases) + tally


class Tally:
    """What one connection owner did in one epoch of one stream: running sums since the epoch
    began. `counts` has them by the names in COUNTED."""

    def __init__(self, stream: int, epoch: int) -> None:
        self.stream, self.epoch = stream, epoch
        self.counts = dict.fromkeys(COUNTED, 0)
        self.stall_ns = self.elapsed_ns = 0
        self.began_ns = time.perf_counter_ns()
        # a training process whose waiting nobody measures says so; a worker has nothing to say
        self.measured = True

    def take(self) -> Dict[str, int]:
        """Returns the counts since the last call, for another tally to add, and begins anew."""
        counts = self.counts
        self.__init__(self.stream, self.epoch)
        return counts

    def add(self, counts: Dict[str, int]) -> None:
        """Adds what another tally took."""
        for name, count in counts.items():
            self.counts[name] += count

    def evaluate(self, counts: Dict[str, int]) -> None:
        """Adds the counts of samples that are evaluated instead of drawn. Their bytes count as
        read."""
        reads = {name: counts[name] for name in ("storage_bytes", "fallback_bytes")}
        reads["evaluated"] = sum(counts[name] for name in COUNTED[:5])
        reads["evaluated_reads"] = counts["storage_reads"] + counts["fallback_reads"]
        self.add(reads)

    def touch(self, now_ns: int) -> None:
        """Records that the epoch continues; now_ns is from perf_counter_ns."""
        self.elapsed_ns = now_ns - self.began_ns

    def waited(self, began_ns: int, ended_ns: int) -> None:
        """Adds a wait of training, which was measured; both are from perf_counter_ns."""
        self.measured = True
        self.stall_ns += ended_ns - began_ns
        self.began_ns = min(self.began_ns, began_ns)

    def pack(self) -> bytes:
        """Returns a tally as it is on the wire: 64 bytes, 72 with evaluated samples, 80 with bytes
        that were not planned."""
        *counts, evaluated, evaluated_reads, unplanned_bytes = self.counts.values()
        more = b""
        if evaluated or unplanned_bytes:
            more = pack("<II", evaluated, evaluated_reads)
        if unplanned_bytes:
            more += pack("<Q", unplanned_bytes)
        stall_us = self.stall_ns // 1000 if self.measured else NOT_MEASURED
        times = stall_us, self.elapsed_ns // 1000
        return _TALLY.pack(self.stream, self.epoch, *counts, *times) + more


# --- what a client receives ---


class Welcome(NamedTuple):
    """The reply to HELLO: this rank's number, the number of ranks, the data sets, the session."""

    rank: int
    ranks: int
    slab_bytes: int
    data: list
    session: str
    plan_version: int = 1
    options: str = ""  # of the cache's system (`run --system`), as text; empty: none
    sampler: str = ""  # the sampler of the cache's system


def unpack_hello(payload: bytes) -> Welcome:
    _, _, rank, ranks, slab = unpack_from("<HHIIQ", payload)
    return Welcome(rank, ranks, slab, **json.loads(payload[calcsize("<HHIIQ") :]))


class Plan:
    """This trainer's part of one epoch: which samples each global batch gives it, in order.

    `source` is the digest of the importance scores that it was made from, "" if it depends on none.
    `ids`, `weights` and `repeats` are views of one column each; batch b is
    ids[starts[b]:starts[b + 1]]. `weights` is None when every weight is 1,
    `repeats` (how often the epoch drew the sample before, on any trainer) when all are 0. Global
    batches in `evaluated` are not trained on.
    """

    __slots__ = (
        "epoch", "batches", "draws", "starts", "ids", "weights", "repeats", "evaluated", "source",
    )

    def __init__(self, payload: bytes) -> None:
        self.epoch, self.batches, self.draws, flags = unpack_from("<4I", payload)
        at, columns = 16, memoryview(payload)

        def column(cells: int, code: str) -> memoryview:
            nonlocal at
            at += 4 * cells
            return columns[at - 4 * cells : at].cast(code)

        self.starts = list(accumulate(column(self.batches, "I"), initial=0))
        draws = self.starts[-1]
        self.ids = column(draws, "I")
        self.weights = column(draws, "f") if flags & 1 else None
        self.repeats = column(draws, "I") if flags & 2 else None
        self.evaluated = range(0)
        if flags & 8:
            first, count = unpack_from("<2I", payload, at)
            self.evaluated = range(first, first + count)
            at += 8
        self.source = payload[at : at + 16].hex() if flags & 4 else ""

    def batch(self, number: int) -> list:
        """Returns the ids of this trainer's part of global batch number."""
        return self.ids[self.starts[number] : self.starts[number + 1]].tolist()

    def again(self, number: int) -> Optional[list]:
        """Returns how often the epoch drew each of these before, None when it drew none."""
        if self.repeats is None:
            return None
        repeats = self.repeats[self.starts[number] : self.starts[number + 1]].tolist()
        return repeats if any(repeats) else None


class BatchReply:
    """The reply to GET; columns are parsed from its bytes when they are needed."""

    __slots__ = ("lease", "size", "_payload")

    def __init__(self, payload: bytes) -> None:
        self.lease, self.size = unpack_from("<II", payload)
        self._payload = memoryview(payload)

    def has(self, ids: Sequence[int]) -> bool:
        """Returns whether the samples have these ids, in this order."""
        return self._payload[8 : 8 + 4 * self.size].tobytes() == array("I", ids).tobytes()

    @property
    def places(self) -> Tuple[list, list]:
        """Where in the slab the samples begin, and where they end, in bytes."""
        places = self._payload[8 + 8 * self.size : 8 + 24 * self.size].cast("Q").tolist()
        return places[: self.size], places[self.size :]

    @property
    def sources(self) -> bytes:
        at = 8 + 24 * self.size
        return bytes(self._payload[at : at + self.size])

    @property
    def failures(self) -> dict:
        """The places in the batch with source UNREADABLE, each with the reason."""
        at = 8 + 25 * self.size
        (count,) = unpack_from("<I", self._payload, at)
        at, found = at + 4, {}
        for _ in range(count):
            place, length = unpack_from("<II", self._payload, at)
            found[place] = str(self._payload[at + 8 : at + 8 + length], "utf-8", "replace")
            at += 8 + length
        return found


def unpack_error(payload: bytes) -> tuple:
    """Returns an error reply's code and its sentence."""
    code, _ = unpack_from("<HH", payload)
    return code, payload[4:].decode("utf-8", "replace")
