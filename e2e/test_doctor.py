"""`rankpool doctor` under mpirun: the ranks' findings become one list, printed once."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
import run

LAUNCH = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpirun.mpich"],
}
LIBRARY = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}


def doctor(mpi, ranks, *args, command=None, launch=None, library=None):
    """Runs doctor, with no ranks by hand, and returns the ended process."""
    launch = [*(launch or LAUNCH[mpi]), "-n", ranks] if ranks else []
    argv = [*launch, *(command or [run.RANKPOOL]), "doctor", *args]
    env = {**os.environ, **run.MPIRUN_ENV}
    if library:
        env["RANKPOOL_MPI_LIBRARY"] = library
    return subprocess.run(
        [str(word) for word in argv], env=env, capture_output=True, text=True,
        timeout=run.PATIENCE_SECONDS,
    )


@pytest.fixture
def runtime():
    """A folder for sessions that no other rankpool of the machine uses; its path is short, because
    it holds a socket."""
    with tempfile.TemporaryDirectory(prefix="rankpool-doctor-", dir=run.SHM) as folder:
        yield folder


def findings(done):
    """The list that --json printed."""
    assert done.stdout.startswith("["), f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "ranks, mpi",
    [
        (2, "openmpi"), (4, "mpich"),
        pytest.param(2, "mpich", marks=pytest.mark.full),
        pytest.param(4, "openmpi", marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_ranks_make_one_list(tree, runtime, mpi, ranks):
    args = ["--json", "--data", tree, "--python", sys.executable, "--runtime-dir", runtime]
    done = doctor(mpi, ranks, *args)
    found = findings(done)
    assert not [f for f in found if f["status"] == "bad"], found
    assert done.returncode == 0, done.stderr
    checks = {f["check"] for f in found}
    assert {"mpi", "launcher", "ranks", "cpus", "memory", "data", "python"} < checks, checks
    for f in found:
        assert set(f) - {"node"} == {"check", "status", "detail", "advice"}, f
        assert f["status"] in ("good", "warning") and f["detail"] and "{}" not in f["detail"], f
        assert f["advice"] or f["status"] == "good", f
    of = {name: [f for f in found if f["check"] == name] for name in checks}
    (mpi_line,) = of["mpi"]  # all ranks of one machine share one line
    assert "thread level MPI_THREAD_" in mpi_line["detail"] and mpi_line["node"]
    assert f"started {ranks} ranks" in of["launcher"][0]["detail"]
    assert [f["detail"] for f in of["ranks"]] == ["each rank reaches every other"]
    assert os.listdir(runtime) == []


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_strict_counts_warnings_once(tree, tmp_path, mpi):
    """Only rank 0 fails: data without a manifest are a warning."""
    copy = shutil.copytree(tree, tmp_path / "tree")  # other tests index the tree
    done = doctor(mpi, 2, "--only", "ranks,data", "--data", copy, "--strict")
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("warning  data") == 1 and done.stdout.count("ranks") == 1
    assert "2 good, 1 warning, 0 bad" in done.stdout


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_alone_it_starts_mpi_in_a_child(mpi):
    done = doctor(mpi, 0, "--only", "mpi,launcher", "--json", library=LIBRARY[mpi])
    found = findings(done)
    assert done.returncode == 0, done.stderr
    assert "thread level MPI_THREAD_" in found[0]["detail"]
    assert "started by hand" in found[1]["detail"]


def test_the_wrong_library_is_recognised():
    """MPICH's ranks under Open MPI's mpirun are worlds of one: the first reports it, the others
    print nothing."""
    done = doctor("openmpi", 2, "--only", "launcher", library="libmpich.so.12")
    assert done.returncode != 0
    assert done.stdout.count("bad      launcher") == 1, done.stdout
    assert "started 2 tasks, but MPI sees 1" in done.stdout


def test_what_differs_names_its_node(tmp_path):
    """Each rank reports its machine; here two ranks of one machine have different Pythons."""
    shim = tmp_path / "python"
    # Rank 1's Python has another version of torch.
    shim.write_text(
        f"""#!/bin/sh
dir={tmp_path}/modules$OMPI_COMM_WORLD_RANK
mkdir -p $dir/torch
echo "__version__ = '$OMPI_COMM_WORLD_RANK.0'
from . import cuda, version" >$dir/torch/__init__.py
echo "def is_available(): return True" >$dir/torch/cuda.py
echo "cuda = None" >$dir/torch/version.py
PYTHONPATH=$dir:$PYTHONPATH exec {sys.executable} "$@"
"""
    )
    shim.chmod(0o755)
    done = doctor("openmpi", 2, "--only", "python", "--python", shim, "--json")
    found = findings(done)
    assert len(found) == 2, found
    for f in found:
        assert f["status"] == "warning" and "not the same on all nodes" in f["advice"], found


def test_a_rank_that_dies_is_named(tmp_path):
    """Rank 1 is killed in a check: rank 0 waits for as long as a rank may be silent, and then names
    it."""
    rank, python = tmp_path / "rank", tmp_path / "python"
    rank.write_text(
        f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec {run.RANKPOOL} "$@" --python {python}
exec {run.RANKPOOL} "$@"
"""
    )
    python.write_text("#!/bin/sh\nkill -KILL $PPID\n")
    for program in (rank, python):
        program.chmod(0o755)
    survive = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--enable-recovery"]
    done = doctor(
        "openmpi", 2, "--only", "ranks,python", "--runtime-dir", tmp_path, command=[rank],
        launch=survive,
    )
    # On a busy machine the rank dies before it has greeted; TestLostRank tests that its node is
    # named.
    named = re.search(r"(?m)^bad +ranks +rank 1 (on \S+ )?has not reported, ", done.stdout)
    assert named, done.stdout + done.stderr  # with recovery, mpirun's exit code means nothing
