"""Which data set a training uses: compares what a cache serves when it comes back with what
training began with."""

from __future__ import annotations

import os
from typing import Dict, NamedTuple, Optional

from .errors import IdentityError
from .index import Index

_BLOCK = 4096  # samples compared at a time


class Known(NamedTuple):
    """What a process recorded about a data set when it first saw it; `index` is None if it has not
    mapped the index."""

    identity: str
    times: str
    index: Optional[Index]


class Identities:
    """What this process knows about the data sets behind one door, the version of their plans, and
    the cache's options."""

    def __init__(self) -> None:
        self._data: Dict[str, Known] = {}
        self._plan_version: Optional[int] = None
        self._options = self.sampler = ""

    def expect(self, name: str, identity: str, times: str, index: Optional[Index] = None) -> None:
        """Records what training began with; a record that has an index stays."""
        known = self._data.get(name)
        if known is None or known.index is None:
            self._data[name] = Known(identity, times, index)

    def check(self, welcome) -> None:
        """Raises IdentityError unless a rank serves what training began with."""
        if self._plan_version not in (None, welcome.plan_version):
            raise IdentityError(
                f"rankpool: the cache came back with plans of version {welcome.plan_version}, and "
                "training began with "
                f"version {self._plan_version}: use one rankpool on all nodes"
            )
        if self._plan_version is not None and self._options != welcome.options:
            raise IdentityError(
                f"rankpool: the cache came back with the options {welcome.options!r}, and training "
                "began with "
                f"{self._options!r}: start it with the same --system"
            )
        self._plan_version, self._options, self.sampler = (
            welcome.plan_version, welcome.options, welcome.sampler,
        )
        served = {data["name"]: data for data in welcome.data}
        for name, known in self._data.items():
            if name not in served:
                raise IdentityError(f"rankpool: the cache came back without data set {name!r}")
            found = served[name]
            if (found["identity"], found["times"]) != (known.identity, known.times):
                raise IdentityError(
                    f"rankpool: data set {name!r} is not the one that training began with: "
                    f"{_difference(known, found)}; start the training anew"
                )


_by_door: Dict[str, Identities] = {}


def identities(path: str) -> Identities:
    """Returns what this process, or the one it was forked from, knows about the data sets behind
    the door at path."""
    return _by_door.setdefault(path, Identities())


def _difference(known: Known, found: dict) -> str:
    """Describes how the data set that the cache serves now differs from the known one."""
    if known.index is not None:
        try:
            there = Index(found["index"])
        except OSError:
            there = None
        if there is not None and (there.identity, there.times) == (
            found["identity"], found["times"],
        ):
            return first_difference(known.index, there) or "its classes changed"
    return f"its identity is {found['identity']} now, and was {known.identity}"


def first_difference(here: Index, there: Index) -> str:
    """Describes the first difference of an index from an earlier one; "" if their samples are the
    same."""
    least = min(len(here), len(there))
    for first in range(0, least, _BLOCK):
        end = min(least, first + _BLOCK)
        if here.block(first, end) != there.block(first, end):
            for id in range(first, end):
                what = _sample_difference(here, there, id)
                if what:
                    return what
    if len(here) == len(there):
        return ""
    gone = len(here) > len(there)
    path = os.fsdecode((here if gone else there).path(least))
    return f"{path} {'is gone' if gone else 'is new'}"


def _sample_difference(here: Index, there: Index, id: int) -> str:
    was, now = here.path(id), there.path(id)
    if was != now:
        gone = len(here) > len(there) or len(here) == len(there) and was < now
        return f"{os.fsdecode(was)} is gone" if gone else f"{os.fsdecode(now)} is new"
    if here.sizes[id] != there.sizes[id]:
        return f"{os.fsdecode(now)} has {there.sizes[id]} bytes now, and had {here.sizes[id]}"
    if here.offset(id) != there.offset(id) or here.members(id) != there.members(id):
        return f"{os.fsdecode(now)} holds its samples in other places"
    if here.labels[id] != there.labels[id]:
        return f"{os.fsdecode(now)} has label {there.labels[id]} now, and had {here.labels[id]}"
    if here.mtimes[id] != there.mtimes[id]:
        return f"{os.fsdecode(now)} was modified"
    return ""
