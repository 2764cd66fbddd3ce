"""Decodes windows of rows, with the library that knows the format; where the keys of Zarr stores,
and of kerchunk's references in their form, are in files."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
from collections import OrderedDict
from collections.abc import MutableMapping
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union
from weakref import finalize

import numpy as np

from . import hand
from .errors import RankpoolError

ALONE = "data"  # the name of a variable that has none
METADATA = (".zarray", "zarr.json", ".zgroup", ".zattrs", ".zmetadata")
MAX_OPEN = 128  # files in a process
Located = Union[None, bytes, Tuple[str, int, int]]  # content, or path, offset, size; -1: to the end


class Refused(RankpoolError):
    """A data set that is not read; the text says why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"rankpool: {why}")


def open_plain(path: str) -> Any:
    """Opens a file on storage."""
    return open(path, "rb")


def read(where: Located, opener: Callable = open_plain, part: Any = None) -> Optional[bytes]:
    """Returns the content of a key, None if there is none; `part`: a ByteRequest of zarr."""
    if where is None:
        return None
    path, at, size = ("", 0, len(where)) if isinstance(where, bytes) else where
    try:
        with io.BytesIO(where) if isinstance(where, bytes) else opener(path) as file:
            size = file.seek(0, os.SEEK_END) - at if size < 0 else size
            first = getattr(part, "start", getattr(part, "offset", 0))
            first = max(0, size - part.suffix) if hasattr(part, "suffix") else min(first, size)
            file.seek(at + first)
            return file.read(max(0, min(size, getattr(part, "end", size)) - first))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


class Folder:
    """The keys of a Zarr store that is a folder."""

    def __init__(self, path: str, opener: Callable = open_plain) -> None:
        self.path = path

    def locate(self, key: str) -> Located:
        return os.path.join(self.path, key), 0, -1

    def keys(self) -> Iterator[str]:
        """Yields the keys of metadata."""
        for folder, folders, files in os.walk(self.path):
            if ".zarray" in files or "c" in folders:
                folders.clear()  # of chunks
            for name in {*METADATA}.intersection(files):
                yield os.path.normpath(os.path.join(os.path.relpath(folder, self.path), name))

    def needed(self, names: List[str]) -> Iterator[str]:
        """Yields the paths that may be needed to decode these arrays."""
        folders = {"/".join(n.split("/")[:end]) for n in names for end in range(n.count("/") + 2)}
        return (os.path.join(self.path, one, file) for one in sorted(folders) for file in METADATA)


class References:
    """The keys of kerchunk's references, which are a JSON file or a folder of Parquet files."""

    def __init__(self, path: str, opener: Callable = open_plain) -> None:
        self.path, self._open = path, opener
        self._parquet = not path.endswith(".json")
        first = os.path.join(path, ".zmetadata") if self._parquet else path
        document = json.loads(read((first, 0, -1), opener) or "{}")
        self._refs = document.get("metadata" if self._parquet else "refs", document)
        self._rows, self._templates = document.get("record_size"), document.get("templates", {})
        self._part = lru_cache(maxsize=16)(self._read_part)
        if "gen" in document:
            raise Refused(f"{path} generates references: write them out one by one")

    def locate(self, key: str) -> Located:
        found = self._refs.get(key)
        if found is None and self._parquet:
            found = self._row(*key.rpartition("/")[::2])
        if isinstance(found, dict):
            found = json.dumps(found)
        if isinstance(found, str):
            return base64.b64decode(found[7:]) if found.startswith("base64:") else found.encode()
        if not isinstance(found, list):
            return found
        url = found[0]
        for name, text in self._templates.items():
            url = url.replace("{{%s}}" % name, text)
        path = url[7:] if url.startswith("file://") else url
        if "://" in path or "{{" in path:
            raise Refused(f"{self.path}: {key} is not in a local file, but at {url}")
        path = os.path.normpath(os.path.join(os.path.dirname(self.path), path))
        return (path, *found[1:]) if found[1:] else (path, 0, -1)

    def keys(self) -> Iterable[str]:
        return self._refs

    def needed(self, names: List[str]) -> Iterator[str]:
        """Yields the paths that are needed to decode these arrays."""
        for folder in [self.path, *(os.path.join(self.path, n) for n in names if self._parquet)]:
            there = sorted(os.listdir(folder)) if self._parquet else [""]
            yield from (os.path.join(folder, name).rstrip("/") for name in there)

    def _row(self, name: str, chunk: str) -> Union[None, bytes, list]:
        """Returns what the Parquet files say about a chunk, whose row is its place in the grid."""
        meta, row = self._refs.get(f"{name}/.zarray"), 0
        if meta is None or not chunk[:1].isdigit():
            return None
        for place, size, length in zip(chunk.split("."), meta["shape"], meta["chunks"]):
            row = row * -(-size // length) + int(place)
        part = self._part(f"{name}/refs.{row // self._rows}.parq")
        path, at, size, raw = (column and column[row % self._rows] for column in part)
        return [path, at, size][: 3 if size else 1] if path and raw is None else raw

    def _read_part(self, name: str) -> List[Optional[list]]:
        from pyarrow import parquet

        with self._open(os.path.join(self.path, name)) as file:
            columns = parquet.read_table(file).to_pydict()
        return [columns.get(name) for name in ("path", "offset", "size", "raw")]


def keys_of(path: str, opener: Callable = open_plain) -> Union[Folder, References]:
    """Returns what knows the keys of a store: a folder with no array or group has references."""
    own = (os.path.join(path, name) for name in METADATA[:3])
    return (Folder if any(map(os.path.exists, own)) else References)(path, opener)


def zarr_store(path: str, opener: Callable = hand.open) -> Any:
    """Returns a read-only store for the zarr that is installed, 2 or 3, which lists metadata only.

    Its reads end before they return, and it keeps no file open, so that it goes on after a fork.
    """
    import zarr

    keys = keys_of(path, opener)
    return (_store_of_2 if zarr.__version__ < "3" else _store_of_3)(path, keys, opener)


def _store_of_2(path: str, keys: Any, opener: Callable) -> Any:
    class Store(MutableMapping):
        def __reduce__(self):
            return zarr_store, (path, opener)

        def __getitem__(self, key: str) -> bytes:
            found = read(keys.locate(key), opener)
            if found is None:
                raise KeyError(key)
            return found

        def __iter__(self) -> Iterator[str]:
            return iter(keys.keys())

        def __len__(self) -> int:
            return sum(1 for _ in self)

        def __setitem__(self, key: str, value: Any = None) -> None:
            raise PermissionError("rankpool: the store is read-only")

        __delitem__ = __setitem__

    return Store()


def _store_of_3(path: str, keys: Any, opener: Callable) -> Any:
    from zarr.abc import store

    class Store(store.Store):
        supports_writes = supports_deletes = supports_partial_writes = False
        supports_listing = True

        def __init__(self) -> None:
            super().__init__(read_only=True)

        def __reduce__(self):
            return zarr_store, (path, opener)

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, store.Store) and self.__reduce__() == other.__reduce__()

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            found = read(keys.locate(key), opener, byte_range)
            return None if found is None else prototype.buffer.from_bytes(found)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list:
            return [await self.get(key, prototype, part) for key, part in key_ranges]

        async def exists(self, key: str) -> bool:
            return read(keys.locate(key), opener) is not None

        async def set(self, key: str, value: Any = None) -> None:
            raise PermissionError("rankpool: the store is read-only")

        delete = set_partial_values = set

        def list(self) -> Any:
            return self.list_prefix("")

        async def list_prefix(self, prefix: str) -> Any:
            for key in keys.keys():
                if key.startswith(prefix):
                    yield key

        async def list_dir(self, prefix: str) -> Any:
            under = prefix.rstrip("/") + "/" if prefix else ""
            for name in {k[len(under) :].split("/")[0] for k in keys.keys() if k.startswith(under)}:
                yield name

    return Store()


