"""Finds the byte ranges that samples are made of, and prints them as a table, which
`rankpool index --pieces -` reads:

    python -m rankpool.pieces PATH --dataset x,y --rows 3

A sample is a window of rows of HDF5, NetCDF4, Zarr, .npy, .npz, .mrc or raw files, or what a user's
function says (see `write`). A piece is a chunk, or a row of data without chunks: training reads it
whole. The library that knows the format finds the pieces here, and decodes them in training; what
it reads besides, such as HDF5's B-trees, are a file's heads.
"""

from __future__ import annotations

import argparse
import gc
import os
import struct
import sys
import zipfile
from math import prod
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

try:
    import numpy as np
except ImportError:
    sys.exit(
        f"rankpool: {sys.executable} has no NumPy, without which it cannot list what samples are made "
        "of; name another Python with --python"
    )

from .errors import Refused
from .hdf5 import add_hdf5
from .piece_table import Recorder, Table, flat
from .zarr_stores import ALONE, METADATA, add_zarr

FORMATS = {
    ".h5": "hdf5", ".hdf5": "hdf5", ".nc": "hdf5", ".nc4": "hdf5", ".npz": "npz", ".npy": "npy",
    ".mrc": "mrc", ".mrcs": "mrc", ".json": "zarr",
}
MRC_TYPES = {0: "i1", 1: "i2", 2: "f4", 4: "c8", 6: "u2", 12: "f2"}  # by mode


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
        dtype = np.dtype(dtype)
        row = dtype.itemsize * prod(shape[1:])
        rows = (size - at) // row if shape[:1] == [-1] else prod(shape[:1])
        over = size - at - row * rows
        if over < 0:
            raise Refused(f"{path} has {size} bytes, too few for {name} {shape}: is it truncated?")
        if over and format == "npy":
            raise Refused(f"{path} has {over} bytes too many after {name} {shape}")
        layout[name] = at, str(np.lib.format.dtype_to_descr(dtype)), [rows, *shape[1:]]
        columns.append(flat(number, at, rows, row))
    table.add(path, [shape for _, _, shape in layout.values()], columns, layout)


def _npy(file: Recorder) -> Tuple[int, np.dtype, List[int]]:
    version, _ = np.lib.format.read_magic(file)
    read_header = getattr(np.lib.format, f"read_array_header_{min(version, 2)}_0")
    shape, by_column, dtype = read_header(file)
    if version > 2 and not str(dtype).isascii():  # it is in UTF-8, and NumPy's reader is private
        raise ValueError("fields with names that are not in Latin letters are not read here")
    if dtype.hasobject or not shape or by_column and len(shape) > 1:
        raise ValueError(
            "single numbers, arrays of objects, and those in Fortran's order have no rows"
        )
    return file.tell(), dtype, list(shape)


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
    try:
        raw = asked.shape and (asked.header, np.dtype(asked.dtype).str, asked.shape)
    except TypeError as error:
        parser.error(f"--dtype: {error}")
    gc.disable()  # there are many tuples, and none in a cycle
    try:
        index(asked.path, asked.dataset, asked.rows, asked.stride, raw).write(sys.stdout)
    except Refused as error:
        sys.exit(str(error))
    except (OSError, ImportError) as error:
        sys.exit(f"rankpool: {error}")


if __name__ == "__main__":
    main()
