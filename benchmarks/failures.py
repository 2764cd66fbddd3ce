"""Trains through a failure under `rankpool run`, with steps that only sleep.

It records when the first batch came and when training ended. With --kill-at N the first trainer
kills one rank after N steps. With --stop-at N training ends after N steps with a checkpoint in
STATE; without it, training resumes from STATE if that exists. Each trainer writes OUT.RANK. Times
are from the machine's monotonic clock, so those of all trainers can be compared.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402


def descendants(pid):
    """Returns the processes below a process."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in tasks.read_text().split():
            found += [int(child), *descendants(child)]
    return found


def kill_a_rank():
    for pid in descendants(os.getppid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[1:2] == [b"serve"]:
            os.kill(pid, signal.SIGKILL)
            return
    sys.exit("no rank of the cache is running, so none can be killed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--global-batch", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--stop-at", type=int)
    args = parser.parse_args()
    began = time.monotonic()
    rank = int(os.environ["RANK"])
    data = rankpool.Dataset()
    batch = args.global_batch // int(os.environ["WORLD_SIZE"])
    sampler = rankpool.BatchSampler(data, batch, sampler="torch")
    if args.stop_at is None and os.path.exists(args.state):
        sampler.load_state_dict(json.loads(Path(args.state).read_text()))
    first, steps, samples, longest = 0.0, 0, 0, 0.0
    for epoch in range(sampler.epoch, args.epochs):
        sampler.set_epoch(epoch)
        asked = time.monotonic()
        for one in data.batches(sampler):
            first = first or time.monotonic()
            longest = max(longest, time.monotonic() - asked)
            time.sleep(args.step_seconds)
            steps += 1
            samples += len(one.ids)
            if rank == 0 and steps == args.kill_at:
                kill_a_rank()
            if steps == args.stop_at:
                break
            asked = time.monotonic()
        if steps == args.stop_at:
            break
    if args.stop_at is not None:
        state = sampler.state_dict()
        if rank == 0:
            Path(args.state).write_text(json.dumps(state))
    result = {
        "began": began,
        "first": first,
        "ended": time.monotonic(),
        "longest": longest,
        "steps": steps,
        "samples": samples,
    }
    Path(f"{args.out}.{rank}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
