"""Training continues with the data and the importance scores that it began with, whatever happens
to files and ranks, or it ends."""

import os
import shutil
import signal
import subprocess

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES, make_tree
from run import RANKPOOL


def back(run, old):
    """Waits until other ranks than the old ones serve."""
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were gone")
    run.wait_for(lambda: run.ranks() and run.ready(len(old)), "the cache was back")


def end(run):
    """Ends the cache as a user does who mistakes it for a leftover."""
    old = run.ranks()
    subprocess.run([RANKPOOL, "end", "--session", run.session()], check=True)
    back(run, old)


def kill(run):
    old = run.ranks()
    run.kill(old)
    back(run, old)


FULL = pytest.mark.full
MOMENTS = [
    # in epoch 0, after its cut, between epochs, at the start of the last epoch
    *(pytest.param(at, marks=FULL) for at in (3, BATCHES - 1, BATCHES, 2 * BATCHES)),
    BATCHES + 7,  # in an epoch that was planned from importance
]  # fmt: skip
WAYS = [
    pytest.param(1, None, False, marks=FULL),
    (2, "openmpi", True),
    pytest.param(4, "mpich", False, marks=FULL),
]


@pytest.mark.parametrize("hurt", [end, kill])
@pytest.mark.parametrize("ranks, mpi, state", WAYS)
@pytest.mark.parametrize("at", MOMENTS)
def test_scores_outlive_the_cache(start, reference, tmp_path, hurt, ranks, mpi, state, at):
    options = ["--state", tmp_path / "state"] if state else []
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    one = start(ranks=ranks, mpi=mpi, options=options, args=args, pause=[at])
    one.wait_for_batches(at)
    hurt(one)
    one.go(at)
    assert one.finish().check(EPOCHS, SAMPLES).batches == reference("pads").batches


def test_harm_in_every_epoch(start, reference):
    at = [5, BATCHES + 5, 2 * BATCHES + 5]
    one = start(ranks=2, args=["--epochs", EPOCHS, "--sampler", "pads"], pause=at)
    hurts = kill, end, kill
    for batch, hurt in zip(at, hurts):
        one.wait_for_batches(batch)
        hurt(one)
        one.go(batch)
    assert one.finish().check(EPOCHS, SAMPLES).batches == reference("pads").batches


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_session_folder_that_was_removed(start, reference, ranks):
    """What is open lives on; a dead rank cannot be started again."""
    at = BATCHES + 5
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    one = start(ranks=ranks, args=args, pause=[BATCHES - 2, at])
    one.wait_for_batches(BATCHES - 2)
    shutil.rmtree(one.session(), ignore_errors=True)
    one.go(BATCHES - 2)
    one.wait_for_batches(at)
    one.kill(one.ranks()[:1])
    one.go(at)
    result = one.finish()
    assert result.code == 1, result.stderr
    assert "was removed while the run used it, as systemd does" in result.stderr, result.stderr
    assert result.batches == reference("pads").batches[: len(result.batches)]


def add(tree):
    (tree / "a" / "0.png").write_bytes(b"a new file")


def add_class(tree):
    (tree / "aa").mkdir()
    (tree / "aa" / "0.png").write_bytes(b"a new class")


def swap(tree):
    """Writes a manifest, which anyone who opens the data set now finds in place of the folder's
    files."""
    index = [RANKPOOL, "index", tree / "a", "-o", tree / "rankpool.parquet"]
    subprocess.run(index, check=True, capture_output=True)


