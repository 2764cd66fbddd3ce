"""Trains the U-Net of python/examples/windows.py on fields that accuracy.py makes, of waves and a
bump that move: from two of three rows it predicts the third.

The metric "accuracy" is the skill on test data: 1 less the squared errors over those of taking the
second row for the third.
"""

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/examples")]
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from windows import SIZE, UNet, pair  # noqa: E402

import rankpool  # noqa: E402

ROWS = 3


def fields(windows, seed):
    """Yields windows of a field, float32[ROWS, SIZE, SIZE]: few of them have great amplitudes."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE] * (2 * np.pi / SIZE)
    step = np.arange(ROWS)[:, None, None]
    for _ in range(windows):
        field = np.zeros((ROWS, SIZE, SIZE))
        for _ in range(3):
            kx, ky = random.integers(-3, 4, 2)
            phase, speed = random.uniform(0, 2 * np.pi), random.uniform(0.1, 0.8)
            field += random.exponential() * np.sin(kx * x + ky * y + phase + speed * step)
        (ay, ax), (vy, vx) = random.uniform(0, 2 * np.pi, 2), random.uniform(-0.5, 0.5, 2)
        near = np.cos(y - ay - vy * step) + np.cos(x - ax - vx * step)
        field += 2 * random.exponential() * np.exp(4 * (near - 2))
        yield field.astype("float32")


def make(path, windows, seed):
    """Writes windows of a field to an HDF5 file, one a chunk."""
    import h5py

    with h5py.File(path, "w") as file:
        rows = file.create_dataset(
            "field", (ROWS * windows, SIZE, SIZE), "float32", chunks=(ROWS, SIZE, SIZE)
        )
        for i, window in enumerate(fields(windows, seed)):
            rows[ROWS * i : ROWS * (i + 1)] = window


def skill(model, data):
    errors = changes = 0.0
    with torch.no_grad():
        for x, y in DataLoader(data, 250):
            errors += float(mse_loss(model(x), y, reduction="sum"))
            changes += float(mse_loss(x[:, 1:], y, reduction="sum"))
    return 1 - errors / changes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs=2, help="HDF5 files, to train on and to test on")
    parser.add_argument("--sampler", required=True)
    parser.add_argument("--plain-mean", action="store_true")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data, test = (
        rankpool.Arrays(path, "field", rows=ROWS, stride=ROWS, transform=pair) for path in args.data
    )
    sampler = rankpool.ImportanceSampler(data, args.sampler, args.seed, epochs=args.epochs)
    loader = DataLoader(data, 64, sampler=sampler)
    model = UNet(8)
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    done, all_steps = 0, args.epochs * len(loader)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.param_groups[0]["lr"] = 0.0015 * (1 + math.cos(math.pi * done / all_steps))
            done += 1
            losses = mse_loss(model(x), y, reduction="none").mean((1, 2, 3))
            mean = sampler.update(losses)
            optimizer.zero_grad()
            (losses.mean() if args.plain_mean else mean).backward()
            optimizer.step()
        sampler.metric("accuracy", max(skill(model, test), 0.0))


if __name__ == "__main__":
    main()
