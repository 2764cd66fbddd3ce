"""Prints what torch.utils.data.DistributedSampler draws, as JSON.

    python3 torch_golden.py > torch_golden.json

A case has the full list of every replica when it is short, else the length of the list that the replicas share, its
first and last eight ids, and the CRC-32 of the list as little-endian 32-bit integers.
"""

import json
import struct
import sys
import zlib

import torch
from torch.utils.data.distributed import DistributedSampler

SMALL = [
    # samples, world
    (1, 1), (2, 1), (2, 2), (3, 2), (1, 4), (2, 5), (3, 7), (5, 3), (7, 7), (8, 7), (10, 4), (13, 6), (16, 4), (31, 8),
    (100, 1), (100, 3),
]
LARGE = [(623, 2), (624, 5), (625, 4), (1000, 7), (10007, 16), (300007, 24)]
SEEDS = [(0, 0), (0, 1), (1, 0), (42, 99), (2**32 - 1, 0), (2**32 - 1, 1), (2**40 + 12345, 3), (2**63 - 9, 8)]


def replicas(samples, world, seed, epoch, drop_last, shuffle=True):
    lists = []
    for rank in range(world):
        sampler = DistributedSampler(
            range(samples), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
        sampler.set_epoch(epoch)
        lists.append(list(sampler))
    return lists


def small(samples, world, seed, epoch, drop_last):
    return {"samples": samples, "world": world, "seed": seed, "epoch": epoch, "drop_last": drop_last,
            "replicas": replicas(samples, world, seed, epoch, drop_last)}


def in_order(samples, world, drop_last):
    return {"samples": samples, "world": world, "drop_last": drop_last, "in_order": True,
            "replicas": replicas(samples, world, 0, 0, drop_last, shuffle=False)}


def large(samples, world, seed, epoch, drop_last):
    lists = replicas(samples, world, seed, epoch, drop_last)
    ids = [i for row in zip(*lists) for i in row]
    crc = zlib.crc32(struct.pack("<%dI" % len(ids), *ids))
    return {"samples": samples, "world": world, "seed": seed, "epoch": epoch, "drop_last": drop_last,
            "length": len(ids), "first": ids[:8], "last": ids[-8:], "crc32": crc}


def cases():
    for k, (samples, world) in enumerate(SMALL):
        for drop_last in (False, True):
            if drop_last and samples < world:
                continue  # it would leave no draw
            for seed, epoch in (SEEDS[k % len(SEEDS)], SEEDS[(3 * k + 1) % len(SEEDS)]):
                yield small(samples, world, seed, epoch, drop_last)
            yield in_order(samples, world, drop_last)
    for seed, epoch in SEEDS:
        yield small(20, 3, seed, epoch, False)
    for k, (samples, world) in enumerate(LARGE):
        for drop_last in (False, True) if samples < 100000 else (False,):
            seed, epoch = SEEDS[k % len(SEEDS)]
            yield large(samples, world, seed, epoch, drop_last)


def main():
    lines = [json.dumps(case, separators=(",", ":")) for case in cases()]
    sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