class Decoder:
    """Decodes the windows of rows that a note describes (see pieces.py), as the libraries read
    files themselves, or with `opener` from the files that it returns. Each process opens its own
    files; they are closed before the interpreter is gone."""

    def __init__(self, note: dict, opener: Optional[Callable] = None) -> None:
        self.note, self._opener = note, opener
        self._open: OrderedDict = OrderedDict()  # by number, the one used last at the end
        self._pid = os.getpid()
        finalize(self, _close, self._open)

    def __reduce__(self):
        return Decoder, (self.note, self._opener)

    def window(self, number: int, place: int) -> Dict[str, np.ndarray]:
        """Returns the window at a place in a file, by variable."""
        if self._pid != os.getpid():  # forked
            self._open.clear()
            self._pid = os.getpid()
        if number not in self._open:
            if len(self._open) >= MAX_OPEN:
                self._open.popitem(last=False)  # closed once no thread uses it
            name, _, layout = self.note["files"][number]
            path = os.path.join(self.note["root"], name)
            self._open[number] = self._variables(path, self.note["layouts"][layout])
        self._open.move_to_end(number)
        first = place * self.note["stride"]
        rows = slice(first, first + self.note["rows"])
        return {name: one[rows] for name, one in self._open[number][1].items()}

    def _variables(self, path: str, layout: Optional[dict]) -> Tuple[Any, Dict[str, Any]]:
        """Opens a file; returns what is to be closed, and its variables."""
        if layout is not None:
            file = (self._opener or open_plain)(path)
            lock = threading.Lock()
            return file, {name: _Rows(file, lock, *one) for name, one in layout.items()}
        if self.note["format"] == "hdf5":
            file = root = _open_hdf5(path, self._opener)
        else:
            import zarr

            file, store = ExitStack(), zarr_store(path, self._opener or open_plain)
            root = zarr.open(store, mode="r")
        names = self.note["variables"]
        return file, {name: root if hasattr(root, "shape") else root[name] for name in names}


def _close(files: OrderedDict) -> None:
    for file, _ in files.values():
        file.close()
    files.clear()


def _open_hdf5(path: str, opener: Optional[Callable]) -> Any:
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


class _Rows:
    """A variable whose rows are one after another in a file."""

    def __init__(
        self, file: Any, lock: threading.Lock, at: int, dtype: str, shape: Sequence[int]
    ) -> None:
        self._file, self._lock, self._at = file, lock, at
        self._dtype, self._shape = np.dtype(dtype), shape[1:]

    def __getitem__(self, rows: slice) -> np.ndarray:
        found = np.empty((rows.stop - rows.start, *self._shape), self._dtype)
        row = found.nbytes // len(found)
        with self._lock:
            self._file.seek(self._at + rows.start * row)
            got = self._file.readinto(memoryview(found.reshape(-1).view(np.uint8)))
        if got != found.nbytes:
            raise OSError(f"rankpool: {self._file.name} has become shorter")
        return found
