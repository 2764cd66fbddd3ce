"""Only ranks that need MPI load the library; mpirun or the user decides which one."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import run
from run import LIBRARY


def loaded(pid):
    """The MPI libraries that a process has loaded."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {name for name in LIBRARY.values() if f"/{name}" in maps}


@pytest.fixture
def standing(start):
    """standing(ranks=…, mpi=…) starts a run whose training is idle, and ends it after the test."""

    def standing(ranks, **what):
        one = start(ranks=ranks, command=["sleep", "1000"], **what)
        one.wait_for(lambda: one.ready(ranks), "the cache was ready")
        return one

    return standing


@pytest.mark.parametrize("mpi", LIBRARY)
def test_ranks_load_the_library_of_mpirun(standing, tmp_path, mpi):
    """As after "module load": mpirun is first in $PATH."""
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\nexec mpirun.{mpi} "$@"\n')
    mpirun.chmod(0o755)
    env = {"RANKPOOL_MPI_LIBRARY": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    one = standing(ranks=2, env=env)
    ranks = one.ranks()
    assert len(ranks) == 2 and all(loaded(pid) == {LIBRARY[mpi]} for pid in ranks)
    assert not loaded(one.process.pid), "run itself has loaded MPI"
    told = [
        v for pid in ranks for v in one.processes()[pid][0] if v.startswith("RANKPOOL_MPI_LIBRARY=")
    ]
    assert len(set(told)) == 1 and told[0].endswith("/" + LIBRARY[mpi]), told
    one.process.send_signal(signal.SIGTERM)
    assert one.finish().code == 128 + signal.SIGTERM


def test_one_rank_loads_none(standing):
    one = standing(ranks=1, env={"RANKPOOL_MPI_LIBRARY": "/no/libmpi.so"})
    assert one.ranks() and not any(loaded(pid) for pid in one.processes())
    one.process.send_signal(signal.SIGTERM)
    assert one.finish().code == 128 + signal.SIGTERM


@pytest.mark.parametrize("mpi", LIBRARY)
def test_version_says_which_and_why(tmp_path, mpi):
    """As after "module load": mpirun is first in $PATH."""
    (tmp_path / "mpirun").symlink_to(shutil.which(f"mpirun.{mpi}"))
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    text = subprocess.run(
        [run.RANKPOOL, "version"], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert f"/{LIBRARY[mpi]}, since mpirun in $PATH ({tmp_path}/mpirun) is" in text, text
