"""Reads a folder of files of one size once, in random order, through torch's DataLoader, and tells
how long it took."""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, folder):
        self.paths = sorted(str(path) for path in Path(folder).glob("*/*.bin"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return torch.from_numpy(numpy.fromfile(self.paths[i], numpy.uint8))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    # more workers than cores: they wait, mostly
    warnings.filterwarnings("ignore", "This DataLoader will create")
    loader = DataLoader(
        Files(args.folder), batch_size=args.batch, shuffle=True, num_workers=args.workers
    )
    size, began = 0, time.monotonic()
    for batch in loader:
        size += batch.numel()
    print(json.dumps({"seconds": time.monotonic() - began, "bytes": size}))


if __name__ == "__main__":
    main()
