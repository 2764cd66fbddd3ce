"""Decodes windows of rows, with the library that knows the format."""

from __future__ import annotations

import os
from ast import literal_eval
from functools import lru_cache, partial
from typing import Any, Callable, Dict, Optional, Sequence, Tuple
from weakref import finalize

import numpy as np

from . import piece_files
from .hdf5 import open_hdf5, variable
from .zarr_stores import zarr_store

MAX_OPEN = 128  # files in a process


class Decoder:
    """Decodes the windows of rows that a note describes (see pieces.py), as the libraries read
    files themselves, or with `opener` from the files that it returns. Each process opens its own
    files; they are closed before the interpreter is gone."""

    def __init__(self, note: dict, opener: Optional[Callable] = None) -> None:
        self.note, self._opener = note, opener
        # by number; one that is dropped is closed once no thread uses it
        self._file = lru_cache(MAX_OPEN)(partial(_open, note, opener))
        self._pid = os.getpid()
        finalize(self, self._file.cache_clear)

    def __reduce__(self):
        return Decoder, (self.note, self._opener)

    def window(self, number: int, place: int) -> Dict[str, np.ndarray]:
        """Returns the window at a place in a file, by variable."""
        if self._pid != os.getpid():  # forked
            self._file.cache_clear()
            self._pid = os.getpid()
        first = place * self.note["stride"]
        rows = slice(first, first + self.note["rows"])
        return {name: one[rows] for name, one in self._file(number)[1].items()}


def _open(note: dict, opener: Optional[Callable], number: int) -> Tuple[Any, Dict[str, Any]]:
    """Opens a file; returns what must stay open, and its variables."""
    name, _, place = note["files"][number]
    path, layout = os.path.join(note["root"], name), note["layouts"][place]
    if layout is not None:
        file = (opener or piece_files.open)(path)
        return file, {name: _Rows(file, *one) for name, one in layout.items()}
    if note["format"] == "hdf5":
        source = opener and opener(path)
        file = open_hdf5(path, source)
        found = {name: file[name] for name in note["variables"]}
        return file, {n: variable(one, source) if source else one for n, one in found.items()}
    import zarr

    root = zarr.open(zarr_store(path, opener or piece_files.open), mode="r")
    return None, {
        name: root if hasattr(root, "shape") else root[name] for name in note["variables"]
    }


class _Rows:
    """A variable whose rows are one after another in a file."""

    def __init__(self, file: Any, at: int, dtype: str, shape: Sequence[int]) -> None:
        fields = literal_eval(dtype) if dtype.startswith("[") else dtype
        self._dtype = np.lib.format.descr_to_dtype(fields)
        self._file, self._at, self._shape = file, at, shape[1:]

    def __getitem__(self, rows: slice) -> np.ndarray:
        found = np.empty((rows.stop - rows.start, *self._shape), self._dtype)
        at = self._at + rows.start * (found.nbytes // len(found))
        if self._file.fill(at, found.reshape(-1).view(np.uint8)) != found.nbytes:
            raise OSError(f"rankpool: {self._file.name} has become shorter")
        return found
