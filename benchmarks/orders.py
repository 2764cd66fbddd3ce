"""Hands in the order of torch's WeightedRandomSampler under `rankpool run`, and measures what that
adds to the time of drawing it.

The result has, in seconds of each epoch, the time to draw all batches as a list, the time to the
first batch of a DataLoader, and how long it has waited for the plan.
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
from rankpool.listed import Listed  # noqa: E402
from rankpool.map_dataset import Served  # noqa: E402


class Rows(Served):
    """The bytes of the samples that the cache serves."""

    def __init__(self):
        super().__init__("", None)
        self._data = rankpool.Dataset()

    def __len__(self):
        return len(self._data)

    def _item(self, index):
        return self._bytes(index)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    result = {"drawn": [], "first": [], "planned": []}
    plan = Listed._planned

    def planned(stream, epoch):
        begin = time.perf_counter()
        try:
            return plan(stream, epoch)
        finally:
            result["planned"].append(time.perf_counter() - begin)

    Listed._planned = planned
    data = Rows()
    batches = BatchSampler(WeightedRandomSampler(torch.ones(len(data)), len(data)), 256, False)
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
