"""Trains some epochs with a loader and steps that sleep, as MLPerf Storage emulates accelerators.

Every sample must come once per epoch. Writes {"epochs": [{"seconds": …, "au": …}]} to OUT; the
first epoch begins before the workers do. With several accelerators, each is a process, and they
wait for each other after each step; without a launcher, this process starts them.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))


def start_all(count):
    """Starts this script once for each accelerator; returns the exit code."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    seats = [{**os.environ, **place, "RANK": str(rank)} for rank in range(count)]
    started = [subprocess.Popen([sys.executable, *sys.argv], env=seat) for seat in seats]
    return max(process.wait() for process in started)


def join(epoch):
    """Returns an epoch's results over all accelerators."""
    import torch.distributed as dist

    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, epoch)
    joined = {key: sum(part[key] for part in parts) for key in ("samples", "bytes")}
    seen = set().union(*(part["seen"] for part in parts))
    longest, least = max(part["seconds"] for part in parts), min(part["au"] for part in parts)
    return {**joined, "seen": seen, "seconds": longest, "au": least}


def train(batches, step_seconds, wait):
    """Trains one epoch; returns its seconds, its accelerator's utilisation without the first step,
    and how many samples and bytes and which samples it read."""
    seen, samples, size, steps = set(), 0, 0, 0
    began = time.monotonic()
    first_ended = began
    for batch in batches:
        samples += len(batch)
        size += batch.numel()
        seen.update(row.tobytes() for row in batch[:, :16].numpy())
        time.sleep(step_seconds)
        wait()
        steps += 1
        if steps == 1:
            first_ended = time.monotonic()
    ended = time.monotonic()
    au = (steps - 1) * step_seconds / (ended - first_ended) if steps > 1 else 0.0
    return {"seconds": ended - began, "au": au, "samples": samples, "seen": seen, "bytes": size}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loader", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sample-bytes", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--accelerators", type=int, default=1)
    parser.add_argument("--nopfs", help="a folder with NoPFS, for the loader nopfs")
    parser.add_argument("--memory-bytes", type=int, help="for samples, of the loader nopfs")
    args = parser.parse_args()
    if args.accelerators > 1 and "RANK" not in os.environ:
        sys.exit(start_all(args.accelerators))

    import torch
    import torch.distributed as dist

    from loaders import LOADERS

    torch.set_num_threads(1)
    several = args.accelerators > 1
    if several:
        dist.init_process_group("gloo")
    args.rank, args.world = int(os.environ.get("RANK", 0)), args.accelerators
    loader = LOADERS[args.loader](args)
    epochs = []
    for number in range(args.epochs):
        wait = dist.barrier if several else lambda: None
        epoch = train(loader.epoch(number), args.step_seconds, wait)
        epoch = join(epoch) if several else epoch
        seen = epoch.pop("seen")
        epochs.append({**epoch, "distinct": len(seen)})
    if args.rank == 0:
        Path(args.out).write_text(json.dumps({"epochs": epochs}))
    if several:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
