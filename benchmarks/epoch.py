"""Trains one epoch under `rankpool run` with steps that only sleep; records its begin and end.

Every trainer writes OUT.RANK. Times are from the machine's monotonic clock, so those of all
trainers can be compared.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--batch", type=int, default=64, help="of one trainer")
    parser.add_argument("--step-seconds", type=float, default=0.0)
    args = parser.parse_args()
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, args.batch, sampler="torch")
    samples = size = steps = 0
    began = time.monotonic()
    sampler.set_epoch(0)
    for batch in data.batches(sampler):
        samples += len(batch.ids)
        size += sum(map(len, batch.views))
        steps += 1
        if args.step_seconds:
            time.sleep(args.step_seconds)
    result = {
        "began": began,
        "ended": time.monotonic(),
        "samples": samples,
        "bytes": size,
        "steps": steps,
    }
    Path(f"{args.out}.{os.environ['RANK']}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
