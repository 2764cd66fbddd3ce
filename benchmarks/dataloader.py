"""Reads a folder of files of one size once, in random order, through torch's DataLoader, and prints
how long it took."""

import argparse
import json
import time
import warnings

import torch
from peers.loaders import Files
from torch.utils.data import DataLoader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    # more workers than cores: they mostly wait
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
