"""A rank's memory for samples, which outlives the rank: trainers continue to read it, and return it
to the next rank."""

from __future__ import annotations

import mmap
import os
import socket
import zlib
from struct import unpack_from
from typing import List, NamedTuple, Optional, Tuple

from .errors import OwnerError
from .owner import check_folder, check_peer

NOTE = "slab"  # the file in the rank's folder that names the memory: device, inode, size
BACK_DOOR = "slab.sock"  # the socket there on which a rank receives its predecessor's memory
BACK_DOOR_SECONDS = 1.0
MAGIC = b"rpslab01"
_HEADER_BYTES, _SET_BYTES, _TRAILER_BYTES = 32, 48, 8
_WHOLE = 1 << 63
_PLACE = (1 << 48) - 1
_GRANULE_BYTES = 64


class _Set(NamedTuple):
    """The entries of one data set: one word and one checksum per sample."""

    words: memoryview
    sums: memoryview


class Memory:
    """The memory behind a descriptor, which it owns (docs/wire/README.md, *The memory*)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        stat = os.fstat(fd)
        self._identity = [stat.st_dev, stat.st_ino, stat.st_size]
        self._mapped: Optional[Tuple[memoryview, List[_Set]]] = None

    def same(self, fd: int) -> bool:
        """Returns whether a descriptor is of this memory."""
        stat = os.fstat(fd)
        return [stat.st_dev, stat.st_ino, stat.st_size] == self._identity

    def named(self, folder: str) -> bool:
        """Returns whether a rank's folder names this memory: if not, no rank will take it back."""
        try:
            with open(os.path.join(folder, NOTE), "rb", opener=_not_waiting) as file:
                return [int(word) for word in file.read().split()] == self._identity
        except (OSError, ValueError):
            return False

    def hand_back(self, folder: str) -> None:
        """Sends the memory to a rank that waits for it in its folder, if there is one."""
        path = os.path.join(folder, BACK_DOOR)
        if not os.path.exists(path):
            return
        try:
            check_folder(folder)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.settimeout(BACK_DOOR_SECONDS)
                door.connect(path)
                check_peer(door, path)
                socket.send_fds(door, [MAGIC], [self.fd])
        except (OSError, OwnerError):  # another process was faster
            pass

    def read(self, stream: int, id: int, size: int) -> Optional[bytes]:
        """Returns a copy of a sample's bytes, or None if they are not there.

        A rank may be writing meanwhile: the bytes are valid if they match the checksum of an entry
        that does not change.
        """
        try:
            memory, found = self._mapped or self._map()
        except (OSError, ValueError):  # another thread has released it
            return None
        if not 0 <= stream < len(found) or id >= len(found[stream].words):
            return None
        words, sums = found[stream]
        word, crc = words[id], sums[id]
        at = (word & _PLACE) * _GRANULE_BYTES
        if not word & _WHOLE or at + size > len(memory):
            return None
        content = bytes(memory[at : at + size])
        if zlib.crc32(content) != crc or (words[id] ^ word) & (_WHOLE | _PLACE) or sums[id] != crc:
            return None
        return content

    def _map(self) -> Tuple[memoryview, List[_Set]]:
        whole = memoryview(mmap.mmap(self.fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
        self._mapped = whole, sets(whole)
        return self._mapped

    def close(self) -> None:
        """Releases the memory, except what the process has mapped elsewhere."""
        self._mapped = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _not_waiting(path: str, flags: int) -> int:
    """Opens a file without waiting: somebody may have put a FIFO in its place, whose open waits for
    a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def sets(whole: memoryview) -> List[_Set]:
    """Returns the entries of all data sets in a memory; none if its directory is not valid, as when
    somebody has written to it."""
    (begin,) = unpack_from("<Q", whole, len(whole) - _TRAILER_BYTES)
    end = len(whole) - _TRAILER_BYTES
    if begin > end - _HEADER_BYTES or whole[begin : begin + len(MAGIC)] != MAGIC:
        return []
    found = []
    (count,) = unpack_from("<Q", whole, begin + 16)
    if count > (end - begin - _HEADER_BYTES) // _SET_BYTES:
        return []
    for i in range(count):
        samples, at = unpack_from("<QQ", whole, begin + _HEADER_BYTES + _SET_BYTES * i)
        words_at = begin + at
        sums_at = words_at + (8 * samples + 63) // 64 * 64
        if sums_at + 4 * samples > end:
            return []
        words = whole[words_at : words_at + 8 * samples].cast("Q")
        found.append(_Set(words, whole[sums_at : sums_at + 4 * samples].cast("I")))
    return found
