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


def test_blocks(folder, capfd):
    learn(folder, 0)
    (folder / "data" / "deep").mkdir()
    (folder / "data" / "deep" / "b").write_bytes(bytes(5000))
    for name in ("empty", ".hidden", ".zarray"):
        (folder / "data" / name).write_bytes(b"x" * len(name[5:]))
    out = io.StringIO()
    learning.write_blocks(folder / "data", 4096, out)
    _, note, *lines = out.getvalue().splitlines()
    last = (100 + N * ROW) % 4096
    assert [line for line in lines if line[0] in "PW"] == [
        "P\t0\t4096\t11", f"P\t45056\t{last}", "P\t0\t4096", "P\t4096\t904", "W\t0\t1\t1\t12",
        "W\t12\t1\t1\t2",
    ]
    assert [line for line in lines if line[0] == "H"] == ["H\t0\t2"]  # .zarray
    note = json.loads(note[2:])
    assert (note["format"], note["source"]) == ("blocks", str(folder / "data"))

    def read(but=None):
        return learning._read_blocks(learning._records(str(folder / "learned"), None, but), note)

    found = read()
    ends = [100 + i * ROW for i in range(N + 1)]
    want = [{0, *range(a // 4096, -(-b // 4096))} for a, b in zip(ends, ends[2:])]
    assert [set(found[i]) for i in range(N)] == [*want, set()]
    blocks = learning.Blocks(found, True)
    assert blocks.widest == max(map(len, want))
    assert blocks.of([1, N - 1]) == [sorted(want[1]), []] and blocks.of([N - 1]) == [[0]]
    (log,) = (folder / "learned").glob("*.log")
    assert read(log.name[-9:]) == {}
    with open(log, "a") as file:
        file.write('[1, [["rows", 0')  # another trainer is writing
    assert read() == found
    note["files"][0][1] = 3  # the file has become shorter
    assert max(map(max, filter(len, read().values()))) == 2


def test_small_reads_are_pieces_if_there_are_many(folder, monkeypatch):
    monkeypatch.setattr(learning, "SMALL", 10 * ROW)
    learn(folder, 0)
    assert listed(folder)[1:3] == ["P\t0\t100", f"P\t100\t{ROW}\t{N}"]


class Chunks(Windows):
    """Two rows of a file of HDF5 whose chunks are smaller than some of its B-tree's nodes."""

    def __getitem__(self, index):
        with rankpool.open(self.folder / "data" / "a.h5") as file, h5py.File(file, "r") as data:
            return data["x"][index : index + 2].tobytes()


class Open(Windows):
    """Leaves its file open."""

    file = None

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(rankpool.open(self.folder / "data" / "a.h5"), "r")
        return self.file["x"][index].sum()


def test_a_worker_ends_with_an_open_file(folder):
    """h5py would call the file of Python's, and a worker that was not forked die."""
    with h5py.File(folder / "data" / "a.h5", "w") as file:
        x = np.arange(N * 64 * 64.0).reshape(N, 64, 64)
        file.create_dataset("x", data=x, chunks=(1, 16, 64))
    data = rankpool.learn(Open(folder), folder / "data", folder / "learned")
    loader = DataLoader(data, None, num_workers=1, multiprocessing_context="spawn")
    batches = iter(loader)
    workers = batches._workers
    assert list(batches) == x.sum(axis=(1, 2)).tolist()
    assert [worker.exitcode for worker in workers] == [0]


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
    with pytest.raises(Refused, match="is not a folder with files"):
        learning.write_blocks(folder / "learned")
    learn(folder, 0)
    data = rankpool.learn([0, 1], folder / "data", folder / "learned")
    assert data[0] == 0 and data.append(2) is None and len(data) == 3 and data[2] == 2
    with pytest.raises(Refused, match="records of several data sets, or of one that has grown"):
        listed(folder)


def test_a_sample_that_reads_something_else_is_recorded_again(folder):
    data = rankpool.learn(Windows(folder), folder / "data", folder / "learned")
    assert data.folder == folder  # attributes are those of the script's data set
    for missed in [False] * 5 + [True] * 10:
        data._put_down(0, [(os.fsencode(folder / "data" / "rows"), 0, 1)], missed)
    (log,) = (folder / "learned").glob("*.log")
    assert len(log.read_text().splitlines()) == 1 + learning.MOST


def test_records_are_not_needed(folder, capfd):
    (folder / "learned").write_text("a file")
    learn(folder, 0)
    assert capfd.readouterr().err.count("cannot record what samples read: ") == 1
