"""Files of HDF5 and NetCDF4: where h5py finds the chunks and rows of their data sets, and what it
needs besides; how it reads them from the cache."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .errors import Refused
from .messages import say
from .piece_table import Column, Recorder, Table, chunked, flat


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


def open_hdf5(path: str, opener: Optional[Callable]) -> Any:
    import h5py

    with suppress(ImportError):
        import hdf5plugin  # noqa: F401  blosc, zstd and others
    if opener is None:
        return h5py.File(path, "r")
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_sieve_buf_size(0)  # no read beyond what is asked for
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, opener(path))
    return h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, access))
