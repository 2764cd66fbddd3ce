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
        self._plan_version: Optional[int] = None
        self._options: Optional[str] = None
        self.sampler = ""

    def expect(self, name: str, identity: str, times: str) -> None:
        """Records what training began with; the first record stays."""
        self._data.setdefault(name, (identity, times))

    def check(self, welcome) -> None:
        """Raises IdentityError unless a rank serves what training began with."""
        for what, before, now, remedy in (
            (
                "plan version", self._plan_version, welcome.plan_version,
                "use one rankpool on all nodes",
            ),
            ("options", self._options, welcome.options, "start it with the same --system"),
        ):
            if before not in (None, now):
                raise IdentityError(
                    f"rankpool: the cache came back with the {what} {now!r}, and training began "
                    f"with {before!r}: {remedy}"
                )
        self._plan_version, self._options = welcome.plan_version, welcome.options
        self.sampler = welcome.sampler
        served = {data["name"]: data for data in welcome.data}
        for name, (identity, times) in self._data.items():
            if name not in served:
                raise IdentityError(f"rankpool: the cache came back without data set {name!r}")
            found = served[name]
            if (found["identity"], found["times"]) != (identity, times):
                raise IdentityError(
                    f"rankpool: data set {name!r} is not the one that training began with: its "
                    f"identity is {found['identity']} now, and was {identity}, and its times "
                    f"{found['times']} and {times}; start the training anew"
                )


_by_door: Dict[str, Identities] = {}


def identities(path: str) -> Identities:
    """Returns what this process, or the one it was forked from, knows about the data sets behind
    the door at path."""
    return _by_door.setdefault(path, Identities())
