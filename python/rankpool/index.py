"""The sample index: where each sample is on storage, mapped read-only (docs/wire/README.md)."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from functools import cached_property
from itertools import chain
from struct import calcsize, unpack_from
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from .checksums import find_xxh3, masked_crc32c
from .errors import RankpoolError, SampleError
from .throttle import throttle

_HEADER_BYTES = 128
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # by the bytes of a column's cells
_HAS_OFFSETS, _HAS_CHECKSUMS, _HAS_MEMBERS, _MANY_MEMBERS, _LEFT_OUT, _OTHER = 1, 2, 4, 8, 16, 32
_HAS_PIECES = 64
_FILE, _TFRECORD = 0, 3  # formats
_CRC_BYTES = 4  # after the data of a TFRecord record


class Members(dict):
    """The members of a sample: for each extension, such as "jpg" or "seg.png", a memoryview (or
    bytes) of its bytes."""


class Scaled:
    """A column of integers: row i is base + unit * cells[i]."""

    __slots__ = ("cells", "_base", "_unit")

    def __init__(self, cells: memoryview, base: int, unit: int) -> None:
        self.cells, self._base, self._unit = cells, base, unit

    def __getitem__(self, row: int) -> int:
        return self._base + self._unit * self.cells[row]


class _Cursor:
    """Reads an index file from the byte `at` on."""

    def __init__(self, content: memoryview, at: int) -> None:
        self.content, self.at = content, at

    def unpack(self, format: str) -> tuple:
        found = unpack_from(format, self.content, self.at)
        self.at += calcsize(format)
        return found

    def column(self, code: str, cells: int) -> memoryview:
        width = calcsize(code)
        found = self.content[self.at : self.at + width * cells].cast(code)
        self.at += (width * cells + 7) // 8 * 8
        return found

    def scaled(self, cells: int) -> Scaled:
        base, unit, width = self.unpack("<qQI4x")
        return Scaled(self.column(_CODES[width], cells), base, unit)

    def plain(self, cells: int) -> memoryview:
        return self.scaled(cells).cells

    def text(self) -> memoryview:
        (length,) = self.unpack("<I")
        self.at += length
        return self.content[self.at - length : self.at]

    def texts(self, count: int) -> List[bytes]:
        return [bytes(self.text()) for _ in range(count)]


class Ranges:
    """Ranges of a file, by their offsets; `whole`: it is one range."""

    __slots__ = ("offsets", "views", "whole")

    def __init__(self) -> None:
        self.offsets: List[int] = []
        self.views: List[memoryview] = []
        self.whole = False

    def add(self, offset: int, view: memoryview) -> None:
        self.offsets.append(offset)
        self.views.append(view)


class Head:
    """The bytes of a file that a library needs besides the pieces of a sample: `ranges` has
    them; `size` is the file's, in bytes."""

    def __init__(self, size: int, places: Sequence[int], packed: memoryview) -> None:
        self.size, self._places, self._packed = size, places, packed

    @cached_property
    def ranges(self) -> Ranges:
        whole, at, found = memoryview(zlib.decompress(self._packed)), 0, Ranges()
        for offset, size in zip(self._places[::2], self._places[1::2]):
            found.add(offset, whole[at : at + size])
            at += size
        return found


class Pieces:
    """What the samples of an index are made of: windows of its rows, which are pieces of files.

    `note` is what the program that listed the pieces says of the data; `heads` by relative path.
    """

    def __init__(self, samples: int, note: dict, heads: Dict[bytes, Head], columns) -> None:
        self.samples, self.note, self.heads = samples, note, heads
        self._first, self._count, self._ends = columns

    def of(self, sample: int) -> List[int]:
        """Returns the pieces of a sample, in order."""
        first, last = sample, sample + 1
        if self._ends is not None:
            first, last = self._ends[sample - 1] if sample else 0, self._ends[sample]
        found: List[int] = []
        for at, count in zip(self._first[first:last], self._count[first:last]):
            found.extend(range(at, at + count))
        return found


