"""Trains a small network on images that rankpool serves; run it under `rankpool run … -- python
train.py`.

There is one process per trainer, as RANK and WORLD_SIZE say; the trainers average their gradients.
"""

import argparse
import gc
import os
import sys

import numpy
import torch
import torch.distributed as dist
from digest import Digest, IdsDigest
from model import (
    FEATURES,
    augmented,
    decode,
    decode_and_keep,
    decode_colours,
    mlp,
    network,
    residual,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankpool

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data-name", help="the data set to train on (default: the first that rankpool serves)"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of one trainer")
    parser.add_argument(
        "--sampler", default="pads", help='"system": the one that goes with `rankpool run --system`'
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--drop-last", action="store_true", help="leave out a last, smaller global batch"
    )
    parser.add_argument(
        "--sampler-drop-last", action="store_true", help="do not pad the epoch (sampler torch)"
    )
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument(
        "--decay", action="store_true", help="lower the learning rate to 0 at the end, as a cosine"
    )
    parser.add_argument(
        "--mlp", action="store_true", help="a network of fully connected layers alone"
    )
    parser.add_argument(
        "--channels", type=int, default=8, help="of the network's first convolution"
    )
    parser.add_argument(
        "--colours", action="store_true", help="a residual network, for augmented coloured images"
    )
    parser.add_argument("--workers", type=int, default=0, help="of each trainer's loader")
    parser.add_argument(
        "--plain-mean",
        action="store_true",
        help="train on the plain mean of the losses, as SHADE, iCACHE and IMPACT do, not on the "
        "one that weighs samples "
        "by how often they are drawn, whose gradient is unbiased",
    )
    parser.add_argument(
        "--losses", metavar="L.npy",
        help="report these instead, and no accuracy but that of test data: float32 [epochs, "
        "samples]",
    )  # fmt: skip
    parser.add_argument(
        "--embeddings",
        metavar="E.npy",
        help="report these with the losses, where the cache scores samples by them: float32 "
        "[epochs, samples, numbers]; else what the last layer is given",
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write a checkpoint after each epoch, and when stopping"
    )
    parser.add_argument("--resume", metavar="FILE", help="continue from a checkpoint")
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="--save FILE, also when SIGUSR1, SIGUSR2 or SIGTERM comes, after which training ends "
        "with exit code 0; and "
        "--resume FILE if it is there",
    )
    parser.add_argument(
        "--stop-after", type=int, metavar="BATCHES", help="save and exit 0 after so many batches"
    )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="print at the end, on trainer 0, `digest HEX`: the SHA-256 over this run's global "
        "batches, in order, of "
        "the batch's ids in ascending order as little-endian int64, then the samples' raw bytes in "
        "that order",
    )
    parser.add_argument(
        "--digest-log",
        metavar="FILE",
        help="the same, and a line `EPOCH BATCH HEX` for each global batch, HEX the SHA-256 of its "
        "bytes; "
        "with --resume lines are appended",
    )
    parser.add_argument(
        "--ids-digest",
        action="store_true",
        help="print at the end, on trainer 0, `ids-digest HEX`: the SHA-256 over all global "
        "batches that are trained on, in order, also those "
        "before --resume, of the ids in ascending order as little-endian int64, as `rankpool "
        "simulate --ids-digest` has it",
    )
    args = parser.parse_args()
    if args.checkpoint:
        args.save = args.checkpoint
        args.resume = args.checkpoint if os.path.exists(args.checkpoint) else None
    return args


