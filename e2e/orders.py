"""Trains on nothing with a sampler that rankpool does not know, and logs what it gets.

orders.py ROOT SAMPLER WORKERS LOG: EPOCHS epochs of a plain DataLoader, two by default. LOG.RANK
gets a line for each batch, with a number for each sample that its pixels give. If the variable
PAUSE_AT names a batch, training waits there until the file "go" exists; ASSIGN is that of
rankpool.planned.
"""

import os
import random
import sys
import time
import zlib
from itertools import accumulate

import torch
import torchvision
from torch.utils.data import (
    DataLoader, DistributedSampler, RandomSampler, Sampler, WeightedRandomSampler,
)

import rankpool

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
SIZE = 12  # of a batch


class Repeated(Sampler):
    """Three draws of a sample in a row, for different trainers: repeated augmentation."""

    def __init__(self, count):
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.count // WORLD

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.count, generator=generator).repeat_interleave(3).tolist()
        return iter(order[RANK::WORLD][: len(self)])


class Buckets(Sampler):
    """Batches of like lengths: the longer, the fewer. They come in the script's random order."""

    def __init__(self, count):
        lengths = [zlib.crc32(b"%d" % i) % 97 for i in range(count)]
        order = sorted(range(RANK, count, WORLD), key=lengths.__getitem__)
        sizes = [SIZE + 4 - n % 9 for n in range(len(order) // SIZE)]
        ends = list(accumulate(sizes, initial=0))
        self.batches = [order[a:b] for a, b in zip(ends, ends[1:])]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        random.shuffle(self.batches)
        yield from self.batches


def number(image):
    return zlib.crc32(image.tobytes())


def meet(name):
    """Returns when all trainers are here, as in a training that adds up gradients."""
    open(f"{name}.{RANK}", "w").close()
    while not all(os.path.exists(f"{name}.{rank}") for rank in range(WORLD)):
        time.sleep(0.005)


def main():
    root, name, workers, log = sys.argv[1:]
    launched = "RANKPOOL_SOCKET" in os.environ
    data = (rankpool if launched else torchvision.datasets).ImageFolder(root, number)
    torch.manual_seed(RANK)
    random.seed(RANK)
    sampler = {
        "random": lambda: RandomSampler(data, replacement=True, num_samples=len(data) // WORLD),
        "weighted": lambda: WeightedRandomSampler(range(1, len(data) + 1), len(data) // WORLD),
        "repeated": lambda: Repeated(len(data)),
        "buckets": lambda: Buckets(len(data)),
        "torch": lambda: DistributedSampler(data, WORLD, RANK),
    }[name]()
    batches = {"batch_sampler" if name == "buckets" else "sampler": sampler}
    if name != "buckets":
        batches["batch_size"] = SIZE
    if launched and "ASSIGN" in os.environ:
        sampler = rankpool.planned(
            batches.get("batch_sampler", sampler), data, batches.get("batch_size"),
            assign=os.environ["ASSIGN"],
        )
        batches = {"batch_sampler": sampler}
    loader = DataLoader(data, num_workers=int(workers), **batches)
    with open(f"{log}.{RANK}", "w") as file:
        for epoch in range(int(os.environ.get("EPOCHS", 2))):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            if launched:
                meet(f"epoch{epoch}")
            for place, (numbers, _) in enumerate(loader):
                print(epoch, place, *numbers.tolist(), file=file, flush=True)
                while f"{epoch} {place}" == os.environ.get("PAUSE_AT") and not os.path.exists("go"):
                    time.sleep(0.005)


main()
