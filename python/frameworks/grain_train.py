"""Trains on nothing with Grain: grain_train.py FOLDER map|loader WORKERS START BATCHES.

Appends the checksum of each record that training gets to records.RANK: BATCHES batches from
record START on, from the cache under `rankpool run`, else from files and with Grain alone.
"""

import os
import sys
import zlib
from itertools import islice
from pathlib import Path

import grain.python as grain

EPOCHS, BATCH, SEED = 3, 2, 7


class Files:
    """The files of a folder, in the order of rankpool's ids."""

    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*/*"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, id):
        return self.paths[id].read_bytes()


class Checksum(grain.MapTransform):
    def map(self, record):
        return zlib.adler32(record)


def by_map(files, workers, start):
    if files is not None:
        data = grain.MapDataset.source(files).shuffle(seed=SEED).repeat(EPOCHS)
    else:
        source = rankpool_grain().Source()
        order = grain.MapDataset.range(len(source)).shuffle(seed=SEED).repeat(EPOCHS)
        data = grain.MapDataset.source(rankpool_grain().planned(order, source, BATCH, start=start))
    data = data.map(Checksum()).batch(BATCH).to_iter_dataset()
    if not workers:
        return data
    return data.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))


def by_loader(files, workers, start):
    source = files or rankpool_grain().Source()
    sampler = grain.IndexSampler(len(source), shuffle=True, seed=SEED, num_epochs=EPOCHS)
    if files is None:
        source = rankpool_grain().planned(sampler, source, BATCH, workers, start)
        sampler = grain.SequentialSampler(len(source))
    operations = [Checksum(), grain.Batch(BATCH)]
    return grain.DataLoader(
        data_source=source, sampler=sampler, operations=operations, worker_count=workers
    )


def rankpool_grain():
    import rankpool.grain

    return rankpool.grain


def main():
    folder, way, *numbers = sys.argv[1:]
    workers, start, batches = map(int, numbers)
    files = None if "RANKPOOL_SOCKET" in os.environ else Files(folder)
    data = (by_map if way == "map" else by_loader)(files, workers, start)
    with open(f"records.{os.environ.get('RANK', 0)}", "a") as log:
        for batch in islice(data, batches):
            print(*batch.tolist(), file=log, flush=True)


if __name__ == "__main__":
    main()
