"""A rank's memory for samples, which outlives the rank: trainers keep it, and pass it to the next
rank."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from .errors import OwnerError
from .same_user import check_folder, check_peer, open_file

NOTE = "slab"  # the file in the rank's folder that names the memory: device, inode, size
BACK_DOOR = "slab.sock"  # the socket there on which a rank receives its predecessor's memory
BACK_DOOR_SECONDS = 1.0
MAGIC = b"rpslab01"


class Memory:
    """The memory behind a descriptor, which it owns (docs/wire/README.md, *The memory*)."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        stat = os.fstat(fd)
        self._identity = [stat.st_dev, stat.st_ino, stat.st_size]

    def hand_back(self, folder: str) -> bool:
        """Sends the memory to a rank that waits for it in its folder, if there is one; returns
        False if the folder names another memory: then no rank will take this one back."""
        try:
            with open(os.path.join(folder, NOTE), "rb", opener=open_file) as file:
                if [int(word) for word in file.read().split()] != self._identity:
                    return False
        except (OSError, ValueError):
            return False
        path = os.path.join(folder, BACK_DOOR)
        # no rank waits, or another process was faster
        with suppress(OSError, OwnerError), socket.socket(socket.AF_UNIX) as door:
            check_folder(folder)
            door.settimeout(BACK_DOOR_SECONDS)
            door.connect(path)
            check_peer(door, path)
            socket.send_fds(door, [MAGIC], [self.fd])
        return True

    def close(self) -> None:
        """Releases the memory, except what the process has mapped elsewhere."""
        os.close(self.fd)
