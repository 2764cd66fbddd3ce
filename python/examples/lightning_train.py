"""Trains with Lightning on a folder of images, with or without a cache.

rankpool run --ranks 2 --data DIR -- python lightning_train.py DIR
"""

import argparse
import os

import lightning
import torch
from augment import augment
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint
from model import network
from torch import nn
from torch.utils.data import DataLoader

import rankpool


class Data(lightning.LightningDataModule):
    """The images. The sampler's state is in every checkpoint: training continues in mid-epoch."""

    def __init__(self, args):
        super().__init__()
        self.data = rankpool.ImageFolder(args.root, augment)
        self.sampler = rankpool.DistributedSampler(self.data, *seat())
        self.loader = DataLoader(
            self.data, args.batch_size, sampler=self.sampler, num_workers=args.workers
        )

    def train_dataloader(self):
        return self.loader

    def state_dict(self):
        return self.sampler.state_dict()

    def load_state_dict(self, state):
        self.sampler.load_state_dict(state)


class Model(lightning.LightningModule):
    def __init__(self, classes):
        super().__init__()
        self.network = network(classes)

    def training_step(self, batch, _):
        images, targets = batch
        return nn.functional.cross_entropy(self.network(images), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def seat():
    """Returns the number of training processes, and which one this is."""
    return int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24, help="of one trainer")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="resume from it if it is there; written after each step"
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        default=-1,
        help="end after so many steps, those before the checkpoint included",
    )
    args = parser.parse_args()

    lightning.seed_everything(0)
    world = seat()[0]
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world))  # trainers of this node
    callbacks = []
    if args.checkpoint:
        folder, name = os.path.split(os.path.abspath(args.checkpoint))
        callbacks = [
            ModelCheckpoint(
                folder,
                os.path.splitext(name)[0],
                every_n_train_steps=1,
                enable_version_counter=False,
            )
        ]
    trainer = lightning.Trainer(
        accelerator="auto",
        strategy="ddp" if world > 1 else "auto",
        devices=here,
        num_nodes=world // here,
        plugins=[TorchElasticEnvironment()] if world > 1 else None,  # RANK and the like are set
        use_distributed_sampler=False,  # the sampler is one already
        max_epochs=args.epochs,
        max_steps=args.max_steps,
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    data = Data(args)
    resume = args.checkpoint if args.checkpoint and os.path.exists(args.checkpoint) else None
    trainer.fit(Model(len(data.data.classes)), data, ckpt_path=resume)


if __name__ == "__main__":
    main()
