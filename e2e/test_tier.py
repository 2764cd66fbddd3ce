"""A second tier below memory changes where bytes come from, and nothing else."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import run
from dataset import EPOCHS, GLOBAL_BATCH, SAMPLES, make_tree

WAYS = {
    "1 rank": dict(),
    "2 ranks": dict(ranks=2),
    "2 ranks, 2 trainers each": dict(ranks=2, trainers_per_rank=2, mpi="mpich"),
}  # fmt: skip


@pytest.fixture
def kept(tmp_path):
    """A folder such as a computing centre makes for the copies of all users."""
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def reads(result):
    return sum(e["storage_reads"] for e in result.epochs)


@pytest.mark.parametrize("way, sampler", zip(WAYS, ["pads", "torch", "pads"]))
def test_hits_come_from_the_tier(train, reference, tmp_path, way, sampler):
    args = ["--epochs", EPOCHS, "--sampler", sampler]
    what = {**WAYS[way], "memory": "10%", "args": args}
    without = train(**what, options=run.PATIENT).check(EPOCHS, SAMPLES)
    options = ["--tier", f"{tmp_path}:30%", *run.PATIENT]
    result = train(**what, options=options).check(EPOCHS, SAMPLES)
    assert result.digest == without.digest == reference(sampler).digest
    assert reads(result) < reads(without)
    assert result.summary["tier_hits"] == sum(e["tier_hits"] for e in result.epochs) > 0
    assert all(e["tier_hits"] <= e["hits_local"] + e["hits_remote"] for e in result.epochs)
    assert without.summary["tier_hits"] == 0 and result.summary["fallback_reads"] == 0
    assert not [name for name in os.listdir(tmp_path) if "tier" in name]


def test_nothing_is_read_twice_where_all_fits(train, tmp_path):
    samples = 240  # less than may wait to be written (staging/tier): a slow disk refuses none
    tree = make_tree(tmp_path / "tree", samples)
    way = dict(data=tree, args=["--epochs", EPOCHS, "--sampler", "torch", "--ahead", 1])
    # in memory: storage would be read if a busy disk took two seconds to answer
    with tempfile.TemporaryDirectory(dir="/dev/shm") as tier:
        result = train(memory="20%", options=["--tier", f"{tier}:100%"], **way).check(
            EPOCHS, samples
        )
    assert result.digest == train(memory="0", **way).digest
    # the second epoch's first samples may be read before the first epoch has ended
    read = [e["storage_reads"] for e in result.epochs]
    assert sum(read) == samples and read[0] > samples - GLOBAL_BATCH and read[2] == 0, read


@pytest.mark.parametrize(
    "tier, sentence",
    [
        ("{}/file:30%", "not a directory"),
        ("{}:900TiB", "free, but the tier is to have 900 TiB"),
        ("/proc:30%", "free, but the tier is to have"),
    ],
)
def test_tier_that_cannot_be_used(train, reference, tmp_path, tier, sentence):
    (tmp_path / "file").write_text("")
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    result = train(memory="10%", args=args, options=["--tier", tier.format(tmp_path)]).check(
        EPOCHS, SAMPLES
    )
    assert result.digest == reference("pads").digest
    assert result.stderr.count("this node has no tier; training continues without it") == 1
    assert sentence in result.stderr and result.summary["tier_hits"] == 0


def test_rank_that_dies_leaves_nothing_in_the_tier(start, reference, tmp_path):
    folder = tmp_path / "tier"
    folder.mkdir()
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    job = start(memory="10%", args=args, options=["--tier", f"{folder}:50%"], pause=[20])
    job.wait_for_batches(20)
    (old,) = job.ranks()
    job.kill([old])
    job.wait_for(lambda: job.ranks() not in ([], [old]) and job.ready(1), "the cache was back")
    job.go(20)
    result = job.finish().check(EPOCHS, SAMPLES)
    assert result.digest == reference("pads").digest
    assert os.listdir(folder) == []


def copies(folder):
    """The files of the user's kept copies."""
    return (
        sorted(os.listdir(folder / str(os.getuid())))
        if os.path.isdir(folder / str(os.getuid()))
        else []
    )


def keeping(folder, size="100%"):
    """Options that keep copies."""
    return ["--tier", f"{folder}:{size},keep", *run.PATIENT]


