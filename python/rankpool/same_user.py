"""Who owns a door: only this user and root may serve it.

A session folder has a name that anybody can guess, and lies where anybody may make folders. So the
owner of the folder is checked, and the user at the other end of the socket. Another user who could
replace the whole folder could still put none of its own there. (`rankpool run` checks every part of
the path: cmd/rankpool/internal/session/owner.go.)
"""

from __future__ import annotations

import os
import socket
import stat
import struct

from .errors import OwnerError


def check_folder(path: str) -> None:
    """Raises OwnerError unless path is a folder of this user, and not a link to one, that no other
    user can write to; OSError if it is not there."""
    state, user = os.lstat(path), os.geteuid()
    if state.st_uid != user or not stat.S_ISDIR(state.st_mode) or state.st_mode & 0o022:
        raise OwnerError(
            f"rankpool: {path} is not safe: it must be a folder of user {user} to which no other "
            f"user can write, and it belongs to user {state.st_uid} with mode "
            f"{stat.filemode(state.st_mode)}; start the run with another --runtime-dir or --session"
        )


def open_file(path: str, flags: int) -> int:
    """Opens a file, and no link or FIFO in its place, whose open would wait for a writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def check_peer(sock: socket.socket, path: str) -> None:
    """Raises OwnerError unless the door at path is served by this user, or root."""
    _, uid, _ = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if uid not in (os.geteuid(), 0):
        raise OwnerError(
            f"rankpool: the door {path} is served by user {uid}, and you are user {os.geteuid()}"
        )
