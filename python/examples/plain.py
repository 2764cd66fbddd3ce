"""Prints the digest of the stream that plain PyTorch would train on: DistributedSampler over a tree
of class folders, without rankpool.

All trainers are simulated in this process: a global batch is what they read in one step.
"""

import argparse
import os

from digest import Digest
from torch.utils.data import DistributedSampler


def files_of(root):
    """Returns the files of the class folders in ImageFolder's order, without hidden ones; a file's
    place is its id."""
    found = []
    classes = sorted(
        entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != "."
    )
    for name in classes or [""]:
        for folder, below, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            hidden = any(
                part.startswith(".")
                for part in os.path.relpath(folder, root).split(os.sep)
                if part != "."
            )
            found += [os.path.join(folder, n) for n in sorted(names) if n[0] != "." and not hidden]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument("--world-size", type=int, default=1, help="number of trainers")
    parser.add_argument("--batch-size", type=int, default=64, help="of one trainer")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--drop-last", action="store_true", help="the loader's: leave out a last, smaller batch"
    )
    parser.add_argument(
        "--sampler-drop-last", action="store_true", help="DistributedSampler's: do not pad"
    )
    parser.add_argument("--digest-log", help="write a line for each global batch")
    args = parser.parse_args()

    files = files_of(args.root)
    samplers = [
        DistributedSampler(files, args.world_size, rank, True, args.seed, args.sampler_drop_last)
        for rank in range(args.world_size)
    ]
    digest = Digest(open(args.digest_log, "w") if args.digest_log else None)
    for epoch in range(args.epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        draws = [list(sampler) for sampler in samplers]
        size = args.batch_size
        end = len(draws[0]) // size * size if args.drop_last else len(draws[0])
        for number, at in enumerate(range(0, end, size)):
            ids = [id for part in draws for id in part[at : at + size]]
            digest.add(epoch, number, [(id, open(files[id], "rb").read()) for id in ids])
    print("digest", digest.hex())


if __name__ == "__main__":
    main()
