"""Hands in the order of torch's WeightedRandomSampler under `rankpool run`, and measures what that
adds to the time of drawing it.

The result has, in seconds of each epoch, the time to draw all batches as a list, and the time to
the first batch of a DataLoader.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import BatchSampler, DataLoader, WeightedRandomSampler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402


def content(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--draws", type=int, required=True, help="of an epoch")
    args = parser.parse_args()
    data = rankpool.DatasetFolder(args.data, content, extensions=(".bin",))
    sampler = WeightedRandomSampler(torch.ones(len(data)), args.draws)
    batches = BatchSampler(sampler, 256, False)
    result = {"drawn": [], "first": []}
    for _ in range(3):
        begin = time.perf_counter()
        list(batches)
        drawn = time.perf_counter()
        next(iter(DataLoader(data, batch_sampler=batches, collate_fn=list)))
        result["drawn"].append(drawn - begin)
        result["first"].append(time.perf_counter() - drawn)
    Path(args.out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
