"""Measures the processor time, in seconds, that an idle rank takes.

It trains one batch under `rankpool run`, and then waits.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from memory import rank_process

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402
from rankpool import session  # noqa: E402


def processor_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, 16)
    sampler.set_epoch(0)
    batches = data.batches(sampler)
    next(batches)
    time.sleep(3)  # until what begins with training has settled
    pid = rank_process(session.door())
    before = processor_seconds(pid)
    time.sleep(args.seconds)
    spent = processor_seconds(pid) - before
    if os.environ["RANK"] == "0":
        Path(args.out).write_text(json.dumps({"spent": spent, "seconds": args.seconds}))


if __name__ == "__main__":
    main()
