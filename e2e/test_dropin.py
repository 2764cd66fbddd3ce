"""A script with torchvision's and torch's own shape: the same tensors from the cache, whatever happens to it, and without."""

import os
import subprocess
import sys

import pytest
from run import EXAMPLES, ROOT

EPOCHS = 3


def script(tree, trainers, *args):
    program = EXAMPLES / "dropin.py"
    return [sys.executable, program, tree, "--epochs", EPOCHS, "--batch-size", 24 // trainers, *args]


def digests(text):
    return sorted(line for line in text.splitlines() if line.startswith("digest of trainer"))


@pytest.fixture(scope="session")
def from_files(tree):
    """from_files(trainers) is what the script prints without rankpool."""
    known = {}

    def from_files(trainers):
        if trainers not in known:
            env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "WORLD_SIZE": str(trainers)}
            command = [str(word) for word in script(tree, trainers)]
            runs = [
                subprocess.run(command, env={**env, "RANK": str(rank)}, capture_output=True, text=True, check=True)
                for rank in range(trainers)
            ]
            known[trainers] = digests("".join(run.stdout for run in runs))
            assert len(known[trainers]) == trainers
        return known[trainers]

    return from_files


@pytest.mark.parametrize("ranks, args", [(1, ["--workers", 2]), (2, []), (2, ["--workers", 1, "--start-method", "spawn"])])
def test_the_same_tensors_as_from_files(start, tree, from_files, ranks, args):
    result = start(ranks=ranks, command=script(tree, ranks, *args)).finish()
    assert result.code == 0, result.stderr
    assert digests(result.stdout) == from_files(ranks)
    assert result.summary["draws"] == EPOCHS * 360 and result.summary["fallback_reads"] == 0, result.summary
    assert "storage one by one" not in result.stderr


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_tensors_when_ranks_die(start, tree, from_files, workers):
    one = start(ranks=2, command=script(tree, 2, "--workers", workers))
    one.wait_for(lambda: "epoch 0" in one.text("stdout"), "an epoch was trained")
    one.kill(one.ranks()[:1])
    result = one.finish()
    assert result.code == 0, result.stderr
    assert digests(result.stdout) == from_files(2)


def test_importance_gives_the_same_tensors_with_other_workers(start, tree):
    """Draws depend on the losses, which depend on the tensors."""
    found = []
    for args in ([], ["--workers", 2]):
        result = start(command=script(tree, 1, "--importance", *args)).finish()
        assert result.code == 0, result.stderr
        found.append(digests(result.stdout))
    assert found[0] == found[1]
