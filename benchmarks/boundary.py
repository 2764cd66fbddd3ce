"""Trains epochs of short steps under `rankpool run`, and measures what a change of epoch costs.

A step sleeps and then reports losses. The result has, in seconds, the times from the end of an
epoch's last step to the next epoch's first batch, and the same times between the batches of an
epoch.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--sampler", default="pads")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=0.01)
    args = parser.parse_args()
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, 64, sampler=args.sampler)
    losses = random.Random(1)
    boundaries, between, ended = [], [], None
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        waits = boundaries
        for samples in data.batches(sampler):
            if ended is not None:
                waits.append(time.perf_counter() - ended)
            waits = between
            time.sleep(args.step_seconds)
            sampler.report(samples.ids, [losses.expovariate(1.0) for _ in samples.ids])
            ended = time.perf_counter()
    result = {"step": args.step_seconds, "boundaries": boundaries, "between": between}
    Path(args.out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