@pytest.mark.parametrize("change", [add, *(pytest.param(f, marks=FULL) for f in (add_class, swap))])
@pytest.mark.parametrize(
    "ranks, hurt",
    [pytest.param(1, kill, marks=FULL), (2, kill), pytest.param(2, end, marks=FULL)],
)
@pytest.mark.parametrize("sampler", [pytest.param("torch", marks=FULL), "pads"])
def test_data_that_came_meanwhile(start, reference, tmp_path, change, ranks, hurt, sampler):
    tree = make_tree(tmp_path / "tree", SAMPLES)
    at = BATCHES + 4
    one = start(data=tree, ranks=ranks, args=["--epochs", EPOCHS, "--sampler", sampler], pause=[at])
    one.wait_for_batches(at)
    change(tree)
    hurt(one)
    one.go(at)
    assert one.finish().check(EPOCHS, SAMPLES).batches == reference(sampler).batches


def test_a_manifest_that_went_meanwhile(start, reference, tree, tmp_path):
    """The data are still there, and the run has their index."""
    manifest = tmp_path / "tree.parquet"
    subprocess.run([RANKPOOL, "index", tree, "-o", manifest], check=True, capture_output=True)
    at = BATCHES + 4
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    one = start(data=manifest, ranks=2, args=args, pause=[at])
    one.wait_for_batches(at)
    manifest.unlink()
    kill(one)
    one.go(at)
    assert one.finish().check(EPOCHS, SAMPLES).batches == reference("pads").batches


def test_data_that_went_meanwhile(start, reference, tmp_path):
    """The samples that are still there are the same; training ends at the missing one, and names
    it."""
    tree = make_tree(tmp_path / "tree", SAMPLES)
    at = BATCHES + 4
    one = start(
        data=tree, ranks=2, memory="0", args=["--epochs", EPOCHS, "--sampler", "torch"], pause=[at]
    )
    one.wait_for_batches(at)
    gone = tree / "b" / "00001.png"
    gone.unlink()
    kill(one)
    one.go(at)
    result = one.finish()
    assert (
        result.code != 0
        and str(gone) in result.stderr
        and ("missing" in result.stderr or "No such file" in result.stderr)
    )
    assert (
        result.batches == reference("torch").batches[: len(result.batches)]
        and len(result.batches) >= at
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, tree):
    """A folder with the checkpoint and the state of a training that was stopped in its second
    epoch."""
    import run

    folder = tmp_path_factory.mktemp("stopped")
    args = [
        "--epochs", EPOCHS, "--sampler", "pads", "--save", folder / "checkpoint", "--stop-after",
        BATCHES + 4,
    ]
    assert (
        run.start(folder, tree, ranks=2, args=args, options=["--state", folder / "state"])
        .finish()
        .code
        == 0
    )
    return folder


def resumed(train, folder, *options, **way):
    args = ["--epochs", EPOCHS, "--sampler", "pads", "--resume", folder / "checkpoint"]
    return train(**way, args=args, options=options)


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def of_another(path, tree, tmp_path):
    import run

    args = ["--epochs", 1, "--sampler", "pads", "--seed", 7, "--save", tmp_path / "other"]
    folder = tmp_path / "another"
    folder.mkdir()
    path.unlink()
    assert run.start(folder, tree, args=args, options=["--state", path]).finish().code == 0


@pytest.mark.parametrize("harm, says", [
    (os.unlink, "does not exist"), pytest.param(cut, "not a whole importance state", marks=FULL),
    (flip, "not a whole importance state"),
    (of_another, "its seed is 7, and that of this training 0"),
    (None, "this run has no --state FILE"),
])  # fmt: skip
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=FULL), 2])
def test_a_state_that_does_not_fit(train, stopped, tree, tmp_path, harm, says, ranks):
    folder = shutil.copytree(stopped, tmp_path / "copy")
    state = folder / "state"
    if harm is of_another:
        harm(state, tree, tmp_path)
    elif harm:
        harm(state)
    options = ["--state", state] if harm else []
    result = resumed(train, folder, *options, ranks=ranks)
    assert result.code != 0 and result.batches == []
    assert "would not continue with the same batches" in result.stderr and says in result.stderr
    result = resumed(train, folder, *options, "--tune", "state-optional=true", ranks=ranks)
    assert result.code == 0 and len(result.batches) == (EPOCHS - 1) * BATCHES - 4


