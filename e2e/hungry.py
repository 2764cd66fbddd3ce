"""Trains under `rankpool run` by reading every byte, and allocates more and more memory.

It reads at a training's pace. It prints "digest" and the SHA-256 of the stream: the ids of each
batch and its samples' bytes. The file "digest" has a line for each batch.
"""

import argparse
import hashlib
import struct
import time

import rankpool

MIB = 1 << 20
COMPUTE_SECONDS = 0.01  # of a step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument(
        "--take-mib", type=int, default=0, help="memory to take in the second epoch"
    )
    args = parser.parse_args()
    data = rankpool.Dataset()
    sampler = rankpool.BatchSampler(data, args.batch_size, sampler="torch")
    taken, stream, log = [], hashlib.sha256(), open("digest", "w", buffering=1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        steps = len(sampler)
        for step, samples in enumerate(data.batches(sampler)):
            for id, view in zip(samples.ids, samples.views):
                stream.update(struct.pack("<I", id))
                stream.update(view)
            while epoch == 1 and len(taken) * steps < args.take_mib * (step + 1):
                taken.append(bytearray(b"\x01") * MIB)
            time.sleep(COMPUTE_SECONDS)
            print(epoch, step, stream.hexdigest(), file=log)
    print("digest", stream.hexdigest())


if __name__ == "__main__":
    main()
