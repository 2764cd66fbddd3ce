"""rankpool feeds training from the pooled memory of the job's nodes.

    data = rankpool.Dataset(transform=decode)
    sampler = rankpool.BatchSampler(data, batch_size=64, seed=0, sampler="pads")
    loader = data.loader(sampler, num_workers=2)
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
from typing import Any

from .batch import Batch, Samples
from .batch_sampler import BatchSampler
from .dataloader_hook import hook
from .dataset import Dataset, data_sets
from .errors import (
    CacheAwayError, IdentityError, OwnerError, RankpoolError, RequestError, SampleError,
    VersionError,
)
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


def loader(dataset, *args: Any, **options: Any):
    """Returns torch's DataLoader of the same arguments: its samples are planned, and training's
    waiting is measured.

    It takes the place of a loader of another class, such as torchdata's StatefulDataLoader, whose
    iterations rankpool does not see.
    """
    from torch.utils.data import DataLoader

    hook()
    return DataLoader(dataset, *args, **options)


# Not in __all__: a script without torch can import all the rest, and keeps its open().
_LATER = {
    "Arrays": "arrays",
    "DatasetFolder": "image_folder",
    "ImageFolder": "image_folder",
    "DistributedSampler": "drop_in_samplers",
    "ImportanceSampler": "drop_in_samplers",
    "WebDataset": "webdataset",
    "learn": "learning",
    "open": "piece_files",
    "planned": "any_sampler",
    "zarr_store": "zarr_stores",
}


def __dir__():
    """Returns what scripts use."""
    return [*__all__, *_LATER, "__version__"]


def __getattr__(name: str):
    """Imports a name on its first use."""
    if name in _LATER:
        return getattr(import_module("." + _LATER[name], __name__), name)
    raise AttributeError(f"module 'rankpool' has no attribute {name!r}")
