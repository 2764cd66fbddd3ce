"""Grain: the same records from the cache, and resumed on another number of processes."""

import os
import sys
from itertools import chain

import pytest
from conftest import HERE, RANKPOOL, ROOT, SAMPLES, draws, finish, start

EPOCHS, BATCH = 3, 2
DRAWS = EPOCHS * SAMPLES["train"]


@pytest.fixture
def records(images, tmp_path):
    """records(name, way, workers, ranks, first, batches) trains and returns its folder; 0 ranks:
    without rankpool."""

    def records(name, way, workers, ranks, first=0, batches=DRAWS):
        (tmp_path / name).mkdir(exist_ok=True)
        command = [sys.executable, HERE / "grain_train.py", images / "train", way, workers]
        command += [first, batches]
        if ranks:
            options = ["--memory", "20%", "--log", "run.jsonl", "--tune", "progress=0"]
            data = ["--data", images / "train"]
            command = [RANKPOOL, "run", "--ranks", ranks, *options, *data, "--", *command]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        finish([start(tmp_path / name, command, environment)])
        return tmp_path / name

    return records


def read(folder, ranks):
    """Returns what all trainers got, in the order of steps, and each record by its place there."""
    logs = [
        [line.split() for line in (folder / f"records.{rank}").read_text().splitlines()]
        for rank in range(ranks)
    ]
    return [record for step in zip(*logs) for record in chain(*zip(*step))]


@pytest.mark.parametrize("way", ["map", "loader"])
@pytest.mark.parametrize("workers", [0, 2])
def test_grain(records, way, workers):
    # The workers of a DataLoader take records in turn, and each makes batches of its own.
    block = 2 * BATCH * workers if way == "loader" and workers else 1

    def blocks(found):
        return [sorted(found[at : at + block]) for at in range(0, len(found), block)]

    expected = read(records("alone", way, workers, 0), 1)
    assert len(expected) == DRAWS == EPOCHS * len(set(expected))
    for ranks in 1, 2:
        cached = records(f"cached{ranks}", way, workers, ranks)
        assert blocks(read(cached, ranks)) == blocks(expected)
        assert draws(cached) == DRAWS
    # in mid-epoch, on another number of processes
    half = records("half", way, workers, 2, batches=8)
    first = 8 * 2 * BATCH
    rest = records("rest", way, workers, 1, first=first)
    assert blocks(read(half, 2) + read(rest, 1)) == blocks(expected)
