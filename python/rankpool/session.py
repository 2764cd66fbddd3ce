"""Where the cache's door is, and which trainer this process is, as the launcher's environment says."""

from __future__ import annotations

import glob
import os

from .errors import RankpoolError

_HINT = "start the script under `rankpool run … -- python …`"


def door() -> str:
    """Returns the path of this node's door: RANKPOOL_SOCKET, else the door in folder RANKPOOL_SESSION."""
    path = os.environ.get("RANKPOOL_SOCKET")
    if path:
        return path
    session = os.environ.get("RANKPOOL_SESSION")
    if not session:
        raise RankpoolError(f"rankpool: neither RANKPOOL_SOCKET nor RANKPOOL_SESSION is set; {_HINT}")
    node = os.environ.get("SLURM_NODEID")
    doors = sorted(glob.glob(os.path.join(glob.escape(session), "r*", "door.sock")))
    if node and len(doors) != 1:
        return os.path.join(session, f"r{node}", "door.sock")
    if len(doors) != 1:
        raise RankpoolError(
            f"rankpool: {session} has {len(doors)} doors (r*/door.sock), and SLURM_NODEID does not say which; {_HINT}"
        )
    return doors[0]


def trainer() -> int:
    """Returns the number of this training process, RANK."""
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    """Returns the number of training processes, WORLD_SIZE."""
    return int(os.environ.get("WORLD_SIZE", "1"))
