"""The plans of a sampler beside the training: the client makes them itself, since their orders
depend on neither scores nor the cache."""

from __future__ import annotations

from array import array
from struct import pack
from typing import List, Optional, Sequence, Tuple

from .connection import Spec
from .errors import RankpoolError
from .wire import Plan

SAMPLERS = ("sequential", "torch", "torch-sequential")  # that can be beside a training
STREAM = -1  # of their batches: no cache serves it


def check(spec: Spec) -> None:
    """Raises RankpoolError if this sampler cannot be beside the training on its data set."""
    if spec.sampler not in SAMPLERS:
        raise RankpoolError(
            f"rankpool: this process trains on data set {spec.data!r} with another sampler, or with "
            f"other trainers, and beside that only sequential and torch can draw, not "
            f"{spec.sampler}: make the sampler that is trained first, and use one of these two to "
            "evaluate"
        )


def batches(spec: Spec, samples: int) -> int:
    """Returns the number of global batches in an epoch."""
    draws, size = samples, spec.batch_size * spec.world
    if spec.sampler != "sequential":  # all trainers have equal parts
        draws -= samples % spec.world
        if draws < samples and not spec.sampler_drop_last:
            draws += spec.world
    return draws // size if spec.drop_last else -(-draws // size)


def plan(spec: Spec, samples: int, epoch: int) -> Plan:
    """Returns this trainer's part of an epoch: place j of a global batch goes to trainer
    j mod world."""
    ids, repeats = _part(spec, samples, epoch)
    count = batches(spec, samples)
    ends = range(spec.batch_size, (count + 1) * spec.batch_size, spec.batch_size)
    lengths = [len(ids[end - spec.batch_size : end]) for end in ends]
    draws = sum(lengths)
    payload = pack("<4I", epoch, count, draws, 2 if repeats else 0)
    payload += array("I", lengths).tobytes() + array("I", ids[:draws]).tobytes()
    return Plan(payload + array("I", (repeats or ())[:draws]).tobytes())


def _part(spec: Spec, samples: int, epoch: int) -> Tuple[Sequence[int], Optional[List[int]]]:
    """Returns the ids that the trainer draws, and how often the epoch drew each before; None if it
    draws none twice."""
    if spec.sampler == "sequential":
        return range(spec.trainer, samples, spec.world), None
    try:
        from torch.utils.data import DistributedSampler
    except ImportError:
        raise RankpoolError("rankpool: the sampler torch beside a training needs PyTorch") from None
    shuffle, drop_last = spec.sampler == "torch", spec.sampler_drop_last
    order = DistributedSampler(
        range(samples), spec.world, spec.trainer, shuffle, spec.seed, drop_last
    )
    order.set_epoch(epoch)
    ids = list(order)
    if order.total_size <= samples:
        return ids, None
    return ids, [(spec.trainer + n * spec.world) // samples for n in range(len(ids))]
