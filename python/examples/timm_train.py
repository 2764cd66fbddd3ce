"""Trains a model of timm with timm's transforms on a folder of images, with or without a cache.

rankpool run --ranks 2 --data DIR -- python timm_train.py DIR --model resnet50 --image-size 224
"""

import argparse
import os

import timm
import torch
from timm.data import create_transform
from timm.data.loader import PrefetchLoader, fast_collate
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import init_distributed_device
from torch import nn
from torch.utils.data import DataLoader

import rankpool


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument("--model", default="test_resnet")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24, help="of one trainer")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="resume from it if it is there; written at the end"
    )
    parser.add_argument(
        "--stop-after", type=int, metavar="BATCHES", help="end after so many batches"
    )
    args = parser.parse_args()
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    args.dist_backend = None  # as the device needs it
    device = init_distributed_device(args)  # sets args.distributed, rank and world_size

    torch.manual_seed(0)
    augment = create_transform(
        args.image_size, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", use_prefetcher=True
    )
    data = rankpool.ImageFolder(args.root, augment)
    sampler = rankpool.DistributedSampler(data, args.world_size, args.rank)
    # timm's create_loader makes its own sampler; this is the rest of what it does.
    loader = PrefetchLoader(
        DataLoader(
            data, args.batch_size, sampler=sampler, num_workers=args.workers,
            collate_fn=fast_collate,
        ),
        device=device,
    )
    model = timm.create_model(args.model, num_classes=len(data.classes)).to(device)
    optimizer = create_optimizer_v2(model, "sgd", lr=0.05, momentum=0.9)
    scheduler = CosineLRScheduler(optimizer, args.epochs)
    first = 0
    if args.checkpoint and os.path.exists(args.checkpoint):
        saved = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])
        first = saved["sampler"]["batch"]
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
    trained = 0
    for epoch in range(sampler.epoch, args.epochs):
        sampler.set_epoch(epoch)
        scheduler.step(epoch)
        for batch, (images, targets) in enumerate(loader, first):
            loss = nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained += 1
            if trained == args.stop_after:
                break
        if trained == args.stop_after:
            break
        first = 0
        if args.rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if args.checkpoint and args.rank == 0:
        network = model.module if args.distributed else model
        # The prefetcher is a batch ahead of the loop, so the sampler is told how many batches were
        # trained.
        state = sampler.state_dict(batch=batch + 1)
        parts = {"model": network, "optimizer": optimizer}
        torch.save(
            {"sampler": state, **{name: one.state_dict() for name, one in parts.items()}},
            args.checkpoint,
        )
    if args.distributed:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
