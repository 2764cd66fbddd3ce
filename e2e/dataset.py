"""The small data set that most tests train on, and how it is made."""

import numpy
from PIL import Image

SAMPLES = 360
EPOCHS = 3
GLOBAL_BATCH = 24  # divisible among 1, 2 and 4 trainers
BATCHES = SAMPLES // GLOBAL_BATCH  # of an epoch


def make_tree(root, samples, side=None):
    """Writes `samples` PNG files of noise into the class folders a, b and c, with sides of 8 to 63
    pixels unless `side` is given."""
    noise = numpy.random.default_rng(1)
    for name in "abc":
        (root / name).mkdir(parents=True)
    for i in range(samples):
        edge = side or int(noise.integers(8, 64))
        image = Image.fromarray(noise.integers(0, 256, (edge, edge), dtype=numpy.uint8))
        image.save(root / "abc"[i % 3] / f"{i:05}.png", compress_level=1)
    return root
