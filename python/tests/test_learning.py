"""What rankpool.learn records without a cache; e2e/ has it with one."""

import io
import json
import os

import h5py
import numpy as np
import pytest
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

import rankpool
from rankpool import learning
from rankpool.errors import Refused

ROW = 9000  # more than a head's reads have
N = 5


class Windows(TorchDataset):
    """Two rows of a file after 100 bytes of its own, and some bytes of another folder."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return N

    def __getitem__(self, index):
        if index == N - 1:
            return b""  # reads nothing
        with rankpool.open(self.folder / "data" / "rows") as file:
            file.read(100)
            file.seek(100 + index * ROW)
            found = file.read(ROW)
            found += file.read(ROW)
        with rankpool.open(self.folder / "other") as file:
            return found + file.read(1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("RANKPOOL_SOCKET", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_bytes(np.random.default_rng(0).bytes(100 + N * ROW))
    (tmp_path / "other").write_bytes(b"x")
    return tmp_path


def learn(folder, workers, epochs=1):
    data = rankpool.learn(Windows(folder), folder / "data", folder / "learned")
    plain, loader = Windows(folder), DataLoader(data, None, shuffle=True, num_workers=workers)
    for _ in range(epochs):
        assert sorted(loader) == sorted(plain[i] for i in range(N))


def listed(folder):
    out = io.StringIO()
    learning.write(str(folder / "learned"), out)
    title, note, *lines = out.getvalue().splitlines()
    assert json.loads(note[2:])["root"] == str(folder / "data")
    return lines


@pytest.mark.parametrize("workers", [0, 2])
def test_the_table(folder, workers):
    learn(folder, workers)
    info = os.stat(folder / "data" / "rows")
    file = f"F\trows\t{info.st_size}\t{info.st_mtime_ns}"
    heads, pieces = [file, "H\t0\t100"], [file, f"P\t100\t{ROW}\t{N}"]
    want = [*heads, *pieces, *(f"S\t{i}\t2" for i in range(N - 1)), "S"]
    assert listed(folder) == want
    learn(folder, workers, epochs=3)
    assert listed(folder) == want
    records = [line for log in (folder / "learned").glob("*.log") for line in open(log)]
    assert len([line for line in records if "rows" in line]) == (N - 1) * learning.TIMES


def test_small_reads_are_pieces_if_there_are_many(folder, monkeypatch):
    monkeypatch.setattr(learning, "SMALL", 10 * ROW)
    learn(folder, 0)
    assert listed(folder)[1:3] == ["P\t0\t100", f"P\t100\t{ROW}\t{N}"]


class Chunks(Windows):
    """Two rows of a file of HDF5 whose chunks are smaller than some of its B-tree's nodes."""

    def __getitem__(self, index):
        with rankpool.open(self.folder / "data" / "a.h5") as file, h5py.File(file, "r") as data:
            return data["x"][index : index + 2].tobytes()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_what_hdf5_needs_besides_chunks(folder, libver):
    with h5py.File(folder / "data" / "a.h5", "w", libver=libver) as file:
        x = np.random.default_rng(0).normal(size=(N + 400, 256)).astype("f4")
        file.create_dataset("x", data=x, chunks=(1, 256), maxshape=(None, 256))
        file["y"] = x
    data = rankpool.learn(Chunks(folder), folder / "data", folder / "learned")
    assert [data[i] for i in range(N)] == [x[i : i + 2].tobytes() for i in range(N)]
    found = listed(folder)
    assert {line.split("\t")[2] for line in found if line[0] == "P"} == {"1024"}
    assert [line for line in found if line[0] == "S"] == [f"S\t{i}\t2" for i in range(N)]


def test_what_is_refused(folder):
    (folder / "learned").mkdir()
    with pytest.raises(Refused, match="has no records of rankpool.learn"):
        listed(folder)
    learn(folder, 0)
    data = rankpool.learn([0, 1], folder / "data", folder / "learned")
    data._base += "other"  # another node
    assert data[0] == 0
    with pytest.raises(Refused, match="records of several data sets"):
        listed(folder)
