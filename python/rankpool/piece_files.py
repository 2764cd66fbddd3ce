"""Files over the pieces of the sample in hand: what h5py, zarr and NumPy read from when samples are
made of pieces."""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from bisect import bisect_right
from contextlib import contextmanager
from typing import Dict, Iterator, List, Optional, Tuple

from .index import Index, Ranges

_lock = threading.RLock()  # one sample at a time is in hand: libraries read in threads of their own
_hand: Dict[bytes, Ranges] = {}  # by path: those of the sample in hand
_indexes: Dict[bytes, Index] = {}  # data sets that the cache serves, by root, also without links
_reads: Optional[List[Tuple[bytes, int, int]]] = None  # see recorded
unplanned_bytes = 0  # that this process read from storage through such files


def serve(index: Index) -> None:
    """Makes files below the root of a data set be read from the pieces of its samples."""
    for root in (os.path.realpath(index.root), index.root):
        _indexes[os.path.join(root, b"")] = index


def _find(path: bytes) -> Optional[Tuple[Index, bytes]]:
    """Returns the index of a file, and its relative path there; None: it is in none."""
    for known in (path, os.path.realpath(path)) if _indexes else ():
        root = max(filter(known.startswith, _indexes), key=len, default=None)
        if root is not None:
            return _indexes[root], known[len(root) :]
    return None


@contextmanager
def in_hand(index: Index, of: List[int], rows: Dict[int, memoryview]) -> Iterator[None]:
    """Within this context files have the bytes of a sample of these pieces, of all in `rows`."""
    global _hand
    with _lock:
        before, hand = _hand, {}
        for row in sorted(set(of), key=index.offset):
            ranges = hand.setdefault(index.path(row), Ranges())
            ranges.add(index.offset(row), rows[row])
            ranges.whole = index.is_file(row)
        _hand = hand
        try:
            yield
        finally:
            _hand = before


@contextmanager
def recorded() -> Iterator[List[Tuple[bytes, int, int]]]:
    """Within this context reads are put down in the list: path, offset and end of each."""
    global _reads
    with _lock:
        before, _reads = _reads, []
        try:
            yield _reads
        finally:
            _reads = before


def _size(path: bytes) -> int:
    """Returns the size of a file, which storage need not tell of one that is a piece."""
    hand = _hand.get(path)
    return len(hand.views[0]) if hand is not None and hand.whole else os.stat(path).st_size


class SampleFile(io.RawIOBase):
    """A file of a data set, read-only. What belongs to the sample in hand comes from memory, what
    libraries need to decode it from the manifest, and all else from storage, which is counted."""

    def __init__(self, path) -> None:
        self._path, self._head = os.path.abspath(os.fsencode(path)), None
        served = _find(self._path)
        if served is not None:
            index, relative = served
            self._path = os.path.join(index.root, relative)
            self._head = index.pieces.heads.get(relative)
        self.name = os.fsdecode(self._path)
        self._at = 0
        self.last = 0, 0  # where the last read began and ended
        self._file: Optional[io.FileIO] = None
        self._size = _size(self._path) if self._head is None else self._head.size

    def readable(self) -> bool:
        return True

    seekable = readable

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + (0, self._at, self._size)[whence]
        if at < 0:
            raise ValueError(f"rankpool: seek to byte {at} of {self.name}")
        self._at = at
        return at

    def readinto(self, buffer) -> int:
        got = self.fill(self._at, buffer)
        self._at += got
        return got

    def fill(self, begin: int, buffer) -> int:
        """Reads as many bytes from `begin` on as the buffer has, or the file; returns how many."""
        into, at = memoryview(buffer).cast("B"), begin
        end = min(at + len(into), self._size)
        while at < end:
            at += self._some(at, into[at - begin : end - begin])
        self.last = begin, at
        if _reads is not None and at > begin:
            _reads.append((self._path, begin, at))
        return at - begin

    def view(self, at: int, size: int) -> memoryview:
        """Returns a range of the file: in place, if one piece of the sample in hand has it."""
        found, _ = self._in_memory(at, size)
        if found is None or len(found) < size or _reads is not None:
            found = memoryview(bytearray(size))
            found = found[: self.fill(at, found)]
        return found

    def _some(self, at: int, into: memoryview) -> int:
        """Reads some bytes from `at` on; returns how many."""
        found, gap = self._in_memory(at, len(into))
        if found is None:
            return self._storage(at, into[:gap])
        into[: len(found)] = found
        return len(found)

    def _in_memory(self, at: int, size: int) -> Tuple[Optional[memoryview], int]:
        """Returns as many of some bytes as are in memory in one place; if the first is not, how
        many are not."""
        for ranges in (_hand.get(self._path), self._head and self._head.ranges):
            if not ranges:
                continue
            place = bisect_right(ranges.offsets, at)
            offset, view = ranges.offsets[place - 1], ranges.views[place - 1]
            if place and at < offset + len(view):
                return view[at - offset : at - offset + size], 0
            if place < len(ranges.offsets):
                size = min(size, ranges.offsets[place] - at)
        return None, size

    def _storage(self, at: int, into: memoryview) -> int:
        if self._file is None:
            self._file = io.FileIO(self._path)
        got = os.preadv(self._file.fileno(), [into], at)
        if not got:  # h5py would take a short read for zeros
            raise OSError(f"rankpool: {self.name} ends at byte {at}: it was changed after indexing")
        global unplanned_bytes
        unplanned_bytes += got
        return got

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def open(path) -> SampleFile:
    """Returns a file of a data set that the cache serves, for h5py, zarr, NumPy or tarfile."""
    return SampleFile(path)


@atexit.register
def _close_hdf5() -> None:
    """Closes what h5py reads from files of Python's, which it would look at when the interpreter is
    gone."""
    h5py = sys.modules.get("h5py")
    for file in map(h5py.File, h5py.h5f.get_obj_ids(types=h5py.h5f.OBJ_FILE)) if h5py else ():
        if file.driver == "fileobj":
            file.close()
