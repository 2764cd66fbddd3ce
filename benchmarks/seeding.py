"""Measures the CPU time of seeding, compared with reading, decoding and cropping JPEGs.

Usage: python3 benchmarks/seeding.py [EPOCHS]. It uses num_workers=0, so that the generators are
restored too. It prints medians over the epochs; with torch 2, also for samples that are requested
in batches.
"""

import os
import random
import statistics
import sys
import tempfile
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import rankpool  # noqa: E402
from rankpool import map_dataset, seeding  # noqa: E402

SAMPLES, BATCH, SIDES = 64, 32, (500, 375)


def make_images(root):
    """Writes noisy images of ImageNet's mean size; returns their mean size in bytes."""
    noise = numpy.random.default_rng(0)
    os.makedirs(root)
    for i in range(SAMPLES):
        coarse = noise.integers(0, 256, (SIDES[1] // 8, SIDES[0] // 8, 3), dtype=numpy.uint8)
        smooth = numpy.asarray(Image.fromarray(coarse).resize(SIDES, Image.BICUBIC)).astype(int)
        pixels = (smooth + noise.integers(-22, 23, smooth.shape)).clip(0, 255).astype(numpy.uint8)
        Image.fromarray(pixels).save(os.path.join(root, f"{i:03}.jpg"), quality=92)
    return statistics.mean(file.stat().st_size for file in os.scandir(root))


def crop(image):
    """Does what torchvision's RandomResizedCrop(224) and RandomHorizontalFlip do."""
    side = random.randint(224, min(image.size))
    left, top = (int(torch.randint(length - side + 1, ())) for length in image.size)
    image = image.resize((224, 224), Image.BILINEAR, box=(left, top, left + side, top + side))
    return numpy.asarray(image)[:, :: -1 if torch.rand(()) < 0.5 else 1].copy()


class Clock:
    """Adds up the CPU time of the functions that it wraps."""

    def __init__(self):
        self.seconds = 0.0

    def around(self, function):
        def timed(*args):
            began = time.thread_time()
            try:
                return function(*args)
            finally:
                self.seconds += time.thread_time() - began

        return timed


def seconds(root):
    """Returns the CPU seconds per sample in an epoch, and those of seeding and restoring."""
    seeds, reads = Clock(), Clock()
    map_dataset.seed_all = seeds.around(seeding.seed_all)
    map_dataset.number_of = seeds.around(seeding.number_of)
    map_dataset.keep = seeds.around(lambda: seeds.around(seeding.keep()))
    data = rankpool.ImageFolder(root, crop)
    loader = DataLoader(data, BATCH, sampler=rankpool.DistributedSampler(data, 1, 0))
    reads.around(list)(loader)
    return reads.seconds / SAMPLES, seeds.seconds / SAMPLES


def measure(name, root, epochs):
    columns = zip(*(seconds(root) for _ in range(epochs)))
    reading, seeds = (statistics.median(column) * 1e6 for column in columns)
    share = seeds / (reading - seeds)
    print(f"{name:10} {reading:6.0f} µs a sample, seeding {seeds:5.1f} µs of it: {share:.1%}")


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        size = make_images(os.path.join(root, "a")) / 1000
        print(f"torch {torch.__version__}, numpy {numpy.__version__}, JPEGs of {size:.0f} KB")
        if int(torch.__version__.split(".")[0]) >= 2:
            measure("by batches", root, epochs)
        del map_dataset.Served.__getitems__
        measure("one by one", root, epochs)


if __name__ == "__main__":
    main()
