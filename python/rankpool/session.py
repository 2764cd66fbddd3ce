"""Where the cache's door is, and which trainer this process is, as the launcher's environment says."""

from __future__ import annotations

import glob
import os

from .errors import RankpoolError

_HINT = "start the script under `rankpool run … -- python …`"


def door() -> str:
    """Returns the path of this node's door: RANKPOOL_SOCKET, else the door in folder RANKPOOL_SESSION, else in the Slurm job's."""
    path = os.environ.get("RANKPOOL_SOCKET")
    if path:
        return path
    session = os.environ.get("RANKPOOL_SESSION") or _job_session()
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


def _job_session() -> str | None:
    """Returns the folder that `rankpool serve` makes by itself for this Slurm job, None when it is not there."""
    job = os.environ.get("SLURM_JOB_ID")
    for base in ("/dev/shm", os.environ.get("TMPDIR"), "/tmp"):
        folder = f"{base}/rankpool-{os.getuid()}-slurm{job}"
        if job and base and os.path.isdir(folder):
            return folder
    return None


def trainer() -> int:
    """Returns the number of this training process: RANK, else that of a task of a step of Slurm, else 0."""
    return int(os.environ.get("RANK") or _of_step("SLURM_PROCID", "0"))


def world() -> int:
    """Returns the number of training processes: WORLD_SIZE, else that of the tasks of a step of Slurm, else 1."""
    return int(os.environ.get("WORLD_SIZE") or _of_step("SLURM_STEP_NUM_TASKS", "1"))


def _of_step(name: str, otherwise: str) -> str:
    """Returns a variable of Slurm in a task of a step; a batch script has SLURM_PROCID too, and is no task."""
    return os.environ.get(name, otherwise) if os.environ.get("SLURM_STEP_NUM_TASKS") else otherwise
