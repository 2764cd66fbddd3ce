"""Reads a warm data set from rankpool, Redis and one packed file in turn, in this one process.

    bin/rankpool run --data DIR --memory 100% -- python3 benchmarks/serve.py --out RESULT.json

In every round each contender serves the same batches: all samples of the data set in a new random
order. A contender serves a batch as a list of 64 objects that give a sample's bytes; nobody reads
the bytes. The result has the rates of each contender, in bytes per second, one per round.
"""

import argparse
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# redis-py parses with hiredis if it is installed; without it the comparison would be unfair
import hiredis  # noqa: F401
import redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import rankpool  # noqa: E402

PASS_SECONDS = 0.15  # a contender's turn repeats the batches until it has taken this long


class Ours:
    """rankpool: views of the samples in place, or copies of them."""

    def __init__(self, data, sampler):
        self.data, self.sampler = data, sampler

    def views(self, batches):
        for samples in self.data.batches(self.sampler):
            yield samples.views

    def copies(self, batches):
        for samples in self.data.batches(self.sampler):
            yield samples.copies()


class Packed:
    """One file of all samples, mapped: what a program that knows where everything is would do."""

    def __init__(self, folder, samples):
        path = os.path.join(folder, "packed")
        self.places, at = [], 0
        with open(path, "wb") as f:
            for sample in samples:
                f.write(sample)
                self.places.append((at, at + len(sample)))
                at += len(sample)
        with open(path, "rb") as f:
            self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self.view = memoryview(self.map)

    def views(self, batches):
        view, places = self.view, self.places
        for batch in batches:
            yield [view[begin:end] for begin, end in map(places.__getitem__, batch)]

    def copies(self, batches):
        packed, places = self.map, self.places
        for batch in batches:
            yield [packed[begin:end] for begin, end in map(places.__getitem__, batch)]


class Redis:
    """Our own Redis server without persistence, on a Unix socket and a TCP port of the loopback."""

    def __init__(self, folder, samples):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        path = os.path.join(folder, "redis.sock")
        self.server = subprocess.Popen(
            [
                "redis-server",
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--unixsocket",
                path,
                "--dir",
                folder,
            ]
            + [
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--logfile",
                os.path.join(folder, "redis.log"),
            ]
        )
        self.clients = {"Unix": redis.Redis(unix_socket_path=path), "TCP": redis.Redis(port=port)}
        self.await_server()
        self.keys = [b"%d" % id for id in range(len(samples))]
        for key, sample in zip(self.keys, samples):
            self.clients["Unix"].set(key, sample)

    def await_server(self):
        until = time.monotonic() + 10
        while True:
            try:
                if all(client.ping() for client in self.clients.values()):
                    return
            except redis.ConnectionError:
                if time.monotonic() > until or self.server.poll() is not None:
                    raise
                time.sleep(0.05)

    def mget(self, way):
        client = self.clients[way]

        def served(batches):
            for batch in batches:
                yield client.mget([self.keys[id] for id in batch])

        return served

    def pipeline(self, way):
        client = self.clients[way]

        def served(batches):
            for batch in batches:
                pipe = client.pipeline(transaction=False)
                for id in batch:
                    pipe.get(self.keys[id])
                yield pipe.execute()

        return served

    def close(self):
        for client in self.clients.values():
            client.close()
        self.server.terminate()
        self.server.wait()


class Race:
    """The contenders, and the passes over the data: a pass is an epoch, so that rankpool serves the
    same batches."""

    def __init__(self, sampler, samples):
        self.sampler, self.samples = sampler, samples
        self.epoch = 0

    def next_pass(self):
        """Returns the batches of the next pass; the plan is there before the clock starts."""
        self.sampler.set_epoch(self.epoch)
        batches = [list(batch) for batch in self.sampler]
        self.sampler.set_epoch(self.epoch)
        self.epoch += 1
        return batches

    def check(self, name, served):
        """Compares every byte that a contender serves."""
        batches = self.next_pass()
        seen = 0
        for batch, got in zip(batches, served(batches)):
            seen += len(got)
            if [bytes(sample) for sample in got] != [self.samples[id] for id in batch]:
                raise SystemExit(f"serve.py: {name} serves other bytes")
        if seen != sum(map(len, batches)) or len(set().union(*batches)) != len(self.samples):
            raise SystemExit(f"serve.py: {name} does not serve all samples")

    def turn(self, served):
        """Returns the rate of one turn, in bytes a second."""
        took, served_bytes = 0.0, 0
        while took < PASS_SECONDS:
            batches = self.next_pass()
            began = time.perf_counter()
            for got in served(batches):
                pass
            took += time.perf_counter() - began
            served_bytes += sum(len(self.samples[id]) for batch in batches for id in batch)
        return served_bytes / took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", required=True, help="the result; beside it lie the packed file and Redis' socket"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, args.batch, sampler="uniform")
    samples = [data.index.read(id) for id in range(len(data))]
    folder = tempfile.mkdtemp(dir=Path(args.out).parent)
    server = None
    try:
        server = Redis(folder, samples)
        ours, packed = Ours(data, sampler), Packed(folder, samples)
        contenders = {
            "rankpool views": ours.views,
            "rankpool copies": ours.copies,
            "packed views": packed.views,
            "packed copies": packed.copies,
            "Redis mget Unix": server.mget("Unix"),
            "Redis mget TCP": server.mget("TCP"),
            "Redis pipeline Unix": server.pipeline("Unix"),
            "Redis pipeline TCP": server.pipeline("TCP"),
        }
        race = Race(sampler, samples)
        for name, served in contenders.items():
            race.check(name, served)
        rates = {name: [] for name in contenders}
        for _ in range(args.rounds):
            for name, served in contenders.items():
                rates[name].append(race.turn(served))
    finally:
        if server:
            server.close()
        shutil.rmtree(folder)
    mean = sum(map(len, samples)) / len(samples)
    Path(args.out).write_text(
        json.dumps(
            {"samples": len(samples), "mean_bytes": mean, "batch": args.batch, "rates": rates}
        )
    )


if __name__ == "__main__":
    main()
