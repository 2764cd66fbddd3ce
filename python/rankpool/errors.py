"""The errors that a training script may want to distinguish."""

from __future__ import annotations


class RankpoolError(RuntimeError):
    """The base of all errors of this package; its text is one sentence."""


class VersionError(RankpoolError):
    """The cache speaks another version of the door's protocol."""


class OwnerError(RankpoolError):
    """The cache belongs to another user, or could: nothing that it says is trusted."""


class RequestError(RankpoolError):
    """The cache refused a request: an unknown data set, or trainers that disagree."""


class IdentityError(RankpoolError):
    """The cache serves another data set than the one that training began with; its text names the
    first difference."""


class CacheAwayError(RankpoolError):
    """The cache did not come back in time to plan an epoch (RANKPOOL_PLAN_TIMEOUT)."""


class SampleError(RankpoolError):
    """A sample cannot be read, or is not the file that was indexed: other bytes are never returned
    for it.

    `id` and `path` are the sample and its place, `reason` is why it could not be read.
    """

    def __init__(self, id: int, path: str, reason: str) -> None:
        super().__init__(f"rankpool: sample {id} ({path}): {reason}")
        self.id, self.path, self.reason = id, path, reason

    def __reduce__(self):
        return SampleError, (self.id, self.path, self.reason)


class Refused(RankpoolError):
    """A data set that is not read; the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"rankpool: {why}")


class Away(ConnectionError):
    """Internal: the cache is not there; the caller reads storage and tries again later."""


class NotReady(Exception):
    """Internal: the rank has no plan for that epoch yet; the caller reads storage meanwhile."""
