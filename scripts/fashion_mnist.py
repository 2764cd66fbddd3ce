"""Writes 10,000 images of Debian's Fashion-MNIST as OUT/<class>/xxxxx.png, unchanged pixels.

OUT is complete or absent: it is written beside its place and renamed. An existing OUT is left as it
is.
"""

import gzip
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

SOURCE = Path("/usr/share/datasets/fashion-mnist")  # Debian package dataset-fashion-mnist
IMAGES = 10_000


def read_idx(what: str, header_bytes: int) -> np.ndarray:
    """Returns the bytes of an IDX file (a magic number, a big-endian u32 for each dimension) after
    its header."""
    with gzip.open(SOURCE / f"t10k-{what}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


def main() -> None:
    out = Path(sys.argv[1])
    if out.exists():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    labels = read_idx("labels-idx1", 8)
    images = read_idx("images-idx3", 16).reshape(IMAGES, 28, 28)
    with tempfile.TemporaryDirectory(prefix=".fashion-mnist-", dir=out.parent) as folder:
        fresh = Path(folder, "images")
        for i, label in enumerate(labels):
            (fresh / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[i]).save(fresh / str(label) / f"{i:05}.png", compress_level=1)
        os.rename(fresh, out)


if __name__ == "__main__":
    main()
