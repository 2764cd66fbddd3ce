"""Memory limits: from a control group of this machine, and from Slurm's variables."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest
import run
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH, SAMPLES

MIB = 1 << 20


class Group:
    """A control group below the machine's top one, with a limit on memory."""

    def __init__(self, parent, limit_file, own):
        self.path, self.limit_file, self.own = (
            parent / f"rankpool-test-{os.getpid()}", limit_file, own,
        )

    @contextlib.contextmanager
    def limited(self, limit_bytes):
        """Processes that are started in this context are in the group."""
        self.path.mkdir()
        try:
            (self.path / self.limit_file).write_text(str(limit_bytes))
            (self.path / "cgroup.procs").write_text(str(os.getpid()))
            try:
                yield
            finally:
                self.own.write_text(str(os.getpid()))
        finally:
            self.leave()

    def leave(self):
        with contextlib.suppress(OSError):
            for pid in (self.path / "cgroup.procs").read_text().split():
                self.own.write_text(pid)
        self.path.rmdir()


def memory_group():
    """Returns a Group of the version of control groups that is mounted; fails if this process may
    not make one."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path.lstrip("/")
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    if (v1 / "memory.limit_in_bytes").exists():
        (path,) = [path for names, path in own.items() if "memory" in names.split(",")]
        group = Group(v1, "memory.limit_in_bytes", v1 / path / "cgroup.procs")
    else:
        group = Group(v2, "memory.max", v2 / own.get("", "") / "cgroup.procs")
        with contextlib.suppress(OSError):
            (v2 / "cgroup.subtree_control").write_text("+memory")
    try:
        with group.limited(1 << 40):
            pass
    except OSError as error:
        sentence = "run the tests as root, in a container with --privileged or its own writable /sys/fs/cgroup"
        pytest.fail(
            f"no control group with a limit on memory can be made ({error}): {sentence}",
            pytrace=False,
        )
    return group


LIMITS = ["SLURM_MEM_PER_NODE", "the memory limit of control group"]


@pytest.fixture
def limited(monkeypatch):
    """limited(by, limit_bytes) is a context in which what is started has that limit."""

    @contextlib.contextmanager
    def limited(by, limit_bytes):
        if by == "SLURM_MEM_PER_NODE":
            monkeypatch.setenv(by, str(limit_bytes // MIB))
            yield
            monkeypatch.delenv(by)
        else:
            with memory_group().limited(limit_bytes):
                yield

    return limited


@pytest.mark.parametrize("by", LIMITS)
def test_too_small_a_job_ends_before_training(start, limited, by):
    with limited(by, 800 * MIB):
        result = start(memory="1GiB").finish()
    assert result.code == 1 and not result.batches
    sentences = [line for line in result.stderr.splitlines() if "would need" in line]
    assert len(sentences) == 1, result.stderr
    assert sentences[0].startswith(
        "rankpool: rank 0: this rank would need 1.0 GiB of memory, and there are "
    )
    assert f"({by}" in sentences[0] and sentences[0].endswith("): ask for less with --memory")


@pytest.mark.parametrize("by", LIMITS)
def test_auto_says_how_it_came_to_its_size(start, limited, reference, by):
    args = ["--epochs", EPOCHS, "--sampler", "torch"]
    with limited(by, 6 << 30):
        result = start(
            ranks=2, memory="auto", args=args,
            options=["--verbose", "--tune", "trainer-memory=1GiB", *run.PATIENT],
        ).finish()  # fmt: skip
    result.check(EPOCHS, SAMPLES)
    assert result.digest == reference("torch").digest
    said = [line for line in result.stderr.splitlines() if "memory auto" in line]
    assert len(said) == 2 and f"of 6.0 GiB ({by}" in said[0], result.stderr
    assert (
        "less 2.0 GiB for 2 trainers (1.0 GiB each, --tune trainer-memory)" in said[0]
        and ", for 2 ranks" in said[0]
    )
    assert "of which the data needs" in said[0]
    assert re.search(r"serving tree \(.*\); memory for all of them\n", result.stderr)
    # All that the ranks own stays in memory; what the second epoch draws first is read before the
    # first one ends.
    reads = [e["storage_reads"] for e in result.epochs]
    assert sum(reads) == SAMPLES and reads[0] > SAMPLES - GLOBAL_BATCH and reads[2] == 0, reads


def test_auto_keeps_its_size_when_the_cache_starts_again(start, reference):
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    run = start(ranks=2, memory="auto", options=["--verbose"], args=args, pause=[BATCHES])
    run.wait_for_batches(BATCHES)
    old = run.ranks()
    run.kill(old)
    run.wait_for(
        lambda: len(set(run.ranks()) - set(old)) == 2 and run.ready(2), "the cache was back"
    )
    run.go(BATCHES)
    result = run.finish()
    assert result.code == 0 and result.digest == reference("pads").digest, result.stderr
    assert result.stderr.count("as before this rank was restarted") == 2, result.stderr


def resize_shared_memory(size):
    subprocess.run(["mount", "-o", f"remount,size={size}", run.SHM], check=True)


@pytest.fixture
def small_shared_memory():
    """Makes /dev/shm small; only this process and its children see it."""
    resize_shared_memory("200m")
    yield
    resize_shared_memory("50%")


@pytest.mark.parametrize(
    "ranks, mpi",
    [
        (1, None),
        pytest.param(2, "openmpi", marks=pytest.mark.full),
        pytest.param(2, "mpich", marks=pytest.mark.full),
    ],
)
def test_shared_memory_full_of_others_files(small_shared_memory, start, reference, ranks, mpi):
    """The cache dies, and cannot be restarted before there is room; training continues without it
    meanwhile."""
    at = BATCHES + 3
    one = start(ranks=ranks, mpi=mpi, args=["--epochs", EPOCHS], pause=[at, at + 2])
    one.wait_for_batches(at)
    others = run.SHM / "others"
    with contextlib.suppress(OSError), open(others, "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    one.kill(one.ranks())
    one.go(at)
    one.wait_for_batches(at + 2)
    one.wait_for(lambda: "start 3 in" in one.text("stderr"), "the cache could not be started")
    others.unlink()
    one.wait_for(lambda: one.ranks() and one.ready(ranks), "the cache was back")
    one.go(at + 2)
    result = one.finish(run.MPI_LEAVES)
    assert result.code == 0 and result.batches == reference("pads").batches, result.stderr
