"""The losses that trainer.py reports, and that train.py reports from a file."""

from math import log


def loss(epoch, id):
    """Returns the loss of a sample in an epoch: exponentially distributed, and the same in every
    run."""
    mixed = (id * 2654435761 + epoch * 2246822519 + 374761393) * 668265263 % (1 << 32)
    return -log((mixed + 0.5) / (1 << 32))
