"""rankpool index under mpirun: the manifest is the same for any number of ranks, and every rank
ends as rank 0 does."""

import os
import subprocess

import pytest
import run

ENV = {**os.environ, **run.MPIRUN_ENV}
LAUNCH = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none"],
    "mpich": ["mpirun.mpich"],
}


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "data"
    for i in range(60):
        folder = root / f"class{i % 7}" / f"part{i}"
        folder.mkdir(parents=True)
        for j in range(i):
            (folder / f"{j}\n.bin").write_bytes(bytes(j))
    os.symlink("../class0", root / "class1" / "link")
    return root


def index(mpi, ranks, *args):
    return subprocess.run(
        [*LAUNCH[mpi], "-n", str(ranks), run.RANKPOOL, "index", *map(str, args)],
        env=ENV, capture_output=True, text=True, timeout=run.PATIENCE_SECONDS,
    )  # fmt: skip


def test_same_bytes(data, tmp_path):
    manifests = set()
    for mpi, ranks in [(None, 1), *((mpi, n) for mpi in LAUNCH for n in (1, 2, 4))]:
        manifest = tmp_path / f"{mpi}{ranks}.parquet"
        args = [data, "-o", manifest, "--checksum"]
        if mpi is None:
            done = subprocess.run([run.RANKPOOL, "index", *args], capture_output=True, text=True)
        else:
            done = index(mpi, ranks, *args)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("files: ") == 1, done.stdout
        assert (f"ranks:    {ranks}" in done.stdout) == (ranks > 1)
        manifests.add(manifest.read_bytes())
    assert len(manifests) == 1


@pytest.mark.parametrize("mpi", LAUNCH)
def test_error_is_said_once(data, tmp_path, mpi):
    os.symlink("x" * 256, data / "class3" / "broken")  # cannot be examined
    done = index(mpi, 3, data, "-o", tmp_path / "m.parquet")
    assert done.returncode != 0
    assert done.stderr.count("class3/broken: file name too long") == 1, done.stderr
    assert not (tmp_path / "m.parquet").exists()


@pytest.mark.parametrize("mpi", LAUNCH)
def test_verify(data, tmp_path, mpi):
    manifest = tmp_path / "m.parquet"
    assert index(mpi, 2, data, "-o", manifest, "--checksum", "-q").returncode == 0
    done = index(mpi, 3, data, "--verify", manifest)
    assert done.returncode == 0 and "verified: " in done.stdout, done.stderr
    victim = data / "class5" / "part5" / "3\n.bin"
    times = victim.stat()
    victim.write_bytes(b"abc")
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = index(mpi, 3, data, "--verify", manifest)
    assert done.returncode != 0
    assert r'changed  "class5/part5/3\n.bin" (checksum)' in done.stdout, done.stdout
