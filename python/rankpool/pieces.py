"""Finds the byte ranges that samples are made of, and prints them as a table, which
`rankpool index --pieces -` reads:

    python -m rankpool.pieces PATH --dataset x,y --rows 3

A sample is a window of rows of HDF5, NetCDF4, Zarr, .npy, .npz, .mrc or raw files, or what a user's
function says (see `write`). A piece is a chunk, or a row of data without chunks: training reads it
whole. The library that knows the format finds the pieces here, and decodes them in training; what
it reads besides, such as HDF5's B-trees, are a file's heads.

The table's lines have fields between tabs: N, a note in JSON; F, a file's path, size and time; H,
the offset and size of one of its heads; P, the offset and size of a piece, and how many of that
size follow one another; W, regular windows of pieces as samples (first, pieces, step, windows); S,
a sample of any windows (first and pieces of each). F may come back to an earlier file.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import struct
import sys
import time
import zipfile
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence
from typing import Tuple

import numpy as np

from .decoding import ALONE, METADATA, Folder, Refused, keys_of, read
from .messages import say

FORMATS = {
    ".h5": "hdf5", ".hdf5": "hdf5", ".nc": "hdf5", ".nc4": "hdf5", ".npz": "npz", ".npy": "npy",
    ".mrc": "mrc", ".mrcs": "mrc", ".json": "zarr",
}
MRC_TYPES = {0: "i1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 12: "f2"}  # by mode
SMALL_ROW, PIECE = 4 << 10, 16 << 10  # smaller rows share a piece of about so many bytes
GAP = 512  # heads that are closer are one
SHARDING, MISSING = "sharding_indexed", (1 << 64) - 1  # in a shard's index

Read = Tuple[str, int, int]  # path, offset and end of a range of a file


class Recorder(io.FileIO):
    """A file that remembers what was read. While `probing`, what was not read before is not read
    now either, but only put down in `probed`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._ends: Dict[int, int] = {}  # by offset
        self.probing, self.probed = False, (0, 0)

    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # by readinto

    def readinto(self, buffer) -> int:
        at, size = self.tell(), len(buffer)
        if self.probing and at not in self._ends:
            self.probed = at, size
            return size
        got = super().readinto(buffer)
        self._ends[at] = max(self._ends.get(at, 0), at + got)
        return got

    def heads(self) -> List[Tuple[int, int]]:
        """Returns the offset and size of each range that was read."""
        reads = [(self.name, at, end) for at, end in self._ends.items() if at < end]
        return [(at, end - at) for _, at, end in joined(reads, GAP)]


def joined(reads: Iterable[Read], gap: int = 1) -> List[Read]:
    """Returns ranges of files in order, as one those with less than a gap between them."""
    found: List[Read] = []
    for path, at, end in sorted(reads):
        if found and found[-1][0] == path and at - found[-1][2] < gap:
            found[-1] = path, found[-1][1], max(found[-1][2], end)
        else:
            found.append((path, at, end))
    return found


class Column(NamedTuple):
    """The pieces of a variable in one file, in the order of its rows: `starts` has the first of
    each `block` rows, and last their number; `pieces` has rows of file number, offset and size."""

    block: int
    starts: np.ndarray
    pieces: np.ndarray


