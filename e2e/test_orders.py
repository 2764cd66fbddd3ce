"""Samplers that rankpool does not know: training gets what it would get from files."""

import os
import subprocess
import sys

import pytest
from dataset import SAMPLES
from run import HERE, PATIENT, ROOT

SAMPLERS = ["random", "weighted", "repeated", "buckets", "torch"]
WORLD = 2


def command(tree, name, log, workers=0):
    return [str(word) for word in (sys.executable, HERE / "orders.py", tree, name, workers, log)]


def logs(folder):
    return [(folder / f"log.{rank}").read_text() for rank in range(WORLD)]


@pytest.fixture(scope="module")
def from_files(tree, tmp_path_factory):
    """from_files(name) is what the trainers log without rankpool."""
    known = {}

    def from_files(name):
        if name not in known:
            folder = tmp_path_factory.mktemp("files")
            env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "WORLD_SIZE": str(WORLD)}
            for rank in range(WORLD):
                subprocess.run(
                    command(tree, name, folder / "log"), env={**env, "RANK": str(rank)}, check=True
                )
            known[name] = logs(folder)
        return known[name]

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


@pytest.mark.parametrize("name", some({"torch"}))
def test_the_same_samples_when_a_rank_dies(start, tree, from_files, name):
    """In the middle of an epoch."""
    one = start(
        ranks=WORLD, command=command(tree, name, "log", 1), options=PATIENT, env={"PAUSE_AT": "0 6"}
    )
    for log in ("log.0", "log.1"):
        one.wait_for(lambda: "\n0 6 " in one.text(log), f"{log} was paused")
    ranks = one.ranks()
    assert len(ranks) == WORLD
    one.kill(ranks[:1])
    back = "the cache is back"
    one.wait_for(lambda: one.text("stderr").count(back) == WORLD, "the trainers had seen it")
    (one.folder / "go").touch()
    result = one.finish()
    assert result.code == 0, result.stderr
    assert logs(one.folder) == from_files(name)
    assert result.summary["hits_local"] > 0, result.stderr
