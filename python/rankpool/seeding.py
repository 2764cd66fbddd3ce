"""Reproducible tensors: a transform's random numbers depend only on the pass over the data, the
sample, and the number of its draw and of its read."""

from __future__ import annotations

import random
import sys
from hashlib import blake2b
from struct import pack
from typing import Callable


def number_of(*numbers: int) -> int:
    """Returns 64 bits that depend on all the numbers: their BLAKE2b.

    Seed, epoch and pass give the key of a pass over the data; key, sample, its draw and its read
    the seed of a transform.
    """
    words = pack(f"<{len(numbers)}Q", *(number % (1 << 64) for number in numbers))
    return int.from_bytes(blake2b(words, digest_size=8).digest(), "little")


def seed_all(number: int) -> None:
    """Seeds the generators of Python, and of NumPy and torch (CPU) where the process has them."""
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number >> 32)
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch.manual_seed would seed GPUs too
        torch.default_generator.manual_seed(number & 0xFFFFFFFF)


def keep() -> Callable[[], None]:
    """Returns a function that restores the generators to their current state: the script's own
    random numbers then continue."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = (
        random.getstate(), numpy and numpy.random.get_state(),
        torch and torch.default_generator.get_state(),
    )

    def restore() -> None:
        random.setstate(states[0])
        if states[1] is not None:
            numpy.random.set_state(states[1])
        if states[2] is not None:
            torch.default_generator.set_state(states[2])

    return restore
