"""Trains some epochs with a loader and steps that sleep, as MLPerf Storage emulates accelerators, and tells how long each took.

Every sample must come once an epoch. Writes {"epochs": [{"seconds": …, "au": …}]} to OUT; the first epoch begins before the workers
do.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))


def train(batches, step_seconds):
    """Trains one epoch; returns its seconds, its accelerator's utilisation without the first step, and what it had."""
    seen, samples, size, steps = set(), 0, 0, 0
    began = time.monotonic()
    first_ended = began
    for batch in batches:
        samples += len(batch)
        size += batch.numel()
        seen.update(row.tobytes() for row in batch[:, :16].numpy())
        time.sleep(step_seconds)
        steps += 1
        if steps == 1:
            first_ended = time.monotonic()
    ended = time.monotonic()
    au = (steps - 1) * step_seconds / (ended - first_ended) if steps > 1 else 0.0
    return {"seconds": ended - began, "au": au, "samples": samples, "distinct": len(seen), "bytes": size}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loader", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-seconds", type=float, required=True)
    args = parser.parse_args()

    import torch

    from loaders import LOADERS

    torch.set_num_threads(1)
    loader = LOADERS[args.loader](args)
    epochs = [train(loader.epoch(number), args.step_seconds) for number in range(args.epochs)]
    Path(args.out).write_text(json.dumps({"epochs": epochs}))


if __name__ == "__main__":
    main()
