"""Reads epochs of sampler torch through one kind of loader: loader_modes.py MODE EPOCHS BATCH_SIZE
DATA…

It prints the digest of this trainer's part of the stream of each data set, and logs it in
digest-DATA-RANK; the loaders of several data sets are read in turn. The trainers do not wait for
each other.
"""

import os
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/python/examples")

from digest import Digest

import rankpool

MODES = {
    "in process": {},
    "fork": dict(num_workers=2, multiprocessing_context="fork"),
    "spawn": dict(num_workers=2, multiprocessing_context="spawn"),
    "persistent": dict(num_workers=2, persistent_workers=True, prefetch_factor=5),
    "persistent spawn": dict(
        num_workers=1, persistent_workers=True, multiprocessing_context="spawn"
    ),
}


def keep(view, label):
    return bytes(view), label


def main():
    mode, epochs, batch_size, *names = sys.argv[1:]
    data = [rankpool.Dataset(name, transform=keep) for name in names or [None]]
    samplers = [rankpool.BatchSampler(d, int(batch_size), sampler="torch") for d in data]
    loaders = [d.loader(s, **MODES[mode]) for d, s in zip(data, samplers)]
    digests = [Digest(open(f"digest-{d.name}-{os.environ['RANK']}", "w")) for d in data]
    for epoch in range(int(epochs)):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for number, batches in enumerate(zip(*loaders)):
            for digest, (ids, raw, _) in zip(digests, batches):
                digest.add(epoch, number, list(zip(ids.tolist(), raw)))
    for digest in digests:
        print("digest", digest.hex())


if __name__ == "__main__":
    main()
