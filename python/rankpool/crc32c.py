"""CRC-32C, the checksum of TFRecord files, in the standard library alone: some 10 MB/s."""

from __future__ import annotations


def _entry(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_TABLE = list(map(_entry, range(256)))


def masked(data: bytes) -> int:
    """Returns the checksum that a TFRecord file stores for data (TensorFlow,
    core/lib/hash/crc32c.h, Mask)."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C of data."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
