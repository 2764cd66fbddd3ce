"""Trains the start of a few epochs under `rankpool run`, and measures its rank's memory.

The result is in bytes: the anonymous memory of the rank's process, at its peak and at the end, the
files in its folder, and the index that all processes of the node map; the session's files are in
memory too. The slab is shared memory, and counted in none of them.
"""

import argparse
import json
import socket
import struct
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402
from rankpool import session  # noqa: E402

WATCH_SECONDS = 0.02


def rank_process(door):
    """Returns the process that listens at the door, according to the kernel."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(door)
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid


def anonymous_bytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("memory.py: the kernel does not tell RssAnon")


class Watch(threading.Thread):
    """Records a process's peak memory."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.ended = pid, 0, threading.Event()

    def run(self):
        while not self.ended.wait(WATCH_SECONDS):
            self.look()

    def look(self):
        now = anonymous_bytes(self.pid)
        self.most = max(self.most, now)
        return now


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--sampler", default="pads")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--batches", type=int, default=20, help="batches of each epoch that are trained"
    )
    args = parser.parse_args()
    data = rankpool.Dataset()
    watch = Watch(rank_process(session.door()))
    watch.start()
    sampler = rankpool.BatchSampler(data, 256, sampler=args.sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for number, samples in enumerate(data.batches(sampler)):
            sampler.report(samples.ids, [1.0] * len(samples.ids))
            if number == args.batches:
                break
    watch.ended.set()
    watch.join()
    end = watch.look()
    index = Path(data.index_path)
    files = sum(
        p.stat().st_size
        for p in Path(session.door()).parent.iterdir()
        if p.is_file() and p != index
    )
    result = {
        "samples": len(data),
        "most": watch.most,
        "end": end,
        "files": files,
        "index": index.stat().st_size,
    }
    Path(args.out).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
