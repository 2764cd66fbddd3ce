"""Tables of pieces: with a file's heads and a sample's pieces alone, libraries decode the sample as
from the whole file."""

import base64
import io
import json
import multiprocessing
import os
import struct
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest
import zarr

from rankpool import hdf5, piece_files, pieces
from rankpool.decoding import Decoder
from rankpool.errors import Refused

NEW_ZARR = zarr.__version__ >= "3"


class Listed:
    """A table, read as `rankpool index` does."""

    def __init__(self, table):
        out = io.StringIO()
        table.write(out)
        title, note, *lines = out.getvalue().splitlines()
        assert title == "rankpool pieces 1" and note.startswith("N\t")
        self.note = json.loads(note[2:])
        self.heads, self.pieces, self.samples, self.text = {}, [], [], lines
        for line in lines:
            kind, *fields = line.split("\t")
            if kind == "F":
                path = os.path.join(self.note["root"], fields.pop(0))
                stat = os.stat(path)
                assert [stat.st_size, stat.st_mtime_ns] == list(map(int, fields))
                self.heads.setdefault(path, [])
                continue
            numbers = list(map(int, fields))
            if kind == "H":
                self.heads[path].append(tuple(numbers))
            elif kind == "P":
                at, size, count = (numbers + [1])[:3]
                self.pieces += [(path, at + i * size, size) for i in range(count)]
            elif kind == "W":
                first, count, step, n = numbers
                firsts = [first + i * step for i in range(n)]
                self.samples += [range(one, one + count) for one in firsts]
            else:
                assert kind == "S"
                windows = [range(a, a + n) for a, n in zip(numbers[::2], numbers[1::2])]
                self.samples.append([i for window in windows for i in window])
        assert {i for sample in self.samples for i in sample} <= set(range(len(self.pieces)))

    def places(self):
        """Returns the file of each sample, and its place among its samples."""
        for number, (_, samples, _) in enumerate(self.note["files"]):
            yield from ((number, i) for i in range(samples))


class Parts(io.RawIOBase):
    """A file of which only the heads and the pieces in hand can be read."""

    def __init__(self, path, heads, hand):
        self.name, self._at, self._heads, self._hand = path, 0, heads, hand
        with open(path, "rb") as file:
            self._bytes = file.read()

    def readable(self):
        return True

    seekable = readable

    def tell(self):
        return self._at

    def seek(self, offset, whence=0):
        self._at = offset + (0, self._at, len(self._bytes))[whence]
        return self._at

    def readinto(self, buffer):
        got = self.fill(self._at, buffer)
        self._at += got
        return got

    def fill(self, start, buffer):
        data = self._bytes[start : start + len(buffer)]
        covered = start
        hand = [(at, size) for path, at, size in self._hand if path == self.name]
        for at, size in sorted(self._heads + hand):
            if at <= covered < at + size:
                covered = at + size
        assert not data or covered >= start + len(data), (self.name, start, len(buffer))
        memoryview(buffer)[: len(data)] = data
        self.last = start, start + len(data)
        return len(data)

    def view(self, at, size):
        self.seek(at)
        return memoryview(self.read(size))


def check(path, expected, **options):
    """Checks that each sample is decoded from its pieces as the window of the expected arrays, one
    for each file, and that the pieces are what it needs."""
    options.setdefault("rows", 1)
    table = Listed(pieces.index(str(path), **options))
    here = []  # the ranges of the sample in hand

    def opener(path):
        heads = table.heads.get(path)
        if heads is None:
            raise FileNotFoundError(path)
        return Parts(path, heads, here)

    decoder, native = Decoder(table.note, opener), Decoder(table.note)
    places = list(table.places())
    assert len(places) == len(table.samples)
    for (number, place), sample in zip(places, table.samples):
        here[:] = [table.pieces[i] for i in sample]
        first = place * table.note["stride"]
        for found in decoder.window(number, place), native.window(number, place):
            assert list(found) == table.note["variables"]
            for name, got in found.items():
                want = expected[number][name][first : first + options["rows"]]
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)
    return table


def field(rows, *shape, dtype="f4"):
    return np.random.default_rng(1).normal(size=(rows, *shape)).astype(dtype) * 100


