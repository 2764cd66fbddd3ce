"""A script that looks like one for torchvision and torch: it gets the same tensors from the cache,
whatever happens to it, and without one."""

import os
import subprocess
import sys

import pytest
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH, SAMPLES, make_tree
from run import EXAMPLES, HERE, RANKPOOL, ROOT

SCRIPT = EXAMPLES / "dropin.py"
STOP = BATCHES + 7  # in mid-epoch


def script(tree, trainers=1, workers=0, method=None, *args):
    """Returns the command of a trainer with workers, which start by the start method `method`."""
    method = ["--start-method", method] if workers and method else []
    size = GLOBAL_BATCH // trainers
    return [
        SCRIPT, tree, "--epochs", EPOCHS, "--batch-size", size, "--workers", workers, *method,
        *args,
    ]


def rows(folder):
    """Returns the lines `EPOCH BATCH PLACE HEX` of all trainers, in the order of the draws."""
    found = [
        line.split() for log in folder.glob("digest.*") for line in log.read_text().splitlines()
    ]
    return sorted(
        (int(epoch), int(batch), int(place), digest) for epoch, batch, place, digest in found
    )


@pytest.fixture(scope="session")
def from_files(tree, tmp_path_factory):
    """The rows of the script in one process, without a cache."""
    folder = tmp_path_factory.mktemp("files")
    command = [sys.executable, *script(tree, 1, 0, None, "--digest-log", folder / "digest")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([str(word) for word in command], env=env, capture_output=True, check=True)
    found = rows(folder)
    assert len(found) == EPOCHS * SAMPLES
    assert len({row[3] for row in found}) > 2 * SAMPLES  # the small images have few crops
    return found


@pytest.fixture
def trained(start, tree):
    """trained(world, workers, method, *args) trains to the end, and returns the result and the
    lines that the script wrote."""

    def trained(world, workers, method, *args, kill=False):
        pause = [HERE / "paused.py", BATCHES] if kill else []
        command = [
            sys.executable, *pause,
            *script(tree, world, workers, method, "--digest-log", "digest", *args),
        ]
        one = start(ranks=world, command=command)
        if kill:
            draws = BATCHES * GLOBAL_BATCH
            one.wait_for(lambda: len(rows(one.folder)) == draws, "the first epoch was trained")
            ranks = one.ranks()
            assert len(ranks) == world
            one.kill(ranks)
            one.wait_for(lambda: not set(ranks) & set(one.ranks()), "the ranks were dead")
            one.go(BATCHES)
        result = one.finish()
        assert result.code == 0, result.stderr
        assert "storage one by one" not in result.stderr
        return result, rows(one.folder)

    return trained


def matrix(combinations, default):
    """Returns parameters; those that are not in the default suite are marked full, and run one at a
    time, because they start many processes."""
    crowd = pytest.mark.xdist_group("crowd")
    return [
        pytest.param(*one, marks=() if one in default else (pytest.mark.full, crowd))
        for one in combinations
    ]


UNHARMED = [
    (world, workers, how)
    for world in (1, 2, 4)
    for workers in (0, 1, 8)
    for how in ("fork", "spawn")
]
HARMED = [
    (workers, how, then) for workers in (0, 1, 8) for how, then in (("fork", 1), ("spawn", 4))
]


@pytest.mark.parametrize(
    "world, workers, method", matrix(UNHARMED, [(2, 0, "fork"), (1, 8, "fork"), (2, 1, "spawn")])
)
def test_the_same_tensors_as_from_files(trained, from_files, world, workers, method):
    result, found = trained(world, workers, method)
    assert found == from_files
    assert result.summary["draws"] == EPOCHS * SAMPLES, result.summary


@pytest.mark.parametrize("workers, method, then", matrix(HARMED, [(0, "fork", 1)]))
def test_the_same_tensors_when_ranks_die_and_training_is_requeued(
    trained, from_files, tmp_path, workers, method, then
):
    """Training continues on another number of ranks."""
    saved = "--checkpoint", tmp_path / "checkpoint"
    _, first = trained(2, workers, method, *saved, "--stop-after", STOP, kill=True)
    _, second = trained(then, workers, method, *saved)
    assert (len(first), len(second)) == (
        STOP * GLOBAL_BATCH, EPOCHS * SAMPLES - STOP * GLOBAL_BATCH,
    )
    assert first + second == from_files


IMAGENET = [
    (1, [0]), (2, [1]), (1, [1, "--persistent"]), (1, [4]), (2, [4]), (2, [2, "--persistent"]),
]  # fmt: skip


@pytest.mark.parametrize("world, workers", matrix(IMAGENET, IMAGENET[:2]))
def test_the_losses_of_a_script_like_pytorchs_imagenet_example(start, tmp_path, world, workers):
    """Training and validation, without a process group and with two processes, and with files
    beside the images that torchvision does not see."""
    data = tmp_path / "data"
    make_tree(data / "train", 60)
    make_tree(data / "val", 21)
    for name in ("train/a/README.md", "train/c/x.xml", "train/list.txt", "val/b/mask.npy"):
        (data / name).write_text("no image")

    def command(meeting, *args):
        meet = ["--dist-url", f"file://{tmp_path / meeting}"] if world > 1 else []
        script = [sys.executable, HERE / "imagenet.py", data, "--batch-size", 8, *meet, *args]
        return [str(word) for word in [*script, "--workers", *workers]]

    def losses(folder):
        return [(folder / f"losses.{rank}").read_text() for rank in range(world)]

    def from_files(name, *args):
        (tmp_path / name).mkdir()
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "WORLD_SIZE": str(world)}
        processes = [
            subprocess.Popen(command(name + ".meeting", *args), cwd=tmp_path / name,
                             env={**env, "RANK": str(rank)})
            for rank in range(world)
        ]  # fmt: skip
        assert [process.wait() for process in processes] == [0] * world
        return losses(tmp_path / name)

    unchanged = from_files("unchanged")
    assert unchanged[0].count("train") and unchanged[0].count("val")
    assert from_files("changed", "--rankpool") == unchanged
    one = start(
        data=[data / "train", data / "val"], memory="100%", trainers_per_rank=world,
        command=command("run.meeting", "--rankpool"),
    )
    result = one.finish()
    assert result.code == 0, result.stderr
    assert losses(one.folder) == unchanged
    events = [event for event in result.events if event["event"] in ("epoch", "pass")]
    draws = {"train": [60, 60], "val": [21, 21] if world == 1 else [20, 20]}
    assert {d: [e["draws"] for e in events if e["data"] == d] for d in draws} == draws
    assert {event["fallback_reads"] for event in events} == {0}
    assert f"{data}/train is read from storage" not in result.stderr


def test_shards_give_the_same_tensors_from_the_cache(start, tree, tmp_path):
    """WebDataset over what rankpool pack wrote."""
    packed = tmp_path / "packed"
    subprocess.run(
        [RANKPOOL, "pack", "--data", tree, "--dest", packed], capture_output=True, check=True
    )
    train = script(packed, 1, 1, None, "--shards")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, *train, "--digest-log", tmp_path / "digest"]
    subprocess.run([str(word) for word in command], env=env, capture_output=True, check=True)
    one = start(data=packed, command=[sys.executable, *train, "--digest-log", "digest"])
    result = one.finish()
    assert result.code == 0, result.stderr
    assert result.summary["draws"] == EPOCHS * SAMPLES and "read from storage" not in result.stderr
    assert rows(one.folder) == rows(tmp_path) and len(rows(tmp_path)) == EPOCHS * SAMPLES


def test_importance_gives_the_same_tensors_with_other_workers(trained):
    """Draws depend on the losses, which depend on the tensors."""
    _, here = trained(1, 0, None, "--importance")
    _, workers = trained(1, 2, None, "--importance")
    assert here == workers
