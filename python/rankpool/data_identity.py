"""Which data set a training uses: compares what a cache serves when it comes back with what
training began with."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from .errors import IdentityError


class Identities:
    """What this process knows about the data sets behind one door, the version of their plans, and
    the cache's options."""

    def __init__(self) -> None:
        self._data: Dict[str, Tuple[str, str]] = {}  # by name: identity and times
        self._cache: Optional[dict] = None  # its plan version and options
        self.sampler = ""

    def expect(self, name: str, identity: str, times: str) -> None:
        """Records what training began with; the first record stays."""
        self._data.setdefault(name, (identity, times))

    def check(self, welcome) -> None:
        """Raises IdentityError unless a rank serves what training began with."""
        now = {"plan version": welcome.plan_version, "options": welcome.options}
        if self._cache not in (None, now):
            raise IdentityError(
                f"rankpool: the cache came back with {now}, and training began with {self._cache}: "
                "use one rankpool on all nodes, and the same --system"
            )
        self._cache, self.sampler = now, welcome.sampler
        served = {data["name"]: (data["identity"], data["times"]) for data in welcome.data}
        for name, began in self._data.items():
            if name not in served:
                raise IdentityError(f"rankpool: the cache came back without data set {name!r}")
            if served[name] != began:
                identity, times = served[name]
                raise IdentityError(
                    f"rankpool: data set {name!r} is not the one that training began with: its "
                    f"identity is {identity} now, and was {began[0]}, and its times {times} and "
                    f"{began[1]}; start the training anew"
                )


_by_door: Dict[str, Identities] = {}


def identities(path: str) -> Identities:
    """Returns what this process, or the one it was forked from, knows about the data sets behind
    the door at path."""
    return _by_door.setdefault(path, Identities())
