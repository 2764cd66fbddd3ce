"""Trains with Hugging Face's Trainer on a folder of images, with or without a cache.

rankpool run --ranks 2 --data DIR -- python huggingface_train.py DIR
"""

import argparse
import os

import torch
from augment import augment
from model import network
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import rankpool


class Images(Trainer):
    """A Trainer whose batches rankpool's sampler draws; each process gets its part."""

    def get_train_dataloader(self):
        sampler = rankpool.DistributedSampler(
            self.train_dataset, self.args.world_size, self.args.process_index
        )
        self.add_callback(Epochs(sampler))
        return DataLoader(
            self.train_dataset,
            self.args.per_device_train_batch_size,
            sampler=sampler,
            num_workers=self.args.dataloader_num_workers,
            collate_fn=self.data_collator,
        )


class Epochs(TrainerCallback):
    """Tells the sampler each epoch."""

    def __init__(self, sampler):
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **_):
        self.sampler.set_epoch(int(state.epoch))


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.network = network(classes)

    def forward(self, images, labels):
        logits = self.network(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def collate(items):
    """Returns a batch as the model's arguments."""
    images, labels = zip(*items)
    return {"images": torch.stack(images), "labels": torch.tensor(labels)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", help="the folder that holds the class folders")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=24, help="of one trainer")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--checkpoints", metavar="DIR", help="resume from the last one; written after each step"
    )
    parser.add_argument(
        "--max-steps", type=int, metavar="STEPS", help="end after so many steps in all"
    )
    args = parser.parse_args()

    data = rankpool.ImageFolder(args.root, augment)
    arguments = TrainingArguments(
        output_dir=args.checkpoints or "unused",
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        dataloader_num_workers=args.workers,
        save_strategy="steps" if args.checkpoints else "no",
        save_steps=1,
        optim="sgd",
        use_cpu=not torch.cuda.is_available(),
        learning_rate=0.05,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Images(Model(len(data.classes)), arguments, collate, data)
    if args.max_steps:
        trainer.add_callback(Stop(args.max_steps))
    last = None
    if args.checkpoints:
        os.makedirs(args.checkpoints, exist_ok=True)  # Trainer does that in one process only
        last = get_last_checkpoint(args.checkpoints)
    trainer.train(resume_from_checkpoint=last)


class Stop(TrainerCallback):
    """Ends training after so many steps, as a job's time limit would."""

    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.steps


if __name__ == "__main__":
    main()
