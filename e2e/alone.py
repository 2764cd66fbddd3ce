"""A /dev/shm for this process and those that it starts, in which no other run of the machine
appears."""

import ctypes
import os

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000  # linux/sched.h, linux/mount.h


def own_shared_memory():
    """Mounts an empty /dev/shm that only this process and its children see; returns False if this
    process may not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNS) != 0:
        return False
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return False
    return libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777") == 0