def test_a_data_set_that_was_copied_is_the_same(train, stopped, reference, tree, tmp_path):
    """Under another name and with other modification times, the checkpoint resumes; with one more
    file, it does not."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(tree, copy, copy_function=shutil.copyfile)
    options = ["--state", shutil.copy(stopped / "state", tmp_path)]
    result = resumed(train, stopped, *options, data=copy)
    assert result.code == 0 and result.batches == reference("pads").batches[BATCHES + 4 :]
    (copy / "a" / "0.png").write_bytes(b"one more")
    result = resumed(train, stopped, *options, data=copy)
    assert result.code != 0 and "the saved state has identity = " in result.stderr


def test_a_requeued_training_without_a_checkpoint_begins_anew(start, reference, tmp_path):
    options, args = ["--state", tmp_path / "state"], ["--epochs", EPOCHS, "--sampler", "pads"]
    one = start(ranks=2, options=options, args=args, pause=[2 * BATCHES + 3])
    one.wait_for_batches(2 * BATCHES + 3)
    one.kill(one.processes(), signal.SIGKILL)
    one.process.wait()
    result = start(options=options, args=args).finish().check(EPOCHS, SAMPLES)
    assert result.batches == reference("pads").batches and "it starts over" in result.stderr


def test_a_job_killed_between_its_first_state_and_its_first_checkpoint(
    start, train, stopped, reference, tmp_path
):
    """It starts over; a checkpoint that it has forgotten, or never wrote, can still be resumed."""
    folder = shutil.copytree(stopped, tmp_path / "copy")
    options, args = ["--state", folder / "state"], ["--epochs", EPOCHS, "--sampler", "pads"]
    own = tmp_path / "own"
    stop = ["--save", own, "--stop-after", 3]
    one = start(ranks=2, options=options, args=[*args, *stop]).finish()
    assert one.code == 0 and "it starts over" in one.stderr
    assert one.batches == reference("pads").batches[:3]
    earlier = shutil.copytree(folder, tmp_path / "earlier")
    two = start(ranks=2, options=options, args=[*args, "--resume", own]).finish()
    assert two.code == 0 and two.batches == reference("pads").batches[3:]
    result = resumed(train, earlier, "--state", earlier / "state", ranks=2)
    assert result.code == 0 and result.batches == reference("pads").batches[BATCHES + 4 :]


def test_a_checkpoint_without_its_state(start, train, reference, tmp_path):
    """The cache goes away and stays away while a checkpoint is made. The previous checkpoint still
    resumes."""
    state, own, at = tmp_path / "state", tmp_path / "checkpoint", BATCHES + 4
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    options, env = ["--state", state], {"RANKPOOL_PLAN_TIMEOUT": "1"}
    stop = ["--save", own, "--stop-after", at + 1]
    one = start(ranks=2, options=options, env=env, args=[*args, *stop], pause=[at])
    one.wait_for_batches(at)
    os.kill(one.process.pid, signal.SIGSTOP)  # it cannot restart the cache
    one.kill([*one.ranks(), *one.mpiruns()])
    before = shutil.copy(own, tmp_path / "before")
    one.go(at)
    one.wait_for(lambda: not one.trainers(), "training had ended")
    os.kill(one.process.pid, signal.SIGCONT)
    ended = one.finish()
    assert "did not save its scores" in ended.stderr and "keep the one before it" in ended.stderr
    resume = [*args, "--resume"]
    result = train(ranks=2, options=options, args=[*resume, own])
    assert result.code != 0 and result.batches == []
    assert f"resume from the checkpoint of epoch 1 after 0 batches, whose state {state} holds" in (
        result.stderr
    )
    result = train(ranks=2, options=options, args=[*resume, before])
    assert result.code == 0 and result.batches == reference("pads").batches[BATCHES:]
