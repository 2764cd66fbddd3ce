"""The digest of a stream of samples, to prove that two runs trained on the same one.

The bytes of a global batch are its ids in ascending order, each a little-endian int64, and then the
samples' raw bytes in that order; a sample that was drawn twice is there twice. `digest` is the
SHA-256 of the bytes of all global batches of the run, in order. A line of the digest log is "EPOCH
BATCH HEX", HEX the SHA-256 of that batch's bytes: the logs of a run that stopped and of the run
that resumed it are together the log of a run that did not stop.

In the digest of ids, the bytes of a global batch are its ids alone, in that form. `rankpool
simulate --ids-digest` prints the same digest. To continue it after a resume, store `ids`, which
holds all that was added, in the checkpoint.
"""

import hashlib
import struct


class Digest:
    """Adds up global batches; `log` is a file that gets a line for each, or None."""

    def __init__(self, log=None):
        self._all = hashlib.sha256()
        self._log = log

    def add(self, epoch, batch, samples):
        """Adds a global batch: pairs of an id and the sample's bytes, in any order."""
        samples = sorted(samples)
        one = struct.pack(f"<{len(samples)}q", *(id for id, _ in samples)) + b"".join(
            raw for _, raw in samples
        )
        self._all.update(one)
        if self._log:
            print(epoch, batch, hashlib.sha256(one).hexdigest(), file=self._log, flush=True)

    def hex(self):
        """Returns the digest of all that was added."""
        return self._all.hexdigest()


class IdsDigest:
    """Adds up the ids of global batches, each in any order; `ids` are those that an earlier
    IdsDigest added up."""

    def __init__(self, ids=b""):
        self.ids = bytearray(ids)

    def add(self, ids):
        """Adds a global batch."""
        self.ids += struct.pack(f"<{len(ids)}q", *sorted(ids))

    def hex(self):
        """Returns the digest of all that was added."""
        return hashlib.sha256(self.ids).hexdigest()