FILTERS = {
    "contiguous": {},
    "chunked": {"chunks": (3, 4, 5)},
    "gzip": {"chunks": (2, 9, 4), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"chunks": (1, 9, 11), "compression": "lzf"},
    "growing": {"chunks": (2, 5, 11), "maxshape": (None, None, 11)},
}


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("rows, stride", [(1, 1), (3, 1), (4, 3)])
def test_hdf5(tmp_path, libver, how, rows, stride):
    x = field(14, 9, 11)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("group/x", data=x, **FILTERS[how]).attrs["units"] = "K"
    check(tmp_path / "a.h5", [{"group/x": x}], rows=rows, stride=stride)


def test_hdf5_of_several_variables(tmp_path):
    x, y, z, label = field(12, 6, 7), field(12, 3, dtype="f8"), field(12, 5000), np.arange(12)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(2, 3, 7), compression="gzip")
        file.create_dataset("y", data=y, chunks=(2, 3))
        file.create_dataset("z", data=z)
        file.create_dataset("label", data=label)
    names = ["x", "label", "y", "z"]
    expected = [{"x": x, "y": y, "z": z, "label": label}]
    check(tmp_path / "a.h5", expected, dataset=names, rows=3)
    # Chunks of x and y are numbered in turn: those of a sample are one window.
    table = check(tmp_path / "a.h5", [{"x": x, "y": y}], dataset=["x", "y"], rows=2, stride=2)
    assert table.text[-1] == "W\t0\t3\t3\t6"


def test_hdf5_with_fill_values(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (20, 4), "i2", chunks=(2, 2), fillvalue=7)[4:6, :2] = 1
        file.create_dataset("never", (20, 4), "f4", fillvalue=3.5)
        file.create_dataset("no chunk", (20, 4), "f4", chunks=(3, 4), fillvalue=2)
        expected = {name: file[name][:] for name in file}
    table = check(tmp_path / "a.h5", [expected], dataset=list(expected), rows=2)
    assert [len(sample) for sample in table.samples] == [0] * 3 + [1] * 3 + [0] * 13
    assert len(table.pieces) == 1


def test_hdf5_of_other_layouts(tmp_path):
    small, x = field(6, 3), field(6, 3)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(small.shape)
        id = h5py.h5d.create(file.id, b"small", h5py.h5t.IEEE_F32LE, space, create)
        h5py.Dataset(id)[...] = small
        file.create_dataset("x", data=x, chunks=(2, 2))
        pairs = np.zeros(6, [("a", "i4"), ("b", "f8")])
        pairs["b"] = np.arange(6)
        file.create_dataset("pairs", data=pairs)
    for name, data in (("small", small), ("x", x), ("pairs", pairs)):
        check(tmp_path / "a.h5", [{name: data}], dataset=[name], rows=2)


def test_chunks_that_are_copied(tmp_path):
    """Only those of which NumPy has the elements as the file has them."""
    x, short = field(9, 7), h5py.h5t.STD_I32LE.copy()
    short.set_precision(20)
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_chunk((2, 3))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"short", short, h5py.h5s.create_simple(x.shape), create)
        file["short"][...] = x
        for name, kind in (("copied", "f4"), ("swapped", ">f8"), ("truth", "?")):
            file.create_dataset(name, x.shape, kind, chunks=(2, 3))[...] = x > 0
        file.create_dataset("filtered", data=x, chunks=(2, 3), shuffle=True)
    with h5py.File(tmp_path / "a.h5") as file:
        copied = [name for name in file if hdf5.variable(file[name], None) != file[name]]
        expected = {name: one[:] for name, one in file.items()}
    assert copied == ["copied", "swapped", "truth"]
    check(tmp_path / "a.h5", [expected], dataset=list(expected), rows=3)


def test_without_chunk_iter(tmp_path, monkeypatch, capfd):
    x = field(40, 6)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("x", (40, 6), "f4", chunks=(1, 4), compression="gzip")
        for row in range(0, 40, 3):
            data[row] = x[row]
        x = data[:]
    table = check(tmp_path / "a.h5", [{"x": x}])
    monkeypatch.setattr(hdf5, "hasattr", lambda one, name: False, raising=False)
    assert check(tmp_path / "a.h5", [{"x": x}]).text == table.text
    assert "28 chunks in" in capfd.readouterr().err


