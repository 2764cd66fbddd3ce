"""rankpool feeds training from the pooled memory of the job's nodes.

    data = rankpool.Dataset(transform=decode)
    sampler = rankpool.BatchSampler(data, batch_size=64, seed=0, sampler="pads")
    loader = rankpool.loader(data, sampler, num_workers=2)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for ids, x, y in loader:
            weights = sampler.weights(ids)
            ...
            sampler.report(ids, losses)

The script runs under `rankpool run … -- python script.py`. The training sees exactly the samples
that the sampler drew, in order, whether the cache is there or not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Callable, List, Optional

from .batch import Batch, Samples
from .dataset import Dataset, data_sets
from .errors import (
    CacheAwayError, IdentityError, OwnerError, RankpoolError, RequestError, SampleError,
    VersionError,
)
from .sampler import BatchSampler
from .stopping import Stop

__all__ = [
    "Batch",
    "BatchSampler",
    "CacheAwayError",
    "Dataset",
    "IdentityError",
    "OwnerError",
    "RankpoolError",
    "RequestError",
    "SampleError",
    "Samples",
    "Stop",
    "VersionError",
    "data_sets",
    "loader",
]
__version__ = "0.1.0"


def loader(
    data: Dataset,
    sampler: BatchSampler,
    num_workers: int = 0,
    collate_fn: Optional[Callable[[List[Any]], Any]] = None,
    **options: Any,
):
    """Returns a torch DataLoader that yields (ids, *fields) and asks the cache once per batch.

    `collate_fn(items)` joins the items of a batch, as torch's does; a tuple it returns becomes the
    fields. Other options are DataLoader's (persistent_workers, pin_memory, multiprocessing_context,
    …).
    """
    from .torch_loader import Loader

    return Loader(data, sampler, collate_fn, {"num_workers": num_workers, **options})


# Not in __all__: a script without torch can import all the rest.
_WITH_TORCH = {
    "DatasetFolder": "folder",
    "ImageFolder": "folder",
    "DistributedSampler": "samplers",
    "ImportanceSampler": "samplers",
    "WebDataset": "webdataset",
}


def __getattr__(name: str):
    """Imports a name that needs torch on its first use."""
    if name in _WITH_TORCH:
        return getattr(import_module("." + _WITH_TORCH[name], __name__), name)
    raise AttributeError(f"module 'rankpool' has no attribute {name!r}")