class Trainer:
    """One training process: the model, the data, and what is printed about them."""

    def __init__(self, args, stop):
        self.stop = stop
        torch.manual_seed(args.seed)
        self.args = args
        self.digest = None
        if args.digest or args.digest_log:
            log = (
                args.digest_log and RANK == 0 and open(args.digest_log, "a" if args.resume else "w")
            )
            self.digest = Digest(log or None)
        self.ids = IdsDigest() if args.ids_digest else None
        self.decode = decode_colours if args.colours else decode
        self.data = rankpool.Dataset(
            args.data_name, transform=decode_and_keep if self.digest else self.decode
        )
        self.embeddings = numpy.load(args.embeddings, mmap_mode="r") if args.embeddings else None
        self.sampler = rankpool.BatchSampler(
            self.data,
            args.batch_size,
            args.seed,
            args.sampler,
            drop_last=args.drop_last,
            sampler_drop_last=args.sampler_drop_last,
            epochs=args.epochs,
            evaluates=True,
            embeddings=FEATURES if self.embeddings is None else self.embeddings.shape[2],
        )
        self.loader = self.data.loader(self.sampler, args.workers)
        self.test = self.test_loader()
        self.losses = numpy.load(args.losses, mmap_mode="r") if args.losses else None
        make = residual if args.colours else mlp if args.mlp else network
        self.network = make(len(self.data.classes), args.channels)
        self.network[-1].register_forward_pre_hook(self.keep_features)
        self.model = DistributedDataParallel(self.network) if WORLD > 1 else self.network
        self.optimizer = torch.optim.SGD(self.model.parameters(), args.lr, momentum=0.9)
        self.trained = 0  # batches of this run
        if args.resume:
            self.resume(args.resume)

    def test_loader(self):
        """Returns a loader of the data set "test" or "val", None when neither is served."""
        served = {entry["name"] for entry in rankpool.data_sets()} - {self.data.name}
        name = next((n for n in ("test", "val") if n in served), None)
        if name is None:
            return None
        data = rankpool.Dataset(name, transform=self.decode)
        sampler = rankpool.BatchSampler(data, self.args.batch_size, sampler="sequential")
        return data.loader(sampler, self.args.workers)

    def run(self):
        """Trains to the end, or up to --stop-after."""
        for epoch in range(self.sampler.epoch, self.args.epochs):
            self.sampler.set_epoch(epoch)
            if not self.epoch(epoch):
                return
            if self.args.save:
                self.save(self.args.save)

    def epoch(self, epoch):
        """Trains one epoch; returns False when it stopped on the way."""
        right = seen = 0
        for ids, x, y, *raw in self.loader:
            if self.args.decay:
                self.decay(epoch + self.sampler.batch / len(self.sampler))
            evaluated = self.sampler.evaluating(ids)  # IMPACT needs losses, and no step
            losses, hits = self.evaluate(x, y) if evaluated else self.step(ids, x, y)
            self.sampler.report(
                ids,
                losses if self.losses is None else row(self.losses, epoch)[ids.numpy()],
                self.features
                if self.embeddings is None
                else row(self.embeddings, epoch)[ids.numpy()],
            )
            if not evaluated:
                right, seen = right + hits, seen + len(ids)
            if self.digest:
                self.add_to_digest(epoch, self.sampler.batch - 1, ids.tolist(), raw[0])
            if self.ids and not evaluated:
                self.ids.add([id for part in gathered(ids.tolist()) for id in part])
            self.trained += 1
            if self.trained == self.args.stop_after or self.stop and self.stop():
                self.save(self.args.save)
                if RANK == 0:
                    print(
                        f"stopped in epoch {epoch} after batch {self.sampler.batch - 1}", flush=True
                    )
                return False
        right, seen = self.tested(epoch) if self.test else (right, seen)
        right, seen = summed(right, seen)
        if RANK == 0 and seen:
            if self.losses is None or self.test:
                self.sampler.metric("accuracy", right / seen)
            print(f"epoch {epoch} accuracy {right / seen:.4f}", flush=True)
        return True

    def step(self, ids, x, y):
        """Takes one step; returns the losses of the samples and the number of right answers.

        The cache chooses how to divide a global batch among the trainers, and its last part may be
        smaller; so each trainer divides its sum by the batch size, and the mean over the trainers
        is that of the whole batch. The weights make the gradient that of all samples equally,
        however often each is drawn.
        """
        answers = self.model(augmented(x) if self.args.colours else x)
        losses = nn.functional.cross_entropy(answers, y, reduction="none")
        self.optimizer.zero_grad()
        weighted = losses if self.args.plain_mean else self.sampler.weights(ids) * losses
        (weighted.sum() / self.args.batch_size).backward()
        self.optimizer.step()
        return losses.detach(), int((answers.argmax(1) == y).sum())

    def decay(self, epochs):
        """Sets the learning rate for a time in the training, in epochs from its beginning."""
        rate = self.args.lr * (1 + numpy.cos(numpy.pi * min(epochs / self.args.epochs, 1))) / 2
        self.optimizer.param_groups[0]["lr"] = rate

    def evaluate(self, x, y):
        """Returns the same as step, without training."""
        self.network.eval()
        with torch.no_grad():
            answers = self.network(x)
        self.network.train()
        losses = nn.functional.cross_entropy(answers, y, reduction="none")
        return losses, int((answers.argmax(1) == y).sum())

    def keep_features(self, layer, inputs):
        """Keeps the input of the last layer: the embeddings of the batch."""
        self.features = inputs[0].detach()

    def tested(self, epoch):
        """Returns the number of this trainer's right answers on the test data, and of its test
        samples."""
        right = seen = 0
        self.test.sampler.set_epoch(epoch)
        self.network.eval()
        with torch.no_grad():
            for ids, x, y in self.test:
                right, seen = right + int((self.network(x).argmax(1) == y).sum()), seen + len(ids)
        self.network.train()
        return right, seen

    def add_to_digest(self, epoch, number, ids, raw):
        parts = gathered(list(zip(ids, raw)))
        if RANK == 0:
            self.digest.add(epoch, number, [sample for part in parts for sample in part])

    def save(self, path):
        """Writes a checkpoint. The sampler's state is the same on every trainer, but each must ask
        its cache for it."""
        state = {"sampler": self.sampler.state_dict()}
        if RANK == 0 and path:
            state |= {"model": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
            if self.ids:
                state["ids"] = bytes(self.ids.ids)
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)

    def resume(self, path):
        state = torch.load(path)
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.load_state_dict(state["sampler"])
        if self.ids:
            self.ids = IdsDigest(state["ids"])


