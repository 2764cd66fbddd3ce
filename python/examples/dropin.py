"""Trains a small network on a folder of images with a plain DataLoader, with or without a cache.

    rankpool run --data DIR -- python dropin.py DIR  # from the cache
    python dropin.py DIR  # from files: the same ids, in the same order, and the same tensors

Two lines differ from a script for torchvision and torch: the data set and the sampler. With
--importance a third does. A checkpoint with the sampler's state resumes in mid-epoch, also with
another number of trainers.
"""

import argparse
import hashlib
import io
import os

import torch
from augment import augment
from digest import Digest
from model import network
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

import rankpool

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def decoded(members):
    image = next(members[kind] for kind in ("jpg", "png", "pgm") if kind in members)
    return Image.open(io.BytesIO(image)).convert("RGB"), int(members["cls"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument(
        "--shards", action="store_true",
        help="the folder holds tar shards, as rankpool pack writes them",
    )
    parser.add_argument("--classes", type=int, default=10, help="how many classes the shards have")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24, help="of one trainer")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--importance", action="store_true", help="draw by the losses, with pads")
    parser.add_argument("--start-method", help="of the workers: fork, spawn or forkserver")
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="resume from it if it is there; written at the end"
    )
    parser.add_argument(
        "--stop-after", type=int, metavar="BATCHES", help="end after so many batches"
    )
    parser.add_argument(
        "--digest-log",
        metavar="FILE",
        help="write a line `EPOCH BATCH PLACE HEX` for each sample to FILE.RANK: its place in the "
        "global batch, and the "
        "SHA-256 of its tensors",
    )
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if args.shards:
        data = rankpool.WebDataset(args.root).map(decoded).map_tuple(augment, None)
        classes = args.classes
    else:
        data = rankpool.ImageFolder(args.root, augment)
        classes = len(data.classes)
    if args.importance:
        sampler = rankpool.ImportanceSampler(data, "pads")
    else:
        sampler = rankpool.DistributedSampler(data, num_replicas=WORLD, rank=RANK)
    loader = DataLoader(
        data,
        args.batch_size,
        sampler=sampler,
        num_workers=args.workers,
        multiprocessing_context=args.start_method,
        persistent_workers=args.workers > 0,
    )
    model = network(classes)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])
        first = saved["sampler"]["batch"]
    seen = Seen(args.digest_log)
    trained = 0
    for epoch in range(sampler.epoch, args.epochs):
        sampler.set_epoch(epoch)
        for number, (images, targets) in enumerate(loader, first):
            losses = nn.functional.cross_entropy(model(images), targets, reduction="none")
            loss = sampler.update(losses) if args.importance else losses.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.add(epoch, number, images, targets)
            trained += 1
            if trained == args.stop_after:
                break
        if trained == args.stop_after:
            break
        first = 0
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if args.checkpoint and RANK == 0:
        saved = {"model": model, "optimizer": optimizer, "sampler": sampler}
        torch.save({name: one.state_dict() for name, one in saved.items()}, args.checkpoint)
    print("digest of trainer", RANK, seen.digest.hex(), flush=True)


class Seen:
    """What this trainer was given."""

    def __init__(self, log):
        self.digest = Digest()
        self.log = log and open(f"{log}.{RANK}", "a")

    def add(self, epoch, number, images, targets):
        """Adds a batch."""
        rows = [image.numpy().tobytes() + bytes([target]) for image, target in zip(images, targets)]
        places = range(RANK, len(rows) * WORLD, WORLD)
        if self.log:
            for place, row in zip(places, rows):
                print(
                    epoch, number, place, hashlib.sha256(row).hexdigest(), file=self.log, flush=True
                )
        self.digest.add(epoch, number, list(zip(places, rows)))


if __name__ == "__main__":
    main()
