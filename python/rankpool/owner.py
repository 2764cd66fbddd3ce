"""Who owns a door: only this user and root may be able to replace it.

A session folder has a name that anybody can guess, and lies where anybody may make folders. So
every part of its path is checked in turn, and so is the user at the other end of the socket
(cmd/rankpool/internal/session/owner.go does the same on the other side).
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from typing import List

from .errors import OwnerError

_MAX_LINKS = 40


def check_folder(path: str) -> None:
    """Raises OwnerError unless path is a folder of this user that no other user can replace or
    write to.

    Symbolic links may lead to it, but it must not be one. Raises OSError if it is not there.
    """
    user, unmapped, links = os.geteuid(), _unmapped_user(), 0
    rest = _parts(os.path.abspath(path))
    fd, at = os.open("/", os.O_PATH | os.O_DIRECTORY), "/"
    try:
        while rest:
            part = rest.pop(0)
            name = os.path.join(at, part)
            found = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=fd)
            state = os.fstat(found)
            trusted = state.st_uid in (user, 0, unmapped)
            if stat.S_ISLNK(state.st_mode):
                os.close(found)
                links += 1
                if not trusted:
                    raise _unsafe(
                        path,
                        f"{name} is a symbolic link of user {state.st_uid}, and you are user "
                        f"{user}",
                    )
                if not rest or links > _MAX_LINKS:
                    raise _unsafe(path, f"{name} is a symbolic link, not a folder")
                target = os.readlink(part, dir_fd=fd)
                rest[:0] = _parts(target)
                if target.startswith("/"):
                    os.close(fd)
                    fd, at = os.open("/", os.O_PATH | os.O_DIRECTORY), "/"
                continue
            os.close(fd)
            fd, at = found, name
            if not stat.S_ISDIR(state.st_mode):
                raise _unsafe(path, f"{name} is not a folder")
            if not trusted or not rest and state.st_uid != user:
                raise _unsafe(
                    path, f"{name} belongs to user {state.st_uid}, and you are user {user}"
                )
            if state.st_mode & 0o022 and not (rest and state.st_mode & stat.S_ISVTX):
                raise _unsafe(
                    path,
                    f"{name} can be written to by other users (mode "
                    f"{stat.S_IMODE(state.st_mode):04o})",
                )
    finally:
        os.close(fd)


def check_peer(sock: socket.socket, path: str) -> None:
    """Raises OwnerError unless the door at path is served by this user, or root."""
    _, uid, _ = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if uid not in (os.geteuid(), 0):
        raise OwnerError(
            f"rankpool: the door {path} is served by user {uid}, and you are user {os.geteuid()}"
        )


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _unsafe(path: str, why: str) -> OwnerError:
    return OwnerError(
        f"rankpool: {path} is not safe: {why}; start the run with another --runtime-dir or "
        "--session"
    )


def _unmapped_user() -> int:
    """Returns the user that stands for all those that this user namespace does not map, including
    the root user outside; -1: none."""
    try:
        with open("/proc/self/uid_map") as file:
            if file.read().split() == ["0", "0", "4294967295"]:
                return -1
        with open("/proc/sys/kernel/overflowuid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1
