"""Trains and validates with the steps of PyTorch's ImageNet example, with torchvision's and
torch's classes, or with --rankpool.

It appends each loss to losses.RANK.
"""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python" / "examples"))

import torch
import torch.distributed as dist
from augment import augment
from model import network
from torch import nn
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import ImageFolder

import rankpool


def whole(image):
    return torch.tensor(list(image.convert("L").resize((28, 28)).getdata())).view(1, 28, 28) / 255


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path, help="a folder with train/ and val/")
    parser.add_argument("--rankpool", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--persistent", action="store_true", help="keep the workers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="of one process")
    parser.add_argument("--dist-url", help="where the processes of RANK and WORLD_SIZE meet")
    args = parser.parse_args()

    rank, distributed = int(os.environ.get("RANK", 0)), bool(args.dist_url)
    if distributed:
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", args.dist_url, world_size=world, rank=rank)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    folder, sampler, options = ImageFolder, DistributedSampler, {}
    if args.rankpool:
        folder, sampler = rankpool.ImageFolder, rankpool.DistributedSampler
        options = {"rng": None}
    train = folder(args.data / "train", augment, **options)
    val = folder(args.data / "val", whole, **options)
    train_sampler = val_sampler = None
    if distributed:
        train_sampler = sampler(train)
        val_sampler = sampler(val, shuffle=False, drop_last=True)
    elif args.rankpool:
        val_sampler = sampler(val, shuffle=False)
    options = {"batch_size": args.batch_size, "num_workers": args.workers}
    options["persistent_workers"] = args.persistent
    train_loader = DataLoader(
        train, shuffle=train_sampler is None, sampler=train_sampler, **options
    )
    val_loader = DataLoader(val, shuffle=False, sampler=val_sampler, **options)

    model = network(len(train.classes))
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    with open(f"losses.{rank}", "a") as log:
        for _ in range(args.epochs):
            if distributed:
                train_sampler.set_epoch(_)
            model.train()
            for images, target in train_loader:
                loss = criterion(model(images), target)
                print("train", loss.item(), file=log)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            validate(model, criterion, val_loader, log)
            if distributed:  # what the sampler dropped
                rest = range(len(val_sampler) * dist.get_world_size(), len(val))
                validate(model, criterion, DataLoader(Subset(val, rest), **options), log)


def validate(model, criterion, loader, log):
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            print("val", criterion(model(images), target).item(), file=log)


if __name__ == "__main__":
    main()
