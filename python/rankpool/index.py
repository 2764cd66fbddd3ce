"""The sample index: where each sample lies on storage, mapped read-only (docs/wire/README.md)."""

from __future__ import annotations

import mmap
import os
from struct import unpack_from

from .errors import RankpoolError, SampleError

_HEADER_BYTES = 64
_HAS_OFFSETS = 1


class Index:
    """The columns of a sample index file; they may be read from any thread.

    `sizes` (bytes), `mtimes` (ns) and `labels` have one element a sample, the sample's id its place.
    Raises RankpoolError when the file is not an index, OSError when it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _HEADER_BYTES:
                raise RankpoolError(f"rankpool: {path} is not a sample index: it has {size} bytes")
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        magic, n, flags, folders, folders_at, names_at, names_bytes, root_at, root_bytes = unpack_from(
            "<8sQIIQQQQQ", self._bytes
        )
        if magic != b"rpindex1":
            raise RankpoolError(f"rankpool: {path} is not a sample index: it begins with {magic!r}")
        at = _HEADER_BYTES

        def column(code: str, width: int) -> memoryview:
            nonlocal at
            cells = self._bytes[at : at + width * n].cast(code)
            at += (width * n + 7) // 8 * 8
            return cells

        self.sizes = column("Q", 8)
        self.mtimes = column("q", 8)
        self.labels = column("I", 4)
        self._folder = column("I", 4)
        self._ends = column("I", 4)
        self._offsets = column("Q", 8) if flags & _HAS_OFFSETS else None
        self._names = self._bytes[names_at : names_at + names_bytes]
        self._root = bytes(self._bytes[root_at : root_at + root_bytes])
        self._folders = self._read_folders(folders_at, folders)

    def _read_folders(self, at: int, count: int) -> list:
        found = []
        for _ in range(count):
            (length,) = unpack_from("<I", self._bytes, at)
            found.append(bytes(self._bytes[at + 4 : at + 4 + length]))
            at += 4 + length
        return found

    def __len__(self) -> int:
        return len(self.sizes)

    def path(self, id: int) -> bytes:
        """Returns the path of the file that sample id lies in, as the file system has it."""
        name = bytes(self._names[self._ends[id - 1] if id else 0 : self._ends[id]])
        return os.path.join(self._root, self._folders[self._folder[id]], name)

    def offset(self, id: int) -> int:
        """Returns where in its file sample id begins, in bytes."""
        return self._offsets[id] if self._offsets is not None else 0

    def read(self, id: int) -> bytes:
        """Reads sample id from storage; raises SampleError unless it is there as it was indexed."""
        path = self.path(id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._check(id, os.fstat(fd))
                return self._read_all(id, fd)
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise SampleError(id, os.fsdecode(path), reason) from None

    def _check(self, id: int, stat: os.stat_result) -> None:
        if stat.st_mtime_ns != self.mtimes[id]:
            raise ValueError("the file was changed after it was indexed")
        if self._offsets is None and stat.st_size != self.sizes[id]:
            raise ValueError(f"the file has {stat.st_size} bytes, {self.sizes[id]} when it was indexed")

    def _read_all(self, id: int, fd: int) -> bytes:
        at, left = self.offset(id), self.sizes[id]
        parts = []
        while left:
            part = os.pread(fd, left, at)
            if not part:
                raise ValueError(f"the file ends {left} bytes early")
            parts.append(part)
            at, left = at + len(part), left - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
