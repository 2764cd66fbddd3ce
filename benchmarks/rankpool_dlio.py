"""DLIO's data loader plug-in: MLPerf Storage's benchmark reads from the cache.

    PYTHONPATH=benchmarks rankpool run --data DATA/train -- dlio_benchmark workload=… \
        ++workload.dataset.data_folder=DATA \
        ++workload.reader.data_loader_classname=rankpool_dlio.Loader \
        ++workload.reader.data_loader_sampler=index

Importing this module needs the package dlio_benchmark.
"""

from __future__ import annotations

import io
import os
import pickle
from math import ceil
from typing import Any, Iterator

import torch
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.reader.reader_factory import ReaderFactory
from torch.utils.data import get_worker_info

from rankpool import BatchSampler, Dataset, RankpoolError
from rankpool.dataset import name_of

FORMATS = ("jpeg", "npz", "png")  # DLIO's readers of these accept open files


class Loader(BaseDataLoader):
    """Yields the batches of DLIO's workload from the cache, decoded by DLIO's own reader.

    Give `rankpool run --data` the folder `train` of the workload's data, and `valid` for an
    evaluation. A sample is a file in one of FORMATS. DLIO's options read_threads, prefetch_size and
    multiprocessing_context are passed to DataLoader. DLIO's MPI rank is the trainer's number.

    Differs: DLIO's PyTorch loader gives each rank the same part of the files in every epoch. This
    one draws as DistributedSampler does: all files anew in each epoch, or in order if both
    file_shuffle and sample_shuffle are off.
    """

    def __init__(self, format_type, dataset_type, epoch_number) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.PYTORCH)
        self._epochs = 0  # begun

    def read(self) -> None:
        """Opens the data set; raises RankpoolError if the cache does not serve it in this form."""
        args = self._args
        os.environ.update(RANK=str(args.my_rank), WORLD_SIZE=str(args.comm_size))
        folder = os.path.join(args.storage_root, args.data_folder, str(self.dataset_type))
        data = Dataset(self._checked_name(folder), _Decode(self), members=False)
        if len(data) != self.num_samples:
            which = "train" if self.dataset_type is DatasetType.TRAIN else "eval"
            raise RankpoolError(
                f"rankpool: the cache serves {len(data)} files of {folder}, and DLIO wants "
                f"{self.num_samples}: set num_files_{which}={len(data)}"
            )
        in_order = args.file_shuffle is Shuffle.OFF and args.sample_shuffle is Shuffle.OFF
        self._sampler = BatchSampler(
            data,
            self.batch_size,
            args.seed,
            "sequential" if in_order else "torch",
            drop_last=True,
            rank=args.my_rank,
            world_size=args.comm_size,
        )
        self._loader = data.loader(self._sampler, args.read_threads, **self._options())

    def _checked_name(self, folder: str) -> str:
        """Returns the name of the cache's data set in a folder."""
        if str(self.format_type) not in FORMATS:
            known = ", ".join(FORMATS)
            raise RankpoolError(
                f"rankpool: DLIO's format must be one of {known}, not {self.format_type}"
            )
        samples = self._args.num_samples_per_file
        if samples != 1:
            raise RankpoolError(
                f"rankpool: num_samples_per_file must be 1, not {samples}: a sample is a file"
            )
        name = name_of(folder)
        if name is None:
            raise RankpoolError(
                f"rankpool: the cache does not serve {folder}: give it to `rankpool run --data`"
            )
        return name

    def _options(self) -> dict:
        """Returns the options that DLIO's PyTorch loader would give its DataLoader."""
        args = self._args
        options = {"pin_memory": getattr(args, "pin_memory", True) and torch.cuda.is_available()}
        if args.read_threads:
            options["multiprocessing_context"] = args.multiprocessing_context
            options["prefetch_factor"] = ceil(args.prefetch_size / args.read_threads) or 2
            options["persistent_workers"] = True
        return options

    def next(self) -> Iterator[torch.Tensor]:
        """Yields this rank's batches of the next epoch."""
        self._sampler.set_epoch(self._epochs)
        self._epochs += 1
        for _, images in self._loader:
            yield images

    def finalize(self) -> None:
        """Does nothing: DLIO calls it after each epoch."""


class _Decode:
    """Does with a sample what DLIO's reader does with a file: returns DLIO's image."""

    def __init__(self, of: Loader) -> None:
        self._format, self._dataset = of.format_type, of.dataset_type
        self._args = pickle.dumps(of._args)
        self._reader: Any = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_reader": None}

    def __call__(self, view, label: int):
        worker = get_worker_info()
        if self._reader is None:
            if worker is not None:
                pickle.loads(self._args)  # DLIO's settings in a process without MPI
            number = -1 if worker is None else worker.id
            self._reader = ReaderFactory.get_reader(self._format, self._dataset, number, 0)
        reader, name = self._reader, "sample"
        reader.open_file_map[name] = reader.open(io.BytesIO(view))
        reader.get_sample(name, 0)
        reader.close(name)
        del reader.open_file_map[name]
        reader.preprocess()
        return (torch.from_numpy(reader.resize(None)),)


__all__ = ["Loader"]
