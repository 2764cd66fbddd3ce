"""Samplers that rankpool does not know: training gets what it would get from files."""

import os
import subprocess
import sys
import zlib
from itertools import chain
from math import inf

import pytest
from dataset import SAMPLES, make_tree
from run import HERE, PATIENT, ROOT
from torchvision.datasets import ImageFolder

SAMPLERS = ["random", "weighted", "repeated", "buckets", "torch"]
WORLD = 2
EQUAL, EPOCHS = 2000, 4  # samples of the same size


def command(tree, name, log, workers=0):
    return [str(word) for word in (sys.executable, HERE / "orders.py", tree, name, workers, log)]


def logs(folder, world=WORLD):
    return [(folder / f"log.{rank}").read_text() for rank in range(world)]


def number(image):
    """What orders.py logs of an image."""
    return zlib.crc32(image.tobytes())


@pytest.fixture(scope="module")
def equal_tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("data") / "equal", EQUAL, side=8)


@pytest.fixture(scope="module")
def from_files(tree, tmp_path_factory):
    """from_files(name) is what the trainers log without rankpool."""
    known = {}

    def from_files(name, data=tree, world=WORLD, epochs=2):
        key = name, data, world
        if key not in known:
            folder = tmp_path_factory.mktemp("files")
            env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "WORLD_SIZE": str(world)}
            env["EPOCHS"] = str(epochs)
            for rank in range(world):
                subprocess.run(
                    command(data, name, folder / "log"), env={**env, "RANK": str(rank)}, check=True
                )
            known[key] = logs(folder, world)
        return known[key]

    return from_files


def some(names):
    return [
        pytest.param(name, marks=() if name in names else pytest.mark.full) for name in SAMPLERS
    ]


@pytest.mark.parametrize("name", some({"buckets", "torch"}))
def test_the_same_samples_as_without_rankpool(start, tree, from_files, name):
    one = start(ranks=WORLD, command=command(tree, name, "log"), options=PATIENT)
    result = one.finish()
    assert result.code == 0, result.stderr
    assert logs(one.folder) == from_files(name)
    drawn = sum(len(line.split()) - 2 for log in logs(one.folder) for line in log.splitlines())
    found = result.summary
    assert (found["draws"], found["fallback_reads"]) == (drawn, 0), result.stderr
    assert drawn >= 2 * SAMPLES - 40
    assert found["hits_local"] + found["hits_remote"] > 0.05 * drawn  # none in the first epoch
    assert "from storage" not in result.stderr


def global_batches(logs):
    """The samples of each epoch's global batches, whoever trained on them."""
    found = {}
    for line in chain(*map(str.splitlines, logs)):
        epoch, place, *numbers = map(int, line.split())
        found.setdefault((epoch, place), []).extend(numbers)
    return {place: sorted(numbers) for place, numbers in found.items()}


@pytest.mark.parametrize("name", some({"buckets"}))
def test_trainers_have_what_is_in_their_memory(start, tree, from_files, name):
    one = start(
        ranks=WORLD, command=command(tree, name, "log", 1), options=PATIENT,
        env={"ASSIGN": "local"},
    )
    result = one.finish()
    assert result.code == 0, result.stderr
    assert global_batches(logs(one.folder)) == global_batches(from_files(name))
    found = result.summary
    assert found["fallback_reads"] == 0 and found["hits_local"] > 4 * found["hits_remote"], found


def kill_paused(one, world, at):
    """Kills a rank while the trainers are paused at a batch, and lets them go on when they have
    seen it."""
    for rank in range(world):
        one.wait_for(lambda: f"\n{at} " in one.text(f"log.{rank}"), f"trainer {rank} was paused")
    one.kill(one.ranks()[:1])
    back = "the cache is back"
    one.wait_for(lambda: one.text("stderr").count(back) == world, "the trainers had seen it")
    (one.folder / "go").touch()


@pytest.mark.parametrize("assign", [None, pytest.param("local", marks=pytest.mark.full)])
def test_the_same_samples_when_one_of_two_ranks_dies(start, tree, from_files, assign):
    """In the middle of an epoch."""
    env = {"PAUSE_AT": "0 6", **({"ASSIGN": assign} if assign else {})}
    one = start(ranks=WORLD, command=command(tree, "torch", "log", 1), options=PATIENT, env=env)
    kill_paused(one, WORLD, "0 6")
    result = one.finish()
    assert result.code == 0, result.stderr
    found, expected = logs(one.folder), from_files("torch")
    assert global_batches(found) == global_batches(expected) if assign else found == expected
    assert result.summary["hits_local"] > 0, result.stderr


def min_hits(epochs, ahead, capacity):
    """The hits in each epoch of Bélády's MIN with bypass that knows it and `ahead` epochs after it.
    What is not drawn again goes in the order of ids."""
    kept, hits = {}, []  # next uses, by sample
    for epoch, ids in enumerate(epochs):
        uses = {}
        for place, one in reversed([*enumerate(chain(*epochs[epoch : epoch + 1 + ahead]))]):
            uses.setdefault(one, [inf]).append(place)
        kept, found = {one: uses.get(one, [inf])[-1] for one in kept}, 0
        for new in ids:
            uses[new].pop()
            found += new in kept
            kept[new] = uses[new][-1]
            if len(kept) > capacity:
                del kept[max(kept, key=lambda one: (kept[one], one == new, -one))]
        hits.append(found)
    return hits


def drawn(tree, logs):
    """The ids that were drawn in each epoch, in the order of global batches."""
    ids = {number(image): id for id, (image, _) in enumerate(ImageFolder(tree))}
    epochs = {}
    for line in sorted(chain(*map(str.splitlines, logs)), key=lambda line: int(line.split()[1])):
        epoch, _, *numbers = map(int, line.split())
        epochs.setdefault(epoch, []).extend(map(ids.__getitem__, numbers))
    return [epochs[epoch] for epoch in sorted(epochs)]


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", some({"torch"}))
def test_a_rank_dies_and_hits_are_those_of_min(start, equal_tree, from_files, name, world):
    """In the middle of epoch 1; the hits are those of the epochs after it. If the next epoch is
    known, it is from the third batch on or so."""
    one = start(
        data=equal_tree, trainers_per_rank=world, command=command(equal_tree, name, "log", 1),
        options=PATIENT, env={"EPOCHS": str(EPOCHS), "PAUSE_AT": "1 6"},
    )
    kill_paused(one, world, "1 6")
    result = one.finish()
    assert result.code == 0, result.stderr
    found = logs(one.folder, world)
    assert found == from_files(name, equal_tree, world, EPOCHS)
    planned = sum(epoch["planned_hits"] for epoch in result.epochs if epoch["epoch"] > 1)
    epochs = drawn(equal_tree, found)
    most, known = (sum(min_hits(epochs, ahead, EQUAL // 5)[2:]) for ahead in (0, 1))
    print(
        f"{name}, {world} trainers: {planned} planned hits, MIN {most}, with the next epoch {known}"
    )
    assert planned >= max(0.995 * most, 0.99 * known * (name in ("repeated", "torch")))