def test_folder_of_files(tmp_path):
    expected = []
    for name, rows in (("1/a.h5", 5), ("1/b.h5", 2), ("0/c.hdf5", 4)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        expected.append({"x": field(rows, 2)})
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = expected[-1]["x"]
    table = check(tmp_path, [expected[2], expected[0], expected[1]], rows=3)
    assert table.note["files"] == [["0/c.hdf5", 2, 0], ["1/a.h5", 3, 0], ["1/b.h5", 0, 0]]
    assert table.note["root"] == str(tmp_path)


def virtual(folder, names, rows=3, source="x"):
    layout = h5py.VirtualLayout((rows * len(names), 2), "f4")
    for i, name in enumerate(names):
        layout[rows * i : rows * (i + 1)] = h5py.VirtualSource(name, source, (rows, 2))
    with h5py.File(folder / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)


def test_virtual_data_set(tmp_path):
    expected = [{"x": field(3, 2)}, {"x": field(3, 2) + 1}]
    for name, one in zip(["b.h5", "a.h5"], expected):
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = one["x"]
            file["y"] = one["x"]
            file["longer"] = np.zeros((4, 2), "f4")
    virtual(tmp_path, ["b.h5", str(tmp_path / "a.h5")])
    check(tmp_path / "v.h5", expected, rows=2)
    virtual(tmp_path, ["b.h5", "gone.h5"])
    refused(tmp_path / "v.h5", "a source of /x is missing: .*/gone.h5")
    for source in ("y", "longer"):
        virtual(tmp_path, ["b.h5", "a.h5"], source=source)
        refused(tmp_path / "v.h5", "/x is virtual, and not simply the rows of other files")


def refused(path, text, **options):
    with pytest.raises(Refused, match=text):
        pieces.index(str(path), **options).finish()


def test_refused_hdf5(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["y"], file["scalar"] = np.zeros((5, 2)), np.zeros(4), 1.0
        file["text"] = ["a", "bc"]
        file["far"] = h5py.ExternalLink("b.h5", "x")
        file.create_dataset("raw", (5,), "f4", external=[("raw.bin", 0, 20)])
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = np.zeros(5)
    refused(path, "choose with --dataset among raw, text, x, y$")
    refused(path, "has no 'z'; it has raw, text, x, y$", dataset=["z"])
    refused(path, "scalar has no rows", dataset=["scalar"])
    refused(path, "elements of text have no fixed size", dataset=["text"])
    refused(path, "elements of raw are in other files", dataset=["raw"])
    refused(path, "far is a link to another file", dataset=["far"])
    refused(path, r"equally many rows: x \[5, 2\], y \[4\]", dataset=["x", "y"])
    refused(path, "no sample: no file has 6 rows", dataset=["x"], rows=6)
    (tmp_path / "c.nc").write_bytes(b"CDF\x01" + bytes(100))
    refused(tmp_path / "c.nc", "NetCDF's old format")
    (tmp_path / "d.h5").write_bytes(bytes(100))
    refused(tmp_path / "d.h5", "file signature not found")
    np.save(tmp_path / "e.npy", np.zeros(3))
    refused(tmp_path, "several formats, hdf5, npy")
    refused(tmp_path / "e.txt", "no known format")
    os.rename(path, tmp_path / "tab\t.h5")
    refused(tmp_path / "tab\t.h5", "rename it", dataset=["x"])


@pytest.mark.parametrize("libver, swmr", [("earliest", False), ("latest", False), ("latest", True)])
def test_file_that_a_writer_has_open(tmp_path, libver, swmr):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file["x"] = np.zeros(5)
        file.flush()
        if swmr:
            file.swmr_mode = True
        done = run(tmp_path / "a.h5")
    assert done.returncode == 1 and done.stdout == ""
    assert "unable to lock file" in done.stderr or "already open for write" in done.stderr
    assert done.stderr.count("\n") == 1 and str(tmp_path / "a.h5") in done.stderr


def run(*arguments):
    command = [sys.executable, "-m", "rankpool.pieces", *map(str, arguments)]
    folder = os.path.dirname(os.path.dirname(pieces.__file__))
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_command(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"] = np.zeros((48, 2)), np.zeros((48, 2000))
    done = run(tmp_path / "a.h5", "--dataset", "y,x", "--rows", "2", "--stride", "2")
    table = pieces.index(str(tmp_path / "a.h5"), ["y", "x"], 2, 2)
    assert done.returncode == 0 and done.stdout.splitlines()[2:] == Listed(table).text
    assert "24 samples of 49 pieces, 1 rows a piece" in done.stderr
    (tmp_path / "raw").write_bytes(bytes(8 + 24 * 40))
    done = run(tmp_path / "raw", "--shape", "N,2,3", "--dtype", "foo")
    assert done.returncode == 2 and "--dtype: data type 'foo' not understood" in done.stderr
    done = run(tmp_path / "raw", "--header", "8", "--shape", "N,2,3", "--dtype", "float32")
    assert done.stdout.splitlines()[-2:] == ["P\t8\t960", "W\t0\t1\t0\t40"]
    assert "40 samples share a piece" in done.stderr
    done = run(tmp_path / "a.h5", "--dataset", "z")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"rankpool: {tmp_path}/a.h5 has no 'z'; it has x, y\n"


ZARR = {
    "whole rows": {"chunks": (2, 9, 11)},
    "parts": {"chunks": (3, 4, 5)},
    "one chunk": {"chunks": (14, 9, 11)},
}


def zarr_group(path, version=2):
    return zarr.open_group(str(path), mode="w", **({"zarr_format": version} if NEW_ZARR else {}))


def create(group, name, data, **options):
    """Writes an array; only the written rows of a masked array."""
    make = group.create_array if NEW_ZARR else group.create_dataset
    one = make(name, shape=data.shape, dtype=data.dtype, fill_value=0, **options)
    one[:] = data
    return one


@pytest.mark.parametrize("version", [2, 3] if NEW_ZARR else [2])
@pytest.mark.parametrize("how", ZARR)
def test_zarr(tmp_path, version, how):
    x, y = field(14, 9, 11), field(14, 3)
    group = zarr_group(tmp_path / "a.zarr", version)
    create(group, "g/x", x, **ZARR[how])
    create(group, "y", y, chunks=(3, 3))
    for rows, stride in ((1, 1), (3, 1), (4, 3)):
        check(tmp_path / "a.zarr", [{"g/x": x}], dataset=["g/x"], rows=rows, stride=stride)
    check(tmp_path / "a.zarr", [{"y": y, "g/x": x}], dataset=["y", "g/x"], rows=3)
    refused(tmp_path / "a.zarr", "choose with --dataset among g/x, y$")
    refused(tmp_path / "a.zarr", "has no 'z'; it has g/x, y$", dataset=["z"])


@pytest.mark.parametrize("version", [2, 3] if NEW_ZARR else [2])
def test_zarr_array_with_fill_values(tmp_path, version):
    options = {"zarr_format": version} if NEW_ZARR else {}
    one = zarr.open_array(
        str(tmp_path / "a.zarr"), mode="w", shape=(12, 4), chunks=(2, 2), dtype="i2", fill_value=7,
        dimension_separator="/" if version == 2 else None, **options,
    )
    one[4:6, :2] = 1
    table = check(tmp_path / "a.zarr", [{"data": one[:]}], rows=2)
    assert [len(sample) for sample in table.samples] == [0] * 3 + [1] * 3 + [0] * 5


def test_numpy_files(tmp_path):
    x, y = field(7, 5, 3), field(7, 5000, dtype=">f8")
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.save(tmp_path / "c.npy", y[:3].astype("f4"))
    for rows, stride in ((1, 1), (3, 2)):
        check(tmp_path / "a.npy", [{"data": x}], rows=rows, stride=stride)
        check(tmp_path / "a.npz", [{"x": x, "y": y}], dataset=["x", "y"], rows=rows, stride=stride)
    table = Listed(pieces.index(str(tmp_path / "a.npz"), ["y"]))
    path = str(tmp_path / "a.npz")
    with zipfile.ZipFile(Parts(path, table.heads[path], [])) as file:
        assert file.namelist() == ["x.npy", "y.npy"]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_records_of_numpy(tmp_path, version):
    inner = np.dtype([("it's", "<U2"), ("z", ">i2", 3)])
    fields = np.dtype([("a", "u1", (3, 2)), ("b", "<f8"), ("c", inner)], align=True)
    records = np.random.default_rng(1).bytes(7 * fields.itemsize)
    x = np.frombuffer(records, fields).copy()
    x["c"]["it's"] = "é"
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, x, version)
    check(tmp_path / "a.npy", [{"data": np.load(tmp_path / "a.npy")}], rows=2)


@pytest.mark.parametrize("text", [
    '{"descr": "<i4", "fortran_order": False, "shape": (4, 3)}\n',
    "{'descr': u'<i4', 'fortran_order': False, 'shape': (4L, 3L), }\n",
    "{'descr': '<i4', 'fortran_order': True, 'shape': (12,), }\n",
])
def test_headers_of_numpy(tmp_path, text):
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    (tmp_path / "a.npy").write_bytes(head + np.arange(12, dtype="<i4").tobytes())
    check(tmp_path / "a.npy", [{"data": np.load(tmp_path / "a.npy")}])


def test_refused_numpy_files(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=field(3, 2))
    refused(tmp_path / "a.npz", "x is compressed: write it with np.savez")
    np.savez(tmp_path / "b.npz", x=field(3, 2), y=field(3))
    refused(tmp_path / "b.npz", "choose with --dataset among x, y")
    refused(tmp_path / "b.npz", "has no 'z'; it has x, y", dataset=["z"])
    np.save(tmp_path / "a.npy", np.asfortranarray(field(3, 2)))
    refused(tmp_path / "a.npy", "in Fortran's order")
    np.save(tmp_path / "b.npy", np.array(["a", None]), allow_pickle=True)
    refused(tmp_path / "b.npy", "arrays of objects")
    np.save(tmp_path / "d.npy", np.float32(1))
    refused(tmp_path / "d.npy", "single numbers")
    np.save(tmp_path / "c.npy", field(30, 2))
    os.truncate(tmp_path / "c.npy", 300)
    refused(tmp_path / "c.npy", r"has 300 bytes, too few for data \[30, 2\]: is it truncated")
    os.truncate(tmp_path / "c.npy", 369)
    refused(tmp_path / "c.npy", r"has 1 bytes too many after data \[30, 2\]")
    os.truncate(tmp_path / "c.npy", 3)
    refused(tmp_path / "c.npy", "c.npy: EOF")
    np.save(tmp_path / "e.npy", np.zeros(2, [("a", "f4"), ("b", "O")]), allow_pickle=True)
    refused(tmp_path / "e.npy", "arrays of objects")
    with pytest.warns(UserWarning, match="3.0"):
        np.save(tmp_path / "f.npy", np.zeros(2, [("ж", "f4")]))
    refused(tmp_path / "f.npy", "f.npy: fields with names that are not in Latin letters")
    os.truncate(tmp_path / "b.npz", 300)
    refused(tmp_path / "b.npz", "not a zip file")


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("mode, dtype", [(0, "i1"), (1, "i2"), (2, "f4"), (6, "u2"), (12, "f2")])
def test_mrc(tmp_path, order, mode, dtype):
    frames = field(5, 4, 6).astype(order + dtype)
    header = bytearray(1024)
    struct.pack_into(order + "4i", header, 0, 6, 4, 5, mode)
    struct.pack_into(order + "i", header, 92, 80)
    header[212:214] = b"\x44\x44" if order == "<" else b"\x11\x11"
    (tmp_path / "a.mrcs").write_bytes(header + bytes(80) + frames.tobytes())
    check(tmp_path / "a.mrcs", [{"data": frames}], rows=2)
    header[12:16] = struct.pack(order + "i", 101)
    (tmp_path / "a.mrcs").write_bytes(header + bytes(80) + frames.tobytes())
    refused(tmp_path / "a.mrcs", "mode 101 is not known here")


def test_raw(tmp_path):
    expected = [{"data": field(5, 2, 3)}, {"data": field(3, 2, 3)}]
    for name, one in zip("ab", expected):
        (tmp_path / name).write_bytes(bytes(16) + one["data"].tobytes())
    check(tmp_path, expected, rows=2, raw=(16, "<f4", [-1, 2, 3]))
    too_few = r"has 88 bytes, too few for data \[5, 2, 3\]"
    refused(tmp_path / "b", too_few, raw=(16, "<f4", [5, 2, 3]))


def references(folder, refs, **more):
    document = {"version": 1, "templates": {"d": "data"}, "refs": refs, **more}
    (folder / "a.json").write_text(json.dumps(document))
    return folder / "a.json"


def test_references(tmp_path):
    x = field(6, 4)
    x[4:] = 0
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.bin").write_bytes(b"head" + x[:2].tobytes())
    (tmp_path / "data" / "whole.bin").write_bytes(x[2:3].tobytes())
    meta = {
        "zarr_format": 2, "shape": [6, 4], "chunks": [1, 4], "dtype": "<f4", "compressor": None,
        "fill_value": 0, "filters": None, "order": "C",
    }
    refs = {
        ".zgroup": {"zarr_format": 2},
        "x/.zarray": json.dumps(meta),
        "x/.zattrs": "{}",
        "x/0.0": ["{{d}}/1.bin", 4, 16],
        "x/1.0": [f"file://{tmp_path}/data/1.bin", 20, 16],
        "x/2.0": ["data/whole.bin"],
        "x/3.0": "base64:" + base64.b64encode(x[3].tobytes()).decode(),
    }
    path = references(tmp_path, refs)
    table = check(path, [{"x": x}], rows=2)
    assert [len(sample) for sample in table.samples] == [2, 2, 1, 0, 0]
    refused(references(tmp_path, {**refs, "x/4.0": ["s3://bucket/1", 0, 16]}), "at s3://bucket/1")
    refused(references(tmp_path, {**refs, "x/4.0": ["gone.bin", 0, 16]}), "/gone.bin is missing")
    refused(references(tmp_path, refs, gen=[]), "generates references")


def test_function(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(100)))
    (tmp_path / "b").write_bytes(bytes(50))
    samples = [[("a", 0, 10), ("a", 10, 10)], [("b", 0, 50), ("a", 10, 10)], [], [("a", 90, 10)]]

    def write(samples):
        out = io.StringIO()
        pieces.write(samples.__getitem__, len(samples), tmp_path, out)
        return out.getvalue().splitlines()

    note, *lines = write(samples)[1:]
    assert json.loads(note[2:])["root"] == str(tmp_path)
    a, b = (f"\t{os.stat(tmp_path / name).st_mtime_ns}" for name in "ab")
    assert lines == [
        "F\ta\t100" + a, "P\t0\t10\t2", "F\tb\t50" + b, "P\t0\t50", "F\ta\t100" + a, "P\t90\t10",
        "S\t0\t2", "S\t2\t1\t1\t1", "S", "S\t3\t1",
    ]
    with pytest.raises(Refused, match="sample 0: its pieces are not known: None"):
        write([None])


def test_processes_open_their_own_files(tmp_path):
    x = field(8, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(2, 4), compression="gzip")
    create(zarr_group(tmp_path / "a.zarr"), "x", x, chunks=(2, 4))
    for name in ("a.h5", "a.zarr"):
        decoder = Decoder(pieces.index(str(tmp_path / name), deep=False).finish(), piece_files.open)
        np.testing.assert_array_equal(decoder.window(0, 3)["x"], x[3:4])
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for i, found in enumerate(pool.starmap(decoder.window, [(0, i) for i in range(8)])):
                np.testing.assert_array_equal(found["x"], x[i : i + 1])


def test_exit_with_open_files(tmp_path):
    """The interpreter must not crash when it ends."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros((3, 2))
    code = f"""
from rankpool import piece_files, pieces
from rankpool.decoding import Decoder
decoder = Decoder(pieces.index({str(tmp_path / "a.h5")!r}, deep=False).finish(), piece_files.open)
print(decoder.window(0, 1)["x"].sum())
"""
    folder = os.path.dirname(os.path.dirname(pieces.__file__))
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.0\n", "")
