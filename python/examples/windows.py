"""Trains a small U-Net to predict the next state of a field from the two before it, on windows of 3
rows of an HDF5 file or a Zarr store:

    python windows.py waves.h5 --make 600
    rankpool index waves.h5 --rows 3 -o waves.parquet
    rankpool run --data waves.parquet -- python windows.py waves.h5

It trains without a cache too, and gets the same windows.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import rankpool

SIZE, ROWS = 32, 3


def waves(steps):
    """Returns a field of waves that move and interfere, float32[steps, SIZE, SIZE]."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE] * (2 * np.pi / SIZE)
    field = np.zeros((steps, SIZE, SIZE), "float32")
    for _ in range(6):
        kx, ky = random.integers(-3, 4, 2)
        phase, speed = random.uniform(0, 7), random.uniform(0.1, 0.5)
        for step in range(steps):
            field[step] += np.sin(kx * x + ky * y + phase + speed * step)
    return field


def make(path, steps):
    """Writes the field, one row a chunk, compressed."""
    field, how = waves(steps), {"chunks": (1, SIZE, SIZE)}
    if path.endswith(".zarr"):
        import zarr

        zarr.open_group(path, mode="w").create_dataset("field", data=field, **how)
        return
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("field", data=field, compression="gzip", shuffle=True, **how)


def pair(window):
    """Returns the input, of shape [2, SIZE, SIZE], and what follows it, [1, SIZE, SIZE]."""
    rows = torch.from_numpy(window["field"])
    return rows[:2], rows[2:]


class UNet(nn.Module):
    """Two resolutions, and a connection past the lower one."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Conv2d(2, width, 3, padding=1, padding_mode="circular")
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Conv2d(2 * width, 1, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        high = self.first(x).relu()
        low = self.up(self.down(high).relu()).relu()
        return x[:, 1:] + self.last(torch.cat([high, low], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", help="an HDF5 file, or a Zarr store (.zarr)")
    parser.add_argument("--make", type=int, metavar="STEPS", help="write the data, and end")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    if args.make:
        make(args.path, args.make)
        return
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = rankpool.Arrays(args.path, "field", rows=ROWS, transform=pair)
    loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=args.workers)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(x)
        print(f"epoch {epoch} error {total / len(data):.6f}", flush=True)


if __name__ == "__main__":
    main()
