"""The checksums of samples: XXH3, which an index may have, and the CRC-32C of TFRecord files."""

from __future__ import annotations

import ctypes
from typing import Callable, Optional


def find_xxh3() -> Optional[Callable[[bytes], int]]:
    """Returns the hash XXH3 (64 bits, seed 0) of the package xxhash, or of the system's libxxhash;
    None if neither is there."""
    try:
        from xxhash import xxh3_64_intdigest

        return xxh3_64_intdigest
    except ImportError:
        pass
    try:
        function = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    except (OSError, AttributeError):
        return None
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint64
    return lambda data: function(data, len(data))


_TABLE = list(range(256))
for _ in range(8):
    _TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in _TABLE]


def masked_crc32c(data: bytes) -> int:
    """Returns the checksum that a TFRecord file stores for data (TensorFlow,
    core/lib/hash/crc32c.h, Mask); in the standard library alone: some 10 MB/s."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C of data."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
