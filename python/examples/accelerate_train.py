"""Trains with Accelerate on a folder of images, with or without a cache.

rankpool run --ranks 2 --data DIR -- python accelerate_train.py DIR
"""

import argparse
import os

import torch
from accelerate import Accelerator
from augment import augment
from model import network
from torch import nn
from torch.utils.data import DataLoader

import rankpool


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24, help="of one trainer")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="resume from it if it is there; written at the end"
    )
    parser.add_argument(
        "--stop-after", type=int, metavar="BATCHES", help="end after so many batches"
    )
    args = parser.parse_args()

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    data = rankpool.ImageFolder(args.root, augment)
    sampler = rankpool.DistributedSampler(
        data, accelerator.num_processes, accelerator.process_index
    )
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=args.workers)
    model = network(len(data.classes))
    # Not the loader: its sampler already gives each process its part.
    model, optimizer = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    )
    accelerator.register_for_checkpointing(sampler)
    if args.checkpoint and os.path.exists(args.checkpoint):
        accelerator.load_state(args.checkpoint)
    trained = 0
    for epoch in range(sampler.epoch, args.epochs):
        sampler.set_epoch(epoch)
        for images, targets in loader:
            images, targets = images.to(accelerator.device), targets.to(accelerator.device)
            loss = nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            trained += 1
            if trained == args.stop_after:
                break
        if trained == args.stop_after:
            break
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")
    if args.checkpoint:
        accelerator.save_state(args.checkpoint)
    accelerator.end_training()


if __name__ == "__main__":
    main()
