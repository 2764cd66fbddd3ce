"""Writes Debian's Fashion-MNIST as folders of PNG files.

The files are OUT/train/<class>/xxxxx.png and OUT/test/<class>/xxxxx.png. The class is the label, 0
to 9; the number is the image's place in the original file. Pixels are unchanged. OUT is complete or
absent: it is written beside its place and renamed. An existing OUT is left as it is.
"""

import argparse
import gzip
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

SOURCE = Path("/usr/share/datasets/fashion-mnist")  # Debian package dataset-fashion-mnist
SPLITS = {"train": ("train", 60_000), "test": ("t10k", 10_000)}
CLASSES = 10
# the IDX format: a magic number, and a big-endian u32 for each dimension
HEADER_BYTES = {"images": 16, "labels": 8}


def read_idx(source: Path, prefix: str, what: str, rank: int) -> np.ndarray:
    """Returns the bytes of an IDX file after its header."""
    with gzip.open(source / f"{prefix}-{what}-idx{rank}-ubyte.gz") as f:
        return np.frombuffer(f.read(), np.uint8, offset=HEADER_BYTES[what])


def export_part(source: Path, folder: Path, prefix: str, begin: int, end: int) -> None:
    """Writes images begin to end of one split."""
    labels = read_idx(source, prefix, "labels", 1)
    images = read_idx(source, prefix, "images", 3).reshape(len(labels), 28, 28)
    for i in range(begin, end):
        Image.fromarray(images[i]).save(folder / str(labels[i]) / f"{i:05d}.png", compress_level=1)


def export(source: Path, out: Path, processes: int) -> None:
    """Writes all splits into the new folder out."""
    with ProcessPoolExecutor(processes) as pool:
        parts = []
        for split, (prefix, count) in SPLITS.items():
            for label in range(CLASSES):
                (out / split / str(label)).mkdir(parents=True)
            for begin in range(0, count, 10_000):
                parts.append(
                    pool.submit(
                        export_part, source, out / split, prefix, begin, min(count, begin + 10_000)
                    )
                )
        for part in parts:
            part.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--source", type=Path, default=SOURCE, help="folder with the four .gz files"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    if args.out.exists():
        return 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".fashion-mnist-", dir=args.out.parent))
    try:
        export(args.source, fresh, args.processes)
        fresh.chmod(0o755)
        fresh.rename(args.out)
    except OSError as error:
        print(f"fashion_mnist.py: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
