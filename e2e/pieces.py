"""Trains on nothing, on windows of rows of a file of arrays, and logs what it gets.

pieces.py PATH ROWS WORKERS LOG: three epochs of a plain DataLoader. LOG.RANK gets a line for each
batch, with a checksum for each window. If the variable PAUSE_AT names a batch, training waits there
until the file "go" exists.
"""

import os
import sys
import time
from zlib import crc32

import torch

import rankpool

RANK = int(os.environ.get("RANK", 0))


def checksum(item):
    """Returns the checksum of a window; a transform may also read the file, as libraries do."""
    if path.endswith(".h5"):
        with rankpool.open(path) as file:
            assert file.read(8) == b"\x89HDF\r\n\x1a\n"
    return crc32(b"".join(item[name].tobytes() for name in sorted(item)))


path, rows, workers, log = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
data = rankpool.Arrays(path, rows=rows, transform=checksum)
sampler = rankpool.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, 16, sampler=sampler, num_workers=workers)
with open(f"{log}.{RANK}", "w") as out:
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for number, sums in enumerate(loader):
            print(epoch, *sums.tolist(), file=out, flush=True)
            if epoch == 1 and str(number) == os.environ.get("PAUSE_AT"):
                while not os.path.exists("go"):
                    time.sleep(0.01)
