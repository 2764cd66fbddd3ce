"""Times epochs over windows of 3 rows of an HDF5 file on emulated storage of 200 MB/s and 2 ms an
open: a plain h5py Dataset and a zarr Dataset in a DataLoader with 8 workers, and rankpool with a
fifth of the data in memory.

    python3 benchmarks/windows.py [ROWS]

It needs FUSE, h5py and zarr, and 0.5 MB of /dev/shm for each row (4,000: a fifth of 1,000 rows is
two batches, too few to read ahead). The last column divides the seconds by those that storage needs
for what was read; the first epoch also starts the workers.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).parents[1]
BANDWIDTH, EPOCHS, BATCH, WINDOW, STEP = 200e6, 3, 32, 3, 0.002


class Plain(Dataset):
    """Windows as a script reads them: the file is opened by each worker."""

    def __init__(self, path):
        self.path, self.rows = path, None
        with self.open() as rows:
            self.length = len(rows.rows) - WINDOW + 1

    def open(self):
        if self.path.endswith(".zarr"):
            import zarr

            self.rows = zarr.open(self.path, mode="r")["x"]
        else:
            import h5py

            self.rows = h5py.File(self.path)["x"]
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.rows = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.rows is None:
            self.open()
        return torch.from_numpy(self.rows[index : index + WINDOW])


def train(data, sampler, workers):
    """Prints the seconds of each epoch."""
    loader = DataLoader(
        data, BATCH, sampler=sampler, shuffle=sampler is None, num_workers=workers,
        persistent_workers=workers > 0,
    )  # fmt: skip
    for epoch in range(EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        began = time.perf_counter()
        for _ in loader:
            time.sleep(STEP)
        print(f"{time.perf_counter() - began:.3f}", flush=True)


def trainer(path, how):
    if how != "rankpool":
        return train(Plain(path), None, 8)
    sys.path.insert(0, str(ROOT / "python"))
    import rankpool

    data = rankpool.Arrays(path, transform=lambda item: torch.from_numpy(item["x"]))
    return train(data, rankpool.DistributedSampler(data), 2)


def write(folder, rows):
    import h5py
    import zarr

    random = np.random.default_rng(0)
    with h5py.File(folder / "a.h5", "w") as file:
        x = file.create_dataset("x", (rows, 256, 256), "f4", chunks=(1, 256, 256))
        group = zarr.open_group(str(folder / "a.zarr"), mode="w")
        same = group.create_dataset(
            "x", shape=x.shape, chunks=x.chunks, dtype="f4", compressor=None
        )
        for i in range(rows):
            x[i] = same[i] = random.normal(size=x.shape[1:]).astype("f4")


def counts(mount):
    return json.loads((mount / ".slowfs/stats").read_text())


def main():
    if len(sys.argv) == 3:
        return trainer(*sys.argv[1:])
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    lab, program = ROOT / "bin/rankpool-lab", ROOT / "bin/rankpool"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        source, mount = Path(folder, "source"), Path(folder, "mount")
        source.mkdir()
        mount.mkdir()
        write(source, rows)
        settings = [f"bandwidth = {BANDWIDTH:.0f}", 'open_latency = "2ms"', "page_cache = false"]
        slow = subprocess.Popen(
            [lab, "slowfs", *(w for s in settings for w in ("--set", s)), source, mount]
        )
        try:
            while not (mount / ".slowfs/stats").exists():
                time.sleep(0.05)
            measure(program, mount, Path(folder), rows)
        finally:
            slow.terminate()
            slow.wait()


def measure(program, mount, folder, rows):
    size = rows * 256 * 256 * 4
    manifest = folder / "a.parquet"
    subprocess.run(
        [program, "index", mount / "a.h5", "--rows", str(WINDOW), "-o", manifest, "-q",
         "--python", sys.executable], check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"{rows} rows, {size / 1e6:.0f} MB; windows of {WINDOW} rows, {BATCH} a batch")
    print(f"steps alone {rows / BATCH * STEP:.2f} s, the data once {size / BANDWIDTH:.2f} s")
    for how, name in (("h5py", "a.h5"), ("zarr", "a.zarr"), ("rankpool", "a.h5")):
        command = [sys.executable, __file__, mount / name, how]
        if how == "rankpool":
            command = [program, "run", "--data", manifest, "--memory", "20%", "--", *command]
        before = counts(mount)
        done = subprocess.run(
            list(map(str, command)), check=True, capture_output=True, text=True
        ).stdout.splitlines()
        after = counts(mount)
        seconds = [float(line) for line in done[:EPOCHS]]
        read = (after["bytes"] - before["bytes"]) / size / EPOCHS
        opens = after["opens"] - before["opens"]
        print(
            f"{how:8}  seconds {seconds}  data sets read an epoch {read:.2f}  opens {opens}  "
            f"of the bound {sum(seconds) / (read * EPOCHS * size / BANDWIDTH):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
