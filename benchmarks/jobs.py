"""Trains a few epochs under `rankpool run`, as one of several trainings that begin together.

Steps only sleep. It records when it began and ended. Training k (RANKPOOL_TRAINING or --number) has
seed k and writes OUT.k. It begins when the files OUT.ready.0 … of all trainings exist. A step
begins when its samples are there and the previous step has ended. Times are from the machine's
monotonic clock, so those of all trainings can be compared.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402

START_SECONDS = 120.0  # a training that has failed never comes


def begin_together(out, number, trainings):
    """Waits until all trainings are ready."""
    Path(f"{out}.ready.{number}").touch()
    until = time.monotonic() + START_SECONDS
    while not all(os.path.exists(f"{out}.ready.{n}") for n in range(trainings)):
        if time.monotonic() > until:
            sys.exit(f"training {number}: not all of {trainings} trainings have begun")
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--number", type=int, default=os.environ.get("RANKPOOL_TRAINING", 0))
    parser.add_argument("--trainings", type=int, required=True)
    parser.add_argument("--slow", type=int, default=0, help="so many, the last, at half the pace")
    parser.add_argument("--sampler", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    args = parser.parse_args()
    step = args.step_seconds
    if args.number >= args.trainings - args.slow:
        step *= 2
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, args.batch, args.number, args.sampler)
    begin_together(args.out, args.number, args.trainings)
    began = due = time.monotonic()
    size, wrong = 0, 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        drawn = bytearray(data.samples)
        for batch in data.batches(sampler):
            size += sum(map(len, batch.views))
            for id in batch.ids:
                drawn[id] += 1
            due = max(due, time.monotonic()) + step
            time.sleep(max(0.0, due - time.monotonic()))
        wrong += sum(count == 0 for count in drawn)
    result = {"began": began, "ended": time.monotonic(), "bytes": size, "missing": wrong}
    Path(f"{args.out}.{args.number}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
