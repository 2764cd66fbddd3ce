"""What a trainer hands in of an order that no rank knows, in parts."""

from __future__ import annotations

from array import array
from typing import Dict, Optional, Tuple

from . import wire
from .batch_sampler import LISTED, BatchSampler, BesideError
from .connection import Connection
from .errors import Away, NotReady, RequestError
from .messages import say_once
from .waiting import Waiting


class Listed(BatchSampler):
    """What this process hands in over one data set, in parts, each an epoch for the ranks.

    A part is words: the number of batches, their lengths, all ids. Parts are kept until the next
    one, for a cache that is restarted. With assign="local" the cache gives other ids of a global
    batch than those handed in, and nothing is trained without it.
    """

    def __init__(self, data, rank: int, world: int, assign: str) -> None:
        self._parts: Dict[int, bytes] = {}  # by epoch
        self.alone = 0  # how often in a row the other trainers did not come
        self._skips = 0  # so many parts are read from storage without waiting for them again
        super().__init__(data, 0, 0, LISTED, rank=rank, world_size=world, assign=assign)

    def begin(self, words: bytes) -> Optional[int]:
        """Hands in the part that is trained next; returns its epoch, None if the cache refuses it.
        What has no plan, because the cache or trainers are away, is read from storage. A trainer
        that iterates alone waits ever more rarely for the others."""
        if self._skips:
            self._parts, self._plan, self._skips = {self.epoch: words}, None, self._skips - 1
            return self.epoch
        ahead = self._parts.get(self.epoch) == words
        if self.spec.assign == "local":
            self._parts, self._plan = {self.epoch: words}, None
            waiting = Waiting(f"to plan what is handed in as epoch {self.epoch}")
            self._plan = waiting.until(self._connection, lambda: self._plan_of(words, ahead))
            self.epoch += 1
            return self._plan.epoch
        while True:
            self._parts, self._plan = {self.epoch: words}, None
            try:
                if not self._connection.connect():
                    return self.epoch
                plan = self._plan_of(words, ahead)
            except Away:
                return self.epoch
            except RequestError as refused:
                return not_served(self.data, refused)
            except NotReady as why:
                not_served(self.data, why)
                self._skips, self.alone = 2 * (2**self.alone - 1), self.alone + 1
                return self.epoch
            self.epoch, self.alone, ahead = self.epoch + 1, 0, False
            # else it was open already: other trainers had come too late for it
            if words.endswith(plan.ids.tobytes()):
                self._plan = plan
                return plan.epoch

    def foresee(self, words: bytes) -> None:
        """Hands in the part that will probably be next."""
        self._parts[self.epoch] = words
        try:
            if self._connection.connect():
                self._hand_in(self._connection, self.epoch, words, ahead=True)
        except (Away, NotReady, RequestError):  # a refusal is said when it begins
            pass

    def _plan_of(self, words: bytes, ahead: bool) -> wire.Plan:
        """Hands in a part, or confirms what was handed in ahead; returns the plan."""
        try:
            self._hand_in(self._connection, self.epoch, b"" if ahead else words)
        except NotReady:
            if not ahead:
                raise
            self._hand_in(self._connection, self.epoch, words)  # the cache was restarted
        return self._planned(self.epoch)

    def _hand_in(self, link: Connection, epoch: int, words: bytes, ahead: bool = False) -> None:
        stream, _ = self._open_at(link)
        for at in range(0, max(len(words), 1), wire.LIST_BYTES):
            piece = words[at : at + wire.LIST_BYTES]
            link.request(
                wire.LIST, wire.pack_list(stream, epoch, ahead, len(words) // 4, at // 4, piece)
            )

    def _reconnected(self, link: Connection) -> None:
        newest = max(self._parts, default=0)
        for epoch, words in list(self._parts.items()):
            self._hand_in(link, epoch, words, ahead=epoch == newest and len(self._parts) > 1)


def not_served(data, why: Exception) -> None:
    reason = str(why).replace("rankpool: ", "")
    say_once(f"data set {data.name!r} is read from storage for now: {reason}")


def words_of(counts: array, ids: array) -> bytes:
    """Returns a part as words, of batches of these lengths."""
    return array("I", [len(counts)]).tobytes() + counts.tobytes() + ids.tobytes()


_streams: Dict[Tuple[str, str, int, int, str], Listed] = {}


def listed(data, rank: int, world: int, assign: str = "sampler") -> Optional[Listed]:
    """Returns what this process hands in over a data set; None if another sampler trains on it."""
    key = data.door, data.name, rank, world, assign
    try:
        return _streams.get(key) or _streams.setdefault(key, Listed(data, rank, world, assign))
    except (BesideError, RequestError) as refused:
        return not_served(data, refused)
