"""Trains a small network on a folder of images with a plain DataLoader, beside a cache or without one.

rankpool run --data DIR -- python dropin.py DIR        # from the cache
python dropin.py DIR                                   # from files: the same ids, in the same order, the same tensors

Two lines differ from a script of torchvision and torch: the data set and the sampler. With --importance a third does.
"""

import argparse
import hashlib
import os

import torch
from model import network
from torch import nn
from torch.utils.data import DataLoader

import rankpool

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def transform(image):
    """Crops at random, and turns: what torchvision's transforms do, without torchvision."""
    image = image.convert("L")
    left, top = (int(torch.randint(image.size[side] // 4 + 1, ())) for side in (0, 1))
    image = image.resize((28, 28), box=(left, top, *image.size))
    pixels = torch.tensor(list(image.getdata()), dtype=torch.float32).reshape(1, 28, 28) / 255
    return pixels.flip(2) if torch.rand(()) < 0.5 else pixels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24, help="of one trainer")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--importance", action="store_true", help="draw by the losses, with pads")
    parser.add_argument("--start-method", help="of the workers: fork, spawn or forkserver")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = rankpool.ImageFolder(args.root, transform)
    if args.importance:
        sampler = rankpool.ImportanceSampler(data, "pads")
    else:
        sampler = rankpool.DistributedSampler(data, num_replicas=WORLD, rank=RANK)
    loader = DataLoader(
        data, args.batch_size, sampler=sampler, num_workers=args.workers, multiprocessing_context=args.start_method
    )
    model = network(len(data.classes))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    seen = hashlib.sha256()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, targets in loader:
            seen.update(images.numpy().tobytes() + targets.numpy().tobytes())
            losses = nn.functional.cross_entropy(model(images), targets, reduction="none")
            loss = sampler.update(losses) if args.importance else losses.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    print("digest of trainer", RANK, seen.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
