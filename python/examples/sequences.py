"""Trains a small language model on text files, in batches of sequences of like length, as recurrent
networks need them (Quiver, FAST 2020, §5.1): run it under `rankpool run … -- python sequences.py
DIR`, or without a cache.

A sequence is drawn in proportion to the mean loss of its tokens when it was drawn last, within its
bucket of lengths. The weights of the losses make the gradient that of all sequences equally.
"""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

import rankpool

TOKENS = 256  # bytes; 0 ends a sequence, and fills shorter ones
FLOOR = 0.2  # least score, as a part of the mean


class ByLength(Sampler):
    """Draws batches of sequences of one bucket, by importance; buckets have equal numbers of
    sequences, and batches come in random order."""

    def __init__(self, lengths, batch_size, buckets):
        self.batch_size = batch_size
        self.buckets = torch.tensor(lengths).argsort(stable=True).tensor_split(buckets)
        self.scores = torch.ones(len(lengths))
        self.weights = torch.ones(len(lengths))

    def __len__(self):
        return sum(-(-len(bucket) // self.batch_size) for bucket in self.buckets)

    def __iter__(self):
        batches = []
        for bucket in self.buckets:
            scores = self.scores[bucket]
            scores = scores.clamp(min=FLOOR * scores.mean())
            self.weights[bucket] = scores.mean() / scores  # 1 / the expected number of draws
            drawn = bucket[scores.multinomial(len(bucket), replacement=True)]
            batches += drawn.split(self.batch_size)
        return (batches[i].tolist() for i in torch.randperm(len(batches)))


class Numbered(Dataset):
    """A data set whose items begin with their index."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return index, self.data[index][0]


class Model(nn.Module):
    """Predicts each byte from those before it."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, width)
        self.layer = nn.GRU(width, width, batch_first=True)
        self.last = nn.Linear(width, TOKENS)

    def forward(self, x):
        return self.last(self.layer(self.embed(x))[0]).transpose(1, 2)


def tokens(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(b"\0" + file.read() + b"\0"), dtype=torch.uint8).long()


def padded(items):
    """Returns ids, and sequences as long as the longest, of shape [ids, length]."""
    ids, sequences = zip(*items)
    return torch.tensor(ids), nn.utils.rnn.pad_sequence(sequences, batch_first=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", metavar="DIR", help="text files, in one folder for each class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = rankpool.DatasetFolder(args.data, tokens, extensions=(".txt",))
    lengths = [os.path.getsize(path) for path, _ in train.samples]
    draws = ByLength(lengths, args.batch_size, args.buckets)
    batches = rankpool.planned(draws, train)
    loader = DataLoader(
        Numbered(train), batch_sampler=batches, collate_fn=padded, num_workers=args.workers
    )
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for epoch in range(args.epochs):
        total = count = places = 0
        for ids, x in loader:
            losses = nn.functional.cross_entropy(model(x[:, :-1]), x[:, 1:], reduction="none")
            real = torch.arange(x.shape[1] - 1) <= torch.tensor(lengths)[ids][:, None]
            losses = losses * real
            optimizer.zero_grad()
            (draws.weights[ids] * losses.sum(1)).sum().div(real.sum()).backward()
            optimizer.step()
            draws.scores[ids] = losses.detach().sum(1) / real.sum(1)
            total += float(losses.detach().sum())
            count, places = count + int(real.sum()), places + real.numel()
        print(
            f"epoch {epoch} loss {total / count:.4f} of a token, {1 - count / places:.1%} padding",
            flush=True,
        )


if __name__ == "__main__":
    main()
