"""Trains with a plain DataLoader, and prints `epoch SECONDS SECONDS SECONDS`: its time in next(),
in iter(), and in the epoch until its last batch."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import rankpool

STEP_SECONDS = 0.005


def load(path):
    with open(path, "rb") as file:
        return len(file.read())


def main(root, workers, persistent):
    torch.set_num_threads(1)
    os.environ["USE_LIBUV"] = "0"  # PyTorch of Debian 13 is built without libuv
    dist.init_process_group("gloo")
    data = rankpool.DatasetFolder(root, loader=load, extensions=(".png",))
    sampler = rankpool.DistributedSampler(data)
    loader = DataLoader(
        data, batch_size=12, sampler=sampler, num_workers=workers, persistent_workers=persistent
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        batches, waited, last = iter(loader), 0.0, began
        making = time.perf_counter() - began
        while True:
            at = time.perf_counter()
            if next(batches, None) is None:
                break
            last = time.perf_counter()
            waited += last - at
            time.sleep(STEP_SECONDS)
        dist.barrier()
        line = f"epoch {waited} {making} {last - began}\n"
        os.write(1, line.encode())  # in one piece: two trainers write
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), "persistent" in sys.argv)