class Index:
    """The columns of a sample index file; they may be read from any thread.

    `sizes` (bytes), `mtimes` (ns) and `labels` have one element per sample, at the place of its id.
    `pieces`: the samples are made of rows, as it says; None: each is a row, whose number is its id.
    `has_members`: some sample has several members. `whole_files`: each sample is a whole file;
    `has_all_files`: and so is each file and link in the class folders, except, with `other_kinds`,
    some that have the extension of no sample and no image. `identity` is the digest of
    the data set, `times` that of its modification times, both in hexadecimal: two indexes that
    agree in both are of the same unmodified files. Raises RankpoolError if the file is not an
    index, OSError if it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            if file.read(8) != b"rpindex4":
                raise RankpoolError(f"rankpool: {path} is not a sample index of version 4")
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._throttle = throttle(os.path.dirname(path))
        n, flags, folders, folders_at, names_at, names_bytes, root_at, root_bytes = unpack_from(
            "<QIIQQQQQ", self._bytes, 8
        )
        self._classes_at, self._class_count, identity, times = unpack_from(
            "<QQ16s16x16s", self._bytes, 64
        )
        self.identity, self.times = identity.hex(), times.hex()
        self._columns(path, n, flags)
        self._names = self._bytes[names_at : names_at + names_bytes]
        # the folder that paths are relative to
        self.root = bytes(self._bytes[root_at : root_at + root_bytes])
        read = _Cursor(self._bytes, folders_at)
        self._folders = read.texts(folders)
        self._kinds: List[str] = []
        if self._member_ends is not None:
            self._kinds = list(map(os.fsdecode, read.texts(*read.unpack("<I"))))

    def _columns(self, path: str, n: int, flags: int) -> None:
        read = _Cursor(self._bytes, _HEADER_BYTES)
        self.sizes = read.plain(n)
        self.mtimes = read.scaled(n)
        self.labels = read.plain(n)
        self._folder = read.plain(n)
        self._named = None  # by row the number of its name; None: the same
        names = n
        if flags & _HAS_PIECES:
            self._named = read.plain(n)
            (names,) = read.unpack("<Q")
        self._ends = read.column("I", names)
        self._offsets = self._formats = self._sums = None
        if flags & _HAS_OFFSETS:
            self._offsets, self._formats = read.scaled(n), read.column("B", n)
        if flags & _HAS_CHECKSUMS:
            self._sums = read.column("Q", n)
            self._xxh3 = find_xxh3()
            if self._xxh3 is None:
                raise RankpoolError(
                    f"rankpool: {path} has checksums (XXH3) of the samples, and neither the Python "
                    "package xxhash nor libxxhash is there to check them: pip install xxhash"
                )
        self.has_members = bool(flags & _MANY_MEMBERS)
        self.whole_files = self._formats is None or not any(self._formats)
        self.has_all_files = self.whole_files and not flags & _LEFT_OUT
        self.other_kinds = bool(flags & _OTHER)
        self._member_ends = None
        if flags & _HAS_MEMBERS:
            self._member_ends = read.column("I", n)
            count = self._member_ends[n - 1] if n else 0
            self._member_offsets, self._member_sizes = read.scaled(count), read.plain(count)
            self._member_kinds = read.plain(count)
        self.pieces: Optional[Pieces] = None
        if flags & _HAS_PIECES:
            self.pieces = _read_pieces(read)

    def __len__(self) -> int:
        return len(self.sizes) if self.pieces is None else self.pieces.samples

    def rows(self, ids: List[int]) -> List[int]:
        """Returns the rows that samples are made of: for a batch, what the cache serves."""
        if self.pieces is None:
            return ids
        return distinct(getattr(ids, "pieces", None) or map(self.pieces.of, ids))

    @cached_property
    def classes(self) -> List[str]:
        """The names of the classes by label."""
        names = _Cursor(self._bytes, self._classes_at).texts(self._class_count)
        return list(map(os.fsdecode, names))

    def path(self, id: int) -> bytes:
        """Returns the path of the file that contains sample id, as the file system has it."""
        return os.path.join(self.root, self.relative(id))

    def relative(self, id: int) -> bytes:
        """Returns the same path relative to the data set's root."""
        return os.path.join(self._folders[self._folder[id]], self._name(id))

    def label(self, id: int) -> int:
        """Returns the label of sample id, 0 if it is made of pieces."""
        return self.labels[id] if self.pieces is None else 0

    def is_file(self, id: int) -> bool:
        """Returns whether sample id is a whole file."""
        return self._format(id) == _FILE

    def _name(self, id: int) -> bytes:
        if self._named is not None:
            id = self._named[id]
        return bytes(self._names[self._ends[id - 1] if id else 0 : self._ends[id]])

    def offset(self, id: int) -> int:
        """Returns where in its file sample id begins, in bytes."""
        return self._offsets[id] if self._offsets is not None else 0

    def checksum(self, id: int) -> int:
        """Returns the XXH3 hash of the bytes of sample id, 0 when it is not known."""
        return self._sums[id] if self._sums is not None else 0

    def members(self, id: int) -> List[Tuple[str, int, int]]:
        """Returns (extension, offset in the file, size) of each member of sample id, in the order
        of its bytes."""
        if self._member_ends is not None:
            first, last = self._member_ends[id - 1] if id else 0, self._member_ends[id]
            if first < last:
                kinds, offsets = self._member_kinds, self._member_offsets
                return [
                    (self._kinds[kinds[at]], offsets[at], self._member_sizes[at])
                    for at in range(first, last)
                ]
        return [(self._kind_alone(id), self.offset(id), self.sizes[id])]

    def _kind_alone(self, id: int) -> str:
        if self._format(id) == _TFRECORD:
            return "tfrecord"
        return os.fsdecode(os.path.splitext(self._name(id))[1][1:].lower())

    def _format(self, id: int) -> int:
        return _FILE if self._formats is None else self._formats[id]

    def split(self, id: int, view) -> Members:
        """Returns the members of sample id in a view, or bytes, of the sample."""
        found, at = Members(), 0
        for kind, _, size in self.members(id):
            found[kind] = view[at : at + size]
            at += size
        return found

    def read(self, id: int) -> bytes:
        """Reads sample id from storage, once the job's limits allow it; raises SampleError unless
        it is there as it was indexed.

        Checks the modification time, the size of a file, the index's checksum of the bytes if there
        is one, and a TFRecord's own checksum.
        """
        path = self.path(id)
        if self._throttle is not None:
            self._throttle.wait(self.sizes[id])
        try:
            # without O_NONBLOCK a pipe in the file's place would block forever
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                self._check(id, os.fstat(fd))
                parts = [_read_range(fd, at, size) for _, at, size in self.members(id)]
                data = parts[0] if len(parts) == 1 else b"".join(parts)
                self._verify(id, data, fd)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise SampleError(id, os.fsdecode(path), reason) from None
        return data

    def _check(self, id: int, stat: os.stat_result) -> None:
        if (stat.st_mtime_ns - self.mtimes[id]) % (1 << 64):  # the index has its low 64 bits
            raise ValueError("the file was changed after it was indexed")
        if self._format(id) == _FILE and stat.st_size != self.sizes[id]:
            raise ValueError(
                f"the file has {stat.st_size} bytes, {self.sizes[id]} when it was indexed"
            )

    def _verify(self, id: int, data: bytes, fd: int) -> None:
        if self._format(id) == _TFRECORD:
            stored = _read_range(fd, self.offset(id) + len(data), _CRC_BYTES)
            if masked_crc32c(data) != int.from_bytes(stored, "little"):
                raise ValueError("a damaged record: the checksum of its data is wrong")
        checksum = self.checksum(id)
        if checksum and checksum != self._xxh3(data):
            raise ValueError(
                "the file has other bytes than when it was indexed: their checksum is wrong"
            )


def _read_pieces(read: _Cursor) -> Pieces:
    samples, windows, _, has_ends = read.unpack("<4Q")
    columns = (
        read.plain(windows), read.plain(windows), read.column("I", samples) if has_ends else None,
    )
    note, heads = json.loads(bytes(read.text())), {}
    (count,) = read.unpack("<I")
    for _ in range(count):
        path = bytes(read.text())
        size, _, ranges = read.unpack("<QQI")
        heads[path] = Head(size, read.unpack(f"<{2 * ranges}Q"), read.text())
    return Pieces(samples, note, heads, columns)


def distinct(pieces: Iterable[List[int]]) -> List[int]:
    """Returns the rows that several samples are made of, each once."""
    return list(dict.fromkeys(chain.from_iterable(pieces)))


def _read_range(fd: int, at: int, left: int) -> bytes:
    parts = []
    while left:
        part = os.pread(fd, left, at)
        if not part:
            raise ValueError(f"the file ends {left} bytes early")
        parts.append(part)
        at, left = at + len(part), left - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
