"""Records what training reports for every sample in every epoch: the trace that
`rankpool-lab simulate` reads.

Trains a small network on a part of Fashion-MNIST (Debian packages python3-torch and
dataset-fashion-mnist), each epoch in a new random order, every sample once. Writes OUT-losses.npy
(float32 [epochs, samples], the cross entropy when the sample was trained on), OUT-labels.npy (int32
[samples]) and OUT-embeddings.npy (float16 [epochs, samples, dimensions], the output of the layer
before the classifier). On one machine with one PyTorch, the same arguments give the same bytes.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

SOURCE = Path("/usr/share/datasets/fashion-mnist")
HERE = Path(__file__).resolve().parent
CLASSES = 10


class Network(nn.Module):
    """Two convolutions, and an embedding in front of the classifier."""

    def __init__(self, dimensions: int):
        super().__init__()
        self.embed = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 7 * 7, dimensions), nn.Tanh(),
        )  # fmt: skip
        self.classify = nn.Linear(dimensions, CLASSES)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = self.embed(x)
        return embedding, self.classify(embedding)


def load(source: Path, samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images float32 [samples, 1, 28, 28] with mean 0, and labels int64, drawn at random
    from the training set."""
    with gzip.open(source / "train-labels-idx1-ubyte.gz") as f:
        labels = np.frombuffer(f.read(), np.uint8, offset=8)
    with gzip.open(source / "train-images-idx3-ubyte.gz") as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(len(labels), 1, 28, 28)
    if not 0 < samples <= len(labels):
        raise SystemExit(f"record.py: --samples: there are {len(labels)}, not {samples}")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(labels))[:samples])
    pixels = torch.from_numpy(images[chosen].astype(np.float32) / 255)
    return (pixels - pixels.mean()) / pixels.std(), torch.from_numpy(
        labels[chosen].astype(np.int64)
    )


def train(
    x: torch.Tensor, y: torch.Tensor, args: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the losses and the embeddings at the time each sample was trained on."""
    network = Network(args.dimensions)
    optimizer = torch.optim.SGD(network.parameters(), args.lr, momentum=0.9)
    losses = np.zeros((args.epochs, len(y)), np.float32)
    embeddings = np.zeros((args.epochs, len(y), args.dimensions), np.float16)
    for epoch in range(args.epochs):
        for ids in torch.randperm(len(y)).split(args.batch_size):
            embedding, logits = network(x[ids])
            loss = nn.functional.cross_entropy(logits, y[ids], reduction="none")
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
            losses[epoch, ids] = loss.detach().numpy()
            embeddings[epoch, ids] = embedding.detach().numpy()
        print(
            f"epoch {epoch}: mean loss {losses[epoch].mean():.3f}, median {np.median(losses[epoch]):.3f}"
        )
    return losses, embeddings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "fashion", help="how the files' names begin"
    )
    parser.add_argument("--samples", type=int, default=2560)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dimensions", type=int, default=8, help="of an embedding")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--source", type=Path, default=SOURCE, help="folder with Fashion-MNIST's .gz files"
    )
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    x, y = load(args.source, args.samples, args.seed)
    losses, embeddings = train(x, y, args)
    for name, array in (
        ("losses", losses),
        ("labels", y.numpy().astype(np.int32)),
        ("embeddings", embeddings),
    ):
        np.save(f"{args.out}-{name}.npy", array)


if __name__ == "__main__":
    main()
