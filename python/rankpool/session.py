"""Where the cache's door is, and which trainer this process is, according to the launcher's
environment; and whether it belongs to another process, as a loader's worker does."""

from __future__ import annotations

import glob
import os

from .errors import RankpoolError
from .same_user import check_folder

MAX_WORLD = (1 << 16) - 1  # training processes that a plan can name
_HINT = "start the script under `rankpool run … -- python …`"


def launched() -> bool:
    """Returns whether this process was started with a cache."""
    return bool(os.environ.get("RANKPOOL_SOCKET") or _session())


def door() -> str:
    """Returns the path of this node's door: RANKPOOL_SOCKET, else the door in the folder
    RANKPOOL_SESSION, else the one in the Slurm job's folder."""
    path = os.environ.get("RANKPOOL_SOCKET")
    if path:
        return path
    session = _session()
    if not session:
        raise RankpoolError(
            f"rankpool: neither RANKPOOL_SOCKET nor RANKPOOL_SESSION is set; {_HINT}"
        )
    node = os.environ.get("SLURM_NODEID")
    doors = glob.glob(os.path.join(glob.escape(session), "r*", "door.sock"))
    if len(doors) == 1:
        return doors[0]
    if node:
        return os.path.join(session, f"r{node}", "door.sock")
    raise RankpoolError(
        f"rankpool: {session} has {len(doors)} doors (r*/door.sock), and SLURM_NODEID does not "
        f"say which; {_HINT}"
    )


def _session() -> str | None:
    """Returns RANKPOOL_SESSION, else the folder that `rankpool run` makes by default for this Slurm
    job, or None if it is not there."""
    if os.environ.get("RANKPOOL_SESSION"):
        return os.environ["RANKPOOL_SESSION"]
    job = os.environ.get("SLURM_JOB_ID")
    for base in ("/dev/shm", os.environ.get("TMPDIR"), "/tmp"):
        folder = f"{base}/rankpool-{os.getuid()}-slurm{job}"
        if job and base and os.path.isdir(folder):
            check_folder(folder)
            return folder
    return None


def world() -> int:
    """Returns the number of training processes: WORLD_SIZE, else the number of tasks in a Slurm
    step, else 1."""
    return _number("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", 1)


def job() -> str:
    """Returns the name of this training among those that share the cache: RANKPOOL_JOB, or "" for a
    training without a name."""
    return os.environ.get("RANKPOOL_JOB", "")


def seat(rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """Returns the number of this training process, and how many there are; the environment gives
    those that are None: RANK, else the number of its task in a Slurm step, else 0; and world().

    Raises ValueError if one of them is out of range.
    """
    number = _number("RANK", "SLURM_PROCID", 0) if rank is None else rank
    of = world() if world_size is None else world_size
    if not 0 <= number < of <= MAX_WORLD:
        raise ValueError(
            f"rankpool: RANK must be from 0 to WORLD_SIZE - 1, and WORLD_SIZE, the number of "
            f"training processes, at most {MAX_WORLD}: they are {number} and {of}"
        )
    return number, of


def _number(name: str, of_step: str, otherwise: int) -> int:
    """Returns a variable as a number, or else Slurm's variable in a task of a step; a batch script
    has some of those too, but is not a task."""
    text = os.environ.get(name)
    if not text and os.environ.get("SLURM_STEP_NUM_TASKS"):
        name, text = of_step, os.environ.get(of_step)
    try:
        return int(text) if text else otherwise
    except ValueError:
        raise ValueError(f"rankpool: the variable {name} must be a number, not {text!r}") from None


# --- which process this is ---

_numbers: dict[int, int] = {}  # by process id: a forked child is another process
_family = 0  # the training process's number: this one's own, or received by a worker


def process() -> int:
    """Returns this process's random number."""
    return _numbers.setdefault(os.getpid(), int.from_bytes(os.urandom(8), "little") or 1)


def family(parent: int = 0) -> int:
    """Returns the number of the training process that this one is, or belongs to: once it is asked
    for, it stays. A worker is told its parent's number first."""
    global _family
    _family = _family or parent or process()
    return _family