def row(recorded, epoch):
    """Returns what was recorded in an epoch; after the last one, what was recorded in that."""
    return recorded[min(epoch, len(recorded) - 1)]


def gathered(mine):
    """Returns what all trainers have, on the first one; an empty list on the others."""
    if WORLD == 1:
        return [mine]
    parts = [None] * WORLD if RANK == 0 else None
    dist.gather_object(mine, parts)
    return parts or []


def summed(*counts):
    """Returns the counts added up over all trainers."""
    total = torch.tensor(counts)
    if WORLD > 1:
        dist.all_reduce(total)
    return total.tolist()


def join_group():
    """Joins the other trainers, even with a PyTorch that was built without libuv, such as Debian
    13's, which must be told not to use it."""
    try:
        dist.init_process_group("gloo")
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
        os.environ["USE_LIBUV"] = "0"
        dist.init_process_group("gloo")


def main():
    args = arguments()
    stop = rankpool.Stop() if args.checkpoint else None
    torch.set_num_threads(1)
    if WORLD > 1:
        join_group()
    try:
        trainer = Trainer(args, stop)
        trainer.run()
    except rankpool.RankpoolError as error:
        sys.exit(str(error))
    if RANK == 0 and trainer.digest:
        print("digest", trainer.digest.hex(), flush=True)
    if RANK == 0 and trainer.ids:
        print("ids-digest", trainer.ids.hex(), flush=True)
    if WORLD > 1:
        # A thread of the group that releases a tensor while Python exits would abort the process.
        # The group ends its threads when nothing refers to it any more, but the model does.
        del trainer
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
