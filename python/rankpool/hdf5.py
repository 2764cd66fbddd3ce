"""Files of HDF5 and NetCDF4: where h5py finds the chunks and rows of their data sets, and what it
needs besides; how it reads them from the cache."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from .errors import Refused
from .messages import say
from .piece_table import SMALL_ROW, Column, Recorder, Table, chunked, flat


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
                table.add(path, [one.shape for one in sets], columns)
                table.file(path, file.heads())
    if len(sources) > 1:
        raise Refused(f"{path}: {', '.join(names)} are not all virtual, with the same sources")
    for source in sources.pop():
        add_hdf5(table, source)


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


def heads_of(path: str) -> List[Tuple[int, int]]:
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


def open_hdf5(path: str, file: Any = None) -> Any:
    """Opens a file of HDF5, as the library does, or over a file object."""
    import h5py

    with suppress(ImportError):
        import hdf5plugin  # noqa: F401  blosc, zstd and others
    if file is None:
        return h5py.File(path, "r")
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_sieve_buf_size(0)  # no read beyond what is asked for
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, file)
    return h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, access))


def variable(data: Any, file: Any) -> Any:
    """Returns what reads rows of a data set in a file object fastest: without filters and
    conversions, chunks and rows are copied from where they are in memory."""
    from h5py import h5t

    chunks = data.chunks or (1, *data.shape[1:])
    size = prod(chunks) * data.dtype.itemsize
    plain = not data.id.get_create_plist().get_nfilters() and (data.chunks or size >= SMALL_ROW)
    same = plain and data.id.get_type() == h5t.py_create(data.dtype)
    return _Chunks(data, file, chunks, size) if same and data.id.get_storage_size() else data


class _Chunks:
    def __init__(self, data: Any, file: Any, chunks: Tuple[int, ...], size: int) -> None:
        self._data, self._file, self._chunks, self._size = data, file, chunks, size
        self._shape, self._dtype, self._offsets = data.shape, data.dtype, {}
        self._read = data.id.read_direct_chunk if data.chunks else lambda place: data[place[0]]
        places = product(*(range(0, *one) for one in zip(data.shape[1:], chunks[1:])))
        # those beside one another
        self._row = [(p, [slice(at, at + n) for at, n in zip(p, chunks[1:])]) for p in places]

    def _offset(self, place: Tuple[int, ...]) -> Optional[int]:
        """Returns where the library reads a chunk; None: nowhere, it may have the fill value."""
        if place not in self._offsets:
            self._file.last = 0, 0
            with suppress(OSError, RuntimeError, ValueError):
                self._read(place)
            at, end = self._file.last
            self._offsets[place] = at if end - at == self._size else None
        return self._offsets[place]

    def __getitem__(self, rows: slice) -> np.ndarray:
        found = np.empty((rows.stop - rows.start, *self._shape[1:]), self._dtype)
        length = self._chunks[0]
        for top in range(rows.start // length * length, rows.stop, length):
            first, end = max(rows.start, top), min(rows.stop, top + length)
            for place, beside in self._row:
                into = found[(slice(first - rows.start, end - rows.start), *beside)]
                at = self._offset((top, *place))
                if at is None:
                    into[...] = self._data[(slice(first, end), *beside)]
                    continue
                chunk = np.ndarray(self._chunks, self._dtype, self._file.view(at, self._size))
                into[...] = chunk[(slice(first - top, end - top), *map(slice, into.shape[1:]))]
        return found
