"""Zarr stores, and kerchunk's references in the form of one: in which files their keys are, which
pieces their arrays have, and how zarr reads them from the cache."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import MutableMapping
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import piece_files
from .errors import Refused
from .piece_table import Column, Table, chunked

ALONE = "data"  # the name of a variable that has none
METADATA = (".zarray", "zarr.json", ".zgroup", ".zattrs", ".zmetadata")
SHARDING, MISSING = "sharding_indexed", (1 << 64) - 1  # in a shard's index
Located = Union[None, bytes, Tuple[str, int, int]]  # content, or path, offset, size; -1: to the end


def read(where: Located, opener: Callable = piece_files.open, part: Any = None) -> Any:
    """Returns the content of a key, in place if it is in memory, None if there is none; `part`: a
    ByteRequest of zarr."""
    if where is None:
        return None
    path, at, size = ("", 0, len(where)) if isinstance(where, bytes) else where
    try:
        with io.BytesIO() if isinstance(where, bytes) else opener(path) as file:
            size = file.seek(0, os.SEEK_END) - at if size < 0 else size
            first = getattr(part, "start", getattr(part, "offset", 0))
            first = max(0, size - part.suffix) if hasattr(part, "suffix") else min(first, size)
            end = max(first, min(size, getattr(part, "end", size)))
            return where[first:end] if path == "" else file.view(at + first, end - first)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _document(where: Located, opener: Callable = piece_files.open) -> dict:
    return json.loads(bytes(read(where, opener) or b"{}"))


class Folder:
    """The keys of a Zarr store that is a folder."""

    def __init__(self, path: str, opener: Callable = piece_files.open) -> None:
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

    def __init__(self, path: str, opener: Callable = piece_files.open) -> None:
        self.path, self._open = path, opener
        self._parquet = not path.endswith(".json")
        first = os.path.join(path, ".zmetadata") if self._parquet else path
        document = _document((first, 0, -1), opener)
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


def keys_of(path: str, opener: Callable = piece_files.open) -> Union[Folder, References]:
    """Returns what knows the keys of a store: a folder with no array or group has references."""
    own = (os.path.join(path, name) for name in METADATA[:3])
    return (Folder if any(map(os.path.exists, own)) else References)(path, opener)


def zarr_store(path: str, opener: Callable = piece_files.open) -> Any:
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
    return _document(keys.locate(prefix + ".zarray")) or _document(
        keys.locate(prefix + "zarr.json")
    )


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
