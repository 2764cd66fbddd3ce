"""The loaders that are compared, each as its own documentation recommends: a class whose epoch(n)
yields batches of bytes.

A batch is a uint8 tensor of shape [samples, bytes of a sample]; all samples have one size.
"""

import os
import queue
import sys
import tempfile
import threading
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# the buffer of loaders that read shards sequentially, in samples and bytes: each worker has one
SHUFFLED, SHUFFLED_BYTES = 1000, 64e6


def tensor(content):
    return torch.from_numpy(numpy.frombuffer(content, numpy.uint8).copy())


def options(args):
    return {"batch_size": args.batch, "num_workers": args.workers, "persistent_workers": True}


class Files(Dataset):
    """The files of a folder, in the order of their paths."""

    def __init__(self, folder):
        self.paths = sorted(str(path) for path in Path(folder).glob("*/*.bin"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return torch.from_numpy(numpy.fromfile(self.paths[i], numpy.uint8))


class Torch:
    """torch's DataLoader over single files."""

    def __init__(self, args):
        data = Files(args.data)
        self.sampler = DistributedSampler(data, args.world, args.rank)
        self.loader = DataLoader(data, sampler=self.sampler, **options(args))

    def epoch(self, number):
        self.sampler.set_epoch(number)
        return self.loader


class WebDataset:
    """WebDataset over tar shards: shards in random order, a buffer of samples, batches made in the
    workers."""

    def __init__(self, args):
        import webdataset

        shards = sorted(str(path) for path in Path(args.data).glob("*.tar"))
        buffer = max(1, min(SHUFFLED, int(SHUFFLED_BYTES / args.sample_bytes)))
        data = webdataset.WebDataset(shards, shardshuffle=len(shards), detshuffle=True)
        data = (
            data.shuffle(buffer)
            .to_tuple("bin")
            .map_tuple(tensor)
            .batched(args.batch, partial=True)
        )
        self.loader = webdataset.WebLoader(
            data, batch_size=None, num_workers=args.workers, persistent_workers=True
        )

    def epoch(self, number):
        return (batch for (batch,) in self.loader)


class Streaming:
    """MosaicML Streaming over MDS shards, which it reads in place."""

    def __init__(self, args):
        from streaming import StreamingDataLoader, StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()

        class Samples(StreamingDataset):
            def __getitem__(self, i):
                return tensor(super().__getitem__(i)["data"])

        data = Samples(local=args.data, shuffle=True, batch_size=args.batch)
        self.loader = StreamingDataLoader(data, **options(args))

    def epoch(self, number):
        return self.loader


class LitData:
    """LitData over its chunks, which it reads in place."""

    def __init__(self, args):
        from litdata import StreamingDataLoader, StreamingDataset

        data = StreamingDataset(args.data, shuffle=True, transform=tensor)
        self.loader = StreamingDataLoader(data, **options(args))

    def epoch(self, number):
        return self.loader


class SPDL:
    """SPDL over single files: threads in place of workers, DistributedSampler's draws."""

    def __init__(self, args):
        self.data, self.args = Files(args.data), args
        self.sampler = DistributedSampler(self.data, args.world, args.rank)

    def epoch(self, number):
        from spdl.pipeline import PipelineBuilder

        self.sampler.set_epoch(number)
        threads = self.args.workers
        pipeline = (
            PipelineBuilder()
            .add_source(iter(self.sampler))
            .pipe(self.data.__getitem__, concurrency=threads, output_order="input")
            .aggregate(self.args.batch)
            .pipe(torch.stack)
            .add_sink(2)
            .build(num_threads=threads + 1)
        )
        with pipeline.auto_stop():
            yield from pipeline


class DALI:
    """DALI's file reader on the CPU, which reshuffles all files each epoch: threads, one of which
    reads."""

    def __init__(self, args):
        from nvidia.dali import fn, pipeline_def

        paths = Files(args.data).paths
        if len(paths) % (args.batch * args.world):
            raise ValueError(
                f"its epochs are whole batches of {args.batch}, and there are {len(paths)} files"
            )
        self.steps = len(paths) // (args.batch * args.world)

        @pipeline_def(batch_size=args.batch, num_threads=args.workers, device_id=None)
        def samples():
            contents, _ = fn.readers.file(
                files=paths, shuffle_after_epoch=True, shard_id=args.rank, num_shards=args.world
            )
            return contents

        self.pipeline = samples()
        self.pipeline.build()

    def epoch(self, number):
        for _ in range(self.steps):
            yield torch.from_numpy(self.pipeline.run()[0].as_array())


class NoPFS:
    """NoPFS's first release over single files, read one sample at a time as its loader without
    transforms does: a staging buffer of four batches, and memory.

    With collate_data it reads whole batches, but puts the last sample of a batch elsewhere when the
    staging buffer is full.
    """

    # bandwidths in MB/s, by number of threads: the model that decides where to read a sample needs
    # them
    CONFIG = """
        b_c = 10000; b_fs = 2000; distributed_threads = 0; checkpoint = false;
        pfs_bandwidth: ({{ processes: 1; bw: 200; }});
        storage_classes: (
            {{ capacity: {staging}; threads: 4; bandwidth: ({bandwidth}); }},
            {{ capacity: {memory}; backend: "memory"; threads: 2; bandwidth: ({bandwidth}); }}
        );
    """

    def __init__(self, args):
        sys.path.insert(0, args.nopfs)
        from hdmlp.hdmlp import Job

        paths = Files(args.data).paths
        self.steps, self.batch = len(paths) // args.batch, args.batch
        batch = args.batch * (args.sample_bytes + 64) / 1e6
        bandwidth = ", ".join(f"{{ threads = {n}; bw = 16000; }}" for n in range(1, 5))
        with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
            config.write(
                self.CONFIG.format(
                    staging=max(16, int(4 * batch)), bandwidth=bandwidth,
                    memory=max(1, args.memory_bytes // 1_000_000),
                )
            )
            config.flush()
            self.job = Job(
                args.data, args.batch, args.epochs, "uniform", False, seed=1,
                config_path=config.name, libhdmlp_path=os.path.join(args.nopfs, "libhdmlp.so"),
            )
            self.job.setup()

    def epoch(self, number):
        for _ in range(self.steps):
            samples = (self.job.get()[1] for _ in range(self.batch))
            rows = [numpy.frombuffer(content, numpy.uint8) for content in samples]
            yield torch.from_numpy(numpy.stack(rows))


class Rankpool:
    """rankpool from single files, or from the shards that rankpool pack wrote; its draws are
    DistributedSampler's. A thread copies samples out of the cache's memory, two batches ahead:
    bytes that need no decoding need no worker processes."""

    def __init__(self, args):
        import rankpool

        self.data = rankpool.Dataset()
        self.sampler = rankpool.BatchSampler(self.data, args.batch, sampler="torch")

    def epoch(self, number):
        self.sampler.set_epoch(number)
        return ahead(map(self.stack, self.data.batches(self.sampler)), 2)

    def stack(self, samples):
        """Returns a batch; each sample is copied once."""
        views = samples.views
        if self.data.members:
            views = [members["bin"] for members in samples.members]
        batch = torch.empty(len(views), len(views[0]), dtype=torch.uint8)
        for row, view in zip(batch.numpy(), views):
            row[:] = numpy.frombuffer(view, numpy.uint8)
        return batch


def ahead(batches, count):
    """Yields batches, which a thread makes up to `count` batches ahead."""
    taken = queue.Queue(count)

    def take():
        try:
            for batch in batches:
                taken.put(batch)
            taken.put(None)
        except BaseException as error:
            taken.put(error)

    threading.Thread(target=take, daemon=True).start()
    while (batch := taken.get()) is not None:
        if isinstance(batch, BaseException):
            raise batch
        yield batch


LOADERS = {
    "torch": Torch,
    "webdataset": WebDataset,
    "streaming": Streaming,
    "litdata": LitData,
    "spdl": SPDL,
    "dali": DALI,
    "nopfs": NoPFS,
    "rankpool": Rankpool,
}