class Table:
    """The table under construction, to which files are added one after another. `rows` at distance
    `stride` make a sample. Unless `deep`, only the note is wanted, not the pieces."""

    def __init__(
        self, root: str, names: Optional[List[str]] = None, rows: int = 1, stride: int = 1,
        deep: bool = True,
    ) -> None:
        self.root, self.names, self.rows, self.stride, self.deep = root, names, rows, stride, deep
        self.note: Dict[str, Any] = {"files": [], "layouts": []}
        self._files: Dict[str, Tuple[int, int, int]] = {}  # number, size, time
        self._heads: Dict[str, Sequence[Tuple[int, int]]] = {}
        self._count, self._pieces = 0, [np.empty((0, 3), np.int64)]
        self._lines: List[str] = []
        self._samples, self._read = 0, 0  # of all samples: the bytes of their pieces
        self._largest = (0, 1)  # bytes of the largest variable, and its rows a chunk

    def file(self, path: str, heads: Optional[Sequence[Tuple[int, int]]] = None) -> Tuple[int, int]:
        """Returns a file's number and size; raises FileNotFoundError."""
        if path not in self._files:
            stat = os.stat(path)
            if not path.isprintable():  # tabs, line ends, and bytes that are not UTF-8
                raise Refused(f"{path!r}: rename it, its characters cannot be in a table")
            self._files[path] = len(self._files), stat.st_size, stat.st_mtime_ns
        if heads is not None:
            self._heads[path] = heads
        return self._files[path][:2]

    def choose(
        self, path: str, has: Callable[[str], bool], there: Callable[[], Iterable[str]]
    ) -> List[str]:
        """Returns the names of the variables: without a choice, the only one that is there."""
        names = sorted(there()) if self.names is None else self.names
        if self.names is None and len(names) != 1:
            raise Refused(f"{path}: choose with --dataset among {', '.join(names) or 'nothing'}")
        for name in names:
            if not has(name):
                raise Refused(f"{path} has no {name!r}; it has {', '.join(sorted(there()))}")
        self.names = names
        return names

    def add(
        self, path: str, shapes: List[Sequence[int]], columns: List[Column], layout: Any = None
    ) -> None:
        """Adds the samples of a file or store, whose variables have these shapes and pieces."""
        if not all(map(len, shapes)) or len({shape[0] for shape in shapes}) != 1:
            sizes = ", ".join(f"{name} {list(one)}" for name, one in zip(self.names, shapes))
            raise Refused(f"{path}: the variables need equally many rows: {sizes}")
        samples = max(0, (shapes[0][0] - self.rows) // self.stride + 1)
        if layout not in self.note["layouts"][-1:]:
            self.note["layouts"].append(layout)
        self.note["files"].append([path, samples, len(self.note["layouts"]) - 1])
        self._samples += samples
        if self.deep:
            self._add_windows(np.arange(samples) * self.stride, columns)

    def _add_windows(self, at: np.ndarray, columns: List[Column]) -> None:
        groups: Dict[int, List[Column]] = {}
        for column in columns:
            groups.setdefault(column.block, []).append(column)
        windows = []
        for block, group in groups.items():
            # numbered block by block, so that a window of several variables is one of pieces
            blocks = [np.repeat(np.arange(len(c.starts) - 1), np.diff(c.starts)) for c in group]
            order = np.argsort(np.concatenate(blocks), kind="stable")
            pieces = np.concatenate([column.pieces for column in group])[order]
            starts = np.sum([column.starts for column in group], axis=0)
            first, last = starts[at // block], starts[(at + self.rows - 1) // block + 1]
            ends = np.concatenate(([0], np.cumsum(pieces[:, 2])))
            self._read += int(np.sum(ends[last] - ends[first]))
            self._largest = max(self._largest, (int(ends[-1]), block))
            first, count = first + self._count, last - first
            windows.append(zip(first.tolist(), count.tolist()))
            self._count += len(pieces)
            self._pieces.append(pieces)
        counts, steps = np.unique(count).tolist(), np.unique(np.diff(first)).tolist()
        if len(groups) == len(counts) == 1 and counts != [0] and len(steps) < 2:
            self._lines.append(f"W\t{first[0]}\t{counts[0]}\t{sum(steps)}\t{len(at)}")
        else:
            self._lines += map(_list, zip(*windows))

    def add_listed(self, samples: Iterable[Iterable[Tuple[int, int, int]]]) -> None:
        """Adds samples of any pieces, each of file number, offset and size."""
        numbers: Dict[Tuple[int, int, int], int] = {}
        for sample in samples:
            windows: List[List[int]] = []
            for piece in sample:
                number = numbers.setdefault(piece, len(numbers))
                if windows and number == sum(windows[-1]):
                    windows[-1][1] += 1
                else:
                    windows.append([number, 1])
                self._read += piece[2]
            self._lines.append(_list(windows))
        self._samples, self._count = len(self._lines), len(numbers)
        self._pieces.append(np.array(list(numbers), np.int64).reshape(-1, 3))

    def finish(self) -> Dict[str, Any]:
        """Returns the note, once all files were added."""
        if not self._samples:
            raise Refused(f"no sample: no file has {self.rows} rows")
        self.root = os.path.commonpath([self.root, *map(os.path.dirname, self._files)])
        files = [[os.path.relpath(one[0], self.root), *one[1:]] for one in self.note["files"]]
        return {
            **self.note, "root": self.root, "variables": self.names, "rows": self.rows,
            "stride": self.stride, "files": files,
        }

    def write(self, out) -> None:
        """Writes the table, and says what matters on stderr."""
        out.write(f"rankpool pieces 1\nN\t{json.dumps(self.finish())}\n")
        pieces = np.concatenate(self._pieces)
        out.writelines(self._piece_lines(pieces))
        out.writelines(line + "\n" for line in self._lines)
        size, block = max(1, int(pieces[:, 2].sum())), self._largest[1]
        say(
            f"{self._samples} samples of {self._count} pieces, {block} rows a piece, "
            f"{self._read / self._samples / 1e6:.3g} MB a sample; an epoch without a cache reads "
            f"{self._read / size:.2f} data sets"
        )
        if block >= 4 * self.rows and self._read >= 4 * size:
            say(
                f"{block // self.rows} samples share a piece: smaller chunks (h5repack, rechunker) "
                'or the sampler "chunks" would read less'
            )

    def _piece_lines(self, pieces: np.ndarray) -> Iterator[str]:
        named = [
            f"F\t{os.path.relpath(path, self.root)}\t{size}\t{time}\n"
            for path, (_, size, time) in self._files.items()
        ]
        for path, heads in self._heads.items():
            yield named[self._files[path][0]]
            yield from (f"H\t{at}\t{size}\n" for at, size in heads)
        file, at, size = pieces.T
        after = (file[1:] == file[:-1]) & (size[1:] == size[:-1]) & (at[1:] == at[:-1] + size[:-1])
        first = np.flatnonzero(np.append([True] * min(1, len(file)), ~after))
        counts = np.diff(np.append(first, len(file)))
        current = -1
        for (number, at, size), count in zip(pieces[first].tolist(), counts.tolist()):
            if number != current:
                yield named[number]
                current = number
            yield f"P\t{at}\t{size}\n" if count == 1 else f"P\t{at}\t{size}\t{count}\n"


def _list(windows: Iterable[Sequence[int]]) -> str:
    return "S" + "".join(f"\t{first}\t{count}" for first, count in windows if count)


def flat(number: int, at: Optional[int], rows: int, row: int) -> Column:
    """Returns the pieces of rows of equal size, one after another; at=None: there are none."""
    block = max(1, min(rows, PIECE // max(1, row))) if row < SMALL_ROW else 1
    first = np.arange(0, rows, block)
    sizes = np.minimum(block, rows - first) * row
    pieces = np.stack([np.full_like(first, number), (at or 0) + first * row, sizes], axis=1)
    if at is None or row == 0:
        return Column(block, np.zeros(len(first) + 1, np.int64), pieces[:0])
    return Column(block, np.arange(len(first) + 1), pieces)


def chunked(shape: Sequence[int], chunks: Sequence[int], places: Any, pieces: Any) -> Column:
    """Returns the pieces of chunks, each with its place in the grid of chunks."""
    places = np.array(places, np.int64).reshape(-1, len(shape))
    order = np.lexsort(places.T[::-1])
    blocks = np.arange(-(-shape[0] // chunks[0]) + 1)
    starts = np.searchsorted(places[order, 0], blocks)  # a shard may have chunks beyond the array
    pieces = np.array(pieces, np.int64).reshape(-1, 3)[order[: starts[-1]]]
    return Column(chunks[0], starts, pieces)


def add_hdf5(table: Table, path: str) -> None:
    """Adds a file of HDF5 or NetCDF4, or those that its virtual data sets are made of."""
    import h5py

    with Recorder(path) as file:
        try:
            plain = h5py.File(path, "r")  # refuses a file that a writer has open
            recorded = h5py.File(file, "r")
        except OSError as error:
            classic = file.read(3) == b"CDF" and "`nccopy -k nc4` makes HDF5 of NetCDF's old format"
            raise Refused(f"{path}: {classic or error}") from None
        with plain, recorded:
            names = table.choose(path, plain.__contains__, lambda: _names_in_hdf5(plain))
            sets = [_find(path, plain, recorded, name) for name in names]
            sources = {tuple(_sources(path, one)) if one.is_virtual else () for one in sets}
            if sources == {()}:
                number, _ = table.file(path)
                columns = [_column(path, file, number, one) for one in sets if table.deep]
                table.add(path, [one.shape for one in sets], columns, _layout(plain, names))
                table.file(path, file.heads())
    if len(sources) > 1:
        raise Refused(f"{path}: {', '.join(names)} are not all virtual, with the same sources")
    for source in sources.pop():
        add_hdf5(table, source)


def _layout(file: Any, names: List[str]) -> Optional[Dict[str, Any]]:
    """Returns where rows are that are numbers one after another, which nothing need decode."""
    layout = {}
    with open(file.filename, "rb") as raw:
        for name in names:
            one, at = file[name], file[name].id.get_offset()
            if at is None or one.dtype.kind not in "iufc":
                return None
            row = one[:1].tobytes()
            if os.pread(raw.fileno(), len(row), at) != row:  # some versions miss a user block
                return None
            layout[name] = at, one.dtype.str, [0, *one.shape[1:]]
    return layout


def _names_in_hdf5(file: Any) -> List[str]:
    found: List[str] = []
    file.visititems(lambda name, one: found.append(name) if getattr(one, "shape", ()) else None)
    return found


def _find(path: str, plain: Any, recorded: Any, name: str) -> Any:
    """Returns a data set, whose header and attributes are recorded."""
    if plain[name].file != plain:
        raise Refused(f"{path}: {name} is a link to another file: index that one")
    found = recorded[name]
    if not getattr(found, "shape", ()):
        raise Refused(f"{path}: {name} has no rows")
    if found.external or found.dtype.hasobject:
        what = "are in other files" if found.external else "have no fixed size"
        raise Refused(f"{path}: the elements of {name} {what}")
    _read_attributes(found)
    return found


def _read_attributes(of: Any) -> None:
    for key in of.attrs:
        with suppress(OSError, TypeError):  # of a type that h5py does not know
            of.attrs[key]


def heads_of_hdf5(path: str) -> List[Tuple[int, int]]:
    """Returns the heads that the data sets of a file need: none if it is not HDF5."""
    try:
        import h5py
    except ImportError:
        return []
    if not h5py.is_hdf5(path):
        return []
    with Recorder(path) as file, h5py.File(file, "r") as root:

        def visit(_: str, one: Any) -> None:
            _read_attributes(one)
            if getattr(one, "chunks", None):
                one.id.get_num_chunks()  # reads the whole index

        visit("/", root)
        root.visititems(visit)
    return file.heads()


def _sources(path: str, virtual: Any) -> List[str]:
    """Returns the files whose rows, one after another, are those of a virtual data set."""
    import h5py

    found, at = [], 0
    parts = [(one.vspace.get_select_bounds()[1][0] + 1, one) for one in virtual.virtual_sources()]
    for end, one in sorted(parts, key=lambda part: part[0]):
        source = os.path.normpath(os.path.join(os.path.dirname(path), one.file_name))
        if not os.path.exists(source):
            raise Refused(f"{path}: a source of {virtual.name} is missing: {source}")
        with h5py.File(source, "r") as file:
            rows = getattr(file.get(virtual.name), "shape", ())
        if one.dset_name.strip("/") != virtual.name[1:] or rows != (end - at, *virtual.shape[1:]):
            raise Refused(
                f"{path}: {virtual.name} is virtual, and not simply the rows of other files, one "
                f"after another: index its sources, such as {source}"
            )
        found.append(source)
        at = end
    return found


def _column(path: str, file: Recorder, number: int, data: Any) -> Column:
    """Returns where a data set of HDF5 is."""
    from h5py import h5d

    id, shape = data.id, data.shape
    if data.chunks is None:
        compact = id.get_create_plist().get_layout() == h5d.COMPACT  # in a head
        row = id.get_type().get_size() * prod(shape[1:])
        return flat(number, None if compact else id.get_offset(), shape[0], row)
    found: List[Any] = []  # place, filters, offset, size
    shift = 0
    if hasattr(id, "chunk_iter"):
        id.chunk_iter(found.append)
        if found:  # some versions do not count a user block
            shift = _probe(file, id, found[0][0])[0] - found[0][2]
    else:  # get_chunk_info takes milliseconds a chunk
        began, count = time.monotonic(), id.get_num_chunks()  # reads the whole index
        for place in product(*map(range, [0] * len(shape), shape, data.chunks)):
            at, size = _probe(file, id, place)
            if size:
                found.append((place, 0, at, size))
        if len(found) != count:
            raise Refused(f"{path}: {data.name} has {count} chunks, and {len(found)} were found")
        took = time.monotonic() - began
        say(f"{path}: {count} chunks in {took:.1f} s (h5py 3.8 or later finds them faster)")
    places = np.array([one[0] for one in found]).reshape(-1, len(shape)) // data.chunks
    pieces = [(number, one[2] + shift, one[3]) for one in found]
    return chunked(shape, data.chunks, places, pieces)


def _probe(file: Recorder, id: Any, place: Sequence[int]) -> Tuple[int, int]:
    """Returns the offset and size of a chunk, as the library would read it; 0, 0: it is missing."""
    file.probing, file.probed = True, (0, 0)
    with suppress(OSError, RuntimeError, ValueError):  # ValueError: there is no chunk at all
        id.read_direct_chunk(place)
    file.probing = False
    return file.probed


def add_zarr(table: Table, path: str) -> None:
    """Adds a Zarr store of version 2 or 3, or kerchunk's references in the form of one."""
    keys = keys_of(path)
    alone = "shape" in _metadata(keys, "")

    def prefix(name: str) -> str:
        return "" if alone else name + "/"

    def there() -> List[str]:
        folders = {os.path.dirname(key) for key in keys.keys() if not alone}
        return [ALONE] if alone else [n for n in folders if _metadata(keys, prefix(n)).get("shape")]

    names = table.choose(path, lambda name: "shape" in _metadata(keys, prefix(name)), there)
    found = [_array(table, keys, name, prefix(name)) for name in names]
    for needed in keys.needed(names):
        if os.path.isfile(needed):
            table.file(needed, [(0, os.path.getsize(needed))])
    table.add(path, [shape for shape, _ in found], [column for _, column in found])


def _metadata(keys: Any, prefix: str) -> dict:
    """Returns the metadata of an array or group."""
    found = read(keys.locate(prefix + ".zarray")) or read(keys.locate(prefix + "zarr.json"))
    return json.loads(found or "{}")


def _array(table: Table, keys: Any, name: str, prefix: str) -> Tuple[List[int], Column]:
    """Returns the shape of an array, and where it is."""
    meta, shards = _metadata(keys, prefix), None
    shape, chunks = meta["shape"], meta.get("chunks")
    separator = meta.get("dimension_separator", ".")
    if chunks is None:  # version 3
        named, grid, codecs = meta["chunk_key_encoding"], meta["chunk_grid"], meta["codecs"]
        shards = next((c["configuration"] for c in codecs if c["name"] == SHARDING), None)
        inside = [c["name"] for c in shards["codecs"]] if shards else []
        if grid["name"] != "regular" or shards and len(codecs) > 1 or SHARDING in inside:
            raise Refused(f"{keys.path}: {name} has chunks, or shards, in a form not known here")
        chunks, plain = grid["configuration"]["chunk_shape"], named["name"] == "v2"
        separator = named.get("configuration", {}).get("separator", "." if plain else "/")
        prefix += "" if plain else "c" + separator
    places: List[Sequence[int]] = []
    pieces: List[Tuple[int, int, int]] = []
    grid = [range(-(-size // chunk)) for size, chunk in zip(shape, chunks)]
    for place in product(*grid) if table.deep else ():
        where = keys.locate(prefix + separator.join(map(str, place)))
        if where is None or isinstance(where, bytes):
            continue
        path, at, size = where
        try:
            number, whole = table.file(path)
        except (FileNotFoundError, NotADirectoryError):
            if isinstance(keys, Folder):  # it has the fill value
                continue
            raise Refused(f"{keys.path}: {path} is missing") from None
        if shards is None:
            places.append(place)
            pieces.append((number, at, whole - at if size < 0 else size))
        else:
            ratio = np.floor_divide(chunks, shards["chunk_shape"])
            there, ranges = _read_shard(table, path, ratio, shards)
            places += (there + place * ratio).tolist()
            pieces += [(number, *one) for one in ranges]
    return shape, chunked(shape, shards["chunk_shape"] if shards else chunks, places, pieces)


def _read_shard(table: Table, path: str, grid: np.ndarray, shards: dict) -> Tuple[np.ndarray, list]:
    """Returns the places of the chunks in a shard, and their offsets and sizes."""
    cells = 2 * int(prod(grid))
    size = 8 * cells + 4 * any(codec["name"] == "crc32c" for codec in shards["index_codecs"])
    at = 0 if shards.get("index_location") == "start" else table.file(path)[1] - size
    index = np.frombuffer(read((path, at, size)), "<u8", cells).reshape(*grid, 2)
    table.file(path, [(at, size)])
    there = np.argwhere(index[..., 1] != MISSING)
    return there, index[tuple(there.T)].tolist()


def add_rows(table: Table, path: str, format: str, raw: Any) -> None:
    """Adds a file of rows one after another: .npy, .npz, .mrc or raw."""
    layout, columns = {}, []
    with Recorder(path) as file:
        try:
            archive = zipfile.ZipFile(file) if format == "npz" else None
            there = [name[:-4] for name in archive.namelist()] if archive else [ALONE]
            for name in table.choose(path, there.__contains__, lambda: there):
                member = archive and archive.getinfo(name + ".npy")
                if member and member.compress_type != zipfile.ZIP_STORED:
                    raise Refused(f"{path}: {name} is compressed: write it with np.savez")
                if member:
                    archive.open(member).close()  # reads up to its content
                layout[name] = raw or (_mrc if format == "mrc" else _npy)(file)
        except (ValueError, AttributeError, struct.error, zipfile.BadZipFile) as error:
            raise Refused(f"{path}: {error}") from None
        number, size = table.file(path, file.heads())
    for name, (at, dtype, shape) in layout.items():
        row = np.dtype(dtype).itemsize * prod(shape[1:])
        rows = (size - at) // row if shape[:1] == [-1] else prod(shape[:1])
        if at + row * rows > size:
            raise Refused(f"{path} has {size} bytes, too few for {name} {shape}")
        layout[name] = at, dtype, [rows, *shape[1:]]
        columns.append(flat(number, at, rows, row))
    table.add(path, [shape for _, _, shape in layout.values()], columns, layout)


def _npy(file: Recorder) -> Tuple[int, str, List[int]]:
    version, _ = np.lib.format.read_magic(file)
    # the names of fields, which only version 3 has in UTF-8, do not matter here
    read_header = getattr(np.lib.format, f"read_array_header_{min(version, 2)}_0")
    shape, by_column, dtype = read_header(file)
    if dtype.hasobject or dtype.names or not shape or by_column and len(shape) > 1:
        raise ValueError(
            "single numbers, arrays of objects or fields, and those in Fortran's order have no rows"
        )
    return file.tell(), dtype.str, list(shape)


def _mrc(file: Recorder) -> Tuple[int, str, List[int]]:
    """Reads the header of MRC2014."""
    header = file.read(1024)
    order = ">" if header[212:213] == b"\x11" else "<"
    columns, rows, frames, mode = struct.unpack_from(order + "4i", header)
    if mode not in MRC_TYPES:
        raise ValueError(f"mode {mode} is not known here")
    (extended,) = struct.unpack_from(order + "i", header, 92)
    return 1024 + extended, order + MRC_TYPES[mode], [frames, rows, columns]


def format_of(path: str) -> Optional[str]:
    if os.path.isdir(path):
        return "zarr" if any(os.path.exists(os.path.join(path, n)) for n in METADATA) else None
    return FORMATS.get(os.path.splitext(path)[1].lower())


def files_of(path: str, raw: Any) -> List[Tuple[str, str]]:
    """Returns the path and format of each file and store, in the order of samples."""
    known = (lambda one: None if os.path.isdir(one) else "raw") if raw else format_of
    if known(path) or not os.path.isdir(path):
        return [(path, known(path) or "")]
    found: Dict[str, str] = {}
    for folder, folders, files in os.walk(path):
        here = {os.path.join(folder, n): n for n in folders + files if not n.startswith(".")}
        found.update({one: known(one) for one in here if known(one)})
        folders[:] = [name for one, name in here.items() if one not in found and name in folders]
    return sorted(found.items())


def index(
    path: str, dataset: Optional[Sequence[str]] = None, rows: int = 1, stride: int = 1,
    raw: Optional[Tuple[int, str, List[int]]] = None, deep: bool = True,
) -> Table:
    """Returns the table of a file, a store, or a folder of them; raises Refused.

    `raw` has the offset, type and shape of the rows in files without a format.
    """
    path = os.path.abspath(path)
    files = files_of(path, raw)
    formats = sorted({format for _, format in files})
    if len(formats) != 1 or not formats[0]:
        what = "several formats, " + ", ".join(formats) if formats[1:] else "no known format"
        raise Refused(f"{path}: {what} (known: Zarr, {', '.join(FORMATS)}; others with --shape)")
    folder = path if len(files) > 1 or files[0][0] != path else os.path.dirname(path)
    table = Table(folder, dataset and list(dataset), rows, stride, deep)
    table.note.update(format=formats[0], source=path)
    for one, format in files:
        if format in ("hdf5", "zarr"):
            (add_hdf5 if format == "hdf5" else add_zarr)(table, one)
        else:
            add_rows(table, one, format, raw)
    return table


def write(
    function: Callable[[int], Iterable[Tuple[str, int, int]]], n: int, root: str, out: Any = None,
    heads: Optional[Dict[str, Sequence[Tuple[int, int]]]] = None,
) -> None:
    """Writes the table of n samples, of which function(i) returns the pieces: path in the folder
    root, offset and size of each. `heads` has offsets and sizes of what decoding needs besides, by
    path."""
    table = Table(os.path.abspath(root))
    for path, ranges in (heads or {}).items():
        table.file(os.path.join(table.root, path), ranges)
    table.note.update(format="function", source=table.root)

    def sample(i: int) -> Iterator[Tuple[int, int, int]]:
        found = function(i)
        if found is None:
            raise Refused(f"sample {i}: its pieces are not known: None")
        for path, at, size in found:
            yield table.file(os.path.join(table.root, path))[0], at, size

    table.add_listed(map(sample, range(n)))
    table.write(out or sys.stdout)


def _shape(text: str) -> List[int]:
    return [-1 if size == "N" else int(size) for size in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser("python -m rankpool.pieces", description=__doc__.split(":")[0])
    option = parser.add_argument
    option("path", help="a file or a Zarr store, or a folder of files of one format")
    option("--dataset", help="variables of a sample: NAME,…", type=lambda text: text.split(","))
    option("--rows", help="rows of a sample (default: 1)", type=int, default=1)
    option("--stride", help="rows from a sample to the next (default: 1)", type=int, default=1)
    option("--header", help="bytes before the rows of a file without a format", type=int, default=0)
    option("--shape", help="its shape, such as N,128,128 (N: what there is), or 50,3", type=_shape)
    option("--dtype", help="and type (default: float32)", default="float32")
    asked = parser.parse_args()
    if min(asked.rows, asked.stride) < 1:
        parser.error("--rows and --stride must be at least 1")
    raw = asked.shape and (asked.header, np.dtype(asked.dtype).str, asked.shape)
    gc.disable()  # there are many tuples, and none in a cycle
    try:
        index(asked.path, asked.dataset, asked.rows, asked.stride, raw).write(sys.stdout)
    except Refused as error:
        sys.exit(str(error))
    except (OSError, ImportError) as error:
        sys.exit(f"rankpool: {error}")


if __name__ == "__main__":
    main()