@pytest.mark.parametrize("way", WAYS)
def test_next_job_begins_warm(train, reference, kept, way):
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    what = {**WAYS[way], "memory": "10%", "args": args, "options": keeping(kept)}
    first = train(**what).check(EPOCHS, SAMPLES)
    assert copies(kept)
    second = train(**what).check(EPOCHS, SAMPLES)
    assert first.digest == second.digest == reference("pads").digest
    assert reads(second) <= 0.05 * SAMPLES, [e["storage_reads"] for e in second.epochs]
    assert second.summary["tier_hits"] > 0


def test_copies_of_a_job_that_was_killed(start, train, reference, kept):
    args = ["--epochs", EPOCHS, "--sampler", "torch"]
    what = dict(memory="10%", args=args, options=keeping(kept))
    job = start(**what, pause=[20])
    job.wait_for_batches(20)
    job.kill(job.processes())
    for name in copies(kept):  # what a power failure may leave
        path = kept / str(os.getuid()) / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for _ in range(2):
        result = train(**what).check(EPOCHS, SAMPLES)
        assert result.digest == reference("torch").digest
    assert reads(result) <= 0.05 * SAMPLES


def test_copies_of_data_that_changed_are_not_used(train, kept, tmp_path):
    tree = make_tree(tmp_path / "tree", SAMPLES)
    what = dict(data=tree, memory="10%", args=["--epochs", EPOCHS, "--sampler", "torch"])
    keeps = dict(**what, options=keeping(kept))
    train(**keeps).check(EPOCHS, SAMPLES)
    path = next(path for path in sorted(tree.rglob("*")) if path.is_file())
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path.parent)  # as if the file had been replaced, which the folder's time shows
    changed = train(**keeps).check(EPOCHS, SAMPLES)
    assert changed.digest == train(**what).digest
    assert reads(changed) > 0.5 * SAMPLES


@pytest.mark.parametrize(
    "folder, sentence",
    [
        ("/dev/shm", "it is memory (tmpfs)"), ("{}/open", "has mode 0777"),
    ],
)
def test_folder_that_cannot_have_copies(train, reference, tmp_path, folder, sentence):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    result = train(memory="10%", args=args, options=keeping(folder.format(tmp_path))).check(
        EPOCHS, SAMPLES
    )
    assert result.digest == reference("pads").digest
    assert result.stderr.count("this node has no tier; training continues without it") == 1
    assert sentence in result.stderr and result.summary["tier_hits"] == 0


def job_of(uid, top, tree, node):
    """Trains as another user, who is a member of the data's group, and returns the digest and the
    number of reads from storage."""
    home = top / f"home-{uid}"
    if not home.exists():
        home.mkdir()
        os.chown(home, uid, uid)
    env = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "PYTHONPATH": str(top / "python"),
    }
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={GROUP}"]
    cache = [
        "--data",
        f"train={tree}",
        "--memory",
        "10%",
        "--tier",
        f"{node}:100%,share",
        "--log",
        home / "log",
    ]
    train = [
        "python3",
        top / "e2e" / "trainer.py",
        "--epochs",
        "1",
        "--sampler",
        "torch",
        "--digest",
    ]
    argv = [*user, top / "rankpool", "run", *cache, "--", *train]
    done = subprocess.run(
        argv, cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (home / "log").read_text().splitlines()]
    (home / "log").unlink()
    (digest,) = [line for line in done.stdout.splitlines() if line.startswith("digest ")]
    return digest, next(event["storage_reads"] for event in events if event["event"] == "summary")


GROUP = 21000


def test_another_user_begins_warm(top):
    node, elsewhere = top / "node", top / "elsewhere"
    for folder in (node, elsewhere):
        folder.mkdir()
        folder.chmod(0o1777)
    tree = make_tree(top / "tree", SAMPLES)
    for path in [tree, *tree.rglob("*")]:
        os.chown(path, 20001, GROUP)
        path.chmod(0o750 if path.is_dir() else 0o640)
    alice = job_of(20001, top, tree, node)
    bob_elsewhere = job_of(20002, top, tree, elsewhere)  # where bob learns the names
    bob = job_of(20002, top, tree, node)
    assert alice == bob_elsewhere == (alice[0], SAMPLES)
    assert bob[0] == alice[0] and bob[1] <= 0.05 * SAMPLES
    assert os.listdir(node / "20002") == []


@pytest.fixture
def top():
    """A folder that every user can enter, with the program and the trainer, which may be where
    other users cannot go."""
    with tempfile.TemporaryDirectory(prefix="rankpool-users-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(run.RANKPOOL, folder / "rankpool")
        for part in ("python", "e2e"):
            shutil.copytree(
                run.ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield folder
